//! What a decrypted v3 resource says (design section 4.1).
//!
//! Payments and refunds are told apart by the envelope's event type, what happened by the resource's own
//! state. Everything else (scores, coupons, transfers, complaints, profit sharing) is kept and named, and
//! teaches at most which trade belongs to which order.

use serde_json::Value;

use super::scope::{self, Object, Scope, first_of, id_of, money, text_of};
use crate::event::{Currency, Fact, FactKind, Money, OrderPart, Reading};
use crate::provider::json;
use crate::time::Timestamp;

/// The reading of `resource`, the decrypted JSON text of an event of type `event_type`.
pub(super) fn read(scope: &Scope, resource: &[u8], event_type: &str) -> Result<Reading, String> {
    let resource = json::object(resource).map_err(|e| format!("the decrypted resource is {e}"))?;
    let identity = scope.identity(
        first_of(&resource, &["combine_mchid", "sp_mchid", "mchid"]),
        first_of(&resource, &["combine_appid", "sp_appid", "appid"]),
    );
    let mut reading = scope::other(event_type, identity);
    reading.occurred_at = time_of(&resource);
    reading.order_id = id_of(&resource, "out_trade_no")?;
    reading.trade_id = id_of(&resource, "transaction_id")?;
    reading
        .links
        .extend(reading.trade_id.clone().zip(reading.order_id.clone()));
    if event_type.starts_with("REFUND.") {
        refund(scope, &resource, reading)
    } else if !event_type.starts_with("TRANSACTION.") {
        Ok(reading)
    } else if let Some(Value::Array(orders)) = resource.get("sub_orders") {
        combined(scope, &resource, orders, reading)
    } else {
        transaction(scope, &resource, reading)
    }
}

/// One order's payment.
fn transaction(scope: &Scope, resource: &Object, mut reading: Reading) -> Result<Reading, String> {
    if text_of(resource, "trade_state") != Some("SUCCESS") {
        return Ok(reading);
    }
    "payment.succeeded".clone_into(&mut reading.kind);
    let trade_id = reading
        .trade_id
        .as_deref()
        .ok_or("a payment without a transaction_id")?;
    match amount_of(scope, resource, "total") {
        Ok((amount, _)) => {
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

/// Several orders paid in one go; each has its own trade.
fn combined(
    scope: &Scope,
    resource: &Object,
    orders: &[Value],
    mut reading: Reading,
) -> Result<Reading, String> {
    reading.subject = id_of(resource, "combine_out_trade_no")?;
    (reading.order_id, reading.trade_id) = (None, None);
    reading.links.clear();
    for order in orders {
        let order = order.as_object().ok_or("a sub order is not an object")?;
        let (order_id, trade_id) = (id_of(order, "out_trade_no")?, id_of(order, "transaction_id")?);
        reading.links.extend(trade_id.clone().zip(order_id.clone()));
        let paid = text_of(order, "trade_state") == Some("SUCCESS");
        let amount = match amount_of(scope, order, "total_amount") {
            Ok((amount, _)) => Some(amount),
            Err(reason) => {
                if paid {
                    reading.amount_unreadable.get_or_insert(reason);
                }
                None
            }
        };
        if paid {
            "payment.succeeded".clone_into(&mut reading.kind);
            let trade = trade_id
                .as_deref()
                .ok_or("a paid sub order without a transaction_id")?;
            let at = time_of(order);
            reading.occurred_at = reading.occurred_at.max(at);
            reading.facts.push(
                Fact::of_trade(FactKind::PaymentSucceeded, trade, "paid")
                    .for_order(order_id.as_deref())
                    .with_amount(amount)
                    .happened(at),
            );
        }
        if let Some(order_id) = order_id {
            reading.orders.push(OrderPart {
                order_id,
                trade_id,
                amount,
            });
        }
    }
    if reading.amount_unreadable.is_some() {
        reading.facts.clear();
    }
    Ok(reading)
}

/// One refund; whatever became of it, the trade had been paid.
fn refund(scope: &Scope, resource: &Object, mut reading: Reading) -> Result<Reading, String> {
    let refund_id = id_of(resource, "refund_id")?.ok_or("a refund without a refund_id")?;
    let trade_id = reading
        .trade_id
        .clone()
        .ok_or("a refund without a transaction_id")?;
    let known = match text_of(resource, "refund_status") {
        Some("SUCCESS") => Some(("refund.succeeded", FactKind::RefundSucceeded, "refunded")),
        Some("ABNORMAL") => Some(("refund.abnormal", FactKind::RefundAbnormal, "abnormal")),
        Some("CLOSED") => Some(("refund.failed", FactKind::RefundFailed, "refund_failed")),
        _ => None,
    };
    if let Some((kind, ..)) = known {
        kind.clone_into(&mut reading.kind);
    }
    let amounts = amount_of(scope, resource, "total")
        .and_then(|(total, assumed)| Ok((total, amount_of(scope, resource, "refund")?.0, assumed)));
    match amounts {
        Ok((total, refunded, assumed)) => {
            reading.amount = Some(refunded);
            let paid = Fact::of_trade(FactKind::PaymentSucceeded, &trade_id, "paid").with_amount(Some(total));
            let refund = known.map(|(_, fact, what)| {
                Fact::of_refund(fact, Some(&trade_id), &refund_id, what)
                    .with_amount(Some(refunded))
                    .happened(reading.occurred_at)
            });
            for mut fact in std::iter::once(paid).chain(refund) {
                fact.currency_assumed = assumed;
                reading.facts.push(fact.for_order(reading.order_id.as_deref()));
            }
        }
        Err(reason) => reading.amount_unreadable = Some(reason),
    }
    reading.refund_id = Some(refund_id);
    Ok(reading)
}

/// `amount.{field}` and whether its currency had to be assumed, or why it can't be taken.
fn amount_of(scope: &Scope, object: &Object, field: &str) -> Result<(Money, bool), String> {
    let amount = object
        .get("amount")
        .and_then(Value::as_object)
        .ok_or("there is no amount")?;
    let (currency, assumed) = match amount.get("currency") {
        None | Some(Value::Null) => (scope.currency, true),
        Some(code) => {
            let code = code.as_str().unwrap_or_default();
            (
                Currency::new(code).map_err(|e| format!("amount.currency is {e}"))?,
                false,
            )
        }
    };
    let minor = amount.get(field).and_then(Value::as_i64);
    Ok((money(minor, &format!("amount.{field}"), currency)?, assumed))
}

fn time_of(object: &Object) -> Option<Timestamp> {
    text_of(object, "success_time").and_then(Timestamp::parse_rfc3339)
}
