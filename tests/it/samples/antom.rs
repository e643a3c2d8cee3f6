//! Antom's cases.

use std::time::Duration;

use payhook::event::ProviderName;
use serde_json::{Value, json};

use super::cases::Case;

fn case(name: &'static str, title: &'static str, minutes: u64, body: &Value) -> Case {
    Case::new(ProviderName::Antom, name, title, minutes)
        .header("content-type", "application/json; charset=UTF-8")
        .header("client-id", "SANDBOX_0000")
        .body(body.to_string())
}

fn payment(kind: &str, status: &str, (order, payment): (&str, &str), value: &str) -> Value {
    let code = match status {
        "S" => "SUCCESS",
        "F" => "ORDER_IS_CLOSED",
        _ => "PAYMENT_IN_PROCESS",
    };
    json!({ "notifyType": kind, "result": { "resultCode": code, "resultStatus": status, "resultMessage": "words" },
            "paymentRequestId": order, "paymentId": payment, "paymentAmount": { "currency": "SGD", "value": value },
            "paymentCreateTime": "2026-03-02T09:59:00+08:00", "paymentTime": "2026-03-02T09:59:58+08:00" })
}

const P5001: (&str, &str) = ("GL-5001", "202603021940108001001880000000001");

/// A capture of `payment`.
fn capture(status: &str, payment: &str, capture: &str, value: &str) -> Value {
    let code = if status == "S" { "SUCCESS" } else { "PROCESS_FAIL" };
    json!({ "notifyType": "CAPTURE_RESULT",
            "result": { "resultCode": code, "resultStatus": status, "resultMessage": "words" },
            "captureRequestId": format!("{capture}-request"), "captureId": capture, "paymentId": payment,
            "captureAmount": { "currency": "SGD", "value": value }, "captureTime": "2026-03-02T10:20:00+08:00" })
}

/// A payment that is authorised first and captured by hand, and one that is captured at once.
fn captures() -> Vec<Case> {
    const P5004: (&str, &str) = ("GL-5004", "202603021940108001001880000000004");
    let authorised = payment("PAYMENT_RESULT", "S", P5004, "9900");
    vec![
        case(
            "08-authorised",
            "99.00 SGD are authorised for GL-5004: not paid yet",
            20,
            &authorised,
        )
        .to("manual"),
        case(
            "09-capture-failed",
            "their capture fails: nothing was taken, and a human is called",
            21,
            &capture("F", P5004.1, "202603021940108001001880000000801", "9900"),
        )
        .to("manual"),
        case(
            "10-captured-in-part",
            "60.00 SGD of GL-5004 are captured",
            22,
            &capture("S", P5004.1, "202603021940108001001880000000802", "6000"),
        )
        .to("manual"),
        case(
            "11-captured-the-rest",
            "the other 39.00 SGD are captured: 99.00 SGD in all",
            23,
            &capture("S", P5004.1, "202603021940108001001880000000803", "3900"),
        )
        .to("manual"),
        case(
            "12-captured-at-once",
            "the capture of GL-5001, which was paid when it was authorised",
            24,
            &capture("S", P5001.1, "202603021940108001001880000000804", "2599"),
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = story();
    cases.extend(captures());
    cases
}

fn story() -> Vec<Case> {
    let paid = payment("PAYMENT_RESULT", "S", P5001, "2599");
    vec![
        case("01-paid", "GL-5001 is paid, 25.99 SGD", 0, &paid),
        case(
            "02-paid-again",
            "the same notification, resent with a fresh time",
            14,
            &paid,
        ),
        case(
            "03-refund",
            "25.99 SGD are refunded",
            60,
            &json!({
                "notifyType": "REFUND_RESULT",
                "result": { "resultCode": "SUCCESS", "resultStatus": "S", "resultMessage": "success" },
                "refundStatus": "SUCCESS", "refundRequestId": "GL-5001-R1", "refundId": "202603021940108001001880000000901",
                "paymentId": P5001.1, "refundAmount": { "currency": "SGD", "value": "2599" },
                "refundTime": "2026-03-02T11:00:00+08:00"
            }),
        ),
        case(
            "04-failed",
            "GL-5002 is not paid",
            5,
            &payment(
                "PAYMENT_RESULT",
                "F",
                ("GL-5002", "202603021940108001001880000000002"),
                "100",
            ),
        ),
        case(
            "05-pending",
            "the payer of GL-5003 has finished; the money is awaited",
            6,
            &payment(
                "PAYMENT_PENDING",
                "S",
                ("GL-5003", "202603021940108001001880000000003"),
                "100",
            ),
        ),
        case(
            "06-forged",
            "somebody claims that GL-5002 was paid",
            7,
            &payment(
                "PAYMENT_RESULT",
                "S",
                ("GL-5002", "202603021940108001001880000000002"),
                "100",
            ),
        )
        .forged(),
        case(
            "07-stale",
            "a genuine notification that arrives 26 hours after it was sent",
            0,
            &paid,
        )
        .late_by(Duration::from_hours(26)),
    ]
}
