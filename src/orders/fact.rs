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
    /// What it was billed: from its payment or its captures, or filled by a later report of the payment.
    pub amount: Option<Money>,
    /// The latest time at which it was reported to be under way.
    pub processing_at: Option<Timestamp>,
    /// The latest time at which an attempt was reported to have failed.
    pub failed_at: Option<Timestamp>,
    /// How it stood.
    pub was: Was,
    /// A report of its payment showed that it is not from before its account's `since`.
    pub ships: bool,
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
        self.paid_by(self.of(FactKind::PaymentSucceeded))
    }

    /// What these reports of its payment add up to: the payment as a whole, or the sum of its captures if that is
    /// more. Each capture is one fact, so neither order nor repetition matters. A report in another currency than
    /// the first one's is not counted.
    pub fn paid_by<'b>(&self, reports: impl IntoIterator<Item = Known<'b>>) -> Option<Money> {
        let (mut whole, mut captured, mut currency) = (0_i64, 0_i64, None);
        for Known { fact, .. } in reports {
            let filled = self.amount.filter(|_| !fact.is_capture());
            let Some(amount) = fact.amount.or(filled) else {
                continue;
            };
            if *currency.get_or_insert(amount.currency) != amount.currency {
                continue;
            }
            if fact.is_capture() {
                captured = captured.saturating_add(amount.minor);
            } else {
                whole = whole.max(amount.minor);
            }
        }
        currency.map(|currency| Money::new(whole.max(captured), currency))
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

    /// The currency of its money: the payment's. While that is not known, no money of the trade is booked: a
    /// refund or dispute in another currency would otherwise count only if it were known before the payment.
    pub fn currency(&self) -> Option<Currency> {
        self.payment().map(|money| money.currency)
    }

    /// The fact's amount in the trade's currency; `None` if it has none or is in another, or the trade's
    /// currency is not known.
    pub fn minor(&self, fact: &Fact) -> Option<i64> {
        let (amount, currency) = (fact.amount?, self.currency()?);
        (fact.currency_assumed || currency == amount.currency).then_some(amount.minor)
    }

    /// The amount that the first fact of `kind` tells of this refund or dispute, in the trade's currency.
    pub fn minor_about(&self, kind: FactKind, id: &str) -> Option<i64> {
        self.minor(self.about(kind, id)?.fact)
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
