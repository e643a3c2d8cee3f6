//! The legacy XML: signatures, encrypted refunds, and what they say.

use proptest::prelude::*;

use super::super::sign::{Method, v2_payment, v2_refund};
use super::*;
use crate::event::{Fact, FactKind, Identity, Money};
use crate::provider::Verdict;

const FIELDS: [(&str, &str); 13] = [
    ("appid", APP_ID),
    ("attach", "支付测试 <a&b=c>"),
    ("device_info", ""),
    ("fee_type", "CNY"),
    ("mch_id", MCH_ID),
    ("nonce_str", "5d2b6c2a8db53831f7eda20af46e531c"),
    ("openid", "oTEST"),
    ("out_trade_no", "ORDER-2001"),
    ("result_code", "SUCCESS"),
    ("return_code", "SUCCESS"),
    ("time_end", "20261129120504"),
    ("total_fee", "8888"),
    ("transaction_id", "4200002026112900000000000002"),
];

const REFUND: [(&str, &str); 7] = [
    ("out_refund_no", "R-1"),
    ("out_trade_no", "ORDER-2001"),
    ("refund_fee", "1000"),
    ("refund_id", "50001"),
    ("refund_status", "SUCCESS"),
    ("total_fee", "8888"),
    ("transaction_id", "4200002026112900000000000002"),
];

const OUTER: [(&str, &str); 4] = [
    ("return_code", "SUCCESS"),
    ("appid", APP_ID),
    ("mch_id", MCH_ID),
    ("nonce_str", "n"),
];

fn xml(body: impl Into<Bytes>) -> Notification {
    notification(HeaderMap::new(), body)
}

fn with(changes: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let kept = FIELDS
        .into_iter()
        .filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    kept.chain(changes.iter().copied()).collect()
}

fn payment(fields: &[(&str, &str)]) -> Notification {
    xml(v2_payment(fields, Method::Md5, V2_KEY.as_bytes()))
}

fn refund(changes: &[(&'static str, &'static str)]) -> Notification {
    let kept = REFUND
        .into_iter()
        .filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    let fields: Vec<_> = kept.chain(changes.iter().copied()).collect();
    xml(v2_refund(&OUTER, &fields, V2_KEY.as_bytes()).unwrap())
}

fn text(body: &Notification) -> String {
    String::from_utf8(body.body.to_vec()).unwrap()
}

#[test]
fn the_published_example_of_the_rule_holds() {
    let fields = [
        ("appid", "wxd930ea5d5a258f4f"),
        ("body", "test"),
        ("device_info", "1000"),
        ("mch_id", "10000100"),
        ("nonce_str", "ibuaiVcKdpRxkhJA"),
    ];
    let signed =
        |method| String::from_utf8(v2_payment(&fields, method, b"192006250b4c09247ec02edce69f6a2d")).unwrap();
    assert!(signed(Method::Md5).contains("[9A0A8659F005D6984697E2CA0A9CF3B7]"));
    let hmac = "[6A9AE1657590FD6257D693A078E1C3E4BB6BA4DC30B23E0EE2496E54170DACD6]";
    assert!(signed(Method::HmacSha256).contains(hmac));
}

#[test]
fn b11_md5_and_hmac_are_told_apart_by_length() {
    for (method, sign_type) in [
        (Method::Md5, None),
        (Method::HmacSha256, None),
        (Method::Md5, Some("MD5")),
        (Method::HmacSha256, Some("HMAC-SHA256")),
    ] {
        let mut fields = FIELDS.to_vec();
        fields.extend(sign_type.map(|value| ("sign_type", value)));
        let verified = verify(&xml(v2_payment(&fields, method, V2_KEY.as_bytes()))).unwrap();
        assert_eq!(
            verified.key.as_str(),
            "webhook:wechatpay:shop-cn:pay:4200002026112900000000000002"
        );
        assert_eq!(verified.key_id, "api_v2_key");
    }
}

#[test]
fn a_payment_says_paid() {
    let verified = verify(&payment(&FIELDS)).unwrap();
    let reading = &verified.reading;
    assert_eq!(
        (reading.kind.as_str(), reading.provider_event_type.as_str()),
        ("payment.succeeded", "SUCCESS")
    );
    let amount = Some(Money::new(8888, Currency::CNY));
    let at = Timestamp::parse_rfc3339("2026-11-29T04:05:04Z");
    let fact = Fact::of_trade(FactKind::PaymentSucceeded, "4200002026112900000000000002", "paid");
    assert_eq!(
        reading.facts,
        [fact
            .for_order(Some("ORDER-2001"))
            .with_amount(amount)
            .happened(at)]
    );
    let content: serde_json::Value = serde_json::from_slice(verified.content.as_ref().unwrap()).unwrap();
    assert_eq!(content["attach"], "支付测试 <a&b=c>");
    assert_eq!(content["total_fee"], "8888");
    assert!(content.get("sign").is_none() && content.get("device_info").is_none());
    let again = account()
        .read(verified.content.as_ref().unwrap(), "SUCCESS")
        .unwrap();
    assert_eq!(again, *reading);
}

#[test]
fn unsigned_and_badly_signed_messages_are_refused() {
    let genuine = text(&payment(&FIELDS));
    let start = genuine.find("<sign>").unwrap();
    let unsigned = genuine.replace(&genuine[start..genuine.find("</xml>").unwrap()], "");
    assert_eq!(reason(&xml(unsigned)), Reason::BadSignature);
    let signature = &genuine[start + 15..start + 47];
    for sign in [
        "",
        &signature.to_lowercase(),
        &signature[1..],
        "0".repeat(64).as_str(),
    ] {
        assert_eq!(
            reason(&xml(genuine.replace(signature, sign))),
            Reason::BadSignature,
            "{sign}"
        );
    }
    assert_eq!(
        reason(&xml(v2_payment(&FIELDS, Method::Md5, b"another key"))),
        Reason::BadSignature
    );
    // B31: an element merged in by something on the way.
    assert_eq!(
        reason(&xml(genuine.replace("<xml>", "<xml><merchant_id>7</merchant_id>"))),
        Reason::BadSignature
    );
    assert_eq!(
        reason(&xml(genuine.replace("<xml>", "<xml><sign_type>MD5</sign_type>"))),
        Reason::BadSignature
    );
    let v3_only = WechatpayAccount {
        api_v2_key: None,
        ..settings()
    };
    assert_eq!(
        build(&v3_only)
            .unwrap()
            .verify(&payment(&FIELDS))
            .unwrap_err()
            .reason,
        Reason::UnknownKey
    );
}

#[test]
fn malformed_xml_is_refused_and_answered_as_v2() {
    let genuine = text(&payment(&FIELDS));
    let doubled = genuine.replace("<total_fee>", "<total_fee>1</total_fee><total_fee>");
    let declared = format!("<!DOCTYPE xml [<!ENTITY x SYSTEM \"file:///etc/hostname\">]>{genuine}");
    for body in [
        doubled,
        declared,
        "<foo/>".to_owned(),
        "<".to_owned(),
        " \n <xml>".to_owned(),
    ] {
        assert_eq!(reason(&xml(body)), Reason::Malformed);
    }
    assert_eq!(
        account().ack(Verdict::Malformed, b" <").content_type,
        Some("text/xml")
    );
}

#[test]
fn elements_can_not_be_hidden_in_another_ones_text() {
    // The signed string of the one is that of the other.
    let merged = [("a", "1&total_fee=8888&transaction_id=42"), ("mch_id", MCH_ID)];
    assert_eq!(reason(&payment(&merged)), Reason::Malformed);
}

#[test]
fn b34_a_failed_attempt_is_an_event_and_does_not_stand_in_the_payments_way() {
    let failed = payment(&with(&[("result_code", "FAIL"), ("err_code_des", "余额不足")]));
    let verified = verify(&failed).unwrap();
    assert_eq!(verified.reading.kind, "payment.failed");
    let fact = &verified.reading.facts[0];
    assert_eq!(fact.kind, FactKind::PaymentFailed);
    assert_eq!(
        fact.key,
        format!("4200002026112900000000000002:failed:{}", verified.key)
    );
    assert_eq!(fact.reason.as_deref(), Some("余额不足"));
    assert_ne!(verified.key, verify(&payment(&FIELDS)).unwrap().key);
    let retried = verify(&payment(&with(&[
        ("result_code", "FAIL"),
        ("err_code_des", "余额不足"),
        ("nonce_str", "x"),
    ])))
    .unwrap();
    assert_eq!(retried.key, verified.key);
    let nameless = verify(&payment(&with(&[
        ("result_code", "FAIL"),
        ("transaction_id", ""),
    ])))
    .unwrap();
    assert_eq!(nameless.reading.facts[0].order_id.as_deref(), Some("ORDER-2001"));
    let call_failed = verify(&payment(&with(&[("return_code", "FAIL")]))).unwrap();
    assert_eq!(call_failed.reading.facts, []);
}

#[test]
fn a_refund_waits_for_a_verified_payment() {
    for (status, kind, fact) in [
        ("SUCCESS", "refund.succeeded", FactKind::RefundSucceeded),
        ("CHANGE", "refund.abnormal", FactKind::RefundAbnormal),
        ("REFUNDCLOSE", "refund.failed", FactKind::RefundFailed),
    ] {
        let verified = verify(&refund(&[
            ("refund_status", status),
            ("success_time", "2026-11-29 12:10:00"),
        ]))
        .unwrap();
        assert_eq!(
            verified.key.as_str(),
            format!("webhook:wechatpay:shop-cn:refund:50001:{status}")
        );
        let reading = &verified.reading;
        assert_eq!(
            (reading.kind.as_str(), reading.provider_event_type.as_str()),
            (kind, status)
        );
        assert_eq!(
            reading.occurred_at,
            Timestamp::parse_rfc3339("2026-11-29T04:10:00Z")
        );
        assert_eq!(reading.links, []);
        let [only] = &reading.facts[..] else {
            panic!("nothing but the refund")
        };
        assert_eq!(
            (
                only.kind,
                only.amount.unwrap().minor,
                only.unsigned.unwrap().minor
            ),
            (fact, 1000, 8888)
        );
        let content: serde_json::Value = serde_json::from_slice(verified.content.as_ref().unwrap()).unwrap();
        assert_eq!(
            (&content["mch_id"], &content["refund_id"]),
            (&json!(MCH_ID), &json!("50001"))
        );
        assert!(content.get("req_info").is_none());
        assert_eq!(
            account()
                .read(verified.content.as_ref().unwrap(), status)
                .unwrap(),
            *reading
        );
    }
    assert_eq!(
        verify(&refund(&[("refund_status", "NEW")]))
            .unwrap()
            .reading
            .facts,
        []
    );
    let odd = verify(&refund(&[("refund_fee", "10.00")])).unwrap().reading;
    assert!(odd.facts.is_empty() && odd.amount_unreadable.is_some());
}

#[test]
fn a_refund_that_does_not_open_is_refused() {
    let foreign = v2_refund(&OUTER, &REFUND, b"another key of thirty-two bytes.").unwrap();
    assert_eq!(reason(&xml(foreign)), Reason::BadSignature);
    for info in ["", "AAAA", "!!", "AAAAAAAAAAAAAAAAAAAAAA=="] {
        let body = format!("<xml><mch_id>{MCH_ID}</mch_id><req_info>{info}</req_info></xml>");
        assert_eq!(reason(&xml(body)), Reason::BadSignature, "{info}");
    }
}

#[test]
fn a_signed_message_whose_refund_does_not_open_has_no_bad_signature() {
    for info in ["AAAA", "e\u{fffd}=0", "="] {
        assert_eq!(
            reason(&payment(&with(&[("req_info", info)]))),
            Reason::Malformed,
            "{info}"
        );
    }
}

#[test]
fn a_point_in_a_code_makes_no_v3_message_of_it() {
    let long = format!("{}.x", "a".repeat(300));
    for code in ["A.B", "TRANSACTION.SUCCESS", &long] {
        let fields = [
            ("mch_id", "1900000002"),
            ("result_code", code),
            ("return_code", "SUCCESS"),
        ];
        let verified = verify(&payment(&fields)).unwrap();
        assert!(
            matches!(verified.reading.identity, Identity::Mismatch(_)),
            "{code}"
        );
        let content = verified.content.unwrap();
        let again = account()
            .read(&content, &verified.reading.provider_event_type)
            .unwrap();
        assert_eq!(again.identity, verified.reading.identity);
    }
}

#[test]
fn the_outside_of_a_refund_changes_neither_verdict_nor_key() {
    let genuine = refund(&[]);
    let other = xml(text(&genuine).replace(APP_ID, "wx9").replace("[n]", "[m]"));
    let (genuine, other) = (verify(&genuine).unwrap(), verify(&other).unwrap());
    assert_eq!(genuine.key, other.key);
    assert!(genuine.fingerprint.agrees_with(&other.fingerprint));
    assert_eq!(other.reading.kind, "other.identity_mismatch");
}

#[test]
fn other_notices_are_kept_and_move_nothing() {
    let contract = [
        ("mch_id", MCH_ID),
        ("result_code", "SUCCESS"),
        ("return_code", "SUCCESS"),
        ("change_type", "ADD"),
    ];
    let verified = verify(&payment(&contract)).unwrap();
    assert_eq!(
        (verified.reading.kind.as_str(), verified.reading.facts.len()),
        ("other.add", 0)
    );
    assert!(verified.key.as_str().contains(":sha256:"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_flipped_bit_of_signed_text_is_refused(flip in any::<prop::sample::Index>()) {
        // No blanks between the elements and no empty one: every byte counts.
        let fields: Vec<_> = FIELDS.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let mut body = v2_payment(&fields, Method::Md5, V2_KEY.as_bytes());
        let bit = flip.index(body.len() * 8);
        body[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(verify(&xml(body)).is_err());
    }

    #[test]
    fn anything_that_looks_like_xml_is_judged_without_panic(
        body in "<(xml|root)>(<(sign|req_info|mch_id)>|</(sign|req_info|mch_id)>|[A-Za-z0-9=]{0,40}|.){0,12}(</xml>)?"
    ) {
        prop_assert!(verify(&xml(body.clone())).is_err());
        account().explain(&xml(body));
    }
}
