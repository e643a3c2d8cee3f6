//! An order that is paid by more than one trade: which of them needs a human, and what each took and gave back.
//! Pure.
//!
//! There is an item for each trade beside the first, and it resolves itself once one trade at most holds money.
//! Its text names every trade with its refunds and what stays, so that nothing is refunded a second time.

use std::collections::BTreeMap;

use super::fact::{OrderFacts, TradeFacts};
use super::ledger::Refunds;
use super::needs::{About, Need};
use super::status::{Judgement, TradeJudgement, TradeStatus};
use crate::event::{AttentionCode, Currency, FactKind, Money};

/// Every trade that begins to count beside another one, while more than one of them holds money: those that counted
/// before had their item when they began. That a late payment was kept now cannot be told from later on, so it is
/// among them whenever another one counted before it was kept.
pub(super) fn paid_twice(order: &OrderFacts<'_>, judged: &Judgement) -> Vec<Need> {
    let mut counted: Vec<_> = order
        .trades
        .iter()
        .zip(&judged.trades)
        .filter(|(_, of_trade)| of_trade.counts)
        .filter_map(|(trade, of_trade)| {
            let paid = trade.first(FactKind::PaymentSucceeded)?;
            // A late payment counts since it was kept.
            let kept = trade.first(FactKind::PaymentKept).filter(|_| trade.was.late);
            let begins = !trade.was.paid || trade.was.held;
            let since = kept.map_or(paid.seq, |kept| kept.seq.max(paid.seq));
            Some(((begins, since), trade, of_trade, trade.payment()?))
        })
        .collect();
    if counted.len() < 2 {
        return Vec::new();
    }
    counted.sort_by_key(|(since, ..)| *since);
    let holds = |of_trade: &TradeJudgement| of_trade.status != TradeStatus::Refunded;
    let holders = counted.iter().filter(|(.., of_trade, _)| holds(of_trade)).count();
    let first = counted.iter().position(|(.., of_trade, _)| holds(of_trade));
    let holds_since_before = |at: usize, since: i64| {
        let mut others = counted.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(_, ((_, other), _, of_trade, _))| holds(of_trade) && *other < since)
    };
    let mut stays: BTreeMap<Currency, i64> = BTreeMap::new();
    let mut accounts = Vec::new();
    for (_, trade, of_trade, paid) in &counted {
        let net = paid.minor.saturating_sub(of_trade.refunds.refunded);
        let net = net.saturating_add(of_trade.refunds.reversed);
        let sum = stays.entry(paid.currency).or_default();
        *sum = sum.saturating_add(net);
        accounts.push(account_of(trade, of_trade, *paid));
    }
    let stays: Vec<String> = stays
        .into_iter()
        .map(|(currency, minor)| Money::new(minor, currency).to_string())
        .collect();
    let explanation = format!(
        "the order was paid by more than one trade: {}; {} stays with the shop",
        accounts.join("; "),
        stays.join(" and ")
    );
    let need = |trade, settled| Need {
        settled,
        ..About(trade).payment(AttentionCode::PaidTwice, explanation.clone())
    };
    counted
        .iter()
        .enumerate()
        .filter_map(|(at, ((begins, since), trade, of_trade, _))| {
            if !holds(of_trade) {
                Some(need(trade, Some("its payment was refunded whole")))
            } else if holders < 2 {
                Some(need(trade, Some("every other payment was refunded whole")))
            } else {
                let second = *begins && Some(at) != first || trade.was.late && holds_since_before(at, *since);
                second.then(|| need(trade, None))
            }
        })
        .collect()
}

/// What came in by a trade and what of it went back, in words.
pub(super) fn account_of(trade: &TradeFacts<'_>, of_trade: &TradeJudgement, paid: Money) -> String {
    let Refunds { refunded, reversed } = of_trade.refunds;
    let money = |minor| Money::new(minor, paid.currency);
    let back = if of_trade.status == TradeStatus::Refunded {
        ", and refunded whole".to_owned()
    } else if refunded > 0 {
        format!(", of which {} was refunded", money(refunded))
    } else {
        String::new()
    };
    let returned = if reversed > 0 {
        format!(" ({} of that came back)", money(reversed))
    } else {
        String::new()
    };
    format!("{} was paid {paid}{back}{returned}", About(trade).name())
}
