//! What v3 events say.

use serde_json::Value;

use super::*;
use crate::event::{Fact, FactKind, Identity, Money, Reading};

fn read(event_type: &str, resource: &Value) -> Reading {
    verify(&v3(event_type, &resource.to_string())).unwrap().reading
}

fn cny(minor: i64) -> Money {
    Money::new(minor, Currency::CNY)
}

fn refund(status: &str) -> Value {
    json!({
        "mchid": MCH_ID, "out_trade_no": "ORDER-1001", "transaction_id": "42001", "out_refund_no": "R-1",
        "refund_id": "50001", "refund_status": status, "success_time": "2026-11-29T12:10:00+08:00",
        "amount": {"total": 8888, "refund": 1000, "payer_total": 8888, "payer_refund": 1000},
    })
}

fn changed(mut value: Value, pointer: &str, to: Value) -> Value {
    *value.pointer_mut(pointer).unwrap() = to;
    value
}

#[test]
fn a_payment_says_paid_what_was_billed_and_when() {
    let reading = read("TRANSACTION.SUCCESS", &payment());
    assert_eq!(
        (reading.kind.as_str(), reading.provider_event_type.as_str()),
        ("payment.succeeded", "TRANSACTION.SUCCESS")
    );
    let trade = "4200002026112900000000000001";
    let at = Timestamp::parse_rfc3339("2026-11-29T04:05:04Z");
    assert_eq!(reading.amount, Some(cny(8888)));
    assert_eq!(reading.occurred_at, at);
    let fact = Fact::of_trade(FactKind::PaymentSucceeded, trade, "paid");
    assert_eq!(
        reading.facts,
        [fact
            .for_order(Some("ORDER-1001"))
            .with_amount(Some(cny(8888)))
            .happened(at)]
    );
    assert_eq!(reading.links, [(trade.to_owned(), "ORDER-1001".to_owned())]);
    assert_eq!(reading.identity, Identity::Ok);
}

#[test]
fn what_is_not_success_moves_nothing() {
    for state in ["REFUND", "NOTPAY", "CLOSED", "REVOKED", "USERPAYING", "PAYERROR"] {
        let reading = read(
            "TRANSACTION.SUCCESS",
            &changed(payment(), "/trade_state", json!(state)),
        );
        assert_eq!(reading.kind, "other.transaction.success");
        assert_eq!(reading.facts, []);
        assert_eq!(reading.links.len(), 1);
    }
}

#[test]
fn b10_refunds_are_known_by_their_type_and_imply_the_payment() {
    for (status, kind, fact, what) in [
        (
            "SUCCESS",
            "refund.succeeded",
            FactKind::RefundSucceeded,
            "refunded",
        ),
        (
            "ABNORMAL",
            "refund.abnormal",
            FactKind::RefundAbnormal,
            "abnormal",
        ),
        ("CLOSED", "refund.failed", FactKind::RefundFailed, "refund_failed"),
    ] {
        let reading = read(&format!("REFUND.{status}"), &refund(status));
        assert_eq!(reading.kind, kind);
        assert_eq!(
            (reading.refund_id.as_deref(), reading.amount),
            (Some("50001"), Some(cny(1000)))
        );
        let keys: Vec<_> = reading
            .facts
            .iter()
            .map(|f| (f.kind, f.key.as_str(), f.amount, f.currency_assumed))
            .collect();
        let refund_key = format!("50001:{what}");
        assert_eq!(
            keys,
            [
                (FactKind::PaymentSucceeded, "42001:paid", Some(cny(8888)), true),
                (fact, &*refund_key, Some(cny(1000)), true)
            ]
        );
        assert!(
            reading
                .facts
                .iter()
                .all(|f| f.order_id.as_deref() == Some("ORDER-1001") && f.unsigned.is_none())
        );
    }
    let processing = read("REFUND.PROCESSING", &refund("PROCESSING"));
    assert_eq!(
        (processing.kind.as_str(), processing.facts.len()),
        ("other.refund.processing", 1)
    );
}

#[test]
fn a_combined_payment_speaks_of_each_of_its_orders() {
    let sub = |n: i64, state: &str| {
        json!({
            "mchid": "1900000009", "trade_state": state, "transaction_id": format!("4200{n}"), "out_trade_no": format!("ORDER-{n}"),
            "success_time": format!("2026-11-29T12:05:0{n}.123+08:00"),
            "amount": {"total_amount": n * 100, "payer_amount": n * 90, "currency": "CNY", "payer_currency": "CNY"},
        })
    };
    let resource = json!({
        "combine_appid": APP_ID, "combine_mchid": MCH_ID, "combine_out_trade_no": "COMBINED-1",
        "sub_orders": [sub(1, "SUCCESS"), sub(2, "SUCCESS"), sub(3, "NOTPAY")], "combine_payer_info": {"openid": "oTEST"},
    });
    let reading = read("TRANSACTION.SUCCESS", &resource);
    assert_eq!(reading.kind, "payment.succeeded");
    assert_eq!(reading.subject.as_deref(), Some("COMBINED-1"));
    assert_eq!(
        (reading.order_id, reading.trade_id, reading.amount),
        (None, None, None)
    );
    assert_eq!(reading.orders.len(), 3);
    assert_eq!(reading.orders[1].order_id, "ORDER-2");
    assert_eq!(reading.orders[1].amount, Some(cny(200)));
    let facts: Vec<_> = reading
        .facts
        .iter()
        .map(|f| (f.key.as_str(), f.order_id.as_deref(), f.amount))
        .collect();
    assert_eq!(
        facts,
        [
            ("42001:paid", Some("ORDER-1"), Some(cny(100))),
            ("42002:paid", Some("ORDER-2"), Some(cny(200)))
        ]
    );
    assert_eq!(reading.identity, Identity::Ok);
    let foreign = read(
        "TRANSACTION.SUCCESS",
        &changed(resource.clone(), "/combine_mchid", json!("1900000002")),
    );
    assert_eq!(foreign.kind, "other.identity_mismatch");
    let unreadable = changed(resource, "/sub_orders/0/amount/total_amount", json!("100"));
    let unreadable = read("TRANSACTION.SUCCESS", &unreadable);
    assert_eq!(unreadable.facts, []);
    assert!(unreadable.amount_unreadable.is_some());
}

#[test]
fn another_merchant_or_app_is_a_mismatch_and_a_missing_field_is_none() {
    for (field, foreign) in [("/mchid", "1900000002"), ("/appid", "wx0000000000000002")] {
        let reading = read("TRANSACTION.SUCCESS", &changed(payment(), field, json!(foreign)));
        assert_eq!(reading.kind, "other.identity_mismatch", "{field}");
        assert!(matches!(reading.identity, Identity::Mismatch(why) if why.contains(foreign)));
    }
    let mut partner = payment();
    let members = partner.as_object_mut().unwrap();
    members.remove("mchid");
    members.remove("appid");
    assert_eq!(read("TRANSACTION.SUCCESS", &partner).identity, Identity::Ok);
    let members = partner.as_object_mut().unwrap();
    members.extend([
        ("sp_mchid".to_owned(), json!(MCH_ID)),
        ("sp_appid".to_owned(), json!(APP_ID)),
    ]);
    members.extend([
        ("sub_mchid".to_owned(), json!("1900000009")),
        ("sub_appid".to_owned(), json!("wx9")),
    ]);
    assert_eq!(read("TRANSACTION.SUCCESS", &partner).identity, Identity::Ok);
    assert!(matches!(
        read(
            "TRANSACTION.SUCCESS",
            &changed(partner, "/sp_mchid", json!("1900000002"))
        )
        .identity,
        Identity::Mismatch(_)
    ));
}

#[test]
fn amounts_are_whole_and_currencies_real_or_a_human_looks() {
    for (pointer, odd) in [
        ("/amount/total", json!(88.5)),
        ("/amount/total", json!("8888")),
        ("/amount/total", json!(-1)),
        ("/amount/total", json!(u64::MAX)),
        ("/amount/currency", json!("¥")),
        ("/amount/currency", json!(156)),
        ("/amount", json!(null)),
    ] {
        let reading = read("TRANSACTION.SUCCESS", &changed(payment(), pointer, odd));
        assert_eq!(
            (reading.kind.as_str(), reading.facts.len()),
            ("payment.succeeded", 0),
            "{pointer}"
        );
        assert!(reading.amount_unreadable.is_some(), "{pointer}");
    }
    let dollars = read(
        "TRANSACTION.SUCCESS",
        &changed(payment(), "/amount/currency", json!("USD")),
    );
    assert_eq!(dollars.amount.unwrap().currency, Currency::new("USD").unwrap());
}

#[test]
fn unknown_products_and_unreadable_texts_are_still_events() {
    let score = read(
        "PAYSCORE.USER_PAID",
        &json!({"mchid": MCH_ID, "out_order_no": "S-1", "state": "DONE"}),
    );
    assert_eq!(
        (score.kind.as_str(), score.provider_event_type.as_str()),
        ("other.payscore.user_paid", "PAYSCORE.USER_PAID")
    );
    assert_eq!(score.facts, []);
    for unreadable in ["not json", r#"{"a":1,"a":1}"#, "[]"] {
        let verified = verify(&v3("TRANSACTION.SUCCESS", unreadable)).unwrap();
        assert_eq!(verified.reading.kind, "other.unreadable");
        assert_eq!(verified.reading.provider_event_type, "TRANSACTION.SUCCESS");
        assert_eq!(verified.content.unwrap(), unreadable.as_bytes());
    }
    let mut nameless = payment();
    nameless.as_object_mut().unwrap().remove("transaction_id");
    let nameless = read("TRANSACTION.SUCCESS", &nameless);
    assert_eq!(
        (&*nameless.kind, nameless.unreadable.as_deref()),
        ("other.unreadable", Some("a payment without a transaction_id"))
    );
    for (field, id) in [
        ("/out_trade_no", "x".repeat(256)),
        ("/transaction_id", "4200\0".to_owned()),
    ] {
        let odd = read("TRANSACTION.SUCCESS", &changed(payment(), field, json!(id)));
        assert!(
            odd.unreadable.is_some_and(|said| said.starts_with(&field[1..])),
            "{field}"
        );
        assert!(odd.facts.is_empty() && odd.links.is_empty());
    }
}

#[test]
fn a_stored_event_is_read_again_as_at_first() {
    for (event_type, resource) in [
        ("TRANSACTION.SUCCESS", payment()),
        ("REFUND.CLOSED", refund("CLOSED")),
    ] {
        let verified = verify(&v3(event_type, &resource.to_string())).unwrap();
        let again = account().read(&verified.content.unwrap(), &verified.reading.provider_event_type);
        assert_eq!(again.unwrap(), verified.reading);
    }
}
