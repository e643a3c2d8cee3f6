//! What the rules look at: an order's facts, by trade, in the sequence in which they took effect.
//!
//! Facts are a set: what they add up to does not depend on arrival. Three questions do, by their nature, and
//! for these each trade remembers how it stood before ([`Was`]): was money there before the close, was it
//! believed before a registration contradicted it, which payment came first.

use crate::event::{Currency, Fact, FactKind, Money};
use crate::time::Timestamp;

/// A recorded fact; `seq` is the order of becoming known.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The order of becoming known.
    pub seq: i64,
    /// What is known.
    pub fact: &'a Fact,
}

/// How a trade stood before: the only memory that the rules have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Was {
    /// Its payment was known.
    pub paid: bool,
    /// It was held.
    pub held: bool,
    /// Its payment had come after a close.
    pub late: bool,
}

/// One trade of an order.
#[derive(Clone, Debug)]
pub struct TradeFacts<'a> {
    /// Whose trade it is.
    pub provider: &'a str,
    /// The provider's id.
    pub trade_id: &'a str,
    /// The order it is linked to.
    pub order_id: &'a str,
    /// What it was billed: from its payment, or filled by a later sighting of it.
    pub amount: Option<Money>,
    /// The latest time at which it was reported to be under way.
    pub processing_at: Option<Timestamp>,
    /// How it stood.
    pub was: Was,
    /// Its facts, by `seq`.
    pub facts: Vec<Known<'a>>,
}

/// Everything that is known of one order.
#[derive(Clone, Debug)]
pub struct OrderFacts<'a> {
    /// The merchant's id.
    pub order_id: &'a str,
    /// The currency its totals are in, once that has been settled.
    pub currency: Option<Currency>,
    /// Its trades.
    pub trades: Vec<TradeFacts<'a>>,
    /// Facts that name no trade, by `seq`.
    pub own: Vec<Known<'a>>,
}

impl<'a> TradeFacts<'a> {
    /// The believed facts of `kind`.
    pub fn of(&self, kind: FactKind) -> impl Iterator<Item = Known<'a>> + '_ {
        self.facts
            .iter()
            .copied()
            .filter(move |known| known.fact.kind == kind && self.believes(known.fact))
    }

    /// The first fact of `kind`.
    pub fn first(&self, kind: FactKind) -> Option<Known<'a>> {
        self.of(kind).next()
    }

    /// The first fact of `kind` about this refund or dispute.
    pub fn about(&self, kind: FactKind, id: &str) -> Option<Known<'a>> {
        self.of(kind)
            .find(|known| known.fact.refund_id.as_deref() == Some(id))
    }

    /// Whether there is any fact of `kind`.
    pub fn has(&self, kind: FactKind) -> bool {
        self.first(kind).is_some()
    }

    /// Its payment, once the amount is known too: without it nobody can check it.
    pub fn payment(&self) -> Option<Money> {
        self.first(FactKind::PaymentSucceeded).and(self.amount)
    }

    /// Signed facts are believed. An unsigned one only about a refund, and only if the ids and the total that
    /// it claims are those of the verified payment.
    pub fn believes(&self, fact: &Fact) -> bool {
        let Some(claimed) = fact.unsigned else { return true };
        let about_a_refund = matches!(
            fact.kind,
            FactKind::RefundSucceeded | FactKind::RefundAbnormal | FactKind::RefundFailed
        );
        about_a_refund
            && fact
                .order_id
                .as_deref()
                .is_none_or(|order_id| order_id == self.order_id)
            && self.is_verified()
            && self.amount.is_some_and(|amount| {
                amount.minor == claimed.minor
                    && (fact.currency_assumed || amount.currency == claimed.currency)
            })
    }

    /// Whether a signed event has told of its payment.
    pub fn is_verified(&self) -> bool {
        self.amount.is_some()
            && self
                .facts
                .iter()
                .any(|known| known.fact.kind == FactKind::PaymentSucceeded && known.fact.unsigned.is_none())
    }

    /// The currency of its money: the payment's, else that of the first fact that moves some.
    pub fn currency(&self) -> Option<Currency> {
        self.payment()
            .or_else(|| {
                self.facts
                    .iter()
                    .filter(|known| moves_money(known.fact.kind) && self.believes(known.fact))
                    .find_map(|known| known.fact.amount)
            })
            .map(|money| money.currency)
    }

    /// The fact's amount in the trade's currency; `None` if it has none, or is in another.
    pub fn minor(&self, fact: &Fact) -> Option<i64> {
        let amount = fact.amount?;
        let fits = fact.currency_assumed || self.currency() == Some(amount.currency);
        fits.then_some(amount.minor)
    }
}

/// The kinds that move money other than by paying.
pub fn moves_money(kind: FactKind) -> bool {
    matches!(
        kind,
        FactKind::RefundSucceeded
            | FactKind::RefundedTotal
            | FactKind::RefundedOrReleasedTotal
            | FactKind::DisputeLost
            | FactKind::DisputeFundsWithdrawn
            | FactKind::DisputeFundsReinstated
    )
}
