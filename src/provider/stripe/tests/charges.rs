//! What charges, refunds and captured intents say was taken, and what went back.

use super::*;

fn of_version(version: &str, kind: &str, object: &Value) -> Reading {
    let mut body = event(kind, object);
    body["api_version"] = json!(version);
    verified(&body).reading
}

fn refunded(version: &str, extra: &Value) -> (String, Vec<(FactKind, i64)>) {
    let reading = of_version(version, "charge.refunded", &charge(extra));
    let facts = reading
        .facts
        .iter()
        .map(|fact| (fact.kind, fact.amount.unwrap().minor));
    (reading.kind.clone(), facts.collect())
}

const OLD: &str = "2025-02-24.acacia";
const NEW: &str = "2025-03-31.basil";

#[test]
fn charges_link_and_pay_only_by_themselves() {
    let with_intent = says(
        "charge.succeeded",
        &charge(&json!({ "metadata": { "order_id": "O" } })),
    );
    assert_eq!(
        (with_intent.kind.as_str(), with_intent.facts.len()),
        ("other.charge.succeeded", 0)
    );
    assert_eq!(with_intent.links, [("pi_1".to_owned(), "O".to_owned())]);
    let alone = says(
        "charge.captured",
        &charge(&json!({ "payment_intent": null, "amount_captured": 700 })),
    );
    assert_eq!(
        kinds(&alone),
        [
            (FactKind::PaymentSucceeded, "ch_1:paid", Some(700)),
            (FactKind::AuthorisationReleased, "ch_1:released:300", Some(300))
        ]
    );
    let uncaptured = says(
        "charge.succeeded",
        &charge(&json!({ "payment_intent": null, "captured": false })),
    );
    assert!(uncaptured.facts.is_empty());
}

#[test]
fn refunds_of_a_charge_are_cumulative_and_capped() {
    let refunded = says("charge.refunded", &charge(&json!({ "amount_refunded": 400 })));
    assert_eq!(refunded.kind, "refund.succeeded");
    assert_eq!(
        kinds(&refunded),
        [
            (FactKind::PaymentSucceeded, "pi_1:paid", Some(1000)),
            (FactKind::RefundedTotal, "pi_1:refunded_total:400", Some(400)),
        ]
    );
    assert_eq!(
        refunded.facts[0].at,
        Some(Timestamp::from_secs(NOW - 60)),
        "paid before it was refunded"
    );
    let released = charge(&json!({ "captured": false, "amount_captured": 0, "amount_refunded": 1000 }));
    assert!(says("charge.refunded", &released).facts.is_empty());
}

#[test]
fn refunds_by_status() {
    let refund = |status: &str, back: Value| {
        json!({ "id": "re_1", "object": "refund", "amount": 400, "currency": "usd", "charge": "ch_1",
                "payment_intent": "pi_1", "status": status, "failure_balance_transaction": back,
                "failure_reason": "lost_or_stolen_card" })
    };
    let done = says("refund.created", &refund("succeeded", Value::Null));
    assert_eq!(
        kinds(&done),
        [(FactKind::RefundSucceeded, "re_1:refunded", Some(400))]
    );
    assert_eq!(
        (done.refund_id.as_deref(), done.facts[0].trade_id.as_deref()),
        (Some("re_1"), Some("pi_1"))
    );
    for status in ["pending", "requires_action"] {
        assert!(
            says("refund.updated", &refund(status, Value::Null))
                .facts
                .is_empty()
        );
    }
    let failed = says("charge.refund.updated", &refund("canceled", Value::Null));
    assert_eq!(
        kinds(&failed),
        [(FactKind::RefundFailed, "re_1:refund_failed", Some(400))]
    );
    let came_back = says("refund.failed", &refund("failed", json!("txn_1")));
    assert_eq!(
        came_back.facts.iter().map(|f| f.kind).collect::<Vec<_>>(),
        [FactKind::RefundSucceeded, FactKind::RefundFailed]
    );
    assert_eq!(came_back.kind, "refund.failed");
    assert_eq!(came_back.facts[1].reason.as_deref(), Some("lost_or_stolen_card"));
}

#[test]
fn what_a_capture_left_behind_is_no_refund() {
    use FactKind::{AuthorisationReleased, PaymentSucceeded, RefundedTotal};
    let other = "other.charge.refunded".to_owned();
    let refund = "refund.succeeded".to_owned();
    let real = json!({ "amount": 20675, "amount_captured": 20300, "amount_refunded": 375 });
    assert_eq!(
        refunded("2019-11-05", &real),
        (
            other.clone(),
            vec![(PaymentSucceeded, 20300), (AuthorisationReleased, 375)]
        )
    );
    let half = |refunded: i64| json!({ "amount_captured": 600, "amount_refunded": refunded });
    assert_eq!(
        refunded(OLD, &half(500)),
        (
            refund.clone(),
            vec![
                (PaymentSucceeded, 600),
                (AuthorisationReleased, 400),
                (RefundedTotal, 100)
            ]
        )
    );
    assert_eq!(
        refunded(NEW, &half(500)),
        (
            refund.clone(),
            vec![(PaymentSucceeded, 600), (RefundedTotal, 500)]
        )
    );
    // No more than what was taken can go back, so the release is counted, whatever the version says.
    assert_eq!(
        refunded(NEW, &half(1000)),
        (
            refund.clone(),
            vec![
                (PaymentSucceeded, 600),
                (AuthorisationReleased, 400),
                (RefundedTotal, 600)
            ]
        )
    );
    // Less than the release, so it is not counted: the capture was made with a newer version than the endpoint's.
    assert_eq!(
        refunded(OLD, &half(300)),
        (
            refund,
            vec![
                (PaymentSucceeded, 600),
                (AuthorisationReleased, 0),
                (RefundedTotal, 300)
            ]
        )
    );
    let over = json!({ "amount_captured": 1100, "amount_refunded": 1100 });
    assert_eq!(
        refunded(OLD, &over).1,
        [(PaymentSucceeded, 1100), (RefundedTotal, 1100)]
    );
}

#[test]
fn a_charge_with_multicapture_does_not_tell_the_payment_before_the_last_capture() {
    use FactKind::{RefundedOrReleasedTotal, RefundedTotal};
    let charged = |refunded: i64| {
        json!({ "amount_captured": 600, "amount_refunded": refunded,
                "payment_method_details": { "card": { "multicapture": { "status": "available" } } } })
    };
    assert_eq!(refunded(OLD, &charged(300)).1, [(RefundedTotal, 300)]);
    assert_eq!(
        refunded(OLD, &charged(500)),
        (
            "other.charge.refunded".to_owned(),
            vec![(RefundedOrReleasedTotal, 500)]
        )
    );
    assert_eq!(refunded(NEW, &charged(500)).1, [(RefundedTotal, 500)]);
    assert_eq!(
        refunded(OLD, &charged(700)).1.len(),
        3,
        "more than was taken: the last capture is over"
    );
}

#[test]
fn a_captured_intent_tells_what_was_released() {
    let intent = |version: &str, received: i64| {
        let object = intent(&json!({ "amount": 1000, "amount_received": received }));
        of_version(version, "payment_intent.succeeded", &object).facts
    };
    let released = |version: &str, received: i64| {
        let facts = intent(version, received);
        facts.get(1).map(|fact| fact.amount.unwrap().minor)
    };
    assert_eq!((released(OLD, 600), released(NEW, 600)), (Some(400), None));
    assert_eq!(
        released(NEW, 400),
        Some(600),
        "no refund of 600 can be anything else"
    );
    assert_eq!((released(OLD, 1000), released(OLD, 1100)), (None, None));

    let canceled = json!({ "amount": 1000, "amount_received": 300, "status": "canceled" });
    let canceled = of_version(OLD, "payment_intent.canceled", &super::intent(&canceled));
    assert_eq!(
        canceled.facts[0].kind,
        FactKind::PaymentSucceeded,
        "what was captured stays"
    );
}

#[test]
fn a_lapsed_authorisation_gives_nothing_back() {
    let refund = json!({ "id": "re_1", "object": "refund", "amount": 400, "currency": "usd", "charge": "ch_1",
                         "status": "succeeded", "reason": "expired_uncaptured_charge" });
    let lapsed = of_version(OLD, "refund.created", &refund);
    assert_eq!(
        (lapsed.kind.as_str(), lapsed.facts.len()),
        ("other.refund.created", 0)
    );
}

#[test]
fn refunds_that_a_charge_lists_are_told_each() {
    let refund = |id: &str, amount: i64, status: &str| json!({ "id": id, "object": "refund", "amount": amount, "currency": "usd", "status": status });
    let listed = json!({ "amount_refunded": 300, "refunds": { "object": "list", "data": [
        refund("re_3", 100, "pending"), refund("re_2", 50, "failed"), refund("re_1", 200, "succeeded")
    ] } });
    let reading = of_version("2020-08-27", "charge.refunded", &charge(&listed));
    assert_eq!(
        kinds(&reading)[1..],
        [
            (FactKind::RefundedTotal, "pi_1:refunded_total:300", Some(300)),
            (FactKind::RefundFailed, "re_2:refund_failed", Some(50)),
            (FactKind::RefundSucceeded, "re_1:refunded", Some(200)),
        ]
    );
    let odd = json!({ "amount_refunded": 300, "refunds": { "object": "list", "data": 7 } });
    let reading = of_version("2020-08-27", "charge.refunded", &charge(&odd));
    assert!(reading.amount_unreadable.is_some());
}
