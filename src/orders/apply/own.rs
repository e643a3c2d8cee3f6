//! What a merchant says of its own order: that it costs so much, that it is not to be paid any more.
//!
//! Either becomes a fact like any other. What is decided here, under the locks that keep it true, is whether it
//! may be said at all; a refusal writes nothing.

use super::input::{OWN, REGISTERED};
use super::{ApplyError, Outcome, OwnFact, Policy, apply_fact};
use crate::event::{Fact, FactKind, Money};
use crate::orders::status::{ClosedBy, Status};
use crate::store::facts::{self, FactKey};
use crate::store::orders::{self, OrderKey};
use crate::store::{StoreError, Tx, locks};
use crate::time::Timestamp;

/// How a registration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The order is registered now; what had waited for it has taken effect.
    New,
    /// It had been registered with the same amount.
    Known,
    /// It had been registered with this other amount, which stays.
    Other(Money),
}

/// Registers `order` at `amount`.
pub async fn register(
    tx: &mut Tx,
    order: &OrderKey,
    amount: Money,
    policy: &Policy,
    now: Timestamp,
) -> Result<Registration, ApplyError> {
    if let Some(known) = registered(tx, order).await? {
        return Ok(if known == amount {
            Registration::Known
        } else {
            Registration::Other(known)
        });
    }
    let fact = OwnFact::Registered {
        order_id: order.order_id.clone(),
        amount,
    };
    let applied = apply_fact(tx, &order.merchant, &fact, policy, now).await?;
    // Between the look and the lock somebody else may have registered it, and otherwise: then the next look sees.
    if registered(tx, order).await? != Some(amount) {
        return Err(ApplyError::Contended);
    }
    Ok(match applied.outcome {
        Outcome::AlreadyApplied => Registration::Known,
        _ => Registration::New,
    })
}

/// What `order` is registered at, if it is.
async fn registered(tx: &mut Tx, order: &OrderKey) -> Result<Option<Money>, StoreError> {
    let key = FactKey {
        merchant: order.merchant.clone(),
        provider: OWN.to_owned(),
        key: Fact::of_order(FactKind::OrderRegistered, &order.order_id, REGISTERED).key,
    };
    let found = facts::by_key(tx, &[key]).await?;
    Ok(found.into_iter().find_map(|row| row.fact.amount))
}

/// How a close ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The order is closed now.
    New,
    /// Its merchant had closed it.
    Known,
    /// It is paid, as this status says: nothing was done.
    Paid(Status),
    /// There is none, or none yet: it waits for its registration.
    NoOrder,
}

/// Closes `order` for good. Money that is held counts as not paid: it stays booked.
pub async fn close(
    tx: &mut Tx,
    order: &OrderKey,
    policy: &Policy,
    now: Timestamp,
) -> Result<Close, ApplyError> {
    locks::lock_orders(tx, &[order]).await?;
    let found = orders::read(tx, &[order]).await?;
    let Some(row) = found.into_iter().find(|row| row.parked_until.is_none()) else {
        return Ok(Close::NoOrder);
    };
    let status = Status::from_text(&row.status, row.closed_by.as_deref())
        .ok_or_else(|| StoreError::corrupt("orders", format!("status of order {}", order.order_id)))?;
    if status == Status::Closed(ClosedBy::Merchant) {
        return Ok(Close::Known);
    }
    if status.rank() > 0 {
        return Ok(Close::Paid(status));
    }
    let fact = OwnFact::Closed {
        order_id: order.order_id.clone(),
    };
    apply_fact(tx, &order.merchant, &fact, policy, now).await?;
    Ok(Close::New)
}
