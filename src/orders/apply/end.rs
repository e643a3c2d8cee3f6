//! How an event ended: for each order that it concerned, and by precedence for itself.

use super::book::{Book, Wait};
use super::input::Input;
use super::settle::Change;
use super::words::{Line, kinds, too_late};
use super::{Applied, Outcome};
use crate::event::{EventId, Fact, FactKind};
use crate::orders::ledger::may_be_release;
use crate::orders::status::Status;
use crate::store::facts::FactKey;
use crate::store::history::NewOutcome;
use crate::store::orders::OrderKey;

/// How one order, or nothing, was concerned.
pub(super) struct Part {
    pub(super) order: Option<OrderKey>,
    pub(super) fact: String,
    pub(super) outcome: Outcome,
    pub(super) reason: String,
    pub(super) before: Status,
    pub(super) after: Status,
    /// Something was changed, raised or took effect.
    pub(super) moved: bool,
}

impl Book {
    /// How facts that took effect on an order ended. `told`: all that the event says about it; `new`: those of
    /// them that took effect now.
    pub(super) fn judge_part(
        &self,
        order: &OrderKey,
        told: &[&Fact],
        new: &[FactKey],
        change: &Change,
        gained: bool,
    ) -> Part {
        let fresh: Vec<&Fact> = new
            .iter()
            .filter_map(|key| self.facts.get(key))
            .map(|known| &known.row.fact)
            .collect();
        let kept = fresh
            .iter()
            .map(|fact| self.unmoved(order, fact))
            .min_by_key(|outcome| outcome.precedence());
        let (outcome, reason) = if let [first, ..] = change.raised.as_slice() {
            (Outcome::Attention, first.clone())
        } else if !change.words.is_empty() {
            (Outcome::Applied, change.words.join("; "))
        } else if gained {
            (
                Outcome::Applied,
                "the trade is linked to the order now".to_owned(),
            )
        } else {
            let names = kinds(fresh.iter().copied());
            match kept {
                None if told.is_empty() => (
                    Outcome::AlreadyApplied,
                    "it moves nothing, and whose it is was known".to_owned(),
                ),
                None => (Outcome::AlreadyApplied, "everything in it was known".to_owned()),
                Some(Outcome::Stale) => (Outcome::Stale, too_late(&names, change.after)),
                Some(Outcome::AlreadyApplied) => (
                    Outcome::AlreadyApplied,
                    format!("{names}: a second view of money that is booked already"),
                ),
                Some(outcome) => (outcome, format!("{names}: noted, nothing changes by it")),
            }
        };
        Part {
            order: Some(order.clone()),
            fact: kinds(told.iter().copied()),
            outcome,
            reason,
            before: change.before,
            after: change.after,
            moved: gained || !new.is_empty() || !change.words.is_empty() || !change.raised.is_empty(),
        }
    }

    /// Whether a refund is not booked for another reason than that it is booked already: its payment is not known
    /// yet, or it is the release of what was never taken.
    fn waits_or_is_release(&self, order: &OrderKey, fact: &Fact) -> bool {
        self.with_facts(order, |facts| {
            facts
                .trades
                .iter()
                .filter(|trade| Some(trade.trade_id) == fact.trade_id.as_deref())
                .any(|trade| trade.payment().is_none() || may_be_release(trade, fact))
        })
    }

    /// How a new fact ended that changed nothing.
    pub(super) fn unmoved(&self, order: &OrderKey, fact: &Fact) -> Outcome {
        let keys = self.trades_of(order);
        let trades = keys
            .iter()
            .filter_map(|key| self.trades.get(key))
            .filter(|row| Some(&row.key.trade_id) == fact.trade_id.as_ref());
        let refunded = || trades.clone().map(|row| row.refunded).max();
        match fact.kind {
            FactKind::PaymentProcessing
            | FactKind::PaymentFailed
            | FactKind::TradeClosed
            | FactKind::MerchantClosed
            | FactKind::TradeFinished
            | FactKind::RefundAbnormal
            | FactKind::PaymentAccepted => Outcome::Stale,
            FactKind::RefundSucceeded | FactKind::RefundedTotal | FactKind::RefundedOrReleasedTotal
                if self.waits_or_is_release(order, fact) =>
            {
                Outcome::Applied
            }
            FactKind::RefundedTotal if fact.amount.map(|money| money.minor) < refunded() => Outcome::Stale,
            FactKind::RefundSucceeded | FactKind::RefundedTotal | FactKind::RefundedOrReleasedTotal => {
                Outcome::AlreadyApplied
            }
            FactKind::PaymentSucceeded
            | FactKind::CaptureFailed
            | FactKind::OrderRegistered
            | FactKind::PaymentKept
            | FactKind::RefundFailed
            | FactKind::AuthorisationReleased
            | FactKind::DisputeOpened
            | FactKind::DisputeWon
            | FactKind::DisputeLost
            | FactKind::DisputeFundsWithdrawn
            | FactKind::DisputeFundsReinstated => Outcome::Applied,
        }
    }

    /// The event's own end: its parts by precedence, noted unless this is a mere repetition.
    pub(super) fn finish(&mut self, input: &Input, mut parts: Vec<Part>) -> Applied {
        for key in input.facts.iter().map(|fact| input.fact_key(fact)) {
            if let Some(known) = self.facts.get_mut(&key) {
                known.stepped = true;
            }
        }
        let waits = input
            .facts
            .iter()
            .map(|fact| match (&fact.trade_id, &fact.order_id) {
                (Some(trade), _) => Some(Wait::Trade(input.trade_key(trade))),
                (None, order) => order.as_ref().map(|order| Wait::Order(input.order_key(order))),
            });
        let orders = parts.iter().filter(|part| part.outcome == Outcome::Parked);
        let orders = orders.filter_map(|part| part.order.clone().map(Wait::Order));
        if let Some(event) = &input.event_id {
            let waits = waits.flatten().chain(orders);
            self.parked.extend(waits.map(|wait| (event.clone(), wait)));
        }
        if parts.is_empty() {
            parts.extend(self.unmapped(input));
        }
        let outcome = parts
            .iter()
            .map(|part| part.outcome)
            .min_by_key(|outcome| outcome.precedence())
            .unwrap_or(Outcome::Unmapped);
        let mut reasons: Vec<&str> = Vec::new();
        for part in parts.iter().filter(|part| part.outcome == outcome) {
            if !reasons.contains(&part.reason.as_str()) {
                reasons.push(&part.reason);
            }
        }
        let reason = reasons.join("; ");
        let event_id = input.event_id.as_ref();
        let ended = event_id
            .and_then(|id| self.ended.get(id.as_str()))
            .map(String::as_str);
        if ended == Some(Outcome::Attention.as_str()) {
            let over = input.refused_no_more();
            let why = "it was read anew, and is not refused any more";
            self.writes.resolved.extend(over.map(|item| (item, why)));
        }
        let repeated = parts.iter().all(|part| !part.moved)
            && ended.is_some_and(|ended| {
                ended == outcome.as_str()
                    || outcome == Outcome::AlreadyApplied && !matches!(ended, "parked" | "dead" | "unmapped")
            });
        if !repeated {
            for part in &parts {
                self.note(event_id, part);
            }
            self.decide(event_id, outcome, &reason);
        }
        Applied {
            event_id: input.event_id.clone(),
            outcome,
            reason,
        }
    }

    /// One part for each order that the event names, or one for none.
    pub(super) fn unmapped(&self, input: &Input) -> Vec<Part> {
        let reason = match input.not_applied {
            Some(_) => "it is of a kind that is not applied",
            None => "it says nothing that moves an order",
        };
        let part = |order: Option<OrderKey>| Part {
            before: self.status_of(order.as_ref()),
            after: self.status_of(order.as_ref()),
            order,
            fact: String::new(),
            outcome: Outcome::Unmapped,
            reason: reason.to_owned(),
            moved: false,
        };
        let named = input.names.iter().map(|order| input.order_key(order));
        let known: Vec<Part> = named
            .filter(|order| self.orders.contains_key(order))
            .map(|order| part(Some(order)))
            .collect();
        if known.is_empty() { vec![part(None)] } else { known }
    }

    pub(super) fn status_of(&self, order: Option<&OrderKey>) -> Status {
        order
            .and_then(|order| self.orders.get(order))
            .map_or(Status::Pending, |order| order.stands.status)
    }

    /// Puts the last line of history before those that were noted since there were `noted`.
    pub(super) fn history_begins_with_the_last(&mut self, noted: usize) {
        if let Some(lines) = self
            .writes
            .history
            .get_mut(noted..)
            .filter(|lines| lines.len() > 1)
        {
            lines.rotate_right(1);
        }
    }

    pub(super) fn note(&mut self, event_id: Option<&EventId>, part: &Part) {
        let Some(order) = &part.order else { return };
        self.writes.history.push(Line {
            order: order.clone(),
            event_id: event_id.cloned(),
            fact: part.fact.clone(),
            outcome: part.outcome,
            reason: part.reason.clone(),
            before: part.before,
            after: part.after,
        });
        if let Some(event_id) = event_id {
            self.writes.concerns.insert((event_id.clone(), order.clone()));
        }
    }

    pub(super) fn decide(&mut self, event_id: Option<&EventId>, outcome: Outcome, reason: &str) {
        let Some(event_id) = event_id else { return };
        let before = self
            .ended
            .insert(event_id.as_str().to_owned(), outcome.as_str().to_owned());
        if before.as_deref() == Some(Outcome::Parked.as_str()) {
            self.writes.had_waited.insert(event_id.clone());
        }
        let decided = NewOutcome {
            event_id: event_id.clone(),
            outcome: outcome.as_str(),
            reason: reason.to_owned(),
        };
        self.writes.outcomes.insert(event_id.as_str().to_owned(), decided);
    }
}
