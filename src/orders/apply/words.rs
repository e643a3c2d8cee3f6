//! What an event did, in words, for an order's history and an event's outcome.

use super::Outcome;
use crate::event::{Currency, EventId, Fact, Money};
use crate::orders::ledger::EntryType;
use crate::orders::status::Status;
use crate::store::orders::OrderKey;

/// A line of an order's history, before it is a row.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) order: OrderKey,
    pub(super) event_id: Option<EventId>,
    pub(super) fact: String,
    pub(super) outcome: Outcome,
    pub(super) reason: String,
    pub(super) before: Status,
    pub(super) after: Status,
}

/// The kinds that an event told, once each.
pub(super) fn kinds<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for fact in facts {
        if !kinds.contains(&fact.kind.as_str()) {
            kinds.push(fact.kind.as_str());
        }
    }
    kinds.join(", ")
}

/// A movement of money.
pub(super) fn movement(entry_type: EntryType, amount: i64, currency: Currency) -> String {
    let money = Money::new(amount.saturating_abs(), currency);
    match entry_type {
        EntryType::Payment => format!("{money} paid"),
        EntryType::Refund => format!("{money} refunded"),
        EntryType::RefundReversal => format!("{money} of a refund came back"),
        EntryType::Dispute => format!("{money} taken in a dispute"),
        EntryType::DisputeReversal => format!("{money} given back after a dispute"),
    }
}

/// Why facts that are true changed nothing.
pub(super) fn too_late(facts: &str, status: Status) -> String {
    format!("{facts}: too late to matter, the order is {}", status.as_str())
}
