//! The scheme as a whole, on recorded bodies (`tests/data/alipay`) and on bodies signed here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use proptest::prelude::*;
use secrecy::SecretSlice;

use super::*;
use crate::config::{AccountState, Scheme};
use crate::event::Identity;
use crate::provider::signature::RsaSigner;

const PRIVATE: &str = include_str!("../../../provider-samples/keys/alipay_private.pem");
const PUBLIC: &str = include_str!("../../../provider-samples/keys/alipay_public.pem");
const CERT: &str = include_str!("../../../provider-samples/keys/alipay_cert.pem");
const SMALL_PRIVATE: &str = include_str!("../../../provider-samples/keys/alipay_rsa1_private.pem");
const SMALL: &str = include_str!("../../../provider-samples/keys/alipay_rsa1_public.pem");

fn material(bytes: &[u8]) -> KeyMaterial {
    KeyMaterial {
        origin: "key".into(),
        bytes: SecretSlice::from(bytes.to_vec()),
    }
}

fn settings(public_key: &[u8]) -> AlipayAccount {
    AlipayAccount {
        app_id: "2021000000000001".into(),
        seller_id: Some("2088000000000002".into()),
        public_key: Some(material(public_key)),
        alipay_cert: None,
        sign_type: AlipaySignType::Rsa2,
    }
}

fn build(settings: &AlipayAccount) -> Result<Alipay, Vec<AccountProblem>> {
    let account = Account {
        path: "accounts[0]".into(),
        name: "shop-cn".into(),
        merchant: "default".into(),
        state: AccountState::Active,
        rules: crate::event::AccountRules::default(),
        scheme: Scheme::Alipay(settings.clone()),
    };
    Alipay::new(&account, settings)
}

fn scheme(public_key: &[u8]) -> Alipay {
    build(&settings(public_key)).unwrap()
}

fn notification(body: &[u8], at: &str) -> Notification {
    Notification {
        path: "/notify/alipay/shop-cn".into(),
        headers: HeaderMap::new(),
        body: Bytes::copy_from_slice(body),
        received_at: reading::time(at).unwrap(),
        remote_addr: None,
    }
}

/// A recorded body, arriving a second after it was sent.
fn recorded(name: &str) -> (Alipay, Notification) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/alipay");
    let read = |file: &str| std::fs::read(format!("{folder}/{file}")).unwrap();
    let body = read(&format!("{name}.body"));
    let key = if name.starts_with("der12") {
        "derived_v2_pub.pem"
    } else {
        "derived_pub.pem"
    };
    let form = Form::parse(&body).unwrap();
    let sent = std::str::from_utf8(form.get("notify_time").unwrap())
        .unwrap()
        .to_owned();
    (scheme(&read(key)), notification(&body, &sent))
}

fn verify(name: &str) -> Result<Verified, Reason> {
    let (scheme, notification) = recorded(name);
    scheme.verify(&notification).map_err(|refusal| refusal.reason)
}

const SENT: &str = "2024-03-01 10:00:06";

fn usual() -> Vec<(&'static str, &'static [u8])> {
    vec![
        ("app_id", b"2021000000000001"),
        ("charset", b"utf-8"),
        ("gmt_payment", b"2024-03-01 10:00:05"),
        ("notify_id", b"N1"),
        ("notify_time", SENT.as_bytes()),
        ("out_trade_no", b"O1"),
        ("fund_bill_list", b"[{\"amount\":\"88.88\"}]"),
        ("subject", "测试+A&B=100%".as_bytes()),
        ("total_amount", b"88.88"),
        ("trade_no", b"T1"),
        ("trade_status", b"TRADE_SUCCESS"),
    ]
}

fn encode(parameters: &[(String, Vec<u8>)]) -> Vec<u8> {
    let hex = |v: &[u8]| v.iter().map(|b| format!("%{b:02X}")).collect::<Vec<_>>().concat();
    let plain = |v: &[u8]| v.iter().all(u8::is_ascii_alphanumeric);
    let value = |v: &[u8]| {
        if plain(v) {
            String::from_utf8(v.to_vec()).unwrap()
        } else {
            hex(v)
        }
    };
    parameters
        .iter()
        .map(|(n, v)| format!("{n}={}", value(v)))
        .collect::<Vec<_>>()
        .join("&")
        .into_bytes()
}

/// A body as Alipay would send it, by either rule.
fn signed_by(private: &str, sign_type: &str, keep: bool, parameters: &[(&str, &[u8])]) -> Vec<u8> {
    let digest = if sign_type == "RSA" {
        Digest::Sha1
    } else {
        Digest::Sha256
    };
    let mut all: Vec<(String, Vec<u8>)> = parameters
        .iter()
        .map(|(n, v)| ((*n).to_owned(), v.to_vec()))
        .collect();
    all.push(("sign_type".into(), sign_type.as_bytes().to_vec()));
    let signed = Form::of(all.clone()).unwrap().signed(keep);
    let signature = RsaSigner::from_pem(private)
        .unwrap()
        .sign(digest, &signed)
        .unwrap();
    all.push(("sign".into(), STANDARD.encode(signature).into_bytes()));
    encode(&all)
}

fn signed(parameters: &[(&str, &[u8])]) -> Vec<u8> {
    signed_by(PRIVATE, "RSA2", false, parameters)
}

fn with<'a>(extra: &[(&'a str, &'a [u8])]) -> Vec<(&'a str, &'a [u8])> {
    let mut all: Vec<_> = usual()
        .into_iter()
        .filter(|(n, _)| extra.iter().all(|(e, _)| e != n))
        .collect();
    all.extend_from_slice(extra);
    all
}

fn judge(scheme: &Alipay, body: &[u8], at: &str) -> Result<Verified, Reason> {
    scheme
        .verify(&notification(body, at))
        .map_err(|refusal| refusal.reason)
}

fn hint(scheme: &Alipay, body: &[u8]) -> String {
    let explanation = scheme.explain(&notification(body, SENT));
    assert!(explanation.steps.iter().any(|step| !step.ok));
    explanation.hint.unwrap_or_default()
}

fn content(verified: &Verified) -> serde_json::Value {
    serde_json::from_slice(verified.content.as_ref().unwrap()).unwrap()
}

#[test]
fn a12_hard_characters_survive_one_decode() {
    let verified = verify("der01_utf8_hard_characters").unwrap();
    assert_eq!(
        verified.key.as_str(),
        "webhook:alipay:shop-cn:2024030101222100010000000000000001"
    );
    let content = content(&verified);
    assert_eq!(content["subject"], "测试商品+A&B=100% \"x\"");
    assert_eq!(content["passback_params"], "a%3D1%26b%3D2");
    assert_eq!(verified.reading.kind, "payment.succeeded");
    assert_eq!(verified.reading.identity, Identity::Ok);
    assert_eq!(verified.key_id, "#1");
    assert_eq!(verified.signed_at.unwrap().to_string(), "2024-03-01T02:00:06Z");
}

#[test]
fn a01_a04_gbk_is_verified_as_bytes_and_read_as_text() {
    assert_eq!(content(&verify("der02_gbk_body").unwrap())["subject"], "测试商品");
}

#[test]
fn a03_the_label_has_any_case_and_an_unknown_one_changes_no_verdict() {
    let scheme = scheme(PUBLIC.as_bytes());
    for (label, want) in [
        ("GBK", "测"),
        ("gbk", "测"),
        ("Gb2312", "测"),
        ("klingon", "\u{fffd}\u{fffd}"),
    ] {
        let body = signed(&with(&[("charset", label.as_bytes()), ("subject", b"\xb2\xe2")]));
        assert_eq!(content(&judge(&scheme, &body, SENT).unwrap())["subject"], want);
    }
}

#[test]
fn recorded_bodies_get_their_verdict_and_facts() {
    let keys = |name: &str| -> Vec<String> {
        verify(name)
            .unwrap()
            .reading
            .facts
            .into_iter()
            .map(|fact| fact.key)
            .collect()
    };
    let trade = "2024030122001400010000000001";
    let of = |what: &str| format!("{trade}:{what}");
    verify("der03_signed_empty_value").unwrap();
    assert_eq!(
        keys("der04_partial_refund"),
        [of("paid"), of("refunded_total:3000")]
    );
    assert_eq!(
        keys("der06_full_refund_closed"),
        [of("paid"), of("refunded_total:8888")]
    );
    assert_eq!(keys("der07_timeout_closed").len(), 1);
    assert_eq!(keys("der08_trade_finished"), [of("paid"), of("finished")]);
    assert!(keys("der12_rule_keeps_sign_type").is_empty());
    for forged in [
        "der03b_unsigned_empty_value",
        "der11_sign_type_rsa_downgrade",
        "der12b_rule_keeps_sign_type_tampered",
    ] {
        assert_eq!(verify(forged).unwrap_err(), Reason::BadSignature, "{forged}");
    }
}

#[test]
fn a20_a_resend_is_the_same_event() {
    let (first, again) = (
        verify("der01_utf8_hard_characters").unwrap(),
        verify("der09_retry_fresh_notify_time").unwrap(),
    );
    assert_eq!(first.key, again.key);
    assert!(first.fingerprint.agrees_with(&again.fingerprint));
    let scheme = scheme(PUBLIC.as_bytes());
    let other = judge(&scheme, &signed(&with(&[("total_amount", b"1.00")])), SENT).unwrap();
    let usual = judge(&scheme, &signed(&usual()), SENT).unwrap();
    assert_eq!(usual.key, other.key);
    assert!(!usual.fingerprint.agrees_with(&other.fingerprint));
}

#[test]
fn both_rules_hold_and_the_algorithm_is_pinned() {
    let scheme = scheme(PUBLIC.as_bytes());
    for keep in [false, true] {
        judge(&scheme, &signed_by(PRIVATE, "RSA2", keep, &usual()), SENT).unwrap();
    }
    let sha1 = signed_by(PRIVATE, "RSA", false, &usual());
    assert_eq!(judge(&scheme, &sha1, SENT).unwrap_err(), Reason::BadSignature);
    // Even where the word is left out, the digest is the account's.
    let unnamed = String::from_utf8(sha1.clone())
        .unwrap()
        .replace("&sign_type=RSA", "");
    assert_eq!(
        judge(&scheme, unnamed.as_bytes(), SENT).unwrap_err(),
        Reason::BadSignature
    );

    let legacy = |key: &str| {
        build(&AlipayAccount {
            sign_type: AlipaySignType::Rsa,
            ..settings(key.as_bytes())
        })
    };
    judge(&legacy(PUBLIC).unwrap(), &sha1, SENT).unwrap();
    let small = signed_by(SMALL_PRIVATE, "RSA", false, &usual());
    judge(&legacy(SMALL).unwrap(), &small, SENT).unwrap();
    assert_eq!(
        judge(&legacy(SMALL).unwrap(), &signed(&usual()), SENT).unwrap_err(),
        Reason::BadSignature
    );
    let problem = build(&settings(SMALL.as_bytes())).unwrap_err();
    assert_eq!(problem[0].path, "accounts[0].public_key_file");
}

#[test]
fn a22_no_key_no_account() {
    let path = |settings| build(&settings).unwrap_err()[0].path.clone();
    assert_eq!(
        path(AlipayAccount {
            public_key: None,
            ..settings(b"")
        }),
        "accounts[0].public_key_file"
    );
    assert_eq!(path(settings(b"")), "accounts[0].public_key_file");
    assert_eq!(path(settings(PRIVATE.as_bytes())), "accounts[0].public_key_file");
    let cert = AlipayAccount {
        alipay_cert: Some(material(b"junk")),
        ..settings(PUBLIC.as_bytes())
    };
    assert_eq!(path(cert), "accounts[0].alipay_cert_file");
}

#[test]
fn a_certificate_verifies_under_its_serial() {
    let scheme = build(&AlipayAccount {
        public_key: None,
        alipay_cert: Some(material(CERT.as_bytes())),
        ..settings(b"")
    });
    let scheme = scheme.unwrap();
    let verified = judge(&scheme, &signed(&usual()), SENT).unwrap();
    assert_eq!(verified.key_id, "0A1B2C3D4E5F60718293A4B5C6D7E8F901020304");
    assert_eq!(scheme.keys()[0].id, verified.key_id);
    assert_eq!(scheme.keys()[0].kind, "rsa-2048 certificate");
}

#[test]
fn the_window_is_a_day_and_an_hour_back_and_ten_minutes_ahead() {
    let scheme = scheme(PUBLIC.as_bytes());
    let at = |at: &str| judge(&scheme, &signed(&usual()), at).map(|_| ());
    assert_eq!(at("2024-03-02 11:00:06"), Ok(()));
    assert_eq!(at("2024-03-02 11:00:06.000001"), Err(Reason::OutsideWindow));
    assert_eq!(at("2024-03-01 09:50:06"), Ok(()));
    assert_eq!(at("2024-03-01 09:50:05.999999"), Err(Reason::OutsideWindow));
    let untimed: Vec<_> = usual().into_iter().filter(|(n, _)| *n != "notify_time").collect();
    assert_eq!(
        judge(&scheme, &signed(&untimed), SENT).unwrap_err(),
        Reason::Malformed
    );
    assert_eq!(
        judge(&scheme, &signed(&with(&[("notify_time", b"yesterday")])), SENT).unwrap_err(),
        Reason::Malformed
    );
}

/// As the open platform sends its own messages: no `notify_time`, and a new `utc_timestamp` with each resend.
#[test]
fn a_platform_message_is_judged_by_its_utc_timestamp() {
    let scheme = scheme(PUBLIC.as_bytes());
    let sent = reading::time(SENT).unwrap();
    let message = |utc: &[u8]| {
        let fields: [(&str, &[u8]); 7] = [
            ("app_id", b"2021000000000001"),
            ("biz_content", br#"{"trade_no":"T","dback_status":"S"}"#),
            ("charset", b"utf-8"),
            ("msg_method", b"alipay.trade.refund.depositback.completed"),
            ("notify_id", b"N1"),
            ("utc_timestamp", utc),
            ("version", b"1.1"),
        ];
        judge(&scheme, &signed(&fields), SENT)
    };
    let at = |seconds: i64| message(((sent.secs() + seconds) * 1000).to_string().as_bytes());
    let (first, again) = (at(0).unwrap(), at(-600).unwrap());
    assert_eq!(
        first.reading.provider_event_type,
        "alipay.trade.refund.depositback.completed"
    );
    assert!(
        first.fingerprint.agrees_with(&again.fingerprint),
        "a resend is a duplicate"
    );
    assert_eq!(at(-26 * 3600).unwrap_err(), Reason::OutsideWindow);
    for unreadable in [&b"soon"[..], b"", b"9223372036854775807"] {
        assert_eq!(message(unreadable).unwrap_err(), Reason::Malformed);
    }
}

#[test]
fn another_owner_is_kept_but_typed_so() {
    let verified = judge(
        &scheme(PUBLIC.as_bytes()),
        &signed(&with(&[("app_id", b"2021000000000009")])),
        SENT,
    )
    .unwrap();
    assert!(matches!(verified.reading.identity, Identity::Mismatch(_)));
    assert_eq!(verified.reading.kind, "other.identity_mismatch");
}

#[test]
fn a06_a08_every_parameter_counts_and_once_only() {
    let scheme = scheme(PUBLIC.as_bytes());
    let body = signed(&with(&[("brand_new_field", b"1"), ("at_value", b"@file")]));
    assert_eq!(
        content(&judge(&scheme, &body, SENT).unwrap())["brand_new_field"],
        "1"
    );
    let twice = [signed(&usual()), b"&trade_status=TRADE_SUCCESS".to_vec()].concat();
    assert_eq!(judge(&scheme, &twice, SENT).unwrap_err(), Reason::Malformed);
}

#[test]
fn a09_a_sign_that_is_no_base64_is_a_bad_signature() {
    let scheme = scheme(PUBLIC.as_bytes());
    for body in ["a=1", "a=1&sign=", "a=1&sign=%252B", "a=1&sign=abc", "sign=AAAA"] {
        assert_eq!(
            judge(&scheme, body.as_bytes(), SENT).unwrap_err(),
            Reason::BadSignature
        );
    }
    for body in ["", "a=%zz", "a=1&a=2"] {
        assert_eq!(
            judge(&scheme, body.as_bytes(), SENT).unwrap_err(),
            Reason::Malformed
        );
    }
}

#[test]
fn a13_a14_a28_the_ack_is_exact() {
    let scheme = scheme(PUBLIC.as_bytes());
    assert_eq!(
        scheme.ack(Verdict::Accepted, b""),
        Ack {
            content_type: Some("text/plain"),
            body: b"success"
        }
    );
    for verdict in [Verdict::Refused, Verdict::Malformed, Verdict::Unavailable] {
        assert_eq!(scheme.ack(verdict, b"").body, b"fail");
    }
}

#[test]
fn the_same_signed_bytes_cut_differently_are_refused() {
    let scheme = scheme(PUBLIC.as_bytes());
    let body = signed(&usual());
    for (from, to) in [
        ("&trade_no=", "%26trade_no%3D"),
        ("&trade_status=", "%26trade_status%3D"),
    ] {
        let mut form: Vec<_> = Form::parse(&body)
            .unwrap()
            .iter()
            .map(|(n, v)| (n.to_owned(), v.to_vec()))
            .collect();
        form.sort();
        let cut = String::from_utf8(encode(&form)).unwrap().replace(from, to);
        let form = Form::parse(cut.as_bytes()).unwrap();
        assert!(scheme.check_signature(&form).is_ok(), "the signature cannot tell");
        assert_eq!(
            judge(&scheme, cut.as_bytes(), SENT).unwrap_err(),
            Reason::Malformed
        );
    }
}

#[test]
fn a_hint_names_the_change_that_made_it_hold() {
    let scheme = scheme(PUBLIC.as_bytes());
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    let hinted = |parameters: &[(&str, &[u8])], change: &dyn Fn(String) -> String| {
        hint(&scheme, change(text(signed(parameters))).as_bytes())
    };
    let html = hinted(&usual(), &|b| b.replace("%22", "%26quot%3B"));
    assert!(
        html.contains("HTML-escaped") && html.contains("fund_bill_list"),
        "{html}"
    );
    assert!(hinted(&usual(), &|b| format!("{b}&source=web")).contains("parameter source"));
    assert!(hinted(&usual(), &|b| format!("{b}&source=web&z=1")).contains("parameters source and z"));
    assert!(hinted(&usual(), &|b| format!("{b}\n")).contains("line end"));
    assert!(hinted(&usual(), &|b| b.replace('&', "&amp;")).contains("&amp;"));
    assert!(
        hinted(&with(&[("subject", b"a+b")]), &|b| b
            .replace("a%2Bb", "a+b")
            .replace("%61%2B%62", "a+b"))
        .contains("turned into a space")
    );
    assert!(
        hinted(&with(&[("note", b"a%3D1")]), &|b| b
            .replace("%61%25%33%44%31", "a%3D1"))
        .contains("percent-decoded twice")
    );
    assert!(
        hinted(&with(&[("note", b"\xe6")]), &|b| b
            .replace("note=%E6", "note=%25E6"))
        .contains("percent-encoded twice")
    );
    let gbk = hinted(&with(&[("subject", b"\xb2\xe2")]), &|b| {
        b.replace("%B2%E2", "%E6%B5%8B")
    });
    assert!(gbk.contains("GBK to UTF-8"), "{gbk}");
    assert!(hinted(&usual(), &|b| b.replace("sign_type=RSA2", "sign_type=RSA")).contains("only sign_type"));
    let unsigned = hinted(&usual(), &|b| format!("{b}&a=&b=&c="));
    assert!(unsigned.contains("empty"), "{unsigned}");
    let sha1 = text(signed_by(PRIVATE, "RSA", false, &usual())).replace("&sign_type=RSA", "");
    assert!(hint(&scheme, sha1.as_bytes()).contains("holds as RSA"));
    let plus = text(signed(&usual()));
    let (rest, sign) = plus.split_once("&sign=").unwrap();
    let sign = sign.replace("%2B", "+").replace("%2b", "+");
    // Only a sign that holds a '+' can lose it.
    let decoded = Form::parse(plus.as_bytes()).unwrap();
    if decoded.get("sign").unwrap().contains(&b'+') {
        let found = hint(&scheme, format!("{rest}&sign={sign}").as_bytes());
        assert!(found.contains("parameter sign"), "{found}");
    }
}

#[test]
fn a_sample_is_verified_like_the_real_thing() {
    let signer = RsaSigner::from_pem(PRIVATE).unwrap();
    let parameters = [
        ("charset", "GBK"),
        ("subject", "测试 a+b&c=%"),
        ("notify_time", SENT),
        ("notify_id", "N2"),
    ];
    let body = sign(&signer, AlipaySignType::Rsa2, &parameters).unwrap();
    assert!(body.windows(12).any(|w| w == b"%B2%E2%CA%D4"));
    let verified = judge(&scheme(PUBLIC.as_bytes()), &body, SENT).unwrap();
    assert_eq!(content(&verified)["subject"], "测试 a+b&c=%");
    let twice = [("a", "1"), ("a", "2")];
    assert_eq!(sign(&signer, AlipaySignType::Rsa2, &twice), Err(SignError::Form));
}

#[test]
fn no_hint_without_a_change_that_held() {
    let scheme = scheme(PUBLIC.as_bytes());
    let forged = String::from_utf8(signed(&usual())).unwrap().replace("T1", "T2");
    assert_eq!(hint(&scheme, forged.as_bytes()), "");
    let other = signed_by(
        include_str!("../../../provider-samples/keys/antom_private.pem"),
        "RSA2",
        false,
        &usual(),
    );
    assert_eq!(hint(&scheme, &other), "");
}

#[test]
fn a_verified_one_is_explained_with_its_signed_bytes() {
    let scheme = scheme(PUBLIC.as_bytes());
    let explanation = scheme.explain(&notification(&signed_by(PRIVATE, "RSA2", true, &usual()), SENT));
    assert!(
        explanation.steps.iter().all(|step| step.ok),
        "{:?}",
        explanation.steps
    );
    assert!(explanation.hint.is_none());
    let signed = explanation.signed.unwrap();
    assert!(signed.windows(15).any(|w| w == b"&sign_type=RSA2".as_slice()));
    let late = scheme.explain(&notification(&self::signed(&usual()), "2024-03-05 10:00:06"));
    assert!(late.hint.unwrap().contains("-345600 s"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_get_a_verdict(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let scheme = scheme(PUBLIC.as_bytes());
        let notification = notification(&body, SENT);
        prop_assert!(scheme.verify(&notification).is_err());
        scheme.explain(&notification);
        prop_assert!(!scheme.read(&body, "").is_ok_and(|r| !r.facts.is_empty()));
    }

    #[test]
    fn a_flipped_bit_is_refused_unless_it_means_the_same(bit in 0_usize..2000 * 8) {
        let scheme = scheme(PUBLIC.as_bytes());
        let body = signed(&usual());
        let mut flipped = body.clone();
        prop_assume!(bit / 8 < body.len());
        flipped[bit / 8] ^= 1 << (bit % 8);
        // A hex digit's case, or %20 for '+', spells the same byte.
        let same = Form::parse(&flipped).is_ok_and(|f| f == Form::parse(&body).unwrap());
        match judge(&scheme, &flipped, SENT) {
            Ok(verified) => {
                prop_assert!(same, "accepted a change");
                prop_assert_eq!(verified.key.as_str(), "webhook:alipay:shop-cn:N1");
            }
            Err(_) => prop_assert!(!same, "refused another spelling"),
        }
    }
}
