//! The rules from end to end without a database: a book that is never written, checked for what the database
//! would refuse.

mod captures;
mod commute;
mod diagram;
mod enumerate;
mod since;
mod table;
mod twice;

use std::collections::{BTreeMap, BTreeSet};

use super::book::{Book, Order, Recorded};
use super::input::Input;
use super::plan::Plan;
use super::{Applied, OwnFact};
use crate::event::{Currency, EventId, Fact, FactKind, Money, ProviderName};
use crate::orders::status::Status;
use crate::orders::transition::{Standing, transitions};
use crate::store::facts::FactRow;
use crate::store::orders::{OrderKey, OrderRow};
use crate::store::trades::{TradeKey, TradeRow};
use crate::time::Timestamp;

pub(super) const M: &str = "default";
pub(super) const O: &str = "ORDER-1";

pub(super) fn cny(minor: i64) -> Money {
    Money::new(minor, Currency::CNY)
}

pub(super) fn usd(minor: i64) -> Money {
    Money::new(minor, Currency::new("USD").unwrap())
}

/// An event for tests; `order`: the order it names.
pub(super) fn event(id: &str, provider: &str, order: Option<&str>, facts: Vec<Fact>) -> Input {
    let facts: Vec<Fact> = facts.into_iter().map(|fact| fact.for_order(order)).collect();
    let mut links = Vec::new();
    for fact in facts.iter().filter(|fact| fact.unsigned.is_none()) {
        if let (Some(trade), Some(order)) = (&fact.trade_id, &fact.order_id) {
            links.push((trade.clone(), order.clone()));
        }
    }
    Input {
        trade: facts.iter().find_map(|fact| fact.trade_id.clone()),
        merchant: M.to_owned(),
        provider: provider.to_owned(),
        account: Some("shop".to_owned()),
        event_id: Some(EventId::from_text(id)),
        event_key: Some(format!("key of {id}")),
        names: order.iter().map(|order| (*order).to_owned()).collect(),
        facts,
        links,
        refusal: None,
        not_applied: None,
        times: None,
        since: None,
        ignored: None,
    }
}

pub(super) fn register(amount: Money) -> Input {
    let order_id = O.to_owned();
    Input::of_own(M, &OwnFact::Registered { order_id, amount })
}

pub(super) fn close() -> Input {
    let order_id = O.to_owned();
    Input::of_own(M, &OwnFact::Closed { order_id })
}

/// An operator keeps the payment of `trade`.
pub(super) fn keep(provider: ProviderName, trade: &str) -> Input {
    let (attention_id, trade_id) = (format!("item about {trade}"), trade.to_owned());
    Input::of_own(
        M,
        &OwnFact::PaymentKept {
            attention_id,
            provider,
            trade_id,
        },
    )
}

pub(super) fn paid(trade: &str, amount: Money) -> Fact {
    Fact::of_trade(FactKind::PaymentSucceeded, trade, "paid").with_amount(Some(amount))
}

pub(super) fn captured(trade: &str, capture: &str, amount: Money) -> Fact {
    Fact::of_capture(FactKind::PaymentSucceeded, trade, capture, "paid").with_amount(Some(amount))
}

pub(super) fn closed(trade: &str) -> Fact {
    Fact::of_trade(FactKind::TradeClosed, trade, "closed")
}

pub(super) fn finished(trade: &str) -> Fact {
    Fact::of_trade(FactKind::TradeFinished, trade, "finished")
}

pub(super) fn total(trade: &str, amount: Money) -> Fact {
    let what = format!("refunded_total:{}", amount.minor);
    Fact::of_trade(FactKind::RefundedTotal, trade, &what).with_amount(Some(amount))
}

pub(super) fn refunded(trade: &str, refund: &str, amount: Money) -> Fact {
    Fact::of_refund(FactKind::RefundSucceeded, Some(trade), refund, "refunded").with_amount(Some(amount))
}

pub(super) fn refund(kind: FactKind, trade: &str, id: &str) -> Fact {
    Fact::of_refund(kind, Some(trade), id, kind.as_str())
}

pub(super) fn processing(trade: &str, at: i64) -> Fact {
    Fact::of_trade(FactKind::PaymentProcessing, trade, "processing").happened(Some(Timestamp::from_secs(at)))
}

pub(super) fn failed(trade: &str, attempt: &str, at: i64) -> Fact {
    let what = format!("failed:{attempt}");
    Fact::of_trade(FactKind::PaymentFailed, trade, &what).happened(Some(Timestamp::from_secs(at)))
}

pub(super) fn dispute(kind: FactKind, trade: &str, id: &str, amount: Money) -> Fact {
    Fact::of_refund(kind, Some(trade), id, kind.as_str()).with_amount(Some(amount))
}

/// A store that lives in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Sim {
    book: Book,
    next_id: i64,
    park: bool,
    pub(super) messages: Vec<String>,
}

impl Sim {
    pub(super) fn parking() -> Self {
        Self {
            park: true,
            ..Self::default()
        }
    }

    pub(super) fn one(&mut self, input: Input) -> Applied {
        self.batch(&[input]).remove(0)
    }

    /// One transaction, as `load`, `step` and `write` make it.
    pub(super) fn batch(&mut self, inputs: &[Input]) -> Vec<Applied> {
        for input in inputs {
            let told = input.told().iter().filter_map(|fact| fact.trade_id.clone());
            for trade in told.chain(input.taught().iter().map(|(trade, _)| trade.clone())) {
                let key = input.trade_key(&trade);
                self.book
                    .trades
                    .entry(key.clone())
                    .or_insert_with(|| new_trade(key));
            }
        }
        let plan = Plan::new(&self.book, inputs);
        for key in &plan.create {
            let until = self.park.then(|| Timestamp::from_secs(1));
            let order = self.book.orders.entry(key.clone());
            order.or_insert_with(|| new_order(key.clone(), until));
        }
        for (input, contradicted) in inputs.iter().zip(&plan.contradicted) {
            for fact in input.told() {
                if !fact
                    .trade_id
                    .as_ref()
                    .is_some_and(|trade| contradicted.contains(trade))
                {
                    self.record(input, fact);
                }
            }
        }
        let trades = self.book.trades.clone();
        let applied = inputs.iter().map(|input| self.book.step(input)).collect();
        self.commit(&trades);
        applied
    }

    fn record(&mut self, input: &Input, fact: &Fact) {
        self.next_id += 1;
        let id = self.next_id;
        self.book
            .facts
            .entry(input.fact_key(fact))
            .or_insert_with(|| Recorded {
                row: FactRow {
                    id,
                    merchant: input.merchant.clone(),
                    provider: input.provider.clone(),
                    fact: fact.clone(),
                    event_id: input.event_id.clone(),
                },
                fresh: true,
                stepped: false,
                effective: false,
            });
    }

    /// What `write` writes, and what the database would refuse.
    fn commit(&mut self, trades: &BTreeMap<TradeKey, TradeRow>) {
        for (key, was) in trades {
            let is = &self.book.trades[key];
            let rank = |status: &str| Status::from_text(status, None).map_or(0, Status::rank);
            let minor = |row: &TradeRow| row.amount.map(|money| money.minor);
            let grown = was.amount.is_some() && minor(is) > minor(was);
            let captured_more = grown && was.status == "refunded" && is.status == "partially_refunded";
            assert!(
                captured_more || rank(&is.status) >= rank(&was.status),
                "{was:?} -> {is:?}"
            );
            assert!(is.refunded >= was.refunded && is.reversed >= was.reversed);
            let captures = self.book.facts.values().any(|known| {
                known.row.fact.is_capture() && known.row.fact.trade_id.as_deref() == Some(&key.trade_id)
            });
            assert!(was.amount.is_none() || was.amount == is.amount || captures && grown);
            assert!(was.order_id.is_none() || was.order_id == is.order_id);
            assert!(
                was == is || self.book.changed_trades.contains(key),
                "{key:?} was not noted as changed"
            );
        }
        for (key, order) in &mut self.book.orders {
            let mut before = order.began;
            for version in transitions(
                &order.began,
                order.stands.status,
                order.stands.totals,
                order.ships,
            ) {
                assert_eq!(version.version, before.version + 1);
                assert!(
                    version.status.rank() >= before.status.rank()
                        || before.status == Status::Refunded && version.status.rank() > 0
                );
                assert_eq!(version.totals.grown(before.totals), version.totals);
                assert!(
                    version.status != before.status
                        || version.totals != before.totals
                        || version.paid_version != before.paid_version
                );
                self.messages
                    .push(format!("{}:{}", key.order_id, version.routing_key(&before)));
                before = version;
            }
            order.began = Standing {
                status: order.stands.status,
                ..before
            };
            order.stands = order.began;
            order.before = order.row.clone();
        }
        for known in self.book.facts.values_mut() {
            known.fresh = false;
            known.stepped = true;
        }
        self.book.changed_trades.clear();
    }

    pub(super) fn order(&self) -> &Order {
        &self.book.orders[&OrderKey {
            merchant: M.to_owned(),
            order_id: O.to_owned(),
        }]
    }

    pub(super) fn status(&self) -> &'static str {
        self.order().began.status.as_str()
    }

    /// (paid, refunded, reversed)
    pub(super) fn totals(&self) -> (i64, i64, i64) {
        let totals = self.order().began.totals;
        (totals.paid, totals.refunded, totals.reversed)
    }

    pub(super) fn trade(&self, provider: &str, trade: &str) -> &str {
        let key = TradeKey {
            merchant: M.to_owned(),
            provider: provider.to_owned(),
            trade_id: trade.to_owned(),
        };
        &self.book.trades[&key].status
    }

    /// Sums by trade, entry type and currency.
    pub(super) fn sums(&self) -> BTreeMap<(String, &'static str, String), i64> {
        let mut sums = BTreeMap::new();
        let mut sources = BTreeSet::new();
        for entry in &self.book.writes.entries {
            let source = (
                entry.trade.provider.clone(),
                entry.source.clone(),
                entry.entry_type,
            );
            assert!(sources.insert(source), "booked twice: {entry:?}");
            let key = (
                entry.trade.trade_id.clone(),
                entry.entry_type,
                entry.currency.to_string(),
            );
            *sums.entry(key).or_insert(0) += entry.amount;
        }
        sums
    }

    pub(super) fn sum(&self, entry_type: &str) -> i64 {
        let sums = self.sums();
        sums.iter()
            .filter(|((_, kind, _), _)| *kind == entry_type)
            .map(|(_, sum)| sum)
            .sum()
    }

    /// Codes ever raised, in order.
    pub(super) fn raised(&self) -> Vec<&'static str> {
        self.book
            .writes
            .attention
            .iter()
            .map(|item| item.code.as_str())
            .collect()
    }

    /// Codes still open.
    pub(super) fn open(&self) -> Vec<&'static str> {
        let open = self.book.raised.iter().filter(|(_, item)| item.open);
        open.map(|((_, code, _), _)| *code).collect()
    }

    /// Why items of `code` were raised, in order.
    pub(super) fn explanations(&self, code: &str) -> Vec<&str> {
        let items = self.book.writes.attention.iter();
        items
            .filter(|item| item.code.as_str() == code)
            .map(|item| item.explanation.as_str())
            .collect()
    }

    /// Whether the order has a trade that counts, and how much of such trades was refunded least, as the facts
    /// say it without any history.
    pub(super) fn wholly_refunded(&self) -> bool {
        let counted: Vec<&TradeRow> = self
            .book
            .trades
            .values()
            .filter(|row| Status::from_text(&row.status, None).is_some_and(|status| status.rank() > 0))
            .filter(|row| {
                let kept = |known: &Recorded| {
                    known.row.fact.kind == FactKind::PaymentKept
                        && known.row.fact.trade_id.as_ref() == Some(&row.key.trade_id)
                };
                !row.late || self.book.facts.values().any(kept)
            })
            .collect();
        !counted.is_empty() && counted.iter().all(|row| row.status == "refunded")
    }

    pub(super) fn outcome(&self, event: &str) -> &'static str {
        self.book.writes.outcomes[event].outcome
    }

    pub(super) fn history(&self) -> usize {
        self.book.writes.history.len()
    }

    pub(super) fn sent(&self, routing_key: &str) -> usize {
        self.messages
            .iter()
            .filter(|sent| **sent == format!("{O}:{routing_key}"))
            .count()
    }
}

fn new_trade(key: TradeKey) -> TradeRow {
    TradeRow {
        key,
        account: "shop".to_owned(),
        order_id: None,
        status: "unpaid".to_owned(),
        amount: None,
        currency: None,
        refunded: 0,
        reversed: 0,
        paid_at: None,
        processing_at: None,
        failed_at: None,
        late: false,
        ships: false,
    }
}

fn new_order(key: OrderKey, parked_until: Option<Timestamp>) -> Order {
    let row = OrderRow {
        key,
        status: "pending".to_owned(),
        closed_by: None,
        currency: None,
        amount: None,
        paid: 0,
        refunded: 0,
        reversed: 0,
        version: 0,
        paid_version: None,
        parked_until,
    };
    Order {
        is_new: true,
        before: row.clone(),
        row,
        began: Standing::NEW,
        stands: Standing::NEW,
        ships: false,
    }
}
