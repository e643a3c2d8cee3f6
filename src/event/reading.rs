//! A reading: what a provider's file understood of one verified event, in provider-neutral words.
//!
//! It is computed from the event's content alone, so it can be computed again at any time: a mapping
//! mended in a new version takes effect on replay.

use serde::{Deserialize, Serialize};

use super::{Fact, Money};
use crate::time::Timestamp;

/// Whether the event is about the account it came to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Identity {
    /// Every identity field present in the message agrees with the account.
    #[default]
    Ok,
    /// Genuine, but another app_id, seller_id, mchid, merchantID or mode; which, in words. Kept as
    /// `other.identity_mismatch`, not applied.
    Mismatch(String),
}

/// What becomes of a payment in which no order id is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NoOrder {
    /// It waits for its order, and a human sees it when that takes too long.
    #[default]
    Park,
    /// It is no order's: it counts only if another event links it to one.
    Ignore,
}

/// What an account says about its payments, whatever its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AccountRules {
    /// `since`: payments from before it are not shipped. `None`: from when the store first knew the account.
    pub since: Option<Timestamp>,
    /// `no_order`.
    pub no_order: NoOrder,
}

/// One order of a combined event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderPart {
    /// The merchant's order id.
    pub order_id: String,
    /// The provider's trade.
    pub trade_id: Option<String>,
    /// What this order was billed.
    pub amount: Option<Money>,
}

/// What one event says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Reading {
    /// payhook's type (design section 5.4): `payment.succeeded`, …, else `other.{provider's, lower case}`.
    pub kind: String,
    /// The provider's own type: trade_status, event_type, type, respCode.
    pub provider_event_type: String,
    /// The CloudEvent's subject when it is not the order id (a combined order's id).
    pub subject: Option<String>,
    /// The order, when there is exactly one.
    pub order_id: Option<String>,
    /// The trade, when there is exactly one.
    pub trade_id: Option<String>,
    /// The refund it is about.
    pub refund_id: Option<String>,
    /// The amount it is about: paid, or refunded by this refund, or cumulative where only that is known.
    pub amount: Option<Money>,
    /// The orders of a combined event; empty otherwise.
    pub orders: Vec<OrderPart>,
    /// When it happened; absent: arrival.
    pub occurred_at: Option<Timestamp>,
    /// Whether it is about this account.
    pub identity: Identity,
    /// The owner of its orders, where the event itself says so; else the account's.
    pub merchant: Option<String>,
    /// It does not say whose it is: its facts count once another event links their trade to an order, and until
    /// then nobody has to look.
    pub follows_trade: bool,
    /// What moves orders; empty for an event that is not mapped.
    pub facts: Vec<Fact>,
    /// Links that the event teaches, (trade id, order id), even where it states no fact.
    pub links: Vec<(String, String)>,
    /// Why it is not applied although it may concern an order, and what to do, in words: one item `not_applied` for
    /// each account and type counts such events.
    pub not_applied: Option<String>,
    /// What its account says about payments; the provider leaves it as it is.
    pub rules: AccountRules,
    /// Why an amount could not be taken, in words: attention `amount_unreadable`, no facts.
    pub amount_unreadable: Option<String>,
    /// Why the event, or an id in it, cannot be understood, in words: attention `event_unreadable`, no facts.
    pub unreadable: Option<String>,
}

impl Reading {
    /// Of a genuine event that cannot be understood: kept, published, shown to a human, never applied.
    pub fn unreadable(provider_event_type: String, why: impl Into<String>) -> Self {
        Self {
            kind: "other.unreadable".to_owned(),
            provider_event_type,
            unreadable: Some(why.into()),
            ..Self::default()
        }
    }
}
