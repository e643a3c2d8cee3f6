//! What about an order needs a human, and what no longer does. Pure.
//!
//! A need is identified by its code and source, so the same facts always give the same needs and each is raised
//! once. What an event alone shows (another account's event, a contradicted fact) is raised where it is seen,
//! in `apply`.

use std::collections::BTreeMap;

use super::fact::{Known, OrderFacts, TradeFacts, moves_money};
use super::ledger::{Refunds, won};
use super::status::{Judgement, TradeJudgement, TradeStatus};
use crate::event::{AttentionCode, Currency, FactKind, Money};

/// Something for the attention list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Why.
    pub code: AttentionCode,
    /// What it is about; with the code its identity.
    pub source: String,
    /// Whose trade it is about.
    pub provider: String,
    /// The trade.
    pub trade_id: String,
    /// In words.
    pub explanation: String,
    /// Why it has resolved itself, if it has.
    pub settled: Option<&'static str>,
}

/// Every need that the facts give, settled or not.
pub fn needs(order: &OrderFacts<'_>, judged: &Judgement) -> Vec<Need> {
    let mut needs = Vec::new();
    for (trade, of_trade) in order.trades.iter().zip(&judged.trades) {
        let about = About(trade);
        if let Some(paid) = trade.payment() {
            let mismatch = mismatch(&about, of_trade, paid, judged.registered);
            needs.extend(mismatch.or_else(|| outside_totals(&about, paid, judged)));
            needs.extend(late(&about, of_trade, paid));
            needs.extend(excess(&about, of_trade, paid));
        }
        needs.extend(refunds(&about));
        needs.extend(foreign(&about));
        needs.extend(unsigned(&about));
        needs.extend(disputes(&about));
        needs.extend(disputed_amounts(&about));
    }
    needs.extend(paid_twice(order, judged));
    needs
}

/// Makes needs about one trade.
struct About<'a, 'b>(&'b TradeFacts<'a>);

impl About<'_, '_> {
    fn need(&self, code: AttentionCode, what: &str, explanation: String) -> Need {
        let Self(trade) = self;
        Need {
            code,
            source: format!("{}:{what}", trade.provider),
            provider: trade.provider.to_owned(),
            trade_id: trade.trade_id.to_owned(),
            explanation,
            settled: None,
        }
    }

    fn payment(&self, code: AttentionCode, explanation: String) -> Need {
        self.need(code, &format!("{}:paid", self.0.trade_id), explanation)
    }

    fn name(&self) -> String {
        format!("{} trade {}", self.0.provider, self.0.trade_id)
    }

    /// The first fact of `kind` for each refund or dispute.
    fn each(&self, kind: FactKind) -> impl Iterator<Item = (&str, Known<'_>)> {
        let Self(trade) = self;
        trade
            .of(kind)
            .filter_map(|known| Some((known.fact.refund_id.as_deref()?, known)))
    }
}

fn mismatch(
    about: &About<'_, '_>,
    of_trade: &TradeJudgement,
    paid: Money,
    registered: Option<Money>,
) -> Option<Need> {
    let registered = registered.filter(|registered| *registered != paid)?;
    let code = if registered.currency == paid.currency {
        AttentionCode::AmountMismatch
    } else {
        AttentionCode::CurrencyMismatch
    };
    let held = of_trade.status == TradeStatus::Held;
    let then = if held {
        "the payment is booked and held: for the order it does not count until it is accepted"
    } else {
        "the order was paid before it was registered, and stays so"
    };
    let mut need = about.payment(
        code,
        format!(
            "{} was paid {paid}, but the order is registered at {registered}: {then}",
            about.name()
        ),
    );
    if about.0.has(FactKind::PaymentAccepted) {
        need.settled = Some("the payment was accepted");
    } else if held && of_trade.refunds.refunded >= paid.minor {
        need.settled = Some("the held payment was refunded whole");
    }
    Some(need)
}

/// A payment that the order's totals cannot count, though nothing that was registered contradicts it.
fn outside_totals(about: &About<'_, '_>, paid: Money, judged: &Judgement) -> Option<Need> {
    let totals = judged.currency.filter(|currency| *currency != paid.currency)?;
    let mut need = about.payment(
        AttentionCode::CurrencyMismatch,
        format!(
            "{} was paid {paid}, but the order's totals are in {totals}: the payment is booked, and its totals do \
             not count it",
            about.name()
        ),
    );
    if about.0.has(FactKind::PaymentAccepted) {
        need.settled = Some("the payment was accepted");
    }
    Some(need)
}

fn late(about: &About<'_, '_>, of_trade: &TradeJudgement, paid: Money) -> Option<Need> {
    let mut need = of_trade.late.then(|| {
        about.payment(
            AttentionCode::PaidAfterClose,
            format!(
                "after a close, {}: what stays is booked and does not make the order paid unless it is kept",
                account_of(about.0, of_trade, paid)
            ),
        )
    })?;
    if about.0.has(FactKind::PaymentKept) {
        need.settled = Some("the payment was kept");
    } else if of_trade.status == TradeStatus::Refunded {
        need.settled = Some("the payment was refunded whole");
    }
    Some(need)
}

/// What came in by a trade and what of it went back, in words.
fn account_of(trade: &TradeFacts<'_>, of_trade: &TradeJudgement, paid: Money) -> String {
    let Refunds { refunded, reversed } = of_trade.refunds;
    let money = |minor| Money::new(minor, paid.currency);
    let mut text = format!("{} was paid {paid}", About(trade).name());
    if of_trade.status == TradeStatus::Refunded {
        text.push_str(", and refunded whole");
    } else if refunded > 0 {
        text.push_str(&format!(", of which {} was refunded", money(refunded)));
    }
    if reversed > 0 {
        text.push_str(&format!(" ({} of that came back)", money(reversed)));
    }
    text
}

fn excess(about: &About<'_, '_>, of_trade: &TradeJudgement, paid: Money) -> Option<Need> {
    let refunds = of_trade.refunds;
    let net = refunds.refunded.saturating_sub(refunds.reversed);
    (net > paid.minor).then(|| {
        about.need(
            AttentionCode::RefundExceedsPayment,
            about.0.trade_id,
            format!(
                "{} was paid {paid}, but {} of it was refunded",
                about.name(),
                Money::new(net, paid.currency)
            ),
        )
    })
}

fn refunds(about: &About<'_, '_>) -> Vec<Need> {
    let trade = about.0;
    let reversed = about
        .each(FactKind::RefundFailed)
        .filter(|(id, _)| trade.about(FactKind::RefundSucceeded, id).is_some())
        .map(|(id, known)| {
            about.need(
                AttentionCode::RefundReversed,
                id,
                format!(
                    "refund {id} of {} had succeeded and failed after all{}: the money came back and the payer \
                     has not got it",
                    about.name(),
                    because(known)
                ),
            )
        });
    let abnormal = about.each(FactKind::RefundAbnormal).map(|(id, known)| {
        let mut need = about.need(
            AttentionCode::RefundAbnormal,
            id,
            format!(
                "refund {id} of {} is stuck at the provider{}: it needs another account or another way",
                about.name(),
                because(known)
            ),
        );
        if trade.about(FactKind::RefundSucceeded, id).is_some() {
            need.settled = Some("the refund succeeded");
        }
        need
    });
    reversed.chain(abnormal).collect()
}

/// Money of a paid trade that is told in a currency other than the payment's is not counted.
fn foreign(about: &About<'_, '_>) -> Vec<Need> {
    let trade = about.0;
    let Some(paid) = trade.payment() else {
        return Vec::new();
    };
    trade
        .facts
        .iter()
        .filter(|known| moves_money(known.fact.kind) && trade.believes(known.fact))
        .filter(|known| trade.minor(known.fact).is_none())
        .filter_map(|known| {
            let amount = known.fact.amount?;
            Some(about.need(
                AttentionCode::FactConflict,
                &known.fact.key,
                format!(
                    "{} says {amount}, but {} was paid {paid}: not counted",
                    known.fact.key,
                    about.name()
                ),
            ))
        })
        .collect()
}

fn unsigned(about: &About<'_, '_>) -> Vec<Need> {
    let trade = about.0;
    if !trade.is_verified() {
        return Vec::new();
    }
    trade
        .facts
        .iter()
        .filter(|known| known.fact.unsigned.is_some() && !trade.believes(known.fact))
        .map(|known| {
            let id = known.fact.refund_id.as_deref().unwrap_or(&known.fact.key);
            about.need(
                AttentionCode::UnsignedRefund,
                id,
                format!(
                    "a notification that nobody signed tells of refund {id} of {}, but its order or total is not \
                     that of the verified payment: no money was moved",
                    about.name()
                ),
            )
        })
        .collect()
}

fn disputes(about: &About<'_, '_>) -> Vec<Need> {
    let trade = about.0;
    let amount = |known: Known<'_>| {
        known
            .fact
            .amount
            .map_or_else(String::new, |amount| format!(" of {amount}"))
    };
    let opened = about.each(FactKind::DisputeOpened).map(|(id, known)| {
        let mut need = about.need(
            AttentionCode::DisputeOpened,
            id,
            format!(
                "the payer disputes {}: dispute {id}{}{}",
                about.name(),
                amount(known),
                because(known)
            ),
        );
        if trade.about(FactKind::DisputeWon, id).is_some() {
            need.settled = Some("the dispute was won");
        }
        need
    });
    let lost = about.each(FactKind::DisputeLost).map(|(id, known)| {
        about.need(
            AttentionCode::DisputeLost,
            id,
            format!("dispute {id}{} about {} was lost", amount(known), about.name()),
        )
    });
    opened.chain(lost).collect()
}

/// Reports of one dispute that differ in what was taken, or in what was given back.
fn disputed_amounts(about: &About<'_, '_>) -> Vec<Need> {
    let trade = about.0;
    let differ = |id: &str, one: Option<i64>, other: Option<i64>, what: &str| {
        let (one, other, currency) = (one?, other?, trade.currency()?);
        (one != other).then(|| {
            about.need(
                AttentionCode::FactConflict,
                &format!("{id}:{what}"),
                format!(
                    "dispute {id} about {}: reports say that {} and {} was {what}; the larger is booked",
                    about.name(),
                    Money::new(one.min(other), currency),
                    Money::new(one.max(other), currency)
                ),
            )
        })
    };
    let amount = |kind, id| trade.minor_about(kind, id);
    let taken = about
        .each(FactKind::DisputeFundsWithdrawn)
        .filter_map(|(id, known)| {
            let lost = amount(FactKind::DisputeLost, id);
            differ(id, trade.minor(known.fact), lost, "taken")
        });
    let back = about
        .each(FactKind::DisputeFundsReinstated)
        .filter_map(|(id, known)| differ(id, trade.minor(known.fact), won(trade, id), "given back"));
    taken.chain(back).collect()
}

/// Every trade that counts beside the first one, while more than one of them holds money. A trade that begins to
/// count now comes last, whenever its payment was recorded: those before it may have had their item.
fn paid_twice(order: &OrderFacts<'_>, judged: &Judgement) -> Vec<Need> {
    let mut counted: Vec<_> = order
        .trades
        .iter()
        .zip(&judged.trades)
        .filter(|(_, of_trade)| of_trade.counts)
        .filter_map(|(trade, of_trade)| {
            let known = trade.first(FactKind::PaymentSucceeded)?;
            let counted = trade.was.paid && !trade.was.held && !trade.was.late;
            Some(((!counted, known.seq), trade, of_trade, trade.payment()?))
        })
        .collect();
    if counted.len() < 2 {
        return Vec::new();
    }
    counted.sort_by_key(|(since, ..)| *since);
    let holds = |of_trade: &TradeJudgement| of_trade.status != TradeStatus::Refunded;
    let holders = counted.iter().filter(|(.., of_trade, _)| holds(of_trade)).count();
    let first = counted.iter().position(|(.., of_trade, _)| holds(of_trade));
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
        .filter_map(|(at, (_, trade, of_trade, _))| {
            if !holds(of_trade) {
                Some(need(trade, Some("its payment was refunded whole")))
            } else if holders < 2 {
                Some(need(trade, Some("every other payment was refunded whole")))
            } else {
                (Some(at) != first).then(|| need(trade, None))
            }
        })
        .collect()
}

fn because(known: Known<'_>) -> String {
    known
        .fact
        .reason
        .as_deref()
        .map_or_else(String::new, |reason| format!(" ({reason})"))
}
