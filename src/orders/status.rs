//! An order's status, from its facts. Pure; computed anew each time, never walked edge by edge.
//!
//! | Order | when |
//! |---|---|
//! | `pending` | nothing is known yet, or only that it was registered |
//! | `processing`, `failed` | no trade counts as paid; whichever was reported last by event time (a tie: failed) |
//! | `closed` | no trade counts as paid, and the merchant closed it (final), or one is closed and none is open |
//! | `paid` | a trade counts as paid; of several, the one refunded least decides |
//! | `partially_refunded` | that trade is refunded in part |
//! | `finished` | that trade can no longer be refunded |
//! | `refunded` | that trade is refunded whole (final), even if the money came back later |
//!
//! A trade stands alike, with `unpaid` for what is not paid yet and `held` for a payment that contradicts the
//! registration. A held trade, and one paid after its own or its order's close, does not count as paid; its
//! money is booked all the same. Once paid, the rank (paid < partially_refunded < finished < refunded) never
//! falls: see [`Status::advance`].
//!
//! Totals are in one currency: the registered one, else that of the first payment, settled once. An order paid
//! in several currencies therefore ends with totals that depend on which came first; the ledger does not.

use super::fact::{Known, OrderFacts, TradeFacts};
use super::ledger::{Refunds, refunds};
use crate::event::{Currency, FactKind, Money};

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

    /// The status after `self` when the facts say `now`: never back, and never out of what is final.
    #[must_use]
    pub fn advance(self, now: Self) -> Self {
        let is_final = matches!(self, Self::Refunded | Self::Closed(ClosedBy::Merchant));
        if is_final || now.rank() < self.rank() {
            self
        } else {
            now
        }
    }
}

/// How a trade stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TradeStatus {
    /// Known, not paid.
    Unpaid,
    /// Ended unpaid.
    Closed,
    /// Paid.
    Paid,
    /// Refunded in part.
    PartiallyRefunded,
    /// No longer refundable.
    Finished,
    /// Refunded whole (gross).
    Refunded,
    /// Paid, and not believed yet.
    Held,
}

impl TradeStatus {
    /// Every status with its stored text.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Unpaid, "unpaid"),
        (Self::Closed, "closed"),
        (Self::Paid, "paid"),
        (Self::PartiallyRefunded, "partially_refunded"),
        (Self::Finished, "finished"),
        (Self::Refunded, "refunded"),
        (Self::Held, "held"),
    ];

    /// The stored text.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(status, _)| *status == self)
            .map_or("", |(_, text)| text)
    }

    /// From the stored text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, known)| *known == text)
            .map(|(status, _)| status)
    }

    /// The order's status if this trade alone decides.
    fn of_order(self) -> Option<Status> {
        match self {
            Self::Unpaid | Self::Closed | Self::Held => None,
            Self::Paid => Some(Status::Paid),
            Self::PartiallyRefunded => Some(Status::PartiallyRefunded),
            Self::Finished => Some(Status::Finished),
            Self::Refunded => Some(Status::Refunded),
        }
    }

    /// Whether its payment is known.
    pub fn is_paid(self) -> bool {
        !matches!(self, Self::Unpaid | Self::Closed)
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
    let currency = order.currency.or_else(|| first_currency(order));
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
    judged.counts = !held && !judged.late;
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
    let least_refunded = order
        .trades
        .iter()
        .zip(trades)
        .filter(|(_, judged)| judged.counts)
        .filter_map(|(trade, judged)| Some((share(trade, judged), judged.status.of_order()?)))
        .min_by_key(|(share, status)| (*share, status.rank()));
    if let Some((_, status)) = least_refunded {
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

/// The refunded share of a trade in billionths, so that trades of any size compare.
fn share(trade: &TradeFacts<'_>, judged: &TradeJudgement) -> i128 {
    let paid = trade.payment().map_or(0, |money| money.minor);
    i128::from(judged.refunds.refunded)
        .saturating_mul(1_000_000_000)
        .checked_div(i128::from(paid))
        .unwrap_or_default()
}

fn last_attempt(order: &OrderFacts<'_>) -> Status {
    let facts = order
        .trades
        .iter()
        .flat_map(|trade| &trade.facts)
        .chain(&order.own);
    let latest = |kind: FactKind| {
        facts
            .clone()
            .filter(|known| known.fact.kind == kind && known.fact.unsigned.is_none())
            .filter_map(|known| known.fact.at)
            .max()
    };
    let processing = order
        .trades
        .iter()
        .filter_map(|trade| trade.processing_at)
        .max()
        .max(latest(FactKind::PaymentProcessing));
    match (processing, latest(FactKind::PaymentFailed)) {
        (None, None) => Status::Pending,
        (processing, failed) if failed >= processing => Status::Failed,
        _ => Status::Processing,
    }
}

/// The currency of whatever spoke of money first: the registration or a payment.
fn first_currency(order: &OrderFacts<'_>) -> Option<Currency> {
    let payments = order.trades.iter().filter_map(|trade| {
        let known = trade.first(FactKind::PaymentSucceeded)?;
        Some((known.seq, trade.payment()?.currency))
    });
    let registered = registration(order).and_then(|known| Some((known.seq, known.fact.amount?.currency)));
    payments.chain(registered).min().map(|(_, currency)| currency)
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
