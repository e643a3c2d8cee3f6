//! The orders that a batch concerns, by what it says and by the trades that are linked. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::book::Book;
use super::input::Input;
use crate::event::FactKind;
use crate::store::orders::OrderKey;
use crate::store::trades::TradeKey;

/// Which orders the batch concerns, once the trades are known.
pub(super) struct Plan {
    /// Orders to create.
    pub(super) create: BTreeSet<OrderKey>,
    /// Orders to lock if they exist.
    pub(super) also: BTreeSet<OrderKey>,
    /// Orders that the batch registers.
    pub(super) registered: BTreeSet<OrderKey>,
    /// The trades that are locked.
    pub(super) locked: BTreeSet<TradeKey>,
    /// Trades that the batch links.
    pub(super) gained: BTreeSet<TradeKey>,
    /// By input: trades that are another order's.
    pub(super) contradicted: Vec<BTreeSet<String>>,
}

impl Plan {
    /// Teaches the links in the inputs' order, as [`Book::step`] will: the first one counts.
    pub(super) fn new(book: &Book, inputs: &[Input]) -> Self {
        let mut links: BTreeMap<TradeKey, String> = book
            .trades
            .values()
            .filter_map(|row| Some((row.key.clone(), row.order_id.clone()?)))
            .collect();
        let mut plan = Self {
            create: BTreeSet::new(),
            also: BTreeSet::new(),
            registered: BTreeSet::new(),
            locked: book.trades.keys().cloned().collect(),
            gained: BTreeSet::new(),
            contradicted: Vec::new(),
        };
        for input in inputs {
            let mut contradicted = BTreeSet::new();
            for (trade_id, order_id) in input.taught() {
                let linked = links
                    .entry(input.trade_key(trade_id))
                    .or_insert_with(|| order_id.clone());
                if linked != order_id {
                    contradicted.insert(trade_id.clone());
                }
            }
            plan.contradicted.push(contradicted);
            plan.also
                .extend(input.names.iter().map(|order| input.order_key(order)));
            for fact in input.told() {
                if let (None, Some(order_id)) = (&fact.trade_id, &fact.order_id) {
                    plan.create.insert(input.order_key(order_id));
                    if fact.kind == FactKind::OrderRegistered {
                        plan.registered.insert(input.order_key(order_id));
                    }
                }
            }
        }
        let linked = |key: &TradeKey| book.trades.get(key).is_some_and(|row| row.order_id.is_some());
        plan.gained = links.keys().filter(|key| !linked(key)).cloned().collect();
        plan.create
            .extend(links.into_iter().map(|(trade, order_id)| OrderKey {
                merchant: trade.merchant,
                order_id,
            }));
        plan.also = plan.also.difference(&plan.create).cloned().collect();
        plan
    }
}
