//! Every parser and verifier as a function of arbitrary bytes, with what must hold whatever the bytes are.
//!
//! The libFuzzer targets in `fuzz/` and the short run among the tests drive the same list, so a target cannot
//! be in one and not in the other. Some targets sign what they are given: what an attacker cannot reach, a
//! provider's next change can.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use payhook::config::{Config, Environment};
use payhook::event::{Identity, Notification};
use payhook::idempotency::Key;
use payhook::provider::request_file::RequestFile;
use payhook::provider::signature::RsaKey;
use payhook::provider::wechatpay::sign::{Method, v2_refund};
use payhook::provider::{Provider, Reason, Registry, Verdict, Verified, json};
use serde_json::value::RawValue;

use crate::support::signed::{self, Senders, accounts, key_file, notification, registry_of, root, scheme};

/// One parser or verifier.
pub(crate) struct Target {
    /// Its name: a file in `fuzz/fuzz_targets`.
    pub(crate) name: &'static str,
    /// Takes any bytes; panics on a finding.
    pub(crate) run: fn(&[u8]),
    /// What to start from.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($run:ident: $seeds:expr,)*) => {
        /// All of them.
        pub(crate) const TARGETS: &[Target] = &[$(Target { name: stringify!($run), run: $run, seeds: || $seeds },)*];
    };
}

targets! {
    alipay_body: alipay_bodies(),
    alipay_signed: vec![signed::form(&signed::alipay_paid())],
    alipay_content: typed(&[contents("alipay/shop-cn", &[WORLD.senders.alipay(&signed::alipay_paid())])]),
    wechat_v3: vec![with_headers(&wechat_paid(), &WECHAT_HEADERS)],
    wechat_v3_signed: vec![wechat_paid().body.to_vec()],
    wechat_content: typed(&[vec![signed::WECHAT_PAID.into(), signed::WECHAT_REFUND.into()], combined()]),
    wechat_v2: vec![wechat_v2_paid().body.to_vec(), wechat_v2_refund()],
    wechat_v2_signed: vec![b"appid=wx1&attach=a&result_code=SUCCESS&return_code=SUCCESS&total_fee=1".to_vec()],
    stripe_notification: vec![with_headers(&stripe_paid(), &STRIPE_HEADERS)],
    stripe_signed: vec![signed::STRIPE_PAID.into(), THIN.into(), REFUND.into()],
    twoctwop_body: vec![twoctwop_paid().body.to_vec()],
    twoctwop_signed: vec![signed::TWOCTWOP_PAID.into()],
    antom_notification: vec![with_headers(&antom_paid(), &ANTOM_HEADERS)],
    antom_signed: vec![signed::ANTOM_PAID.into()],
    explain: explained(),
    json_object: vec![wechat_paid().body.to_vec()],
    key_file_bytes: KEY_FILES.iter().map(|name| key_file(name).into_bytes()).collect(),
    request_file: vec![file_of(&wechat_paid()), file_of(&stripe_paid())],
    idempotency_key: vec![b"abc-1".to_vec(), b"\"abc-1\"\nx".to_vec(), b"\"a\nb".to_vec()],
    configuration: vec![accounts().into_bytes(), payhook::config::EXAMPLE.into()],
}

const WECHAT_HEADERS: [&str; 5] = [
    "wechatpay-timestamp",
    "wechatpay-nonce",
    "wechatpay-serial",
    "wechatpay-signature",
    "wechatpay-signature-type",
];
const STRIPE_HEADERS: [&str; 1] = ["stripe-signature"];
const ANTOM_HEADERS: [&str; 3] = ["client-id", "request-time", "signature"];
const KEY_FILES: [&str; 5] = [
    "alipay_public.pem",
    "alipay_rsa1_public.pem",
    "alipay_cert.pem",
    "wechatpay_platform_cert.pem",
    "alipay_private.pem",
];
const THIN: &str = r#"{"id":"evt_thin","object":"v2.core.event","type":"v1.payment_intent.succeeded","created":"2026-11-29T04:05:06.123Z","livemode":false,"related_object":{"id":"pi_1","type":"payment_intent","url":"/v1/payment_intents/pi_1"}}"#;
const REFUND: &str = r#"{"id":"evt_r","object":"event","type":"charge.refunded","created":1795925104,"livemode":false,"data":{"object":{"id":"ch_1","object":"charge","amount":8888,"amount_captured":8888,"amount_refunded":3000,"captured":true,"currency":"ugx","payment_intent":"pi_1","metadata":{"order_id":"O"}},"previous_attributes":{"amount_refunded":0}}}"#;

/// The accounts and their sending sides, made once.
struct World {
    registry: Registry,
    senders: Senders,
}

static WORLD: LazyLock<World> = LazyLock::new(|| World {
    registry: registry_of(&accounts()),
    senders: Senders::new(),
});

fn at(account: &str) -> &'static dyn Provider {
    scheme(&WORLD.registry, account)
}

fn wechat_paid() -> Notification {
    WORLD
        .senders
        .wechat_event("TRANSACTION.SUCCESS", signed::WECHAT_PAID)
}

fn wechat_v2_paid() -> Notification {
    WORLD
        .senders
        .wechat_v2(&signed::WECHAT_V2_PAID, Method::HmacSha256)
}

fn wechat_v2_refund() -> Vec<u8> {
    let refund = [
        ("out_trade_no", "O"),
        ("transaction_id", "42"),
        ("refund_id", "50"),
        ("refund_fee", "30"),
        ("total_fee", "88"),
        ("refund_status", "SUCCESS"),
        ("success_time", "2026-11-29 12:05:04"),
    ];
    let outer = [("return_code", "SUCCESS"), ("mch_id", "1900000001")];
    v2_refund(&outer, &refund, key_file("wechatpay_apiv2.key").as_bytes()).unwrap()
}

fn stripe_paid() -> Notification {
    Senders::stripe(signed::STRIPE_PAID.as_bytes())
}

fn antom_paid() -> Notification {
    WORLD.senders.antom(signed::ANTOM_PAID.as_bytes())
}

fn twoctwop_paid() -> Notification {
    Senders::twoctwop(signed::TWOCTWOP_PAID)
}

/// Judges, and holds the verdict against what follows from it.
fn judged(scheme: &dyn Provider, notification: &Notification) -> Result<Verified, Reason> {
    let verdict = match scheme.verify(notification) {
        Ok(_) => Verdict::Accepted,
        Err(ref refusal) => refusal.reason.verdict(),
    };
    let ack = scheme.ack(verdict, &notification.body);
    assert!(!ack.body.ends_with(b"\n"), "an ack is exact to the byte");
    let verified = scheme.verify(notification).map_err(|refusal| refusal.reason)?;
    assert!(verified.key.as_str().starts_with("webhook:") && verified.key.as_str().len() <= 200);
    let content = verified.content.as_ref().unwrap_or(&notification.body);
    // Consumers get it inside a message, so it must be JSON on its own.
    assert!(
        serde_json::from_slice::<&RawValue>(content).is_ok(),
        "the content is no JSON"
    );
    match scheme.read(content, &verified.reading.provider_event_type) {
        Ok(mut again) => {
            if matches!(again.identity, Identity::Mismatch(_)) {
                "other.identity_mismatch".clone_into(&mut again.kind);
            }
            assert_eq!(again, verified.reading, "read again, it says something else");
        }
        Err(_) => assert_eq!(verified.reading.kind, "other.unreadable"),
    }
    Ok(verified)
}

fn alipay_bodies() -> Vec<Vec<u8>> {
    let folder = root().join("tests/data/alipay");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let bodies = files.filter(|path| path.extension().is_some_and(|e| e == "body"));
    let mut all: Vec<_> = bodies.map(|path| std::fs::read(path).unwrap()).collect();
    all.sort();
    all.push(WORLD.senders.alipay(&signed::alipay_paid()).body.to_vec());
    all
}

fn alipay_body(data: &[u8]) {
    _ = judged(at("alipay/shop-cn"), &notification("/", &[], data.to_vec()));
}

/// The pairs of `data`, undecoded, as the parameters that Alipay signs.
fn alipay_signed(data: &[u8]) {
    let mut parameters: Vec<(&str, &[u8])> = Vec::new();
    for pair in data.split(|b| *b == b'&').take(250) {
        let at = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at(at);
        let plain = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        let new = parameters.iter().all(|(known, _)| *known != name) && !name.starts_with("sign");
        if new && (1..=128).contains(&name.len()) && name.bytes().all(|b| plain(&b)) {
            parameters.push((name, value.get(1..).unwrap_or_default()));
        }
    }
    if parameters.iter().all(|(name, _)| *name != "notify_time") {
        parameters.push(("notify_time", b"2026-11-29 12:05:06"));
    }
    let verdict = judged(at("alipay/shop-cn"), &WORLD.senders.alipay(&parameters));
    assert!(
        matches!(verdict, Ok(_) | Err(Reason::Malformed | Reason::OutsideWindow)),
        "what Alipay signed is refused as {verdict:?}"
    );
}

fn alipay_content(data: &[u8]) {
    content(at("alipay/shop-cn"), data);
}

fn wechat_content(data: &[u8]) {
    content(at("wechatpay/shop-cn"), data);
}

/// The first line is the provider's type, the rest stored content.
fn content(scheme: &dyn Provider, data: &[u8]) {
    let line = data.iter().position(|b| *b == b'\n').unwrap_or_default();
    let (kind, content) = data.split_at(line);
    let kind = String::from_utf8_lossy(kind);
    if let Ok(reading) = scheme.read(content, &kind) {
        assert_eq!(scheme.read(content, &kind), Ok(reading));
    }
}

/// What the genuine `notifications` are stored as.
fn contents(account: &str, notifications: &[Notification]) -> Vec<Vec<u8>> {
    let verified = notifications
        .iter()
        .map(|n| scheme(&WORLD.registry, account).verify(n).unwrap());
    verified.map(|v| v.content.unwrap().to_vec()).collect()
}

fn combined() -> Vec<Vec<u8>> {
    let text = r#"{"combine_appid":"wx0000000000000001","combine_mchid":"1900000001","combine_out_trade_no":"C1","sub_orders":[{"mchid":"1900000001","trade_state":"SUCCESS","transaction_id":"42","out_trade_no":"O1","amount":{"total_amount":1,"payer_amount":1,"currency":"CNY"},"success_time":"2026-11-29T12:05:04.000+08:00"}]}"#;
    vec![text.into()]
}

/// Contents below a line that names their type.
fn typed(contents: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let kinds = ["TRADE_SUCCESS", "TRANSACTION.SUCCESS", "REFUND.SUCCESS", "refund"];
    let all = contents.iter().flatten();
    all.flat_map(|content| kinds.map(|kind| [kind.as_bytes(), b"\n", content].concat()))
        .collect()
}

/// `names`' values a line each, then the body.
fn with_headers(notification: &Notification, names: &[&str]) -> Vec<u8> {
    let values = names
        .iter()
        .map(|name| notification.header(name).unwrap_or_default());
    let lines: Vec<_> = values.map(|value| format!("{value}\n")).collect();
    [lines.concat().as_bytes(), &notification.body].concat()
}

/// The reverse of [`with_headers`]; an empty line leaves its header out, a value no header can hold too.
fn from_headers(data: &[u8], names: &[&str]) -> Notification {
    let mut parts = data.splitn(names.len() + 1, |b| *b == b'\n');
    let mut headers = HeaderMap::new();
    for name in names {
        let value = parts.next().filter(|value| !value.is_empty());
        if let Some(Ok(value)) = value.map(HeaderValue::from_bytes) {
            headers.append(HeaderName::try_from(*name).unwrap(), value);
        }
    }
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    Notification {
        headers,
        body,
        ..notification("/notify/x/y", &[], "")
    }
}

fn wechat_v3(data: &[u8]) {
    _ = judged(at("wechatpay/shop-cn"), &from_headers(data, &WECHAT_HEADERS));
}

fn wechat_v3_signed(data: &[u8]) {
    let verdict = judged(at("wechatpay/shop-cn"), &WORLD.senders.wechat(data));
    let is_v2 = data.trim_ascii_start().starts_with(b"<");
    assert!(
        is_v2 || matches!(verdict, Ok(_) | Err(Reason::Malformed | Reason::Undecryptable)),
        "what WeChat signed is refused as {verdict:?}"
    );
}

fn wechat_v2(data: &[u8]) {
    _ = judged(at("wechatpay/shop-cn"), &notification("/", &[], data.to_vec()));
}

/// The pairs of `data` as elements that WeChat signs; the first byte chooses the method.
fn wechat_v2_signed(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut fields: Vec<(&str, &str)> = Vec::new();
    for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')).take(100) {
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        // What XML can't carry at all, WeChat can't send.
        let carried = value
            .chars()
            .all(|c| c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'));
        if plain && carried && name != "sign" && fields.iter().all(|(n, _)| *n != name) {
            fields.push((name, value));
        }
    }
    let method = if data.first().is_some_and(|b| b % 2 == 0) {
        Method::Md5
    } else {
        Method::HmacSha256
    };
    let named = fields.iter().any(|(name, _)| *name == "sign_type");
    let verdict = judged(at("wechatpay/shop-cn"), &WORLD.senders.wechat_v2(&fields, method));
    assert!(
        named || matches!(verdict, Ok(_) | Err(Reason::Malformed)),
        "what WeChat signed is refused as {verdict:?}"
    );
}

fn stripe_notification(data: &[u8]) {
    _ = judged(at("stripe/shop-intl"), &from_headers(data, &STRIPE_HEADERS));
}

fn stripe_signed(data: &[u8]) {
    let verdict = judged(at("stripe/shop-intl"), &Senders::stripe(data));
    assert!(verdict.is_ok(), "what Stripe signed is refused as {verdict:?}");
}

fn twoctwop_body(data: &[u8]) {
    _ = judged(at("2c2p/shop-th"), &notification("/", &[], data.to_vec()));
}

fn twoctwop_signed(data: &[u8]) {
    let verdict = judged(
        at("2c2p/shop-th"),
        &Senders::twoctwop(&String::from_utf8_lossy(data)),
    );
    assert!(verdict.is_ok(), "what 2C2P signed is refused as {verdict:?}");
}

fn antom_notification(data: &[u8]) {
    let signed_path = antom_paid().path;
    let received = from_headers(data, &ANTOM_HEADERS);
    _ = judged(
        at("antom/shop-sg"),
        &Notification {
            path: signed_path,
            ..received
        },
    );
}

fn antom_signed(data: &[u8]) {
    let verdict = judged(at("antom/shop-sg"), &WORLD.senders.antom(data));
    assert!(verdict.is_ok(), "what Antom signed is refused as {verdict:?}");
}

const EXPLAINED: [&str; 5] = [
    "alipay/shop-cn",
    "wechatpay/shop-cn",
    "stripe/shop-intl",
    "2c2p/shop-th",
    "antom/shop-sg",
];

/// The first byte chooses the account, the rest is a request in a file.
fn explain(data: &[u8]) {
    let Some((choice, file)) = data.split_first() else {
        return;
    };
    let Ok(request) = RequestFile::parse(file) else {
        return;
    };
    // The hints try many changes: small bodies find what there is to find.
    if request.body.len() > 4096 {
        return;
    }
    let account = at(EXPLAINED[usize::from(*choice) % EXPLAINED.len()]);
    let notification = request.arriving(signed::now());
    let explanation = account.explain(&notification);
    match account.verify(&notification) {
        Ok(_) => assert_eq!(explanation.hint, None, "a hint for one that passes"),
        Err(_) => assert!(
            explanation.steps.iter().any(|step| !step.ok),
            "refused, and every step is well"
        ),
    }
}

fn explained() -> Vec<Vec<u8>> {
    let genuine = [
        WORLD.senders.alipay(&signed::alipay_paid()),
        wechat_paid(),
        stripe_paid(),
        twoctwop_paid(),
        antom_paid(),
        wechat_v2_paid(),
    ];
    let choices = [0, 1, 2, 3, 4, 1];
    let seeds = genuine.iter().zip(choices);
    seeds
        .map(|(n, choice)| [&[choice], file_of(n).as_slice()].concat())
        .collect()
}

fn file_of(notification: &Notification) -> Vec<u8> {
    let file = RequestFile {
        method: "POST".to_owned(),
        path: notification.path.clone(),
        headers: notification.headers.clone(),
        body: notification.body.clone(),
    };
    file.to_bytes()
}

fn json_object(data: &[u8]) {
    if let Ok(object) = json::object(data) {
        let theirs: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(data).unwrap();
        assert_eq!(object, theirs, "read otherwise than serde_json reads it");
    }
}

fn key_file_bytes(data: &[u8]) {
    if let Ok(key) = RsaKey::parse(data) {
        _ = key.info("#1");
    }
}

fn request_file(data: &[u8]) {
    if let Ok(file) = RequestFile::parse(data) {
        let again = RequestFile::parse(&file.to_bytes()).unwrap();
        assert_eq!(
            (again.method, again.path, again.headers, again.body),
            (file.method, file.path, file.headers, file.body)
        );
    }
}

/// The standard header, then, on a second line, the older one.
fn idempotency_key(data: &[u8]) {
    let headers = from_headers(data, &["idempotency-key", "x-idempotency-key"]).headers;
    if let Ok(key) = Key::from_headers(&headers) {
        let bare = key.echo().to_str().unwrap().trim().trim_matches('"').to_owned();
        assert!((1..=255).contains(&bare.len()));
        assert!(
            bare.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
        );
    }
}

fn configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // Not a folder: an arbitrary file name must find nothing.
    let nowhere = root().join("provider-samples/keys/README.md");
    if let Err(errors) = Config::parse(&text, &nowhere, &Environment::default()) {
        assert!(!errors.to_string().is_empty());
    }
}
