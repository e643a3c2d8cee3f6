//! What a snapshot event says (design section 4.1, Stripe mapping), from its stored content alone.
//!
//! What was taken and what of it went back is read beside this, in `charge`. Nothing is fetched: thin events,
//! invoices and subscriptions are recorded and published, and move no order.

use serde_json::value::RawValue;

use super::payload::{Object, Payload};
use super::scope::{Ours, Scope};
use super::session::{self, Session};
use crate::event::{Fact, FactKind, Identity, Money, Reading, text};
use crate::provider::raw_json::{self, Members};
use crate::time::Timestamp;

/// The account's settings that a reading depends on.
#[derive(Debug)]
pub(super) struct Rules {
    /// Dotted paths in `data.object`, the first that is present names the order.
    pub(super) order_id_from: Vec<String>,
    /// What is the account's own.
    pub(super) scope: Scope,
}

/// Reads one event.
pub(super) fn read(payload: &Payload<'_>, rules: &Rules) -> Reading {
    let read = understood(payload, rules);
    read.unwrap_or_else(|why| Reading::unreadable(provider_event_type(payload), why))
}

fn provider_event_type(payload: &Payload<'_>) -> String {
    text::cut(&text::storable(payload.kind()), 128).to_owned()
}

/// An error is a reason in words.
fn understood(payload: &Payload<'_>, rules: &Rules) -> Result<Reading, String> {
    let event_type = payload.kind();
    let mut reading = Reading {
        kind: format!(
            "other.{}",
            text::cut(&text::storable(&event_type.to_lowercase()), 128)
        ),
        provider_event_type: provider_event_type(payload),
        occurred_at: created(payload.created),
        identity: rules.scope.identity(payload),
        ..Reading::default()
    };
    if reading.identity == Identity::Ok {
        reading.merchant = rules.scope.merchant(payload)?;
    }
    if payload.is_thin() {
        return Ok(reading);
    }
    let Some(resource) = payload.resource()? else {
        return Ok(reading);
    };
    let ours = rules.scope.ours(event_type, resource)?;
    if ours == Ours::No {
        return Ok(Reading {
            kind: "other.not_ours".to_owned(),
            identity: Identity::Ok,
            ..reading
        });
    }
    let object = Object::read(resource)?;
    reading.follows_trade = ours == Ours::AsItsPayment;
    if !reading.follows_trade {
        reading.order_id = order_id(resource, &rules.order_id_from)?;
    }
    reading.trade_id = trade_id(event_type, &object);
    // Without an order id it is nobody's business here, as a renewal's or a card's that was only set up.
    let session = match reading.order_id {
        Some(_) => session::judge(event_type, &object),
        None => Session::Other,
    };
    match session {
        Session::Free => reading.trade_id = object.id(),
        Session::NotApplied => reading.not_applied = Some(session::WAY_OUT.to_owned()),
        Session::Other => {}
    }
    if let (Some(trade), Some(order)) = (&reading.trade_id, &reading.order_id) {
        reading.links.push((trade.clone(), order.clone()));
    }
    let attempt = match object.latest_charge() {
        Some(charge) => charge,
        None => text::id(&payload.id().unwrap_or_default())
            .map_err(|why| format!("id {why}"))?
            .unwrap_or_default(),
    };
    let case = Case {
        object: &object,
        trade: reading.trade_id.as_deref(),
        at: reading.occurred_at,
        attempt: &attempt,
        session,
        releases_are_refunds: payload.releases_are_refunds(),
    };
    match case.says(event_type) {
        Ok(said) => {
            reading.kind = said.kind.map_or(reading.kind, str::to_owned);
            reading.amount = said.amount;
            reading.refund_id = said.refund_id;
            let order = reading.order_id.as_deref();
            reading.facts = said.facts.into_iter().map(|fact| fact.for_order(order)).collect();
        }
        Err(why) => reading.amount_unreadable = Some(why),
    }
    Ok(reading)
}

/// Unix seconds in a snapshot, RFC 3339 text in a thin event.
pub(super) fn created(value: Option<&RawValue>) -> Option<Timestamp> {
    match raw_json::integer(value) {
        Some(secs) => Some(Timestamp::from_secs(secs)),
        None => Timestamp::parse_rfc3339(&raw_json::text(value)?),
    }
}

/// The first of `paths` that holds a string or a whole number.
fn order_id(resource: &Members<'_>, paths: &[String]) -> Result<Option<String>, String> {
    for path in paths {
        let value = resource
            .at(path)
            .map_err(|_| format!("{path} is not to be read in one way only"))?;
        let id = raw_json::text(value).or_else(|| raw_json::integer(value).map(|n| n.to_string().into()));
        let id = text::id(&id.unwrap_or_default()).map_err(|why| format!("{path} {why}"))?;
        if id.is_some() {
            return Ok(id);
        }
    }
    Ok(None)
}

/// The payment intent, else the charge, for the resources that belong to a payment.
fn trade_id(event_type: &str, object: &Object<'_>) -> Option<String> {
    if event_type.starts_with("payment_intent.") {
        object.id()
    } else if event_type.starts_with("charge.dispute.") || is_refund(event_type) {
        object.payment_intent().or_else(|| object.charge())
    } else if event_type.starts_with("charge.") {
        object.payment_intent().or_else(|| object.id())
    } else if event_type.starts_with("checkout.session.") {
        object.payment_intent()
    } else {
        None
    }
}

/// `charge.refund.updated` is about a refund; `charge.refunded` is about the charge.
pub(super) fn is_refund(event_type: &str) -> bool {
    event_type.starts_with("refund.") || event_type.starts_with("charge.refund.")
}

/// What an event type makes of its object; the default is nothing.
#[derive(Default)]
pub(super) struct Said {
    pub(super) kind: Option<&'static str>,
    pub(super) amount: Option<Money>,
    pub(super) refund_id: Option<String>,
    pub(super) facts: Vec<Fact>,
}

/// One event's parts while it is read.
pub(super) struct Case<'a> {
    pub(super) object: &'a Object<'a>,
    pub(super) trade: Option<&'a str>,
    pub(super) at: Option<Timestamp>,
    attempt: &'a str,
    session: Session,
    /// See [`Payload::releases_are_refunds`].
    pub(super) releases_are_refunds: bool,
}

impl Case<'_> {
    /// The mapping itself. An error says which amount cannot be taken.
    fn says(&self, event_type: &str) -> Result<Said, String> {
        match event_type {
            "payment_intent.succeeded" => self.intent_paid(),
            "payment_intent.payment_failed" | "checkout.session.async_payment_failed" => Ok(self.failed()),
            "payment_intent.processing"
            | "payment_intent.amount_capturable_updated"
            | "payment_intent.partially_funded" => Ok(self.processing()),
            "payment_intent.canceled" if self.was_captured_in_part() => self.intent_paid(),
            "payment_intent.canceled" => Ok(self.closed()),
            "checkout.session.completed" | "checkout.session.async_payment_succeeded" => self.session_paid(),
            "charge.succeeded" | "charge.captured" => self.charge_paid(),
            // With a payment intent its own event says it.
            "charge.expired" if self.object.payment_intent().is_none() => Ok(self.closed()),
            "charge.failed" if self.object.payment_intent().is_none() => Ok(self.failed()),
            "charge.refunded" => self.charge_refunded(),
            "charge.dispute.created" => self.dispute(FactKind::DisputeOpened, Some("dispute.opened")),
            "charge.dispute.closed" => self.dispute_closed(),
            "charge.dispute.funds_withdrawn" => self.dispute(FactKind::DisputeFundsWithdrawn, None),
            "charge.dispute.funds_reinstated" => self.reinstated(),
            _ if is_refund(event_type) => self.refund(),
            _ => Ok(Said::default()),
        }
    }

    pub(super) fn about_trade(&self, kind: FactKind, what: &str) -> Option<Fact> {
        self.trade
            .map(|trade| Fact::of_trade(kind, trade, what).happened(self.at))
    }

    pub(super) fn paid(&self, name: &str, units: Option<&RawValue>) -> Result<Said, String> {
        let amount = Some(self.object.money(name, units)?);
        let fact = self
            .about_trade(FactKind::PaymentSucceeded, "paid")
            .map(|fact| fact.with_amount(amount));
        Ok(Said {
            kind: Some("payment.succeeded"),
            amount,
            facts: fact.into_iter().collect(),
            ..Said::default()
        })
    }

    /// Not final: the payer may try again, so each attempt is a fact of its own.
    fn failed(&self) -> Said {
        let error = self.object.last_payment_error;
        let code =
            |name| raw_json::text(error.and_then(|error| raw_json::member(error, name).ok().flatten()));
        let reason = code("decline_code").or_else(|| code("code"));
        let fact = self.about_trade(FactKind::PaymentFailed, &format!("failed:{}", self.attempt));
        let fact = fact.map(|fact| fact.because(reason.as_deref()));
        Said {
            kind: Some("payment.failed"),
            facts: fact.into_iter().collect(),
            ..Said::default()
        }
    }

    fn processing(&self) -> Said {
        let fact = self.about_trade(
            FactKind::PaymentProcessing,
            &format!("processing:{}", self.attempt),
        );
        Said {
            kind: Some("payment.processing"),
            facts: fact.into_iter().collect(),
            ..Said::default()
        }
    }

    fn closed(&self) -> Said {
        let reason = raw_json::text(self.object.cancellation_reason);
        let fact = self
            .about_trade(FactKind::TradeClosed, "closed")
            .map(|fact| fact.because(reason.as_deref()));
        Said {
            kind: Some("payment.closed"),
            facts: fact.into_iter().collect(),
            ..Said::default()
        }
    }

    /// The session repeats what its payment intent says, so only one without any is the payment's own message. A
    /// delayed method completes the session unpaid.
    fn session_paid(&self) -> Result<Said, String> {
        if self.session == Session::Free {
            return self.paid("amount_total", self.object.amount_total);
        }
        let paid = raw_json::text(self.object.payment_status).is_some_and(|status| status == "paid");
        if !paid || self.trade.is_none() {
            return Ok(Said::default());
        }
        Ok(Said {
            kind: None,
            ..self.paid("amount_total", self.object.amount_total)?
        })
    }
}
