//! Everything that a batch of events touches, in memory: read once, walked, written once.

use std::collections::{BTreeMap, BTreeSet};

use super::words::Line;
use crate::event::{Currency, EventId, Fact, FactKind};
use crate::orders::fact::{Known, OrderFacts, TradeFacts, Was};
use crate::orders::ledger::Entry;
use crate::orders::status::TradeStatus;
use crate::orders::transition::Standing;
use crate::store::attention::NewAttention;
use crate::store::attention_group::Counted;
use crate::store::facts::{FactKey, FactRow};
use crate::store::history::NewOutcome;
use crate::store::ledger::NewEntry;
use crate::store::orders::{OrderKey, OrderRow};
use crate::store::trades::{TradeKey, TradeRow};

/// The batch's world.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// Whether an order needs no registration: one that was parked under another policy waits no more, either.
    pub(super) creates: bool,
    pub(super) trades: BTreeMap<TradeKey, TradeRow>,
    pub(super) changed_trades: BTreeSet<TradeKey>,
    /// Trades that have no row yet.
    pub(super) new_trades: BTreeSet<TradeKey>,
    pub(super) orders: BTreeMap<OrderKey, Order>,
    pub(super) facts: BTreeMap<FactKey, Recorded>,
    pub(super) booked: BTreeMap<TradeKey, Vec<Entry>>,
    pub(super) raised: BTreeMap<Concern, Raised>,
    /// How the events of the batch ended before.
    pub(super) ended: BTreeMap<String, String>,
    /// Events that were parked, and what for.
    pub(super) parked: Vec<(EventId, Wait)>,
    /// Orders that wait for their registration, by the events that concern them and may wake.
    pub(super) parked_orders: BTreeMap<EventId, Vec<OrderKey>>,
    pub(super) writes: Writes,
}

/// What a parked event waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The link of this trade.
    Trade(TradeKey),
    /// The registration of this order.
    Order(OrderKey),
}

/// An order and where it stood when the transaction began.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// It has no row yet.
    pub(super) is_new: bool,
    pub(super) before: OrderRow,
    pub(super) row: OrderRow,
    pub(super) began: Standing,
    pub(super) stands: Standing,
    /// Its payment is one to ship, once the order is paid.
    pub(super) ships: bool,
}

/// A fact and whether it has taken effect; one that has not waits for its order, its registration or, unsigned,
/// its payment.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) row: FactRow,
    /// Recorded by this very batch.
    pub(super) fresh: bool,
    /// The event that told it has had its turn.
    pub(super) stepped: bool,
    pub(super) effective: bool,
}

/// What identifies an attention item: merchant, code, source.
pub(super) type Concern = (String, &'static str, String);

/// An attention item that exists, or will with this batch.
#[derive(Clone, Debug)]
pub(super) struct Raised {
    pub(super) open: bool,
}

/// What is to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    pub(super) entries: Vec<NewEntry>,
    pub(super) history: Vec<Line>,
    pub(super) outcomes: BTreeMap<String, NewOutcome>,
    /// The events among them that were parked.
    pub(super) had_waited: BTreeSet<EventId>,
    pub(super) concerns: BTreeSet<(EventId, OrderKey)>,
    pub(super) attention: Vec<NewAttention>,
    /// Events of kinds that are not applied.
    pub(super) counted: Vec<Counted>,
    pub(super) resolved: Vec<(Concern, &'static str)>,
}

impl Book {
    /// The trades that have a row.
    pub(super) fn existing_trades(&self) -> Vec<TradeKey> {
        let existing = self.trades.keys().filter(|key| !self.new_trades.contains(*key));
        existing.cloned().collect()
    }

    /// The orders that have a row.
    pub(super) fn existing_orders(&self) -> Vec<OrderKey> {
        let existing = self.orders.iter().filter(|(_, order)| !order.is_new);
        existing.map(|(key, _)| key.clone()).collect()
    }

    /// The trades linked to `order`.
    pub(super) fn trades_of(&self, order: &OrderKey) -> Vec<TradeKey> {
        self.trades
            .values()
            .filter(|row| {
                row.key.merchant == order.merchant && row.order_id.as_deref() == Some(&order.order_id)
            })
            .map(|row| row.key.clone())
            .collect()
    }

    /// The order that a fact belongs to: its trade's, else the one it names. A fact that names a trade belongs
    /// to that trade's order, whatever else it says.
    pub(super) fn order_of(&self, merchant: &str, provider: &str, fact: &Fact) -> Option<OrderKey> {
        let order_id = match &fact.trade_id {
            Some(trade_id) => {
                let key = TradeKey {
                    merchant: merchant.to_owned(),
                    provider: provider.to_owned(),
                    trade_id: trade_id.clone(),
                };
                self.trades.get(&key)?.order_id.clone()?
            }
            None => fact.order_id.clone()?,
        };
        Some(OrderKey {
            merchant: merchant.to_owned(),
            order_id,
        })
    }

    /// Whether `recorded` may take effect now: its order is there and not parked, and if nobody signed it, its
    /// trade's payment is verified.
    pub(super) fn is_eligible(&self, recorded: &Recorded) -> bool {
        let row = &recorded.row;
        let Some(key) = self.order_of(&row.merchant, &row.provider, &row.fact) else {
            return false;
        };
        let registers = row.fact.kind == FactKind::OrderRegistered;
        let open = self
            .orders
            .get(&key)
            .is_some_and(|order| registers || order.row.parked_until.is_none());
        open && (row.fact.unsigned.is_none() || self.is_verified(row))
    }

    fn is_verified(&self, row: &FactRow) -> bool {
        let Some(trade_id) = &row.fact.trade_id else {
            return false;
        };
        self.facts.values().any(|other| {
            other.effective
                && other.row.fact.kind == FactKind::PaymentSucceeded
                && other.row.fact.unsigned.is_none()
                && other.row.merchant == row.merchant
                && other.row.provider == row.provider
                && other.row.fact.trade_id.as_deref() == Some(trade_id)
        })
    }

    /// Hands the effective facts of `order` to `judge`, with how its trades stand.
    pub(super) fn with_facts<T>(&self, order: &OrderKey, judge: impl FnOnce(&OrderFacts<'_>) -> T) -> T {
        let keys = self.trades_of(order);
        let mut trades: Vec<TradeFacts<'_>> = keys
            .iter()
            .filter_map(|key| self.trades.get(key))
            .map(|row| trade_facts(row, &order.order_id))
            .collect();
        let mut own = Vec::new();
        for recorded in self.facts.values().filter(|recorded| recorded.effective) {
            let row = &recorded.row;
            if row.merchant != order.merchant {
                continue;
            }
            let known = Known {
                seq: row.id,
                fact: &row.fact,
            };
            match &row.fact.trade_id {
                Some(trade_id) => {
                    let trade = trades
                        .iter_mut()
                        .find(|trade| trade.trade_id == trade_id && trade.provider == row.provider);
                    if let Some(trade) = trade {
                        trade.facts.push(known);
                    }
                }
                None if row.fact.order_id.as_deref() == Some(&order.order_id) => own.push(known),
                None => {}
            }
        }
        for trade in &mut trades {
            trade.facts.sort_by_key(|known| known.seq);
        }
        own.sort_by_key(|known| known.seq);
        judge(&OrderFacts {
            order_id: &order.order_id,
            currency: self.currency_of(order),
            trades,
            own,
        })
    }

    fn currency_of(&self, order: &OrderKey) -> Option<Currency> {
        self.orders.get(order).and_then(|order| order.row.currency)
    }
}

fn trade_facts<'a>(row: &'a TradeRow, order_id: &'a str) -> TradeFacts<'a> {
    let status = TradeStatus::from_text(&row.status).unwrap_or(TradeStatus::Unpaid);
    TradeFacts {
        provider: &row.key.provider,
        trade_id: &row.key.trade_id,
        order_id,
        amount: row.amount,
        processing_at: row.processing_at,
        failed_at: row.failed_at,
        was: Was {
            paid: status.is_paid(),
            held: status == TradeStatus::Held,
            late: row.late,
        },
        ships: row.ships,
        facts: Vec::new(),
    }
}
