//! The providers' SDKs on the other side: what they sign is accepted, and what they judge is judged alike.
//!
//! `tests/interop/sdks.py` drives `stripe`, `wechatpayv3`, `python-alipay-sdk` and PyJWT in a virtual environment
//! below `target/`. Where Python or the packages can't be had the test says so and passes, unless
//! `PAYHOOK_TESTS_REQUIRE_SERVICES` is set: then it fails.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use payhook::event::{Notification, ProviderName};
use payhook::provider::Registry;
use payhook::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::python::python;
use crate::support::signed::{
    self, PUBLIC_KEY_ID, STRIPE_SECRET, Senders, TWOCTWOP_SECRET, accounts, alipay_paid, key_file,
    notification, now, registry_of, root, scheme,
};

/// One request on its way to or from the SDKs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Request {
    name: String,
    account: String,
    headers: BTreeMap<String, String>,
    body: String,
    #[serde(default)]
    at: i64,
}

impl Request {
    fn of(name: &str, account: &str, sent: &Notification) -> Self {
        let headers = sent.headers.iter();
        Self {
            name: name.to_owned(),
            account: account.to_owned(),
            headers: headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect(),
            body: STANDARD.encode(&sent.body),
            at: sent.received_at.secs(),
        }
    }

    fn verified(&self, registry: &Registry) -> bool {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        let sent = notification("/", &headers, STANDARD.decode(&self.body).unwrap());
        let sent = Notification {
            received_at: Timestamp::from_secs(self.at),
            ..sent
        };
        scheme(registry, &self.account).verify(&sent).is_ok()
    }
}

/// Where payhook and an SDK differ on purpose: account, what was done to the request, whether payhook accepts,
/// and why the SDK's answer is not taken over.
const DISAGREEMENTS: [(&str, &str, bool, &str); 13] = [
    (
        "stripe",
        "arrives 301 s early",
        false,
        "the SDK accepts any time in the future",
    ),
    (
        "wechatpay",
        "arrives 301 s late",
        false,
        "the SDK has no time check",
    ),
    (
        "wechatpay",
        "arrives 301 s early",
        false,
        "the SDK has no time check",
    ),
    (
        "wechatpay",
        "without wechatpay-signature-type",
        true,
        "WeChat may leave it out, says its documentation",
    ),
    (
        "alipay",
        "arrives a month late",
        false,
        "the SDK has no time check",
    ),
    ("alipay", "GBK", true, "the SDK reads every body as UTF-8"),
    (
        "alipay",
        "a parameter twice",
        false,
        "the SDK's caller sees only one of them",
    ),
    (
        "2c2p",
        "padded",
        false,
        "PyJWT tolerates `=`; the standard has none",
    ),
    (
        "alipay",
        "alipay, sign_type kept",
        true,
        "the SDK knows one of the two rules; Alipay signs some messages by the other",
    ),
    (
        "alipay",
        "a line end added",
        false,
        "the SDK's base64 passes over what is none",
    ),
    ("alipay", "07-paid-gbk", true, "the SDK reads every body as UTF-8"),
    ("alipay", "10-stale", false, "the SDK has no time check"),
    ("wechatpay", "10-stale", false, "the SDK has no time check"),
];

/// Asks `sdks.py`.
fn ask<T: for<'de> Deserialize<'de>>(python: &Path, what: &str, given: &Value) -> T {
    let mut child = Command::new(python)
        .arg(root().join("tests/interop/sdks.py"))
        .arg(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(given.to_string().as_bytes())
        .unwrap();
    let said = child.wait_with_output().unwrap();
    assert!(said.status.success(), "sdks.py {what} failed");
    serde_json::from_slice(&said.stdout).unwrap()
}

/// For our own requests, or for `provider-samples`.
fn keys(samples: bool) -> Value {
    let secret = |file: &str, ours: &str| {
        if samples {
            key_file(file).trim().to_owned()
        } else {
            ours.to_owned()
        }
    };
    let sample_id = "PUB_KEY_ID_0119000000002026030100000000000001";
    json!({
        "alipay_private": key_file("alipay_private.pem"),
        "alipay_public": key_file("alipay_public.pem"),
        "wechat_private": key_file("wechatpay_private.pem"),
        "wechat_public": key_file("wechatpay_public.pem"),
        "wechat_public_id": if samples { sample_id } else { PUBLIC_KEY_ID },
        "wechat_certificate": key_file("wechatpay_platform_cert.pem"),
        "wechat_v3_key": key_file("wechatpay_apiv3.key").trim(),
        "stripe": secret("stripe_signing_secret.key", STRIPE_SECRET),
        "2c2p": secret("2c2p_secret.key", TWOCTWOP_SECRET),
    })
}

/// Genuine requests of our own making.
fn genuine() -> Vec<Request> {
    let senders = Senders::new();
    let mut gbk = alipay_paid();
    gbk.retain(|(name, _)| !matches!(*name, "charset" | "subject"));
    gbk.extend([("charset", b"GBK".as_slice()), ("subject", b"\xb2\xe2\xca\xd4")]);
    let alipay = senders.alipay(&alipay_paid());
    vec![
        Request::of("genuine", "alipay/shop-cn", &alipay),
        Request::of("GBK", "alipay/shop-cn", &senders.alipay(&gbk)),
        Request::of(
            "genuine",
            "wechatpay/shop-cn",
            &senders.wechat_event("TRANSACTION.SUCCESS", signed::WECHAT_PAID),
        ),
        Request::of(
            "genuine",
            "wechatpay/shop-cn",
            &senders.wechat_event("REFUND.SUCCESS", signed::WECHAT_REFUND),
        ),
        Request::of(
            "genuine",
            "stripe/shop-intl",
            &Senders::stripe(signed::STRIPE_PAID.as_bytes()),
        ),
        Request::of(
            "genuine",
            "2c2p/shop-th",
            &Senders::twoctwop(signed::TWOCTWOP_PAID),
        ),
    ]
}

/// What may become of a request: each change by itself.
fn changes(request: &Request) -> Vec<Request> {
    let body = STANDARD.decode(&request.body).unwrap();
    let mut all = Vec::new();
    let mut add = |name: &str, change: &dyn Fn(&mut Request)| {
        let mut changed = request.clone();
        name.clone_into(&mut changed.name);
        change(&mut changed);
        all.push(changed);
    };
    let with_body = |body: &[u8]| STANDARD.encode(body);
    for at in (0..body.len()).step_by(37) {
        let mut other = body.clone();
        other[at] ^= 1;
        add(&format!("byte {at} changed"), &|r| r.body = with_body(&other));
    }
    add("a line end added", &|r| {
        r.body = with_body(&[&body, b"\n".as_slice()].concat());
    });
    add("cut short", &|r| r.body = with_body(&body[..body.len() - 1]));
    add("empty", &|r| r.body.clear());
    for name in request.headers.keys().filter(|name| *name != "content-type") {
        add(&format!("without {name}"), &|r| _ = r.headers.remove(name));
    }
    let hour = |r: &mut Request, off: i64| r.at += off;
    match request.account.split_once('/').unwrap().0 {
        "alipay" => {
            add("arrives a month late", &|r| hour(r, 30 * 86_400));
            let twice = [&body, b"&trade_status=TRADE_SUCCESS".as_slice()].concat();
            add("a parameter twice", &|r| r.body = with_body(&twice));
        }
        "2c2p" => {
            let text = String::from_utf8(body.clone()).unwrap();
            add("padded", &|r| {
                r.body = with_body(text.replace("\"}", "=\"}").as_bytes());
            });
        }
        _ => {
            add("arrives 301 s late", &|r| hour(r, 301));
            add("arrives 301 s early", &|r| hour(r, -301));
            add("arrives 299 s late", &|r| hour(r, 299));
            let value: Value = serde_json::from_slice(&body).unwrap();
            add("written anew", &|r| {
                r.body = with_body(&serde_json::to_vec(&value).unwrap());
            });
        }
    }
    all
}

#[test]
fn the_providers_sdks_sign_for_us_and_judge_as_we_do() {
    let Some(python) = python(&root().join("tests/interop/requirements.txt")) else {
        return;
    };
    let registry = registry_of(&accounts());

    let sent: Vec<Request> = ask(&python, "send", &json!({"keys": keys(false), "at": now().secs()}));
    assert_eq!(sent.len(), 11);
    let sent = sent.into_iter().map(|request| Request {
        at: now().secs(),
        headers: request
            .headers
            .into_iter()
            .map(|(name, value)| (name.to_lowercase(), value))
            .collect(),
        ..request
    });
    let mut requests = genuine();
    for request in sent {
        assert!(
            request.verified(&registry),
            "what the SDK signed is refused: {}",
            request.name
        );
        requests.push(request);
    }

    let changed: Vec<_> = requests.iter().flat_map(changes).collect();
    requests.extend(changed);
    let mut judged = judge(&python, &requests, false, &registry);
    let (samples, requests) = samples();
    judged.extend(judge(&python, &requests, true, &samples));
    let wrong: Vec<_> = judged
        .iter()
        .filter_map(|differs| differs.as_ref().err())
        .collect();
    assert!(wrong.is_empty(), "{} differ:\n{wrong:#?}", wrong.len());
    for (number, (provider, what, ..)) in DISAGREEMENTS.iter().enumerate() {
        let seen = judged.contains(&Ok(number));
        assert!(
            seen,
            "{provider}, {what}: they agree by now; strike it from the list"
        );
    }
}

/// Where the SDKs and payhook differ over `requests`: the known difference's number, or a new one in words.
fn judge(
    python: &Path,
    requests: &[Request],
    samples: bool,
    registry: &Registry,
) -> Vec<Result<usize, String>> {
    let given = json!({"keys": keys(samples), "requests": requests});
    let theirs: Vec<Option<String>> = ask(python, "judge", &given);
    assert_eq!(theirs.len(), requests.len());
    let mut differ = Vec::new();
    for (request, refused) in requests.iter().zip(theirs) {
        let ours = request.verified(registry);
        if ours == refused.is_none() {
            continue;
        }
        let known = DISAGREEMENTS.iter().position(|(provider, what, accepted, _)| {
            request.account.starts_with(provider) && request.name == *what && ours == *accepted
        });
        differ.push(known.ok_or_else(|| {
            let said = refused.as_deref().unwrap_or("verified");
            format!(
                "{}, {}: verified here: {ours}; the SDK: {said}",
                request.account, request.name
            )
        }));
    }
    differ
}

/// Every sample that one of the SDKs can judge, and the accounts they are for.
fn samples() -> (Registry, Vec<Request>) {
    let file = std::fs::read_to_string(root().join("provider-samples/payhook.toml")).unwrap();
    let registry = registry_of(&file.replace("\"keys/", "\"provider-samples/keys/"));
    let all = payhook::samples::all().unwrap();
    // No SDK of these knows Antom, or WeChat Pay's old XML.
    let known = all.iter().filter(|sample| {
        sample.provider != ProviderName::Antom && !sample.request.body.trim_ascii_start().starts_with(b"<")
    });
    let requests: Vec<_> = known
        .map(|sample| {
            let account = format!("{}/{}", sample.provider, sample.account);
            Request::of(&sample.case, &account, &sample.as_recorded())
        })
        .collect();
    assert!(requests.len() > 40, "only {} samples", requests.len());
    (registry, requests)
}
