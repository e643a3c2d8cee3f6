//! The v3 judgement: headers, keys, signature, window, opening.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::provider::Verdict;

fn with_header(name: &'static str, value: &str) -> Notification {
    let mut changed = paid();
    changed
        .headers
        .insert(name, HeaderValue::from_str(value).unwrap());
    changed
}

fn received(seconds_later: i64) -> Notification {
    Notification {
        received_at: Timestamp::from_secs(now().secs() + seconds_later),
        ..paid()
    }
}

#[test]
fn a_genuine_payment_is_an_event() {
    let verified = verify(&paid()).unwrap();
    assert_eq!(
        verified.key.as_str(),
        "webhook:wechatpay:shop-cn:EV-2026112904050600001"
    );
    assert_eq!(verified.key_id, KEY_ID);
    assert_eq!(verified.signed_at, Some(now()));
    assert_eq!(verified.content.unwrap(), payment().to_string().as_bytes());
}

#[test]
fn b12_both_kinds_of_key_are_held_at_once_and_chosen_by_serial() {
    let body = paid().body;
    let by = |signer: &V3Signer| notification(signer.headers(&body, now(), "n").unwrap(), body.clone());
    assert_eq!(verify(&by(&signer())).unwrap().key_id, KEY_ID);
    let by_certificate = by(&platform_signer());
    assert_eq!(verify(&by_certificate).unwrap().key_id, serial());
    for spelled in [serial().to_lowercase(), format!("00{}", serial())] {
        let mut same = by_certificate.clone();
        same.headers
            .insert("wechatpay-serial", HeaderValue::from_str(&spelled).unwrap());
        assert!(verify(&same).is_ok(), "{spelled}");
    }
    // The right key under the other's name.
    let mut crossed = by(&signer());
    crossed
        .headers
        .insert("wechatpay-serial", HeaderValue::from_str(&serial()).unwrap());
    assert_eq!(reason(&crossed), Reason::BadSignature);
}

#[test]
fn b06_a_serial_that_is_not_held_is_said_so() {
    assert_eq!(
        reason(&with_header(
            "wechatpay-serial",
            "5157F09EFDC096DE15EBE81A47057A7232F1B8E1"
        )),
        Reason::UnknownKey
    );
    let v2_only = WechatpayAccount {
        api_v3_key: None,
        public_keys: vec![],
        platform_certs: vec![],
        ..settings()
    };
    assert_eq!(
        build(&v2_only).unwrap().verify(&paid()).unwrap_err().reason,
        Reason::UnknownKey
    );
}

#[test]
fn white_space_around_a_header_value_is_no_part_of_it() {
    for name in [
        "wechatpay-timestamp",
        "wechatpay-nonce",
        "wechatpay-serial",
        "wechatpay-signature",
    ] {
        let mut padded = paid();
        let value = format!(" \t{}\t ", padded.header(name).unwrap());
        padded
            .headers
            .insert(name, HeaderValue::from_str(&value).unwrap());
        assert!(verify(&padded).is_ok(), "{name}");
    }
}

#[test]
fn b18_every_header_comes_exactly_once() {
    for name in [
        "wechatpay-timestamp",
        "wechatpay-nonce",
        "wechatpay-serial",
        "wechatpay-signature",
    ] {
        let mut missing = paid();
        missing.headers.remove(name);
        assert_eq!(reason(&missing), Reason::Malformed, "{name}");
        let mut twice = paid();
        twice.headers.append(name, twice.headers[name].clone());
        assert_eq!(reason(&twice), Reason::Malformed, "{name}");
    }
    for odd in ["", "x", "-1795925106", "1795925106.0", "17959251060000000000"] {
        assert_eq!(
            reason(&with_header("wechatpay-timestamp", odd)),
            Reason::Malformed,
            "{odd}"
        );
    }
}

#[test]
fn b01_a_probe_is_refused_as_one() {
    let genuine = paid().headers["wechatpay-signature"].to_str().unwrap().to_owned();
    let probe = with_header("wechatpay-signature", &format!("WECHATPAY/SIGNTEST/{genuine}"));
    assert_eq!(reason(&probe), Reason::Probe);
    assert_eq!(Reason::Probe.verdict(), Verdict::Refused);
}

#[test]
fn another_algorithm_is_never_taken_from_the_message() {
    let sm2 = with_header("wechatpay-signature-type", "WECHATPAY2-SM2-WITH-SM3");
    let refusal = verify(&sm2).unwrap_err();
    assert_eq!(refusal.reason, Reason::BadSignature);
    assert!(refusal.detail.contains("SM2"));
    let mut unnamed = paid();
    unnamed.headers.remove("wechatpay-signature-type");
    assert!(verify(&unnamed).is_ok());
}

#[test]
fn b08_b19_the_window_is_300_seconds_either_way_on_the_signed_time() {
    for inside in [-300, -1, 0, 299, 300] {
        assert!(verify(&received(inside)).is_ok(), "{inside}");
    }
    for outside in [-86_400, -301, 301, 86_400] {
        assert_eq!(reason(&received(outside)), Reason::OutsideWindow, "{outside}");
    }
    let just = |micros| Notification {
        received_at: Timestamp::from_micros(now().micros() + micros),
        ..paid()
    };
    assert_eq!(reason(&just(300_000_001)), Reason::OutsideWindow);
    assert_eq!(reason(&just(-300_000_001)), Reason::OutsideWindow);
}

#[test]
fn a_retry_signed_anew_is_the_same_event() {
    let first = paid();
    let later = Timestamp::from_secs(now().secs() + 900);
    let mut retry = notification(
        signer().headers(&first.body, later, "another nonce").unwrap(),
        first.body.clone(),
    );
    retry.received_at = later;
    let (first, retry) = (verify(&first).unwrap(), verify(&retry).unwrap());
    assert_eq!(first.key, retry.key);
    assert!(first.fingerprint.agrees_with(&retry.fingerprint));
}

#[test]
fn b02_b04_b30_only_the_raw_bytes_hold() {
    let body = String::from_utf8(paid().body.to_vec()).unwrap();
    for changed in [
        format!("{body}\n"),
        body.replace("\",\"", "\", \""),
        body.replace('/', "\\/"),
        serde_json::from_str::<serde_json::Value>(&body)
            .unwrap()
            .to_string(),
    ] {
        assert_ne!(changed, body);
        assert_eq!(
            reason(&notification(paid().headers, changed)),
            Reason::BadSignature
        );
    }
}

#[test]
fn b09_a_wrong_apiv3_key_is_our_fault_and_said_so() {
    let other = WechatpayAccount {
        api_v3_key: Some(material("payhook-sample-apiv3-key-0000002")),
        ..settings()
    };
    let refusal = build(&other).unwrap().verify(&paid()).unwrap_err();
    assert_eq!(refusal.reason, Reason::Undecryptable);
    assert_eq!(refusal.reason.verdict(), Verdict::Unavailable);
}

#[test]
fn b20_malformed_resources_behind_a_valid_signature_are_errors() {
    let signed = |body: String| {
        let headers = signer().headers(body.as_bytes(), now(), "n").unwrap();
        reason(&notification(headers, body))
    };
    let envelope = |resource: &str| {
        format!(r#"{{"id":"EV-1","event_type":"TRANSACTION.SUCCESS","resource":{resource}}}"#)
    };
    for nonce in ["", "abc", "0123456789abc", "0123456789中"] {
        let resource = format!(
            r#"{{"algorithm":"AEAD_AES_256_GCM","nonce":"{nonce}","ciphertext":"AAAAAAAAAAAAAAAAAAAAAAAA"}}"#
        );
        assert_eq!(signed(envelope(&resource)), Reason::Undecryptable);
    }
    for ciphertext in ["", "AAAA", "not base64", "AAAAAAAAAAAAAAAAAAAAAA=="] {
        let resource = format!(r#"{{"nonce":"0123456789ab","ciphertext":"{ciphertext}"}}"#);
        assert_eq!(signed(envelope(&resource)), Reason::Undecryptable);
    }
    for broken in [
        "null",
        "{}",
        r#"{"nonce":"0123456789ab"}"#,
        r#"{"nonce":1,"ciphertext":""}"#,
    ] {
        assert_eq!(signed(envelope(broken)), Reason::Malformed);
    }
    for broken in [
        "",
        "null",
        "[]",
        "{}",
        "x",
        r#"{"id":"a","id":"b","event_type":"X","resource":{}}"#,
    ] {
        assert_eq!(signed(broken.to_owned()), Reason::Malformed);
    }
}

#[test]
fn absent_and_empty_associated_data_are_one() {
    let message = V3Message {
        id: "EV-2",
        create_time: "",
        event_type: "TRANSACTION.SUCCESS",
        summary: "",
        original_type: "",
        resource: &payment().to_string(),
    };
    let body = String::from_utf8(signer().body(&message, *b"0123456789ab").unwrap()).unwrap();
    for body in [body.clone(), body.replace("\"associated_data\":\"\",", "")] {
        let headers = signer().headers(body.as_bytes(), now(), "n").unwrap();
        assert!(verify(&notification(headers, body)).is_ok());
    }
}

#[test]
fn b13_b15_b33_answers_are_exact() {
    let account = account();
    for (verdict, v3, v2) in [
        (
            Verdict::Accepted,
            ACK_V3,
            "<xml><return_code><![CDATA[SUCCESS]]></return_code><return_msg><![CDATA[OK]]></return_msg></xml>",
        ),
        (
            Verdict::Refused,
            r#"{"code":"FAIL","message":"refused"}"#,
            "<xml><return_code><![CDATA[FAIL]]></return_code><return_msg><![CDATA[refused]]></return_msg></xml>",
        ),
        (
            Verdict::Malformed,
            r#"{"code":"FAIL","message":"refused"}"#,
            "<xml><return_code><![CDATA[FAIL]]></return_code><return_msg><![CDATA[refused]]></return_msg></xml>",
        ),
        (
            Verdict::Unavailable,
            r#"{"code":"FAIL","message":"unavailable"}"#,
            "<xml><return_code><![CDATA[FAIL]]></return_code><return_msg><![CDATA[refused]]></return_msg></xml>",
        ),
    ] {
        let (json, xml) = (account.ack(verdict, b"{}"), account.ack(verdict, b" \n<xml>"));
        assert_eq!(
            (json.content_type, json.body),
            (Some("application/json"), v3.as_bytes())
        );
        assert_eq!((xml.content_type, xml.body), (Some("text/xml"), v2.as_bytes()));
    }
    assert_eq!(
        account.ack(Verdict::Refused, b"").content_type,
        Some("application/json")
    );
}

#[test]
fn configuration_problems_name_their_keys() {
    let paths = |settings: WechatpayAccount| -> Vec<String> {
        build(&settings)
            .unwrap_err()
            .into_iter()
            .map(|problem| problem.path)
            .collect()
    };
    let short = WechatpayAccount {
        api_v3_key: Some(material("short")),
        api_v2_key: Some(material(" \n")),
        ..settings()
    };
    assert_eq!(paths(short), ["accounts[0].api_v2_key", "accounts[0].api_v3_key"]);
    let no_v3_key = WechatpayAccount {
        api_v3_key: None,
        ..settings()
    };
    assert_eq!(paths(no_v3_key), ["accounts[0].api_v3_key"]);
    let no_keys = WechatpayAccount {
        public_keys: vec![],
        platform_certs: vec![],
        ..settings()
    };
    assert_eq!(paths(no_keys), ["accounts[0].public_keys"]);
    let nothing = WechatpayAccount {
        api_v3_key: None,
        api_v2_key: None,
        public_keys: vec![],
        platform_certs: vec![],
        ..settings()
    };
    assert_eq!(paths(nothing), ["accounts[0].api_v3_key"]);
    let bad_files = WechatpayAccount {
        public_keys: vec![("PUB_KEY_ID_1".to_owned(), material(PRIVATE))],
        platform_certs: vec![material(PUBLIC), material(CERT), material(CERT)],
        ..settings()
    };
    let wanted = [
        "public_keys[0]",
        "platform_cert_files[0]",
        "platform_cert_files[2]",
    ]
    .map(|key| format!("accounts[0].{key}"));
    assert_eq!(paths(bad_files), wanted);
    let newline = WechatpayAccount {
        api_v3_key: Some(material(&format!("{V3_KEY}\n"))),
        ..settings()
    };
    assert!(build(&newline).unwrap().verify(&paid()).is_ok());
}

#[test]
fn held_keys_are_told_without_being_shown() {
    let account = account();
    let keys = account.keys();
    let ids: Vec<_> = keys.iter().map(|key| key.id.as_str()).collect();
    assert_eq!(ids, [&serial(), KEY_ID, "api_v3_key", "api_v2_key"]);
    assert!(keys[0].subject.as_ref().unwrap().contains("platform certificate"));
    assert!(keys[0].expires_at.is_some() && keys[1].expires_at.is_none());
    assert_eq!(account.unchecked().len(), 0);
    let shown = format!("{account:?}{keys:?}");
    assert!(!shown.contains(V3_KEY) && !shown.contains(V2_KEY));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_flipped_bit_of_signed_material_is_refused(part in 0_usize..4, flip in any::<prop::sample::Index>()) {
        let mut changed = paid();
        let name = ["", "wechatpay-timestamp", "wechatpay-nonce", "wechatpay-signature"][part];
        if name.is_empty() {
            let mut body = changed.body.to_vec();
            let bit = flip.index(body.len() * 8);
            body[bit / 8] ^= 1 << (bit % 8);
            changed.body = body.into();
        } else {
            let mut value = changed.headers[name].as_bytes().to_vec();
            let bit = flip.index(value.len() * 8);
            value[bit / 8] ^= 1 << (bit % 8);
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            changed.headers.insert(name, value);
        }
        prop_assert!(verify(&changed).is_err());
    }

    #[test]
    fn unsigned_headers_change_nothing(name in "x-[a-z]{1,8}", value in "[ -~]{0,20}") {
        let mut changed = paid();
        changed.headers.append(http::HeaderName::try_from(name).unwrap(), HeaderValue::from_str(&value).unwrap());
        prop_assert_eq!(verify(&changed).unwrap().key, verify(&paid()).unwrap().key);
    }

    #[test]
    fn anything_is_judged_without_panic(
        body in proptest::collection::vec(any::<u8>(), 0..200), timestamp in "[0-9]{0,14}|.{0,5}", nonce in "[ -~]{0,9}",
        serial in "(PUB_KEY_ID_0119000000002026010100000000000001|[0-9A-Fa-f]{0,40})", signature in "[A-Za-z0-9+/=]{0,40}",
    ) {
        let mut odd = notification(HeaderMap::new(), body);
        for (name, value) in [
            ("wechatpay-timestamp", timestamp), ("wechatpay-nonce", nonce),
            ("wechatpay-serial", serial), ("wechatpay-signature", signature),
        ] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                odd.headers.insert(name, value);
            }
        }
        prop_assert!(verify(&odd).is_err());
        account().explain(&odd);
    }

    #[test]
    fn any_content_is_read_without_panic(content in "\\PC{0,60}|\\{\"(mch_id|sub_orders|amount|trade_state)\":.{0,20}\\}", kind in "(TRANSACTION|REFUND)\\.SUCCESS|.{0,9}") {
        let _reading = account().read(content.as_bytes(), &kind);
    }
}
