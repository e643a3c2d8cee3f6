//! Facts move orders: one transaction for a batch of events.
//!
//! Locks the trades, then the orders, each in key order; records the facts (a fact is fresh or known, by the
//! unique key alone); then walks the events in memory ([`Book`]) and writes what they changed. A repetition, by
//! whatever path, changes nothing. What the rules are is not decided here: see the files beside this folder.
//!
//! The caller begins and commits the transaction, and in it ends the events' outbox rows.

mod book;
mod end;
mod input;
mod load;
mod message;
mod own;
mod plan;
mod preview;
mod seen;
mod settle;
mod step;
#[cfg(test)]
mod tests;
mod wake;
mod words;
mod write;

use std::time::Duration;

pub use self::own::{Close, Registration, close, register};

use self::book::Book;
use self::input::Input;
pub use self::preview::{OrderChange, Preview};
use crate::event::{Event, EventId, Money, ProviderName, Reading};
use crate::store::{StoreError, Tx};
use crate::time::Timestamp;

/// An event to apply, with what its provider understands of it today.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The event, as stored.
    pub event: &'a Event,
    /// What it says.
    pub reading: &'a Reading,
}

/// `[orders]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What becomes of an order that nobody registered.
    pub unknown: Unknown,
    /// How long facts may wait for their order before a human is told.
    pub park_deadline: Duration,
}

/// `[orders] unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is created from its notification.
    Create,
    /// Its facts wait for the registration.
    Park,
}

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A human has to look.
    Attention,
    /// Given up (decided by the worker).
    Dead,
    /// Waits for its order.
    Parked,
    /// It moved something, or was noted.
    Applied,
    /// True, but too late to matter.
    Stale,
    /// Everything in it was known.
    AlreadyApplied,
    /// It says nothing about an order.
    Unmapped,
}

impl Outcome {
    /// The stored text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Dead => "dead",
            Self::Parked => "parked",
            Self::Applied => "applied",
            Self::Stale => "stale",
            Self::AlreadyApplied => "already_applied",
            Self::Unmapped => "unmapped",
        }
    }

    /// Of several facts or orders the first in this order is the event's outcome.
    fn precedence(self) -> u8 {
        match self {
            Self::Attention => 0,
            Self::Dead => 1,
            Self::Parked => 2,
            Self::Applied => 3,
            Self::Stale => 4,
            Self::AlreadyApplied => 5,
            Self::Unmapped => 6,
        }
    }
}

/// How one event ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The event; absent for what the merchant itself said.
    pub event_id: Option<EventId>,
    /// How.
    pub outcome: Outcome,
    /// Why, in words.
    pub reason: String,
}

/// What comes from the merchant or an operator, not from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnFact {
    /// The order is to be paid with this amount.
    Registered {
        /// The order.
        order_id: String,
        /// What it costs.
        amount: Money,
    },
    /// The order is not to be paid any more.
    Closed {
        /// The order.
        order_id: String,
    },
    /// A held payment is accepted as it is.
    PaymentAccepted {
        /// The attention item that was answered.
        attention_id: String,
        /// Whose trade.
        provider: ProviderName,
        /// The trade.
        trade_id: String,
    },
    /// A payment after a close, or beside another one, is kept.
    PaymentKept {
        /// The attention item that was answered.
        attention_id: String,
        /// Whose trade.
        provider: ProviderName,
        /// The trade.
        trade_id: String,
    },
}

/// Why nothing was applied; the transaction must be dropped.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another transaction linked a trade to an order in the same moment: the same call succeeds next time.
    #[error("an order was linked by somebody else in the same moment")]
    Contended,
}

impl ApplyError {
    /// Whether the same call may succeed later with the same data.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Contended => true,
        }
    }
}

/// Applies `items`, in their order; the answers are in the same order.
pub async fn apply(
    tx: &mut Tx,
    items: &[Item<'_>],
    policy: &Policy,
    now: Timestamp,
) -> Result<Vec<Applied>, ApplyError> {
    let inputs = inputs(tx, items).await?;
    run(tx, inputs, policy, now).await
}

/// What would become of `items` and of the orders they concern. Takes the locks and records the facts that an
/// application would, and decides nothing else: the caller must drop `tx`.
pub async fn preview(
    tx: &mut Tx,
    items: &[Item<'_>],
    policy: &Policy,
    now: Timestamp,
) -> Result<Preview, ApplyError> {
    let inputs = inputs(tx, items).await?;
    let mut book = load::load(tx, &inputs, policy, now).await?;
    let applied = inputs.iter().map(|input| book.step(input)).collect();
    Ok(Preview {
        applied,
        changes: book.changes(),
    })
}

async fn inputs(tx: &mut Tx, items: &[Item<'_>]) -> Result<Vec<Input>, StoreError> {
    let accepted = load::accepted_mismatches(tx, items).await?;
    let mut inputs: Vec<Input> = items
        .iter()
        .map(|item| Input::of_event(item, &accepted))
        .collect();
    load::settle_since(tx, &mut inputs).await?;
    Ok(inputs)
}

/// Applies a fact that comes from no event.
pub async fn apply_fact(
    tx: &mut Tx,
    merchant: &str,
    fact: &OwnFact,
    policy: &Policy,
    now: Timestamp,
) -> Result<Applied, ApplyError> {
    let inputs = vec![Input::of_own(merchant, fact)];
    let mut applied = run(tx, inputs, policy, now).await?;
    applied.pop().ok_or(ApplyError::Contended)
}

async fn run(
    tx: &mut Tx,
    inputs: Vec<Input>,
    policy: &Policy,
    now: Timestamp,
) -> Result<Vec<Applied>, ApplyError> {
    let mut book: Book = load::load(tx, &inputs, policy, now).await?;
    let applied = inputs.iter().map(|input| book.step(input)).collect();
    write::write(tx, book, now).await?;
    Ok(applied)
}
