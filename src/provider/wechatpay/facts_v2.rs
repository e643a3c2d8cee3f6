//! What a v2 message says (design section 4.1): the same facts as v3, from flat text fields.
//!
//! A refund was encrypted but not signed. Its facts carry the payment's total that it claims, imply nothing
//! about the payment and teach no link: both would be believing an unproven message.

use super::scope::{self, Object, Scope, first_of, id_of, money, text_of};
use super::v2;
use crate::event::{Currency, Fact, FactKind, Money, Reading};
use crate::provider::json;
use crate::time::{Timestamp, parse_local};

/// Beijing, in minutes east of UTC.
const BEIJING: i32 = 480;

/// Whether stored content is a v2 message's: its fields are named as v3 never names them, and its type is its own,
/// where v3 names the type outside.
pub(super) fn is_v2(content: &[u8], provider_event_type: &str) -> bool {
    json::object(content).is_ok_and(|object| {
        let named = ["mch_id", "return_code"]
            .iter()
            .any(|name| object.contains_key(*name));
        named && scope::event_type(event_type(&object)) == provider_event_type
    })
}

/// The provider's type of a v2 message: what it says of the refund, the payment, else of the call.
pub(super) fn event_type(content: &Object) -> &str {
    let named = first_of(
        content,
        &["refund_status", "change_type", "result_code", "return_code"],
    );
    named.map_or("unknown", |(_, value)| value)
}

/// The reading of stored `content`.
pub(super) fn read(scope: &Scope, content: &[u8]) -> Result<Reading, String> {
    let content = json::object(content).map_err(|e| format!("the content is {e}"))?;
    let identity = scope.identity(first_of(&content, &["mch_id"]), first_of(&content, &["appid"]));
    let mut reading = scope::other(event_type(&content), identity);
    reading.order_id = id_of(&content, "out_trade_no")?;
    reading.trade_id = id_of(&content, "transaction_id")?;
    if content.contains_key("refund_status") {
        return refund(scope, &content, reading);
    }
    reading
        .links
        .extend(reading.trade_id.clone().zip(reading.order_id.clone()));
    reading.occurred_at = time_of(&content, "time_end", "%Y%m%d%H%M%S");
    match text_of(&content, "result_code") {
        Some("FAIL") => Ok(failed(scope, &content, reading)),
        // Contracts and other notices share the scheme; only a payment has a total. A deduction under a contract also
        // says how the trade stands: it may be accepted only.
        Some("SUCCESS")
            if v2::succeeded(&content)
                && content.contains_key("total_fee")
                && text_of(&content, "trade_state").is_none_or(|state| state == "SUCCESS") =>
        {
            paid(scope, &content, reading)
        }
        _ => Ok(reading),
    }
}

fn paid(scope: &Scope, content: &Object, mut reading: Reading) -> Result<Reading, String> {
    "payment.succeeded".clone_into(&mut reading.kind);
    let trade_id = reading
        .trade_id
        .as_deref()
        .ok_or("a payment without a transaction_id")?;
    match amount_of(scope, content, "total_fee") {
        Ok(amount) => {
            reading.amount = Some(amount);
            reading.facts.push(
                Fact::of_trade(FactKind::PaymentSucceeded, trade_id, "paid")
                    .for_order(reading.order_id.as_deref())
                    .with_amount(Some(amount))
                    .happened(reading.occurred_at),
            );
        }
        Err(reason) => reading.amount_unreadable = Some(reason),
    }
    Ok(reading)
}

/// One attempt failed; the event itself is the attempt's only name.
fn failed(scope: &Scope, content: &Object, mut reading: Reading) -> Reading {
    "payment.failed".clone_into(&mut reading.kind);
    let event = v2::event_key(&scope.account, content, &v2::fingerprint(content));
    let what = format!("failed:{event}");
    let fact = match (&reading.trade_id, &reading.order_id) {
        (Some(trade), _) => Fact::of_trade(FactKind::PaymentFailed, trade, &what),
        (None, Some(order)) => Fact::of_order(FactKind::PaymentFailed, order, &what),
        (None, None) => return reading,
    };
    let reason = first_of(content, &["err_code_des", "err_code"]).map(|(_, reason)| reason);
    reading.amount = amount_of(scope, content, "total_fee").ok();
    reading.facts.push(
        fact.for_order(reading.order_id.as_deref())
            .with_amount(reading.amount)
            .happened(reading.occurred_at)
            .because(reason),
    );
    reading
}

fn refund(scope: &Scope, content: &Object, mut reading: Reading) -> Result<Reading, String> {
    let refund_id = id_of(content, "refund_id")?.ok_or("a refund without a refund_id")?;
    let trade_id = reading
        .trade_id
        .clone()
        .ok_or("a refund without a transaction_id")?;
    reading.occurred_at = time_of(content, "success_time", "%Y-%m-%d %H:%M:%S");
    let known = match text_of(content, "refund_status") {
        Some("SUCCESS") => Some(("refund.succeeded", FactKind::RefundSucceeded, "refunded")),
        Some("CHANGE") => Some(("refund.abnormal", FactKind::RefundAbnormal, "abnormal")),
        Some("REFUNDCLOSE") => Some(("refund.failed", FactKind::RefundFailed, "refund_failed")),
        _ => None,
    };
    let amounts = amount_of(scope, content, "total_fee")
        .and_then(|total| Ok((total, amount_of(scope, content, "refund_fee")?)));
    match (known, amounts) {
        (Some((kind, fact, what)), Ok((total, refunded))) => {
            kind.clone_into(&mut reading.kind);
            reading.amount = Some(refunded);
            let mut fact = Fact::of_refund(fact, Some(&trade_id), &refund_id, what)
                .for_order(reading.order_id.as_deref())
                .with_amount(Some(refunded))
                .happened(reading.occurred_at);
            fact.currency_assumed = !content.contains_key("fee_type");
            fact.unsigned = Some(total);
            reading.facts.push(fact);
        }
        (Some((kind, ..)), Err(reason)) => {
            kind.clone_into(&mut reading.kind);
            reading.amount_unreadable = Some(reason);
        }
        (None, _) => {}
    }
    reading.refund_id = Some(refund_id);
    Ok(reading)
}

/// A field in whole minor units; the currency is named for payments only.
fn amount_of(scope: &Scope, content: &Object, field: &str) -> Result<Money, String> {
    let currency = match text_of(content, "fee_type") {
        None => scope.currency,
        Some(code) => Currency::new(code).map_err(|e| format!("fee_type is {e}"))?,
    };
    let digits = text_of(content, field).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    money(digits.and_then(|digits| digits.parse().ok()), field, currency)
}

fn time_of(content: &Object, field: &str, pattern: &str) -> Option<Timestamp> {
    parse_local(pattern, text_of(content, field)?, BEIJING)
}
