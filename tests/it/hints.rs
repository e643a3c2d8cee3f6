//! Every hint that `payhook verify` can give, each on one request that is broken in just that way.
//!
//! A hint is given for a change that was tried and held, or for a plain fact; the last test is that nothing is
//! guessed for a request that is merely wrong.

use http::HeaderValue;
use payhook::event::{Notification, ProviderName};
use payhook::provider::stripe;
use payhook::provider::wechatpay::sign::Method;
use payhook::time::Timestamp;
use serde_json::Value;

use crate::support::signed::{
    self, PUBLIC_KEY_ID, STRIPE_PAID, STRIPE_SECRET, Senders, TWOCTWOP_SECRET, WECHAT_PAID, WECHAT_V2_PAID,
    accounts, alipay_paid, key_file, notification, now, registry_of,
};

/// What an operator is told of `sent` at `account`, with `accounts` configured; it must be refused.
fn told_with(accounts: &str, account: &str, sent: &Notification) -> Option<String> {
    let registry = registry_of(accounts);
    let (provider, name) = account.split_once('/').unwrap();
    let registered = registry
        .get(provider.parse::<ProviderName>().unwrap(), name)
        .unwrap();
    assert!(registered.judge(sent).is_err(), "{account}: it passes");
    registry.explain(registered, sent).hint
}

fn body(sent: &Notification) -> String {
    String::from_utf8(sent.body.to_vec()).unwrap()
}

fn with_body(sent: &Notification, body: impl Into<bytes::Bytes>) -> Notification {
    Notification {
        body: body.into(),
        ..sent.clone()
    }
}

fn with_header(sent: &Notification, name: &'static str, value: &str) -> Notification {
    let mut changed = sent.clone();
    changed
        .headers
        .insert(name, HeaderValue::try_from(value).unwrap());
    changed
}

fn later(sent: &Notification, seconds: i64) -> Notification {
    Notification {
        received_at: Timestamp::from_secs(sent.received_at.secs() + seconds),
        ..sent.clone()
    }
}

/// A value's usual rewritings of JSON, and what happens to any text.
fn rewritten(sent: &Notification) -> Vec<(Notification, &'static str)> {
    let text = body(sent);
    let value: Value = serde_json::from_str(&text).unwrap();
    let latin1 = encoding_rs::WINDOWS_1252.decode(text.as_bytes()).0.into_owned();
    vec![
        (with_body(sent, value.to_string()), "written anew|another order"),
        (
            with_body(sent, serde_json::to_string_pretty(&value).unwrap()),
            "written anew|another order",
        ),
        (with_body(sent, text.replace('/', "\\/")), "slashes"),
        (with_body(sent, format!("{text}\n")), "line feed was added"),
        (with_body(sent, text.replace('"', "&quot;")), "HTML-escaped"),
        (with_body(sent, latin1), "Latin-1"),
    ]
}

/// In the order that each scheme sends its members, so that writing anew can be undone.
const IN_ORDER: &str = r#"{"id":"evt_1","object":"event","type":"x / y","zebra":"测试"}"#;

#[test]
fn alipay() {
    let senders = Senders::new();
    let sent = senders.alipay(&alipay_paid());
    let mut with_plus = alipay_paid();
    // A value with spaces of its own could not be told from one that lost its `+`.
    with_plus.retain(|(name, _)| *name != "subject");
    with_plus.extend([("note", b"1+1".as_slice()), ("passback_params", b"a%3D1%2B2")]);
    let noted = senders.alipay(&with_plus);
    let mut gbk = alipay_paid();
    gbk.retain(|(name, _)| *name != "subject");
    gbk.push(("subject", b"\xb2\xe2\xca\xd4"));
    let in_gbk = senders.alipay(&gbk);
    let text = body(&noted);
    for (broken, word) in [
        (body(&sent).replace("%22", "%26quot%3B"), "HTML-escaped"),
        (text.replace("1%2B1", "1+1"), "turned into a space"),
        (
            text.replace("a%253D1%252B2", "a%3D1%2B2"),
            "percent-decoded twice",
        ),
        (
            text.replace("a%253D1%252B2", "a%25253D1%25252B2"),
            "percent-encoded twice",
        ),
        (format!("{text}&from=menu"), "parameter from"),
        (format!("{text}\n"), "line end"),
        (
            body(&in_gbk).replace("%B2%E2%CA%D4", "%E6%B5%8B%E8%AF%95"),
            "GBK to UTF-8",
        ),
        (text.replace("sign_type=RSA2", "sign_type=RSA"), "only sign_type"),
    ] {
        let broken = with_body(&sent, broken);
        let hint = told_with(&accounts(), "alipay/shop-cn", &broken).unwrap_or_default();
        assert!(hint.contains(word), "{word}: {hint:?}");
    }
    let hint = told_with(&accounts(), "alipay/shop-cn", &later(&sent, 200_000)).unwrap();
    assert!(hint.contains("200000 s"), "{hint}");
    let own = accounts()
        .replace("public_key_file", "alipay_cert_file")
        .replace("alipay_public.pem", "wechatpay_platform_cert.pem")
        .replace("2021000000000001", "wechatpay test platform certificate");
    let only_alipay = own.split("[[accounts]]").nth(1).unwrap();
    let hint = told_with(&format!("[[accounts]]{only_alipay}"), "alipay/shop-cn", &sent).unwrap();
    assert!(hint.contains("the application's own"), "{hint}");
}

#[test]
fn wechatpay() {
    let senders = Senders::new();
    let sent = senders.wechat_event("TRANSACTION.SUCCESS", WECHAT_PAID);
    let told = |sent: &Notification| told_with(&accounts(), "wechatpay/shop-cn", sent).unwrap_or_default();
    for (broken, words) in rewritten(&sent) {
        let hint = told(&broken);
        assert!(
            words.split('|').any(|word| hint.contains(word)),
            "{words}: {hint:?}"
        );
    }
    let probe = format!(
        "WECHATPAY/SIGNTEST/{}",
        sent.header("wechatpay-signature").unwrap()
    );
    assert!(told(&with_header(&sent, "wechatpay-signature", &probe)).contains("nothing is wrong"));
    let old = with_header(
        &sent,
        "wechatpay-serial",
        "5157F09EFDC096DE15EBE81A47057A7232F1B8E1",
    );
    assert!(told(&old).contains(&format!("holds with key {PUBLIC_KEY_ID}")));
    let rotated = accounts()
        .replace("wechatpay_public.pem", "alipay_public.pem")
        .replace(PUBLIC_KEY_ID, "PUB_KEY_ID_1");
    let hint = told_with(&rotated, "wechatpay/shop-cn", &sent).unwrap();
    assert!(
        hint.contains("does not hold") && hint.contains("public_keys"),
        "{hint}"
    );
    assert!(told(&later(&sent, 3600)).contains("3600 s ahead"));
    assert!(told(&later(&sent, -400)).contains("400 s behind"));
    let swapped = with_header(
        &sent,
        "wechatpay-nonce",
        sent.header("wechatpay-timestamp").unwrap(),
    );
    let swapped = with_header(
        &swapped,
        "wechatpay-timestamp",
        sent.header("wechatpay-nonce").unwrap(),
    );
    assert!(
        told_with(&accounts(), "wechatpay/shop-cn", &swapped)
            .unwrap()
            .contains("change places")
    );
    let merchants = accounts().replace("1900000001", "wechatpay test platform certificate");
    let merchants = merchants.replace("wechatpay_public.pem", "alipay_public.pem");
    let hint = told_with(&merchants, "wechatpay/shop-cn", &sent).unwrap();
    assert!(hint.contains("the merchant's own"), "{hint}");
    let one_key = accounts().replace("wechatpay_apiv3.key", "wechatpay_apiv2.key");
    assert!(
        told_with(&one_key, "wechatpay/shop-cn", &sent)
            .unwrap()
            .contains("the same text")
    );
}

#[test]
fn wechatpay_v2() {
    let sent = Senders::new().wechat_v2(&WECHAT_V2_PAID, Method::HmacSha256);
    let text = body(&sent);
    for (broken, word) in [
        (
            text.replacen("<xml>", "<xml><merchant_id>7</merchant_id>", 1),
            "without the element merchant_id",
        ),
        (
            text.replace("a & b <c>", "a &amp; b &lt;c&gt;"),
            "escaped them twice",
        ),
        (text.replace("<![CDATA[", "\n  <![CDATA["), "blanks"),
    ] {
        let hint = told_with(&accounts(), "wechatpay/shop-cn", &with_body(&sent, broken)).unwrap_or_default();
        assert!(hint.contains(word), "{word}: {hint:?}");
    }
}

#[test]
fn stripe_events() {
    let sent = Senders::stripe(IN_ORDER.as_bytes());
    let told = |sent: &Notification| told_with(&accounts(), "stripe/shop-intl", sent).unwrap_or_default();
    let pretty = Senders::stripe(b"{\n  \"id\": \"evt_1\",\n  \"object\": \"event\"\n}");
    let compact = with_body(&pretty, r#"{"id":"evt_1","object":"event"}"#);
    assert!(told(&compact).contains("indented by 2"));
    for (broken, words) in rewritten(&sent).into_iter().skip(1) {
        let hint = told(&broken);
        assert!(
            words.split('|').any(|word| hint.contains(word)),
            "{words}: {hint:?}"
        );
    }
    assert!(told(&later(&sent, 999)).contains("999 s"));
    let signed_with = |secret: &[u8], body: &str| {
        let header = stripe::sign(secret, now(), body.as_bytes());
        notification(
            "/notify/stripe/shop-intl",
            &[("stripe-signature", &header)],
            body.to_owned(),
        )
    };
    let bare = STRIPE_SECRET.strip_prefix("whsec_").unwrap();
    assert!(told(&signed_with(bare.as_bytes(), STRIPE_PAID)).contains("without its prefix whsec_"));
    let v0 = with_header(&sent, "stripe-signature", "t=1795925106,v0=00");
    assert!(told(&v0).contains("only v0"));
    let value = sent.header("stripe-signature").unwrap();
    for spaced in [value.replace("t=", "t= "), value.replace("v1=", "v1 =\t")] {
        let hint = told(&with_header(&sent, "stripe-signature", &spaced));
        assert!(hint.contains("spaces and tabs"), "{spaced}: {hint:?}");
    }
    let thin =
        r#"{"id":"evt_2","object":"v2.core.event","type":"v1.payout.paid","created":"2026-11-29T04:05:06Z"}"#;
    assert!(told(&signed_with(b"whsec_of_the_thin_destination", thin)).contains("thin event"));
    assert_eq!(told(&signed_with(b"whsec_of_nobody", STRIPE_PAID)), "");
}

#[test]
fn the_keys_of_another_account_come_first() {
    let second = format!(
        "[[accounts]]\nprovider = \"stripe\"\nname = \"other\"\nsigning_secrets = [\"whsec_other\"]\n\
         [[accounts]]\nprovider = \"wechatpay\"\nname = \"other\"\nmch_id = \"1900000002\"\napi_v3_key = \"{}\"\n\
         public_keys = [{{ id = \"PUB_KEY_ID_2\", file = \"{}/provider-samples/keys/alipay_public.pem\" }}]\n",
        key_file("wechatpay_apiv3.key").trim(),
        signed::root().display(),
    );
    let both = accounts() + &second;
    let thin =
        r#"{"id":"evt_2","object":"v2.core.event","type":"v1.payout.paid","created":"2026-11-29T04:05:06Z"}"#;
    let wechat = Senders::new().wechat_event("TRANSACTION.SUCCESS", WECHAT_PAID);
    for (account, sent, names) in [
        (
            "stripe/other",
            Senders::stripe(thin.as_bytes()),
            "stripe/shop-intl",
        ),
        ("wechatpay/other", wechat, "wechatpay/shop-cn"),
    ] {
        let hint = told_with(&both, account, &sent).unwrap();
        assert!(hint.contains(names), "{hint}");
    }
}

#[test]
fn twoctwop() {
    let told = |sent: &Notification| told_with(&accounts(), "2c2p/shop-th", sent);
    let decoded = hex::decode(TWOCTWOP_SECRET).unwrap();
    let body = payhook::provider::twoctwop::sign(&decoded, signed::TWOCTWOP_PAID).unwrap();
    assert!(
        told(&notification("/", &[], body))
            .unwrap()
            .contains("decoded from hex")
    );
    let form = notification("/", &[], "notifyResponse=abc");
    assert!(told(&form).unwrap().contains("form notice"));
}

#[test]
fn antom() {
    let sent = Senders::new().antom(IN_ORDER.as_bytes());
    let told = |sent: &Notification| told_with(&accounts(), "antom/shop-sg", sent).unwrap_or_default();
    for (broken, words) in rewritten(&sent).into_iter().skip(1) {
        let hint = told(&broken);
        assert!(
            words.split('|').any(|word| hint.contains(word)),
            "{words}: {hint:?}"
        );
    }
    let moved = Notification {
        path: "/pay/notify/antom/shop-sg".to_owned(),
        ..sent.clone()
    };
    assert!(told(&moved).contains("notify_path = \"/notify/antom/shop-sg\""));
    assert!(told(&later(&sent, 100_000)).contains("-100000 s"));
    assert!(told(&with_header(&sent, "client-id", "OTHER")).is_empty());
    let signature = sent.header("signature").unwrap();
    for spaced in [
        signature.replace(" signature=", " signature ="),
        signature.replace("%3D", "%3D "),
        signature.replace("%2B", "\t%2B"),
    ] {
        let hint = told(&with_header(&sent, "signature", &spaced));
        assert!(hint.contains("spaces or tabs"), "{spaced}: {hint:?}");
    }
    let signature = signature.replace('%', "%25");
    assert!(told(&with_header(&sent, "signature", &signature)).contains("percent-encoded twice"));
}

#[test]
fn nothing_is_guessed() {
    let senders = Senders::new();
    let alipay = senders.alipay(&alipay_paid());
    let wechat = senders.wechat_event("TRANSACTION.SUCCESS", WECHAT_PAID);
    let antom = senders.antom(signed::ANTOM_PAID.as_bytes());
    for (account, forged) in [
        (
            "alipay/shop-cn",
            with_body(&alipay, body(&alipay).replace("88%2E88", "88%2E89")),
        ),
        (
            "wechatpay/shop-cn",
            with_body(&wechat, body(&wechat).replace("EV-2026", "EV-2027")),
        ),
        ("stripe/shop-intl", {
            let sent = Senders::stripe(STRIPE_PAID.as_bytes());
            with_body(&sent, STRIPE_PAID.replace("8888", "8889"))
        }),
        ("2c2p/shop-th", {
            let sent = Senders::twoctwop(signed::TWOCTWOP_PAID);
            with_body(&sent, body(&sent).replace("\"}", "x\"}"))
        }),
        (
            "antom/shop-sg",
            with_body(&antom, body(&antom).replace("8888", "8889")),
        ),
    ] {
        assert_eq!(told_with(&accounts(), account, &forged), None, "{account}");
    }
}
