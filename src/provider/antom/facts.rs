//! What an Antom event says, from its JSON body.
//!
//! The order is paymentRequestId, the trade paymentId. A refund's own status is refundStatus, not the
//! result's, and a refund need not name its payment: its fact then waits for a human. Amounts are texts of
//! minor units; a number is taken too, a fraction is not.
//!
//! With `capture = "manual"` the result of a payment is its authorisation, which is not paid but under way, and each
//! capture is a payment of its own amount (docs.antom.com, capture). With `auto` a capture repeats what the payment
//! said. A capture that failed is shown to a human either way. Of an authorisation that is cancelled, or lapses after
//! seven days, nothing is sent.

use serde_json::{Map, Value};

use crate::config::Capture;
use crate::event::{Currency, EventKey, Fact, FactKind, Money, Reading, text};
use crate::provider::json;
use crate::time::Timestamp;

/// The longest provider event type that is carried.
pub(super) const MAX_TYPE: usize = 100;

/// The type of a capture's result.
const CAPTURE: &str = "CAPTURE_RESULT";

/// A body that could be read.
pub(super) struct Body(pub(super) Map<String, Value>);

impl Body {
    pub(super) fn read(content: &[u8]) -> Result<Self, String> {
        json::object(content).map(Self).map_err(|e| e.to_string())
    }

    /// The delivery's identity: type, what it is about, and how that stands. `None` where a part is missing;
    /// disputes and subscriptions have other ids, of which one payment may have several.
    pub(super) fn key(&self) -> Option<String> {
        let about = ["captureId", "refundId", "paymentId"]
            .into_iter()
            .find_map(|name| self.text(name))?;
        EventKey::joined(&[self.text("notifyType")?, about, self.status()?])
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .and_then(Value::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(super) fn id(&self, name: &str) -> Result<Option<String>, String> {
        text::id(self.text(name).unwrap_or_default()).map_err(|why| format!("{name} {why}"))
    }

    fn result(&self, name: &str) -> Option<&str> {
        self.0
            .get("result")?
            .get(name)?
            .as_str()
            .filter(|value| !value.is_empty())
    }

    fn status(&self) -> Option<&str> {
        self.text("refundStatus").or_else(|| self.result("resultStatus"))
    }

    pub(super) fn time(&self, names: &[&str]) -> Option<Timestamp> {
        names
            .iter()
            .find_map(|name| self.text(name).and_then(Timestamp::parse_rfc3339))
    }

    pub(super) fn amount(&self, name: &str) -> Result<Money, String> {
        let amount = self.0.get(name).ok_or_else(|| format!("{name} is missing"))?;
        let currency = amount.get("currency").and_then(Value::as_str).unwrap_or_default();
        let currency = Currency::new(currency).map_err(|e| format!("{name}.currency is unreadable: {e}"))?;
        let minor = match amount.get("value") {
            Some(Value::String(digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse::<i64>().ok()
            }
            Some(Value::Number(number)) => number.as_i64().filter(|minor| *minor >= 0),
            _ => None,
        };
        let minor = minor.ok_or_else(|| format!("{name}.value is not a whole number of minor units"))?;
        Money::bounded(minor, currency).map_err(|e| format!("{name}.value is {e}"))
    }

    /// What the event says.
    pub(super) fn reading(&self, capture: Capture) -> Reading {
        let read = self.understood(capture);
        read.unwrap_or_else(|why| Reading::unreadable(self.event_type(), why))
    }

    fn event_type(&self) -> String {
        let event_type = self
            .text("notifyType")
            .or_else(|| self.text("disputeNotificationType"))
            .unwrap_or("unknown");
        text::storable(text::cut(event_type, MAX_TYPE)).into_owned()
    }

    fn understood(&self, capture: Capture) -> Result<Reading, String> {
        let event_type = self.event_type();
        let mut reading = Reading {
            kind: format!("other.{}", event_type.to_lowercase()),
            provider_event_type: event_type,
            order_id: self.id("paymentRequestId")?,
            trade_id: self.id("paymentId")?,
            refund_id: self.id("refundId")?,
            occurred_at: self.time(&["refundTime", "captureTime", "paymentTime", "paymentCreateTime"]),
            ..Reading::default()
        };
        reading.links = reading
            .trade_id
            .clone()
            .zip(reading.order_id.clone())
            .into_iter()
            .collect();
        if let Some((kind, said)) = self.disputed() {
            kind.clone_into(&mut reading.kind);
            self.dispute(said, &mut reading)?;
        } else if let Some((kind, said)) = self.said(capture) {
            kind.clone_into(&mut reading.kind);
            let captured = self.captured()?;
            if captured.is_some() && reading.trade_id.is_none() {
                return Err("paymentId is missing, so that nobody can tell what was captured".to_owned());
            }
            let amount = match said {
                FactKind::RefundSucceeded | FactKind::RefundFailed => self.amount("refundAmount"),
                _ if captured.is_some() => self.amount("captureAmount"),
                _ => self.amount("paymentAmount"),
            };
            reading.amount = amount.as_ref().ok().copied();
            let moves_money = matches!(said, FactKind::PaymentSucceeded | FactKind::RefundSucceeded);
            match amount {
                Err(why) if moves_money => reading.amount_unreadable = Some(why),
                _ => {
                    let fact = self.fact(said, &reading, captured.as_deref());
                    reading.facts = fact.into_iter().collect();
                }
            }
        }
        Ok(reading)
    }

    /// The capture that the event is about, if it is about one.
    fn captured(&self) -> Result<Option<String>, String> {
        if self.text("notifyType") != Some(CAPTURE) {
            return Ok(None);
        }
        let missing = "captureId is missing, so that two captures could be one";
        Ok(Some(self.id("captureId")?.ok_or(missing)?))
    }

    /// payhook's type and the fact that goes with it, for the types that are mapped.
    fn said(&self, capture: Capture) -> Option<(&'static str, FactKind)> {
        let manual = capture == Capture::Manual;
        match (self.text("notifyType")?, self.status()) {
            ("PAYMENT_RESULT", Some("S")) if manual => {
                Some(("payment.processing", FactKind::PaymentProcessing))
            }
            (CAPTURE, Some("S")) if manual => Some(("payment.succeeded", FactKind::PaymentSucceeded)),
            (CAPTURE, Some("F")) => Some(("other.capture_result", FactKind::CaptureFailed)),
            ("PAYMENT_RESULT", Some("S")) => Some(("payment.succeeded", FactKind::PaymentSucceeded)),
            ("PAYMENT_RESULT", Some("F")) => Some(("payment.failed", FactKind::PaymentFailed)),
            ("PAYMENT_RESULT", Some("U")) | ("PAYMENT_PENDING", _) => {
                Some(("payment.processing", FactKind::PaymentProcessing))
            }
            ("REFUND_RESULT", Some("SUCCESS" | "S")) => Some(("refund.succeeded", FactKind::RefundSucceeded)),
            ("REFUND_RESULT", Some("FAIL" | "F")) => Some(("refund.failed", FactKind::RefundFailed)),
            _ => None,
        }
    }

    fn fact(&self, kind: FactKind, reading: &Reading, captured: Option<&str>) -> Option<Fact> {
        let trade = reading.trade_id.as_deref();
        let fact = match kind {
            FactKind::CaptureFailed => Fact::of_capture(kind, trade?, captured?, "capture_failed"),
            FactKind::PaymentSucceeded if captured.is_some() => {
                Fact::of_capture(kind, trade?, captured?, "paid")
            }
            FactKind::RefundSucceeded => {
                Fact::of_refund(kind, trade, reading.refund_id.as_deref()?, "refunded")
            }
            FactKind::RefundFailed => {
                Fact::of_refund(kind, trade, reading.refund_id.as_deref()?, "refund_failed")
            }
            FactKind::PaymentSucceeded => Fact::of_trade(kind, trade?, "paid"),
            // A trade is one attempt here: the next one has another paymentId.
            FactKind::PaymentFailed => Fact::of_trade(kind, trade?, &format!("failed:{}", trade?)),
            _ => Fact::of_trade(kind, trade?, "processing"),
        };
        let failed = matches!(
            kind,
            FactKind::PaymentFailed | FactKind::RefundFailed | FactKind::CaptureFailed
        );
        let reason = self.result("resultCode").filter(|_| failed);
        // Of a payment that is not made yet there is no amount to book.
        let amount = reading
            .amount
            .filter(|_| !matches!(kind, FactKind::PaymentProcessing | FactKind::PaymentFailed));
        Some(
            fact.for_order(reading.order_id.as_deref())
                .with_amount(amount)
                .happened(reading.occurred_at)
                .because(reason.map(|r| text::cut(r, MAX_TYPE))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Body {
        Body::read(text.as_bytes()).unwrap()
    }

    fn said(text: &str) -> (String, Vec<String>, Option<String>) {
        let body = body(text);
        let reading = body.reading(Capture::Auto);
        (
            reading.kind,
            reading.facts.into_iter().map(|fact| fact.key).collect(),
            body.key(),
        )
    }

    fn payment(notify_type: &str, status: &str) -> (String, Vec<String>, Option<String>) {
        said(&format!(
            r#"{{"notifyType":"{notify_type}","result":{{"resultStatus":"{status}"}},"paymentRequestId":"O",
               "paymentId":"T","paymentAmount":{{"currency":"SGD","value":"8888"}}}}"#
        ))
    }

    #[test]
    fn payments_say_their_result() {
        let of = |kind: &str, fact: &str, key: &str| {
            (kind.to_owned(), vec![fact.to_owned()], Some(key.to_owned()))
        };
        assert_eq!(
            payment("PAYMENT_RESULT", "S"),
            of("payment.succeeded", "T:paid", "PAYMENT_RESULT:T:S")
        );
        assert_eq!(
            payment("PAYMENT_RESULT", "F"),
            of("payment.failed", "T:failed:T", "PAYMENT_RESULT:T:F")
        );
        assert_eq!(
            payment("PAYMENT_RESULT", "U"),
            of("payment.processing", "T:processing", "PAYMENT_RESULT:T:U")
        );
        assert_eq!(
            payment("PAYMENT_PENDING", "S"),
            of("payment.processing", "T:processing", "PAYMENT_PENDING:T:S")
        );
        let capture = payment("CAPTURE_RESULT", "S");
        assert_eq!(
            capture,
            (
                "other.capture_result".to_owned(),
                vec![],
                Some("CAPTURE_RESULT:T:S".to_owned())
            )
        );
    }

    #[test]
    fn refunds_go_by_their_own_status_and_may_lack_a_payment() {
        for (status, kind, fact) in [
            ("SUCCESS", "refund.succeeded", "R:refunded"),
            ("S", "refund.succeeded", "R:refunded"),
            ("FAIL", "refund.failed", "R:refund_failed"),
            ("F", "refund.failed", "R:refund_failed"),
        ] {
            let body = body(&format!(
                r#"{{"notifyType":"REFUND_RESULT","result":{{"resultStatus":"S"}},"refundStatus":"{status}",
                   "refundId":"R","refundAmount":{{"currency":"JPY","value":3000}}}}"#
            ));
            let reading = body.reading(Capture::Auto);
            assert_eq!(
                (reading.kind.as_str(), reading.facts[0].key.as_str()),
                (kind, fact)
            );
            assert_eq!(
                (reading.facts[0].trade_id.as_deref(), reading.trade_id),
                (None, None)
            );
            assert_eq!(reading.amount.unwrap().to_string(), "3000 JPY");
            assert_eq!(body.key().unwrap(), format!("REFUND_RESULT:R:{status}"));
        }
    }

    #[test]
    fn what_has_no_id_of_the_known_kinds_has_no_key() {
        let (kind, facts, key) =
            said(r#"{"disputeNotificationType":"DISPUTE_CREATED","paymentId":"T","disputeId":"D"}"#);
        assert_eq!(
            (kind.as_str(), facts, key),
            ("dispute.opened", vec!["D:dispute_opened".to_owned()], None)
        );
        assert_eq!(said("{}").0, "other.unknown");
    }

    #[test]
    fn an_id_that_cannot_be_used_is_said_and_nothing_else_is() {
        for (name, value) in [
            ("paymentRequestId", "x".repeat(256)),
            ("paymentId", "T\u{fffd}".to_owned()),
        ] {
            let body = body(&format!(
                r#"{{"notifyType":"PAYMENT_RESULT","result":{{"resultStatus":"S"}},"{name}":"{value}",
                   "paymentAmount":{{"currency":"SGD","value":"8888"}}}}"#
            ));
            let reading = body.reading(Capture::Auto);
            assert!(
                reading.unreadable.is_some_and(|said| said.starts_with(name)),
                "{name}"
            );
            assert_eq!((&*reading.kind, reading.facts.len()), ("other.unreadable", 0));
        }
        let colon = payment("PAYMENT_RESULT", "S:T");
        assert_eq!(colon.2, None, "two lists of parts would give one key");
    }

    #[test]
    fn money_that_does_not_fit_is_left_to_a_human() {
        for value in [
            r#""88.88""#,
            r#""-1""#,
            "-1",
            "1.5",
            r#""""#,
            "null",
            r#""99999999999999999999""#,
            r#""1000000000000001""#,
        ] {
            let reading = body(&format!(
                r#"{{"notifyType":"PAYMENT_RESULT","result":{{"resultStatus":"S"}},"paymentId":"T",
                   "paymentRequestId":"O","paymentAmount":{{"currency":"SGD","value":{value}}}}}"#
            ))
            .reading(Capture::Auto);
            assert!(
                reading.amount_unreadable.is_some() && reading.facts.is_empty(),
                "{value}"
            );
            assert_eq!(
                (reading.kind.as_str(), reading.links.len()),
                ("payment.succeeded", 1)
            );
        }
    }
}
