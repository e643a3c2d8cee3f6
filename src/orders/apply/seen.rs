//! A fact that is told again: it may fill what its trade did not know, and it may contradict what is booked.

use super::book::Recorded;
use crate::event::{Fact, FactKind, Money};
use crate::store::trades::TradeRow;

pub(super) fn unlinked(fact: &Fact) -> String {
    match &fact.trade_id {
        Some(trade) => format!("trade {trade} is not linked to an order yet"),
        None => format!("{} names neither an order nor a trade", fact.kind.as_str()),
    }
}

/// Why `fact` cannot be the fact that is known under its key.
pub(super) fn contradiction(known: &Recorded, fact: &Fact, trade: Option<&TradeRow>) -> Option<String> {
    let was = &known.row.fact;
    if let (Some(one), Some(other)) = (&was.trade_id, &fact.trade_id)
        && one != other
    {
        return Some(format!(
            "{} was told of trade {one}, and now of trade {other}",
            fact.key
        ));
    }
    let pays = fact.kind == FactKind::PaymentSucceeded;
    let is_money = pays
        || matches!(
            fact.kind,
            FactKind::OrderRegistered
                | FactKind::RefundSucceeded
                | FactKind::RefundedTotal
                | FactKind::RefundFailed
                | FactKind::DisputeOpened
                | FactKind::DisputeWon
                | FactKind::DisputeLost
                | FactKind::DisputeFundsWithdrawn
                | FactKind::DisputeFundsReinstated
        );
    if !is_money || fact.unsigned.is_some() {
        return None;
    }
    // What a fact did not say itself, a later report of the same payment may have told its trade.
    let filled = || trade.filter(|_| pays && !fact.is_capture())?.amount;
    let booked = was.amount.or_else(filled)?;
    let told = fact.amount?;
    let assumed = fact.currency_assumed || was.currency_assumed && !pays;
    let same =
        |one: Money, other: Money| one.minor == other.minor && (assumed || one.currency == other.currency);
    (!same(booked, told)).then(|| {
        format!(
            "{} was told with {booked}, and now with {told}: the first stays booked",
            fact.key
        )
    })
}

/// Fills what the trade did not know; whether it did. `ships`: the fact shows a payment that is to be shipped.
pub(super) fn fill(row: &mut TradeRow, fact: &Fact, ships: bool) -> bool {
    if fact.unsigned.is_some() {
        return false;
    }
    let was = row.clone();
    row.ships |= ships;
    match fact.kind {
        FactKind::PaymentSucceeded => {
            // The amount of a captured trade is a sum over facts, which judging it gives.
            row.amount = row.amount.or(fact.amount.filter(|_| !fact.is_capture()));
            row.currency = row.amount.map(|money| money.currency).or(row.currency);
            row.paid_at = row.paid_at.or(fact.at);
        }
        FactKind::PaymentProcessing => row.processing_at = row.processing_at.max(fact.at),
        FactKind::PaymentFailed => row.failed_at = row.failed_at.max(fact.at),
        _ => {}
    }
    *row != was
}
