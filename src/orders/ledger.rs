//! What the ledger must hold for one trade, and what is still missing in it. Pure.
//!
//! A provider tells of the same refund twice: as a refund, and in the trade's cumulative total. So refunds are
//! booked as the *growth* of the trade's refunded total, whichever view showed it first; the second view books
//! nothing. Which source an entry is booked under depends on arrival; the sums do not.
//!
//! Refunded is what was taken and went back. So refunds count once the payment is known, and what was authorised
//! and never taken is no refund: where a provider writes a refund for its release, one refund of exactly that
//! amount is the release. Which of several equal ones does not matter to the sum.
//!
//! A provider may count a refund in its total while it is pending. If that one fails, the total had it: a failed
//! refund that fits into the largest total counts as refunded and as reversed. Were it in no total after all, both
//! are higher by its amount, and the difference is right.
//!
//! The reports of one dispute may differ in amount, and an entry once posted stays. So a dispute is booked at the
//! largest amount that a report of it gives, by its growth: the one sum that every order of arrival can reach.
//! Reports that differ also raise attention. Neither is booked before the payment
//! is known, whose currency is the trade's; see [`TradeFacts::currency`].
//!
//! | entry_type | booked when | source |
//! |---|---|---|
//! | `payment` + | the payment is known, or max(the whole, sum of captures) grows | trade id, or capture id |
//! | `refund` − | max(largest total, sum of distinct refunds) grows | refund id, or `{trade_id}@{total}` |
//! | `refund_reversal` + | one refund is known to have failed after it succeeded or was in a total | refund id |
//! | `dispute` − | max(funds withdrawn, the dispute lost) grows | dispute id, then `{dispute_id}@{amount}` |
//! | `dispute_reversal` + | max(funds reinstated, withdrawn and won) grows | dispute id, then `{dispute_id}@{amount}` |

use std::collections::{BTreeMap, BTreeSet};

use super::fact::{Known, TradeFacts};
use crate::event::{Currency, Fact, FactKind};

/// A kind of movement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryType {
    /// Money in.
    Payment,
    /// Money out, gross.
    Refund,
    /// A refund that came back.
    RefundReversal,
    /// Money taken in a dispute.
    Dispute,
    /// Money given back after one.
    DisputeReversal,
}

impl EntryType {
    /// The stored text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Payment => "payment",
            Self::Refund => "refund",
            Self::RefundReversal => "refund_reversal",
            Self::Dispute => "dispute",
            Self::DisputeReversal => "dispute_reversal",
        }
    }

    /// From the stored text.
    pub fn from_text(text: &str) -> Option<Self> {
        [
            Self::Payment,
            Self::Refund,
            Self::RefundReversal,
            Self::Dispute,
            Self::DisputeReversal,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == text)
    }
}

/// One movement of money; `amount` is signed minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What kind.
    pub entry_type: EntryType,
    /// What moved it; with the type its identity.
    pub source: String,
    /// Signed.
    pub amount: i64,
    /// In which currency.
    pub currency: Currency,
}

/// A trade's refunds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refunds {
    /// Everything ever refunded, gross.
    pub refunded: i64,
    /// What of it came back.
    pub reversed: i64,
}

/// Adds up a trade's refunds.
pub fn refunds(trade: &TradeFacts<'_>) -> Refunds {
    let facts: Vec<_> = refund_facts(trade).collect();
    let reversed = reversals(trade).into_values().fold(0, i64::saturating_add);
    Refunds {
        refunded: refunded_by(trade, &facts),
        reversed,
    }
}

/// The entries that `booked`, what the ledger has for this trade, still lacks.
pub fn missing_entries(trade: &TradeFacts<'_>, booked: &[Entry]) -> Vec<Entry> {
    let Some(currency) = trade.currency() else {
        return Vec::new();
    };
    let entry = |entry_type, source: &str, amount| Entry {
        entry_type,
        source: source.to_owned(),
        amount,
        currency,
    };
    let mut due = Vec::new();
    due.extend(
        payment_growth(trade, booked)
            .into_iter()
            .map(|(source, growth)| entry(EntryType::Payment, source, growth)),
    );
    due.extend(
        refund_growth(trade, booked)
            .into_iter()
            .map(|(source, growth)| entry(EntryType::Refund, &source, growth.saturating_neg())),
    );
    due.extend(
        reversals(trade)
            .into_iter()
            .map(|(refund, amount)| entry(EntryType::RefundReversal, refund, amount)),
    );
    for dispute in disputes(trade) {
        let taken = taken(trade, dispute).and_then(|sum| grown(booked, EntryType::Dispute, dispute, sum));
        due.extend(taken.map(|(source, more)| entry(EntryType::Dispute, &source, more.saturating_neg())));
        let back = given_back(trade, dispute)
            .and_then(|sum| grown(booked, EntryType::DisputeReversal, dispute, sum));
        due.extend(back.map(|(source, more)| entry(EntryType::DisputeReversal, &source, more)));
    }
    due.retain(|entry| !is_booked(booked, entry.entry_type, &entry.source));
    due
}

fn is_booked(booked: &[Entry], entry_type: EntryType, source: &str) -> bool {
    booked
        .iter()
        .any(|entry| entry.entry_type == entry_type && entry.source == source)
}

/// What the paid total has grown beyond what is booked, by source: the trade for the payment as a whole, else the
/// capture. A payment of nothing has its entry too.
fn payment_growth<'a>(trade: &'a TradeFacts<'_>, booked: &[Entry]) -> Vec<(&'a str, i64)> {
    fn source<'b>(trade: &'b TradeFacts<'_>, known: &Known<'b>) -> &'b str {
        known.fact.refund_id.as_deref().unwrap_or(trade.trade_id)
    }
    let payments = booked
        .iter()
        .filter(|entry| entry.entry_type == EntryType::Payment);
    let mut posted = payments.map(|entry| entry.amount).reduce(i64::saturating_add);
    let (mut seen, new): (Vec<_>, Vec<_>) = trade
        .of(FactKind::PaymentSucceeded)
        .partition(|known| is_booked(booked, EntryType::Payment, source(trade, known)));
    let mut growth = Vec::new();
    for known in new {
        seen.push(known);
        let Some(total) = trade.paid_by(seen.iter().copied()) else {
            continue;
        };
        if posted.is_none_or(|posted| total.minor > posted) {
            let grown = total.minor.saturating_sub(posted.unwrap_or_default());
            growth.push((source(trade, &known), grown));
            posted = Some(total.minor);
        }
    }
    growth
}

/// None before the payment is known: nothing goes back that was not taken.
fn refund_facts<'a>(trade: &'a TradeFacts<'_>) -> impl Iterator<Item = Known<'a>> {
    let is_paid = trade.payment().is_some();
    trade.facts.iter().copied().filter(move |known| {
        is_paid
            && matches!(
                known.fact.kind,
                FactKind::RefundSucceeded
                    | FactKind::RefundedTotal
                    | FactKind::RefundedOrReleasedTotal
                    | FactKind::RefundFailed
            )
            && trade.believes(known.fact)
    })
}

/// What was authorised, never taken, and released by a refund: the least that was reported.
fn released(trade: &TradeFacts<'_>) -> i64 {
    trade
        .of(FactKind::AuthorisationReleased)
        .filter_map(|known| trade.minor(known.fact))
        .min()
        .unwrap_or_default()
}

/// A cumulative total without what was released; `None` for other facts.
fn total_of(trade: &TradeFacts<'_>, fact: &Fact) -> Option<i64> {
    let total = trade.minor(fact)?;
    match fact.kind {
        FactKind::RefundedTotal => Some(total),
        FactKind::RefundedOrReleasedTotal => Some(total.saturating_sub(released(trade)).max(0)),
        _ => None,
    }
}

/// Whether `fact` says that a refund failed which one of the totals in `facts` may have in it. A total that may
/// count a release may as well have been reported before it.
fn fails_from(trade: &TradeFacts<'_>, fact: &Fact, facts: &[Known<'_>]) -> bool {
    fact.kind == FactKind::RefundFailed
        && trade.minor(fact).is_some_and(|failed| {
            let mut totals = facts.iter().filter(|known| {
                matches!(
                    known.fact.kind,
                    FactKind::RefundedTotal | FactKind::RefundedOrReleasedTotal
                )
            });
            totals.any(|total| trade.minor(total.fact).is_some_and(|total| failed <= total))
        })
}

/// Whether `fact` is the refund that stands for the release of the trade's authorisation, or one like it.
pub fn may_be_release(trade: &TradeFacts<'_>, fact: &Fact) -> bool {
    let released = released(trade);
    fact.kind == FactKind::RefundSucceeded && released > 0 && trade.minor(fact) == Some(released)
}

/// max(largest cumulative total, sum of distinct refunds) over `facts`, without what was released.
fn refunded_by(trade: &TradeFacts<'_>, facts: &[Known<'_>]) -> i64 {
    let totals = facts.iter().filter_map(|known| total_of(trade, known.fact));
    let largest = totals.max().unwrap_or_default();
    let mut each: BTreeMap<&str, i64> = BTreeMap::new();
    for known in facts {
        let counts = known.fact.kind == FactKind::RefundSucceeded || fails_from(trade, known.fact, facts);
        if let (true, Some(id), Some(minor)) = (counts, &known.fact.refund_id, trade.minor(known.fact)) {
            each.entry(id).or_insert(minor);
        }
    }
    let failed = |id: &str| trade.about(FactKind::RefundFailed, id).is_some();
    let released = released(trade);
    let release = each.iter().any(|(id, minor)| *minor == released && !failed(id));
    let sum = each
        .values()
        .fold(0, |sum: i64, minor| sum.saturating_add(*minor));
    sum.saturating_sub(if release { released } else { 0 })
        .max(largest)
}

/// What the refunded total has grown beyond what is booked, by source. Facts already booked come first, then
/// the others in sequence: each is booked for as much as it raises the total.
fn refund_growth(trade: &TradeFacts<'_>, booked: &[Entry]) -> Vec<(String, i64)> {
    let source = |known: &Known<'_>| match (total_of(trade, known.fact), &known.fact.refund_id) {
        (None, Some(id)) => id.clone(),
        (total, _) => format!("{}@{}", trade.trade_id, total.unwrap_or_default()),
    };
    let mut posted = booked
        .iter()
        .filter(|entry| entry.entry_type == EntryType::Refund)
        .fold(0, |sum: i64, entry| sum.saturating_sub(entry.amount));
    let (mut seen, new): (Vec<_>, Vec<_>) =
        refund_facts(trade).partition(|known| is_booked(booked, EntryType::Refund, &source(known)));
    let mut growth = Vec::new();
    for known in new {
        seen.push(known);
        let total = refunded_by(trade, &seen);
        if total > posted {
            growth.push((source(&known), total.saturating_sub(posted)));
            posted = total;
        }
    }
    growth
}

/// Refunds that failed after they had succeeded, or had been in a total, with their amounts.
pub fn reversals<'a>(trade: &'a TradeFacts<'_>) -> BTreeMap<&'a str, i64> {
    let facts: Vec<_> = refund_facts(trade).collect();
    facts
        .iter()
        .filter(|known| known.fact.kind == FactKind::RefundFailed)
        .filter_map(|known| {
            let id = known.fact.refund_id.as_deref()?;
            match trade.about(FactKind::RefundSucceeded, id) {
                Some(succeeded) => Some((id, trade.minor(succeeded.fact)?)),
                None if fails_from(trade, known.fact, &facts) => Some((id, trade.minor(known.fact)?)),
                None => None,
            }
        })
        .fold(BTreeMap::new(), |mut each, (id, minor)| {
            each.entry(id).or_insert(minor);
            each
        })
}

fn disputes<'a>(trade: &'a TradeFacts<'_>) -> BTreeSet<&'a str> {
    trade
        .facts
        .iter()
        .filter(|known| {
            matches!(
                known.fact.kind,
                FactKind::DisputeLost
                    | FactKind::DisputeWon
                    | FactKind::DisputeFundsWithdrawn
                    | FactKind::DisputeFundsReinstated
            )
        })
        .filter_map(|known| known.fact.refund_id.as_deref())
        .collect()
}

fn taken(trade: &TradeFacts<'_>, dispute: &str) -> Option<i64> {
    let amount = |kind| trade.minor_about(kind, dispute);
    amount(FactKind::DisputeFundsWithdrawn).max(amount(FactKind::DisputeLost))
}

fn given_back(trade: &TradeFacts<'_>, dispute: &str) -> Option<i64> {
    let amount = |kind| trade.minor_about(kind, dispute);
    amount(FactKind::DisputeFundsReinstated).max(won(trade, dispute))
}

/// What winning the dispute gives back: what was withdrawn.
pub(super) fn won(trade: &TradeFacts<'_>, dispute: &str) -> Option<i64> {
    trade.about(FactKind::DisputeWon, dispute)?;
    trade.minor_about(FactKind::DisputeFundsWithdrawn, dispute)
}

/// By how much `sum` exceeds what is booked about `dispute`, and the source to book that under.
fn grown(booked: &[Entry], entry_type: EntryType, dispute: &str, sum: i64) -> Option<(String, i64)> {
    let about = |source: &str| {
        let rest = source.strip_prefix(dispute);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
    };
    let mut posted = booked
        .iter()
        .filter(|entry| entry.entry_type == entry_type && about(&entry.source))
        .map(|entry| entry.amount.saturating_abs())
        .peekable();
    let source = match posted.peek() {
        None => dispute.to_owned(),
        Some(_) => format!("{dispute}@{sum}"),
    };
    let more = sum.saturating_sub(posted.fold(0, i64::saturating_add));
    (more > 0).then_some((source, more))
}
