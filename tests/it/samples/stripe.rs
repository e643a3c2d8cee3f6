//! Stripe's cases, indented as Stripe sends them.

use std::time::Duration;

use payhook::event::ProviderName;
use serde_json::{Value, json};

use super::cases::Case;

fn event(
    name: &'static str,
    title: &'static str,
    minutes: u64,
    number: u32,
    kind: &str,
    object: &Value,
) -> Case {
    let case = Case::new(ProviderName::Stripe, name, title, minutes);
    let body = json!({
        "id": format!("evt_sample{number:04}"), "object": "event", "api_version": "2025-09-30.clover",
        "created": 1_772_416_800 + i64::from(number), "data": { "object": object }, "livemode": false,
        "pending_webhooks": 1, "request": { "id": null, "idempotency_key": null }, "type": kind
    });
    raw(case, &body)
}

fn raw(case: Case, body: &Value) -> Case {
    case.header("content-type", "application/json; charset=utf-8")
        .header("user-agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
        .body(serde_json::to_vec_pretty(body).unwrap())
}

fn intent(id: &str, order: &str, amount: i64, currency: &str) -> Value {
    json!({ "id": id, "object": "payment_intent", "amount": amount, "amount_received": amount, "currency": currency,
            "latest_charge": id.replace("pi_", "ch_"), "metadata": { "order_id": order } })
}

fn charge(refunded: i64) -> Value {
    json!({ "id": "ch_sample3001", "object": "charge", "amount": 4200, "amount_captured": 4200,
            "amount_refunded": refunded, "captured": true, "created": 1_772_416_790, "currency": "usd",
            "metadata": {}, "payment_intent": "pi_sample3001", "refunded": refunded == 4200 })
}

pub(crate) fn cases() -> Vec<Case> {
    let paid = intent("pi_sample3001", "INT-3001", 4200, "usd");
    let succeeded = "payment_intent.succeeded";
    let mut hostile = intent("pi_sample3005", "INT-3005", 100, "usd");
    hostile["description"] = json!(
        "\u{1b}[2J<script>alert(1)</script>'; drop table orders;--\u{0}\u{202e} 测试 \u{1f600} {{7*7}} HALF"
    );
    let hostile = event(
        "10-hostile-characters",
        "INT-3005 is paid; its description tries to break readers",
        18,
        10,
        succeeded,
        &hostile,
    );
    let half_pair = String::from_utf8(hostile.request.body.to_vec())
        .unwrap()
        .replace("HALF", "\\ud800");
    vec![
        event("01-paid", "INT-3001 is paid, 42.00 USD", 0, 1, succeeded, &paid),
        event("02-paid-again", "the same event, sent again with a fresh signature", 60, 1, succeeded, &paid),
        event(
            "03-partial-refund",
            "12.00 of INT-3001 are refunded",
            70,
            2,
            "refund.created",
            &json!({ "id": "re_sample3001", "object": "refund", "amount": 1200, "charge": "ch_sample3001",
                     "currency": "usd", "metadata": {}, "payment_intent": "pi_sample3001", "status": "succeeded" }),
        ),
        event("04-full-refund", "the rest is refunded: 42.00 USD in all", 90, 3, "charge.refunded", &charge(4200)),
        event("05-failed", "an attempt to pay INT-3002 fails; it is not the last one", 2, 4, "payment_intent.payment_failed", &{
            let mut failed = intent("pi_sample3002", "INT-3002", 980, "jpy");
            failed["amount_received"] = json!(0);
            failed["last_payment_error"] = json!({ "code": "card_declined", "decline_code": "insufficient_funds" });
            failed
        }),
        event("06-paid-after-failure", "INT-3002 is paid, 980 JPY", 3, 5, succeeded, &intent("pi_sample3002", "INT-3002", 980, "jpy")),
        event("07-late-close", "another intent for INT-3002 is canceled; the order stays paid", 30, 6, "payment_intent.canceled", &{
            let mut other = intent("pi_sample3002b", "INT-3002", 980, "jpy");
            other["amount_received"] = json!(0);
            other["latest_charge"] = Value::Null;
            other["cancellation_reason"] = json!("abandoned");
            other
        }),
        event("08-closed", "INT-3003 was never paid and is canceled", 40, 7, "payment_intent.canceled", &{
            let mut closed = intent("pi_sample3003", "INT-3003", 500, "usd");
            closed["amount_received"] = json!(0);
            closed["latest_charge"] = Value::Null;
            closed["cancellation_reason"] = json!("automatic");
            closed
        }),
        raw(
            Case::new(ProviderName::Stripe, "09-thin-event", "a thin event: kept and published, moves nothing", 16),
            &json!({ "id": "evt_sample0009", "object": "v2.core.event", "type": "v1.billing.meter.error_report_triggered",
                     "livemode": false, "created": "2026-03-02T02:16:00.330Z",
                     "related_object": { "id": "meter_sample", "type": "billing.meter", "url": "/v1/billing/meters/meter_sample" } }),
        ),
        hostile.body(half_pair),
        event("11-forged", "somebody claims that INT-3004 was paid", 19, 11, succeeded, &intent("pi_sample3004", "INT-3004", 999_900, "usd"))
            .forged(),
        event("12-stale", "a genuine event that arrives 301 seconds after it was signed", 0, 1, succeeded, &paid)
            .late_by(Duration::from_secs(301)),
        event("13-disputed", "the payer of INT-3006 disputes the payment", 99, 13, "charge.dispute.created", &json!({
            "id": "dp_sample3006", "object": "dispute", "amount": 700, "charge": "ch_sample3006", "currency": "usd",
            "metadata": { "order_id": "INT-3006" }, "payment_intent": "pi_sample3006", "reason": "product_not_received",
            "status": "needs_response"
        })),
        event("14-live-mode", "genuine, but a live event at an account for test mode: kept, not applied", 20, 14, succeeded, &paid),
        event("15-authorised", "35.00 USD are authorised for INT-3007 and can be captured: not paid yet", 21, 15,
              "payment_intent.amount_capturable_updated", &authorised_intent()),
        event("16-charge-not-captured", "the charge of INT-3007, not captured", 21, 16, "charge.succeeded", &json!({
            "id": "ch_sample3007", "object": "charge", "amount": 3500, "amount_captured": 0, "amount_refunded": 0,
            "captured": false, "created": 1_772_416_790, "currency": "usd", "metadata": {}, "paid": true,
            "payment_intent": "pi_sample3007", "status": "succeeded"
        })),
        event("17-session-not-captured", "the checkout of INT-3007 is completed, not captured", 21, 17,
              "checkout.session.completed", &json!({
            "id": "cs_test_sample3007", "object": "checkout.session", "amount_total": 3500,
            "client_reference_id": "INT-3007", "currency": "usd", "metadata": {}, "mode": "payment",
            "payment_intent": "pi_sample3007", "payment_status": "unpaid", "status": "complete"
        })),
    ]
    .into_iter()
    .map(live_mode)
    .chain(captured_in_part())
    .collect()
}

/// INT-3008 at an endpoint of an older API version: 206.75 authorised, 203.00 taken, 3.75 released. Then a refund
/// that is counted while it is pending fails.
fn captured_in_part() -> Vec<Case> {
    let charge = |refunded: i64| {
        json!({ "id": "ch_sample3008", "object": "charge", "amount": 20_675, "amount_captured": 20_300,
                "amount_refunded": refunded, "captured": true, "created": 1_772_416_790, "currency": "usd",
                "metadata": {}, "payment_intent": "pi_sample3008", "refunded": false })
    };
    let refund = |id: &str, amount: i64, status: &str, failure: Option<&str>| {
        json!({ "id": id, "object": "refund", "amount": amount, "charge": "ch_sample3008", "currency": "usd",
                "failure_balance_transaction": null, "failure_reason": failure, "metadata": {},
                "payment_intent": "pi_sample3008", "reason": null, "status": status })
    };
    let mut intent = intent("pi_sample3008", "INT-3008", 20_675, "usd");
    intent["amount_received"] = json!(20_300);
    intent["capture_method"] = json!("manual");
    let failed = refund("re_sample3008b", 5000, "failed", Some("insufficient_funds"));
    let release = refund("re_sample3008a", 375, "succeeded", None);
    vec![
        event(
            "18-release-as-refund",
            "what was authorised for INT-3008 and not taken: a Refund in name only",
            100,
            18,
            "refund.created",
            &release,
        ),
        event(
            "19-release-in-total",
            "the charge counts it as refunded; nothing went back",
            100,
            19,
            "charge.refunded",
            &charge(375),
        ),
        event(
            "20-captured-in-part",
            "INT-3008 is paid: 203.00 of the 206.75 that were authorised",
            100,
            20,
            "payment_intent.succeeded",
            &intent,
        ),
        event(
            "21-pending-in-total",
            "the charge counts a refund of 50.00 that is still pending",
            110,
            21,
            "charge.refunded",
            &charge(5375),
        ),
        event(
            "22-pending-failed",
            "that refund fails, and no balance transaction says so",
            120,
            22,
            "refund.failed",
            &failed,
        ),
    ]
    .into_iter()
    .map(|case| {
        let body = String::from_utf8(case.request.body.to_vec()).unwrap();
        case.body(body.replace("2025-09-30.clover", "2025-02-24.acacia"))
    })
    .collect()
}

fn authorised_intent() -> Value {
    let mut authorised = intent("pi_sample3007", "INT-3007", 3500, "usd");
    authorised["amount_received"] = json!(0);
    authorised["amount_capturable"] = json!(3500);
    authorised["capture_method"] = json!("manual");
    authorised["status"] = json!("requires_capture");
    authorised
}

/// The one case whose event is a live one.
fn live_mode(case: Case) -> Case {
    if case.name != "14-live-mode" {
        return case;
    }
    let body = String::from_utf8(case.request.body.to_vec()).unwrap();
    case.body(body.replace("\"livemode\": false", "\"livemode\": true"))
}
