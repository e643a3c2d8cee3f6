//! An order's status, from its facts. Pure; computed anew each time, never walked edge by edge.
//!
//! | Order | when |
//! |---|---|
//! | `pending` | nothing is known yet, or only that it was registered |
//! | `processing`, `failed` | no trade counts as paid; whichever was reported last by event time (a tie: failed) |
//! | `closed` | no trade counts as paid, and the merchant closed it, or one is closed and none is open |
//! | `paid` | a trade counts as paid; of several, the one of the lowest rank decides |
//! | `partially_refunded` | that trade is refunded in part |
//! | `finished` | that trade can no longer be refunded |
//! | `refunded` | every trade that counts is refunded whole, even if the money came back later |
//!
//! A trade stands alike, with `unpaid` for what is not paid yet and `held` for a payment that contradicts the
//! registration. A held trade, and one paid after its own or its order's close, does not count as paid; its
//! money is booked all the same. It counts once an operator accepts what was held, or keeps what was late.
//!
//! # What is final
//!
//! A trade that counts does so for good, and its rank (paid < partially_refunded < finished < refunded) never
//! falls: `refunded` is final for a trade. An order's trades are not a closed set: the first report of another
//! paid trade may come last, after the refund of the one that is known. Hence for an order:
//!
//! - Once paid it never becomes unpaid, and its rank never falls, with one exception: `refunded` is left, for
//!   what the facts say, when another trade counts that is not refunded whole. Each time takes a trade that did
//!   not count before, so it ends. Whatever the order of arrival, an order is `refunded` if and only if every
//!   trade that counts is refunded whole.
//! - A merchant's close is left only when an operator keeps a payment that came after it.
//!
//! `order.paid` is written once, whichever way an order becomes paid: see [`super::transition`]. The database
//! holds writers to the same rule by the trades that it has.
//!
//! # Totals
//!
//! Totals are in one currency: the registered one, else that of the first payment, settled once. A payment in
//! another stands in its trade and the ledger only. What is booked depends on the order of arrival in two cases,
//! both of them shown to a human: the totals of an order with payments in two currencies (`currency_mismatch`), and
//! a fact that two events tell with different amounts, of which the first counts (`fact_conflict`).

use super::fact::{Known, OrderFacts, TradeFacts};
use super::ledger::{Refunds, refunds};
pub use super::trade_status::TradeStatus;
use crate::event::{Currency, FactKind, Money};
use crate::time::Timestamp;

/// How an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Nothing has happened.
    Pending,
    /// A payment is under way.
    Processing,
    /// The last attempt failed; another may succeed.
    Failed,
    /// Ended unpaid.
    Closed(ClosedBy),
    /// Paid.
    Paid,
    /// Paid, and refunded in part.
    PartiallyRefunded,
    /// Paid, and no longer refundable.
    Finished,
    /// Paid, and refunded whole.
    Refunded,
}

/// Who closed an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClosedBy {
    /// Its merchant: final.
    Merchant,
    /// The provider, trade by trade: another trade may still be paid.
    Provider,
}

impl ClosedBy {
    /// The stored text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Merchant => "merchant",
            Self::Provider => "provider",
        }
    }
}

impl Status {
    /// The stored text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Failed => "failed",
            Self::Closed(_) => "closed",
            Self::Paid => "paid",
            Self::PartiallyRefunded => "partially_refunded",
            Self::Finished => "finished",
            Self::Refunded => "refunded",
        }
    }

    /// From the stored texts.
    pub fn from_text(status: &str, closed_by: Option<&str>) -> Option<Self> {
        Some(match (status, closed_by) {
            ("pending", _) => Self::Pending,
            ("processing", _) => Self::Processing,
            ("failed", _) => Self::Failed,
            ("closed", Some("merchant")) => Self::Closed(ClosedBy::Merchant),
            ("closed", _) => Self::Closed(ClosedBy::Provider),
            ("paid", _) => Self::Paid,
            ("partially_refunded", _) => Self::PartiallyRefunded,
            ("finished", _) => Self::Finished,
            ("refunded", _) => Self::Refunded,
            _ => return None,
        })
    }

    /// Who closed it.
    pub fn closed_by(self) -> Option<ClosedBy> {
        match self {
            Self::Closed(by) => Some(by),
            _ => None,
        }
    }

    /// How far a paid order has come; 0: not paid.
    pub fn rank(self) -> u8 {
        match self {
            Self::Pending | Self::Processing | Self::Failed | Self::Closed(_) => 0,
            Self::Paid => 1,
            Self::PartiallyRefunded => 2,
            Self::Finished => 3,
            Self::Refunded => 4,
        }
    }

    /// The status after `self` when the facts say `now`: never back, but out of `refunded` and out of a
    /// merchant's close once a trade counts that says otherwise.
    #[must_use]
    pub fn advance(self, now: Self) -> Self {
        let stays = match self {
            Self::Refunded | Self::Closed(ClosedBy::Merchant) => now.rank() == 0,
            _ => now.rank() < self.rank(),
        };
        if stays { self } else { now }
    }
}

/// Sums over the order's booked trades, in the order's currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Billed.
    pub paid: i64,
    /// Refunded, gross.
    pub refunded: i64,
    /// Of that, come back.
    pub reversed: i64,
}

impl Totals {
    /// These totals, none smaller than before.
    #[must_use]
    pub fn grown(self, now: Self) -> Self {
        Self {
            paid: self.paid.max(now.paid),
            refunded: self.refunded.max(now.refunded),
            reversed: self.reversed.max(now.reversed),
        }
    }
}

/// How one trade stands, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TradeJudgement {
    /// Its status.
    pub status: TradeStatus,
    /// Its payment came after a close.
    pub late: bool,
    /// Whether it makes the order paid.
    pub counts: bool,
    /// What was paid, once known.
    pub paid: Option<Money>,
    /// Its refunds, in its currency.
    pub refunds: Refunds,
    /// Its currency, once anything told it.
    pub currency: Option<Currency>,
}

/// What the facts say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// One for each trade, in the same sequence.
    pub trades: Vec<TradeJudgement>,
    /// The order's status; what it becomes is [`Status::advance`]'s.
    pub status: Status,
    /// What was registered.
    pub registered: Option<Money>,
    /// The currency of the totals.
    pub currency: Option<Currency>,
    /// The totals.
    pub totals: Totals,
}

/// Judges an order.
pub fn judge(order: &OrderFacts<'_>) -> Judgement {
    let registered = registration(order).and_then(|known| known.fact.amount);
    let trades: Vec<TradeJudgement> = order
        .trades
        .iter()
        .map(|trade| judge_trade(order, trade, registered))
        .collect();
    let currency = order
        .currency
        .or(registered.map(|money| money.currency))
        .or_else(|| first_currency(order));
    Judgement {
        status: order_status(order, &trades),
        totals: totals(order, &trades, currency),
        registered,
        currency,
        trades,
    }
}

/// The order's registration.
pub fn registration<'a>(order: &OrderFacts<'a>) -> Option<Known<'a>> {
    own(order, FactKind::OrderRegistered)
}

fn own<'a>(order: &OrderFacts<'a>, kind: FactKind) -> Option<Known<'a>> {
    order.own.iter().copied().find(|known| known.fact.kind == kind)
}

fn judge_trade(order: &OrderFacts<'_>, trade: &TradeFacts<'_>, registered: Option<Money>) -> TradeJudgement {
    let refunds = refunds(trade);
    let closed = trade.has(FactKind::TradeClosed);
    let mut judged = TradeJudgement {
        status: if closed {
            TradeStatus::Closed
        } else {
            TradeStatus::Unpaid
        },
        late: false,
        counts: false,
        paid: trade.payment(),
        refunds,
        currency: trade.currency(),
    };
    let Some(paid) = judged.paid else {
        return judged;
    };
    let (was_paid, was_held, was_late) = (trade.was.paid, trade.was.held, trade.was.late);
    let contradicts = registered.is_some_and(|registered| registered != paid);
    // Believed once, believed for good: a registration that comes later only raises attention.
    let held = contradicts && !trade.has(FactKind::PaymentAccepted) && (!was_paid || was_held);
    let order_closed = own(order, FactKind::MerchantClosed).is_some();
    judged.late = was_late || !was_paid && (closed || order_closed) || was_held && !held && order_closed;
    judged.counts = !held && (!judged.late || trade.has(FactKind::PaymentKept));
    judged.status = if held {
        TradeStatus::Held
    } else if refunds.refunded > 0 && refunds.refunded >= paid.minor {
        TradeStatus::Refunded
    } else if trade.has(FactKind::TradeFinished) {
        TradeStatus::Finished
    } else if refunds.refunded > 0 {
        TradeStatus::PartiallyRefunded
    } else {
        TradeStatus::Paid
    };
    judged
}

fn order_status(order: &OrderFacts<'_>, trades: &[TradeJudgement]) -> Status {
    let counted = trades.iter().filter(|judged| judged.counts);
    let lowest = counted
        .filter_map(|judged| judged.status.of_order())
        .min_by_key(|status| status.rank());
    if let Some(status) = lowest {
        return status;
    }
    if own(order, FactKind::MerchantClosed).is_some() {
        return Status::Closed(ClosedBy::Merchant);
    }
    let closed = order
        .trades
        .iter()
        .filter(|trade| trade.has(FactKind::TradeClosed))
        .count();
    if closed > 0 && closed == order.trades.len() {
        return Status::Closed(ClosedBy::Provider);
    }
    last_attempt(order)
}

/// By the times that the trades keep, the latest of every sighting, and not by the facts: of one attempt that is
/// told twice, only the first telling is a fact.
fn last_attempt(order: &OrderFacts<'_>) -> Status {
    let own = |kind: FactKind| {
        let facts = order.own.iter().map(|known| known.fact);
        facts
            .filter(|fact| fact.kind == kind && fact.unsigned.is_none())
            .filter_map(|fact| fact.at)
            .max()
    };
    let latest =
        |of_trade: fn(&TradeFacts<'_>) -> Option<Timestamp>| order.trades.iter().filter_map(of_trade).max();
    let processing = latest(|trade| trade.processing_at).max(own(FactKind::PaymentProcessing));
    match (
        processing,
        latest(|trade| trade.failed_at).max(own(FactKind::PaymentFailed)),
    ) {
        (None, None) => Status::Pending,
        (processing, failed) if failed >= processing => Status::Failed,
        _ => Status::Processing,
    }
}

/// The first payment's currency.
fn first_currency(order: &OrderFacts<'_>) -> Option<Currency> {
    let payments = order.trades.iter().filter_map(|trade| {
        let known = trade.first(FactKind::PaymentSucceeded)?;
        Some((known.seq, trade.payment()?.currency))
    });
    payments.min().map(|(_, currency)| currency)
}

fn totals(order: &OrderFacts<'_>, trades: &[TradeJudgement], currency: Option<Currency>) -> Totals {
    let mut totals = Totals::default();
    if currency.is_none() {
        return totals;
    }
    for (trade, judged) in order.trades.iter().zip(trades) {
        if judged.currency != currency {
            continue;
        }
        let paid = trade.payment().map_or(0, |money| money.minor);
        totals.paid = totals.paid.saturating_add(paid);
        totals.refunded = totals.refunded.saturating_add(judged.refunds.refunded);
        totals.reversed = totals.reversed.saturating_add(judged.refunds.reversed);
    }
    totals
}
