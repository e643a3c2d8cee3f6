//! What is signed decides, what is not signed does not: for every scheme, over genuine notifications.
//!
//! A single changed bit of signed material is refused. A change that a scheme does not sign (another header, the
//! sender's address, another moment inside the window) leaves verdict, event key and content as they were.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use payhook::event::{Notification, ProviderName};
use payhook::provider::wechatpay::sign::Method;
use payhook::provider::{Registry, Verified};
use payhook::time::Timestamp;
use proptest::prelude::*;

use crate::support::recorded;
use crate::support::signed::{self, Senders, accounts, alipay_paid, registry_of, root, scheme};

/// A genuine notification, the account it came to, and what the scheme signs of it.
struct Genuine {
    name: String,
    account: &'static str,
    notification: Notification,
    /// Headers whose value is signed or is the signature.
    headers: &'static [&'static str],
    /// Whether each byte of the body is signed as it stands; else only what the body says is.
    whole_body: bool,
}

const WECHAT_HEADERS: [&str; 4] = [
    "wechatpay-timestamp",
    "wechatpay-nonce",
    "wechatpay-signature",
    "wechatpay-serial",
];

const ANTOM_HEADERS: [&str; 3] = ["client-id", "request-time", "signature"];

/// Made here, each scheme in every form it has.
fn made() -> Vec<Genuine> {
    let senders = Senders::new();
    let gbk = encoding_rs::GBK.encode("测试商品").0.into_owned();
    let mut in_gbk = alipay_paid();
    in_gbk.retain(|(name, _)| !matches!(*name, "charset" | "subject"));
    in_gbk.extend([("charset", b"GBK".as_slice()), ("subject", &gbk)]);
    let body_only = |name: &str, account, notification| Genuine {
        name: name.to_owned(),
        account,
        notification,
        headers: &[],
        whole_body: false,
    };
    let mut all = vec![
        body_only("alipay", "alipay/shop-cn", senders.alipay(&alipay_paid())),
        body_only(
            "alipay, sign_type kept",
            "alipay/shop-cn",
            senders.alipay_by(&alipay_paid(), true),
        ),
        body_only("alipay in GBK", "alipay/shop-cn", senders.alipay(&in_gbk)),
        body_only("2c2p", "2c2p/shop-th", Senders::twoctwop(signed::TWOCTWOP_PAID)),
    ];
    for (name, method) in [("v2 with MD5", Method::Md5), ("v2 with HMAC", Method::HmacSha256)] {
        all.push(body_only(
            name,
            "wechatpay/shop-cn",
            senders.wechat_v2(&signed::WECHAT_V2_PAID, method),
        ));
    }
    for (name, notification) in [
        (
            "v3 payment",
            senders.wechat_event("TRANSACTION.SUCCESS", signed::WECHAT_PAID),
        ),
        (
            "v3 refund",
            senders.wechat_event("REFUND.SUCCESS", signed::WECHAT_REFUND),
        ),
    ] {
        all.push(Genuine {
            name: name.to_owned(),
            account: "wechatpay/shop-cn",
            notification,
            // The signature type is not signed either, but names an algorithm, and the account pins that.
            headers: &WECHAT_HEADERS,
            whole_body: true,
        });
    }
    all.push(Genuine {
        name: "stripe".to_owned(),
        account: "stripe/shop-intl",
        notification: Senders::stripe(signed::STRIPE_PAID.as_bytes()),
        headers: &["stripe-signature"],
        whole_body: true,
    });
    all.push(Genuine {
        name: "antom".to_owned(),
        account: "antom/shop-sg",
        notification: senders.antom(signed::ANTOM_PAID.as_bytes()),
        headers: &ANTOM_HEADERS,
        whole_body: true,
    });
    all
}

/// Made elsewhere, from the published rules by other code; those that verify at their own time.
fn recorded() -> (Registry, Vec<Genuine>) {
    let registry = registry_of(&recorded::accounts());
    let genuine = recorded::all()
        .into_iter()
        .filter_map(|(name, account, notification)| {
            scheme(&registry, account).verify(&notification).ok()?;
            let in_headers = notification.headers.contains_key("wechatpay-signature");
            Some(Genuine {
                name,
                account,
                notification,
                headers: if in_headers { &WECHAT_HEADERS } else { &[] },
                whole_body: in_headers,
            })
        });
    let genuine = genuine.collect();
    (registry, genuine)
}

/// What must stay the same for two verdicts to be one.
fn same(left: &Verified, right: &Verified) -> bool {
    left.key == right.key
        && left.fingerprint.agrees_with(&right.fingerprint)
        && left.content == right.content
        && left.reading == right.reading
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[bit / 8] ^= 1 << (bit % 8);
    changed
}

/// Every `step`-th single-bit change of the body and of each signed header.
fn no_changed_bit_passes(registry: &Registry, genuine: &Genuine, step: usize) {
    let scheme = scheme(registry, genuine.account);
    let sent = &genuine.notification;
    let before = scheme
        .verify(sent)
        .unwrap_or_else(|refusal| panic!("{}: {refusal}", genuine.name));
    let mut respelled = 0_usize;
    for bit in (0..sent.body.len() * 8).step_by(step) {
        let body = Bytes::from(flipped(&sent.body, bit));
        let changed = Notification { body, ..sent.clone() };
        if let Ok(after) = scheme.verify(&changed) {
            let place = format!("{}: bit {} of byte {}", genuine.name, bit % 8, bit / 8);
            assert!(!genuine.whole_body, "{place} is signed, and its change passes");
            // `%e6` for `%E6`, a tab for a line end between elements: the same message, spelled anew.
            assert!(same(&before, &after), "{place} changes the event, and passes");
            respelled += 1;
        }
    }
    assert!(
        respelled * step < sent.body.len(),
        "{}: too much of the body may change",
        genuine.name
    );
    for name in genuine.headers {
        let value = sent.headers.get(*name).unwrap().as_bytes();
        for bit in 0..value.len() * 8 {
            let Ok(changed_value) = HeaderValue::from_bytes(&flipped(value, bit)) else {
                continue;
            };
            let means_the_same = says(name, changed_value.as_bytes()) == says(name, value);
            let mut changed = sent.clone();
            changed
                .headers
                .insert(HeaderName::from_static(name), changed_value);
            assert!(
                scheme.verify(&changed).is_err() || means_the_same,
                "{}: header {name}, bit {} of byte {}",
                genuine.name,
                bit % 8,
                bit / 8
            );
        }
    }
}

/// What a header's value comes to, where it can be spelled in several ways.
fn says(name: &str, value: &[u8]) -> Vec<u8> {
    match name {
        // Hex, in either case.
        "wechatpay-serial" => value.to_ascii_lowercase(),
        // Percent-escaped base64 behind names that are not signed.
        "signature" => {
            let text = std::str::from_utf8(value).unwrap_or_default();
            let signature = text
                .split_once("signature=")
                .map_or(text, |(_, signature)| signature);
            percent_encoding::percent_decode_str(signature).collect()
        }
        _ => value.to_vec(),
    }
}

#[test]
fn any_single_bit_change_of_signed_material_is_refused() {
    let registry = registry_of(&accounts());
    for genuine in made() {
        no_changed_bit_passes(&registry, &genuine, 1);
    }
}

#[test]
fn any_single_bit_change_of_recorded_material_is_refused() {
    let (registry, all) = recorded();
    let names: Vec<_> = all.iter().map(|genuine| &genuine.name).collect();
    assert_eq!(all.len(), 20, "{names:#?}");
    for genuine in all {
        // A prime step walks through all bits of a byte.
        no_changed_bit_passes(&registry, &genuine, 11);
    }
}

#[test]
fn any_single_bit_change_of_a_sample_is_refused() {
    let file = std::fs::read_to_string(root().join("provider-samples/payhook.toml")).unwrap();
    let registry = registry_of(&file.replace("\"keys/", "\"provider-samples/keys/"));
    let mut walked = 0;
    for sample in payhook::samples::all().unwrap() {
        let notification = sample.as_recorded();
        let account = registry.get(sample.provider, &sample.account).unwrap();
        let xml = notification.body.starts_with(b"<xml>");
        // A v2 refund is encrypted and not signed: what a changed bit does to it is a human's business.
        if account.judge(&notification).is_err() || (xml && !notification.body.ends_with(b"</sign></xml>")) {
            continue;
        }
        let (account, headers, whole_body): (_, &[&str], _) = match sample.provider {
            ProviderName::Alipay => ("alipay/demo", &[], false),
            ProviderName::TwoCTwoP => ("2c2p/demo", &[], false),
            ProviderName::Wechatpay if xml => ("wechatpay/demo", &[], false),
            ProviderName::Wechatpay => ("wechatpay/demo", &WECHAT_HEADERS, true),
            ProviderName::Stripe => ("stripe/demo", &["stripe-signature"], true),
            ProviderName::Antom => ("antom/demo", &ANTOM_HEADERS, true),
        };
        let genuine = Genuine {
            name: format!("{account}: {}", sample.case),
            account,
            notification,
            headers,
            whole_body,
        };
        no_changed_bit_passes(&registry, &genuine, 23);
        walked += 1;
    }
    assert!(walked >= 40, "only {walked} samples verify");
}

/// Headers that no scheme signs.
fn unsigned_header() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let known = prop::sample::select(vec![
        "user-agent",
        "x-forwarded-for",
        "x-request-id",
        "request-id",
        "content-type",
        "cookie",
        "accept-encoding",
        "authorization",
        "stripe-signature-v2",
        "wechatpay-extra",
        "idempotency-key",
    ]);
    let name = prop_oneof![known.prop_map(str::to_owned), "x-[a-z]{1,12}"];
    (name, "[ -~]{0,40}").prop_map(|(name, value)| {
        (
            HeaderName::try_from(name).unwrap(),
            HeaderValue::try_from(value.trim()).unwrap(),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_change_of_unsigned_material_changes_nothing(
        extra in prop::collection::vec(unsigned_header(), 1..6),
        path in "/[a-z/]{0,20}",
        later in -200_i64..200,
        address in any::<Option<std::net::IpAddr>>(),
    ) {
        let registry = registry_of(&accounts());
        for genuine in made() {
            let scheme = scheme(&registry, genuine.account);
            let before = scheme.verify(&genuine.notification).unwrap();
            let mut changed = genuine.notification.clone();
            changed.headers.remove("content-type");
            for (name, value) in extra.clone() {
                changed.headers.append(name, value);
            }
            if !genuine.account.starts_with("antom") {
                changed.path = path.clone();
            }
            changed.received_at = Timestamp::from_secs(changed.received_at.secs() + later);
            changed.remote_addr = address;
            let after = scheme.verify(&changed);
            prop_assert!(after.is_ok_and(|after| same(&before, &after)), "{}", genuine.name);
            // And no unsigned header lets a forged one in.
            changed.body = Bytes::from(flipped(&changed.body, 8 * (changed.body.len() / 2)));
            if let Ok(forged) = scheme.verify(&changed) {
                prop_assert!(same(&before, &forged), "{}", genuine.name);
            }
        }
    }
}
