//! What an application would change, for a plan that is shown before anything is done.

use super::Applied;
use super::book::{Book, Order};
use crate::orders::transition::{Standing, is_shippable};
use crate::store::orders::OrderKey;

/// The fate of a batch that was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// How each event would end, in the order of the events.
    pub applied: Vec<Applied>,
    /// The orders that would change; no others.
    pub changes: Vec<OrderChange>,
}

/// What would become of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderChange {
    /// Which.
    pub order: OrderKey,
    /// How it stands.
    pub before: Standing,
    /// How it would.
    pub after: Standing,
    /// `order.paid` would be written.
    pub ships: bool,
    /// Codes of what would then need a human and does not now.
    pub attention: Vec<&'static str>,
}

impl Book {
    /// The orders whose status, totals or attention items differ from what was loaded, or that would be shipped.
    pub(super) fn changes(&self) -> Vec<OrderChange> {
        let changes = self.orders.values().map(|order| self.change(order));
        changes
            .filter(|change| {
                let (before, after) = (&change.before, &change.after);
                let moves = before.status != after.status || before.totals != after.totals;
                moves || change.ships || !change.attention.is_empty()
            })
            .collect()
    }

    fn change(&self, order: &Order) -> OrderChange {
        let key = &order.row.key;
        let about =
            self.writes.attention.iter().filter(|item| {
                item.merchant == key.merchant && item.order_id.as_deref() == Some(&key.order_id)
            });
        OrderChange {
            order: key.clone(),
            before: order.began,
            after: order.stands,
            ships: order.ships && order.began.paid_version.is_none() && is_shippable(order.stands.status),
            attention: about.map(|item| item.code.as_str()).collect(),
        }
    }
}
