//! Orders: how they stand, and what their merchant says of them.

pub(super) mod close;
pub(super) mod list;
pub(super) mod register;

use crate::api::problem::Problem;
use crate::store::orders::OrderKey;
use crate::store::view::{OrderView, Reader, views};
use crate::store::{StoreError, Tx};

/// The order as this transaction leaves it.
async fn shown(tx: &mut Tx, order: &OrderKey) -> Result<OrderView, Problem> {
    let found = views(&mut Reader::Tx(tx), std::slice::from_ref(order)).await?;
    let view = found.into_iter().next();
    view.ok_or_else(|| StoreError::corrupt("orders", "an order that was just written is gone").into())
}
