//! What an operator is told, and that no hint is a guess.

use http::HeaderValue;

use super::super::sign::{Method, v2_payment};
use super::*;
use crate::provider::Explanation;

fn explained(notification: &Notification) -> Explanation {
    account().explain(notification)
}

fn hint(notification: &Notification) -> Option<String> {
    let told = explained(notification);
    assert!(
        told.steps.iter().any(|step| !step.ok),
        "something must have failed"
    );
    told.hint
}

fn with_body(body: impl Into<Bytes>) -> Notification {
    Notification {
        body: body.into(),
        ..paid()
    }
}

#[test]
fn a_genuine_one_passes_every_step_and_shows_what_was_signed() {
    let told = explained(&paid());
    assert!(told.steps.iter().all(|step| step.ok), "{:?}", told.steps);
    assert_eq!(told.hint, None);
    let want = [
        b"1795925106\naNonceOfThirtyTwoCharacters00001\n".as_slice(),
        &paid().body,
        b"\n",
    ]
    .concat();
    assert_eq!(told.signed.unwrap(), want);
    assert!(
        told.steps
            .last()
            .unwrap()
            .found
            .contains("EV-2026112904050600001")
    );
}

#[test]
fn a_changed_body_is_told_by_what_was_changed() {
    let body = String::from_utf8(paid().body.to_vec()).unwrap();
    let sorted = serde_json::from_str::<serde_json::Value>(&body).unwrap();
    for (changed, word) in [
        (format!("{body}\n"), "added at its end"),
        (body.replace('/', "\\/"), "slashes"),
        (body.replace(",\"", ", \"").replace("\":", "\": "), "compact"),
        (sorted.to_string(), "another order"),
        (serde_json::to_string_pretty(&sorted).unwrap(), "another order"),
    ] {
        assert!(hint(&with_body(changed)).unwrap().contains(word), "{word}");
    }
    assert_eq!(hint(&with_body(body.replace("EV-2026", "EV-2027"))), None);
}

#[test]
fn the_wrong_serial_is_told_with_the_right_one() {
    for serial in [serial().as_str(), "5157F09EFDC096DE15EBE81A47057A7232F1B8E1"] {
        let mut crossed = paid();
        crossed
            .headers
            .insert("wechatpay-serial", HeaderValue::from_str(serial).unwrap());
        assert!(
            hint(&crossed)
                .unwrap()
                .contains(&format!("holds with key {KEY_ID}"))
        );
    }
}

#[test]
fn swapped_headers_are_told() {
    let mut swapped = paid();
    let (timestamp, nonce) = (
        swapped.headers["wechatpay-timestamp"].clone(),
        swapped.headers["wechatpay-nonce"].clone(),
    );
    swapped.headers.insert("wechatpay-timestamp", nonce);
    swapped.headers.insert("wechatpay-nonce", timestamp);
    assert!(hint(&swapped).unwrap().contains("change places"));
}

#[test]
fn a_clock_that_is_off_is_told_by_how_much() {
    let late = |seconds| Notification {
        received_at: Timestamp::from_secs(now().secs() + seconds),
        ..paid()
    };
    assert!(hint(&late(3600)).unwrap().contains("3600 s ahead"));
    assert!(hint(&late(-400)).unwrap().contains("400 s behind"));
}

#[test]
fn facts_are_told_probe_own_certificate_and_one_key_for_both() {
    let mut probe = paid();
    probe.headers.insert(
        "wechatpay-signature",
        HeaderValue::from_static("WECHATPAY/SIGNTEST/AAAA"),
    );
    assert!(hint(&probe).unwrap().contains("nothing is wrong"));

    let merchant = WechatpayAccount {
        mch_id: "wechatpay test platform certificate".to_owned(),
        public_keys: vec![],
        ..settings()
    };
    let told = build(&merchant).unwrap().explain(&paid());
    assert!(told.hint.unwrap().contains("the merchant's own"));

    let one_key = WechatpayAccount {
        api_v3_key: Some(material(V2_KEY)),
        ..settings()
    };
    let told = build(&one_key).unwrap().explain(&paid());
    assert!(told.hint.unwrap().contains("the same text"));
}

#[test]
fn v2_is_told_by_its_elements_and_without_its_key() {
    let fields = [
        ("attach", "a & b"),
        ("mch_id", MCH_ID),
        ("result_code", "SUCCESS"),
        ("return_code", "SUCCESS"),
    ];
    let body = String::from_utf8(v2_payment(&fields, Method::Md5, V2_KEY.as_bytes())).unwrap();
    let xml = |body: String| notification(HeaderMap::new(), body);
    let told = explained(&xml(body.clone()));
    assert!(told.steps.iter().all(|step| step.ok), "{:?}", told.steps);
    assert_eq!(
        String::from_utf8(told.signed.unwrap()).unwrap(),
        format!("attach=a & b&mch_id={MCH_ID}&result_code=SUCCESS&return_code=SUCCESS&key=<api_v2_key>")
    );
    for (changed, word) in [
        (
            body.replace("<xml>", "<xml><merchant_id>7</merchant_id>"),
            "without the element merchant_id",
        ),
        (body.replace("a & b", "a &amp; b"), "escaped them twice"),
        (body.replace("<![CDATA[", "\n  <![CDATA["), "blanks"),
    ] {
        assert!(hint(&xml(changed)).unwrap().contains(word), "{word}");
    }
    assert_eq!(hint(&xml(body.replace("SUCCESS", "FAIL"))), None);
}
