//! What about an order needs a human, and what no longer does. Pure.
//!
//! A need is identified by its code and source, so the same facts always give the same needs and each is raised
//! once. What an event alone shows (another account's event, a contradicted fact) is raised where it is seen,
//! in `apply`.

use super::fact::{Known, OrderFacts, TradeFacts, moves_money};
use super::ledger::{reversals, won};
use super::paid_twice::{account_of, paid_twice};
use super::status::{Judgement, TradeJudgement, TradeStatus};
use crate::event::{AttentionCode, FactKind, Money};

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
        needs.extend(captures(&about));
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
pub(super) struct About<'a, 'b>(pub(super) &'b TradeFacts<'a>);

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

    pub(super) fn payment(&self, code: AttentionCode, explanation: String) -> Need {
        self.need(code, &format!("{}:paid", self.0.trade_id), explanation)
    }

    pub(super) fn name(&self) -> String {
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
    let registered = registered?;
    if registered == paid {
        // Each capture before the last one fell short of the registered amount.
        let captured = about
            .0
            .of(FactKind::PaymentSucceeded)
            .any(|known| known.fact.is_capture());
        return captured.then(|| Need {
            settled: Some("what was captured makes up the registered amount"),
            ..about.payment(AttentionCode::AmountMismatch, String::new())
        });
    }
    let code = if registered.currency == paid.currency {
        AttentionCode::AmountMismatch
    } else {
        AttentionCode::CurrencyMismatch
    };
    let held = of_trade.status == TradeStatus::Held;
    let then = if held {
        "the payment is booked and held: for the order it does not count until it is accepted"
    } else {
        "the order was paid before that was known, and stays so"
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
    } else if held && paid.minor > 0 && of_trade.refunds.refunded >= paid.minor {
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

fn excess(about: &About<'_, '_>, of_trade: &TradeJudgement, paid: Money) -> Option<Need> {
    let refunds = of_trade.refunds;
    let net = refunds.refunded.saturating_sub(refunds.reversed);
    (refunds.refunded > paid.minor).then(|| {
        let mut need = about.need(
            AttentionCode::RefundExceedsPayment,
            about.0.trade_id,
            format!(
                "{} was paid {paid}, but {} of it was refunded",
                about.name(),
                Money::new(net, paid.currency)
            ),
        );
        if net <= paid.minor {
            need.settled = Some("a refund failed: no more than was paid went back");
        }
        need
    })
}

fn captures(about: &About<'_, '_>) -> Vec<Need> {
    let failed = about.each(FactKind::CaptureFailed).map(|(id, known)| {
        about.need(
            AttentionCode::CaptureFailed,
            id,
            format!(
                "capture {id}{} of {} failed{}: this money was not taken, whatever the order's status says",
                known
                    .fact
                    .amount
                    .map_or_else(String::new, |amount| format!(" of {amount}")),
                about.name(),
                because(known)
            ),
        )
    });
    failed.collect()
}

fn refunds(about: &About<'_, '_>) -> Vec<Need> {
    let trade = about.0;
    let reversals = reversals(trade);
    let reversed = about
        .each(FactKind::RefundFailed)
        .filter(move |(id, _)| reversals.contains_key(id))
        .map(|(id, known)| {
            let had = match trade.about(FactKind::RefundSucceeded, id) {
                Some(_) => "had succeeded",
                None => "had been counted as refunded",
            };
            about.need(
                AttentionCode::RefundReversed,
                id,
                format!(
                    "refund {id} of {} {had} and failed after all{}: the money came back and the payer \
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
        .filter(|known| moves_money(known.fact.kind) || known.fact.is_capture())
        .filter(|known| trade.believes(known.fact) && trade.minor(known.fact).is_none())
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

fn because(known: Known<'_>) -> String {
    known
        .fact
        .reason
        .as_deref()
        .map_or_else(String::new, |reason| format!(" ({reason})"))
}
