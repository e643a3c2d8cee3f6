//! What about an order needs a human, and what no longer does. Pure.
//!
//! A need is identified by its code and source, so the same facts always give the same needs and each is raised
//! once. What an event alone shows (another account's event, a contradicted fact) is raised where it is seen,
//! in `apply`.

use super::fact::{Known, OrderFacts, TradeFacts, moves_money};
use super::ledger::reversals;
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
            needs.extend(mismatch(&about, of_trade, paid, judged.registered));
            needs.extend(late(&about, of_trade, paid));
            needs.extend(excess(&about, of_trade, paid));
        }
        needs.extend(refunds(&about));
        needs.extend(foreign(&about));
        needs.extend(unsigned(&about));
        needs.extend(disputes(&about));
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

fn late(about: &About<'_, '_>, of_trade: &TradeJudgement, paid: Money) -> Option<Need> {
    of_trade.late.then(|| {
        about.payment(
            AttentionCode::PaidAfterClose,
            format!(
                "{} was paid {paid} after a close: the money is booked, the order's status stays",
                about.name()
            ),
        )
    })
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

fn paid_twice(order: &OrderFacts<'_>, judged: &Judgement) -> Vec<Need> {
    let mut counted: Vec<_> = order
        .trades
        .iter()
        .zip(&judged.trades)
        .filter(|(_, of_trade)| of_trade.counts)
        .filter_map(|(trade, _)| {
            let known = trade.first(FactKind::PaymentSucceeded)?;
            Some((known.seq, trade, trade.payment()?))
        })
        .collect();
    counted.sort_by_key(|(seq, ..)| *seq);
    let Some((_, first, _)) = counted.first().copied() else {
        return Vec::new();
    };
    counted
        .into_iter()
        .skip(1)
        .map(|(_, trade, paid)| {
            let about = About(trade);
            about.payment(
                AttentionCode::PaidTwice,
                format!(
                    "the order is paid by {}, and by {} with {paid} too: both are booked, one is owed back",
                    About(first).name(),
                    about.name()
                ),
            )
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
