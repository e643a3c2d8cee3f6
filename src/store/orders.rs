//! Orders as rows. A transaction that writes one has locked it ([`super::locks`]) and writes the next version.

use sqlx::{FromRow, QueryBuilder};

use super::rows::{Rows, push_keys};
use super::{StoreError, Tx, on_tx};
use crate::event::Currency;
use crate::time::Timestamp;

const INSERT: &str = "insert into orders (merchant, order_id, status, closed_by, currency, amount, paid, refunded, \
     reversed, version, paid_version, parked_until, updated_at, created_at) ";
const SELECT: &str = "select merchant, order_id, status, closed_by, currency, amount, paid, refunded, reversed, \
     version, paid_version, parked_until from orders where ";
// The version that was read guards the row, whatever locks a database has.
const UPDATE: &str = "update orders set status = v.column3, closed_by = v.column4, currency = v.column5, \
     amount = v.column6, paid = v.column7, refunded = v.column8, reversed = v.column9, version = v.column10, \
     paid_version = v.column11, parked_until = v.column12, updated_at = v.column13 from (";

/// What identifies an order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderKey {
    /// Whose.
    pub merchant: String,
    /// The merchant's id.
    pub order_id: String,
}

impl OrderKey {
    pub(super) fn parts(&self) -> [&str; 2] {
        [&self.merchant, &self.order_id]
    }
}

/// An order as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRow {
    /// What identifies it.
    pub key: OrderKey,
    /// How it stands.
    pub status: String,
    /// `merchant` or `provider`, if it is closed.
    pub closed_by: Option<String>,
    /// The currency of its totals.
    pub currency: Option<Currency>,
    /// What was registered, in that currency.
    pub amount: Option<i64>,
    /// Billed.
    pub paid: i64,
    /// Refunded, gross.
    pub refunded: i64,
    /// Of that, come back.
    pub reversed: i64,
    /// Raised by one with every change of status or total.
    pub version: i64,
    /// The version under which `order.paid` was written.
    pub paid_version: Option<i64>,
    /// It waits until then for its registration.
    pub parked_until: Option<Timestamp>,
}

#[derive(FromRow)]
struct Row {
    merchant: String,
    order_id: String,
    status: String,
    closed_by: Option<String>,
    currency: Option<String>,
    amount: Option<i64>,
    paid: i64,
    refunded: i64,
    reversed: i64,
    version: i64,
    paid_version: Option<i64>,
    parked_until: Option<Timestamp>,
}

impl TryFrom<Row> for OrderRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let currency = row.currency.as_deref().map(Currency::new).transpose();
        let currency = currency
            .map_err(|_| StoreError::corrupt("orders", format!("currency of order {}", row.order_id)))?;
        Ok(Self {
            key: OrderKey {
                merchant: row.merchant,
                order_id: row.order_id,
            },
            status: row.status,
            closed_by: row.closed_by,
            currency,
            amount: row.amount,
            paid: row.paid,
            refunded: row.refunded,
            reversed: row.reversed,
            version: row.version,
            paid_version: row.paid_version,
            parked_until: row.parked_until,
        })
    }
}

impl OrderRow {
    /// Returns an order of which nothing is known yet. `parked_until`: it waits for its registration.
    pub fn new(key: OrderKey, parked_until: Option<Timestamp>) -> Self {
        Self {
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
        }
    }
}

/// Returns those of `orders` that exist.
pub async fn read(tx: &mut Tx, orders: &[&OrderKey]) -> Result<Vec<OrderRow>, StoreError> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        let keys = orders.iter().map(|key| key.parts());
        push_keys(&mut sql, "merchant, order_id", keys);
        sql.build_query_as().fetch_all(conn).await
    })?;
    rows.into_iter().map(OrderRow::try_from).collect()
}

/// Inserts `orders`, which are locked and do not exist.
pub async fn insert(tx: &mut Tx, orders: &[OrderRow], now: Timestamp) -> Result<(), StoreError> {
    if orders.is_empty() {
        return Ok(());
    }
    let rows = rows(orders, now).each(now);
    let written = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT);
        rows.push_to(&mut sql);
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    all_written(written, orders.len())
}

/// Updates `orders`, which are locked.
pub async fn update(tx: &mut Tx, orders: &[OrderRow], now: Timestamp) -> Result<(), StoreError> {
    if orders.is_empty() {
        return Ok(());
    }
    let rows = rows(orders, now);
    let written = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(UPDATE);
        rows.push_to(&mut sql);
        sql.push(
            ") as v where orders.merchant = v.column1 and orders.order_id = v.column2 \
             and orders.version between v.column10 - 1 and v.column10",
        );
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    all_written(written, orders.len())
}

/// The columns that an insert and an update share.
fn rows(orders: &[OrderRow], now: Timestamp) -> Rows<'_, OrderRow> {
    Rows::of(orders)
        .text(|order| order.key.merchant.as_str())
        .text(|order| order.key.order_id.as_str())
        .text(|order| order.status.as_str())
        .text(|order| order.closed_by.as_deref())
        .text(|order| order.currency.as_ref().map(Currency::as_str))
        .int(|order| order.amount)
        .int(|order| order.paid)
        .int(|order| order.refunded)
        .int(|order| order.reversed)
        .int(|order| order.version)
        .int(|order| order.paid_version)
        .time(|order| order.parked_until)
        .each(now)
}

fn all_written(written: u64, wanted: usize) -> Result<(), StoreError> {
    if u64::try_from(wanted).is_ok_and(|wanted| wanted == written) {
        Ok(())
    } else {
        Err(StoreError::corrupt(
            "orders",
            "an order moved although it was locked",
        ))
    }
}
