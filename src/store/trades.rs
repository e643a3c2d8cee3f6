//! Trades as rows. Whoever links, parks or applies locks the trade row first, in key order, and the order row
//! after it, so that no two transactions wait for each other and no wake-up is lost.

use sqlx::{FromRow, QueryBuilder};

use super::orders::OrderKey;
use super::rows::{Rows, push_keys};
use super::{StoreError, Tx, on_tx};
use crate::event::{Currency, Money};
use crate::time::Timestamp;

const INSERT: &str = "insert into trades (merchant, provider, trade_id, account, status, created_at, updated_at) \
     select column1, column2, column3, column4, 'unpaid', column5, column5 from (";
const SELECT: &str = "select merchant, provider, trade_id, account, order_id, status, amount, currency, refunded, \
     reversed, paid_at, processing_at, failed_at, late, ships from trades where ";
const UPDATE: &str = "update trades set order_id = v.column4, status = v.column5, amount = v.column6, \
     currency = v.column7, refunded = v.column8, reversed = v.column9, paid_at = v.column10, \
     processing_at = v.column11, failed_at = v.column12, late = v.column13, ships = v.column14, \
     updated_at = v.column15 from (";

/// What identifies a trade.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TradeKey {
    /// Whose.
    pub merchant: String,
    /// The provider.
    pub provider: String,
    /// The provider's id.
    pub trade_id: String,
}

impl TradeKey {
    pub(super) fn parts(&self) -> [&str; 3] {
        [&self.merchant, &self.provider, &self.trade_id]
    }
}

/// A trade as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TradeRow {
    /// What identifies it.
    pub key: TradeKey,
    /// The account it was first heard of at.
    pub account: String,
    /// The order, once linked.
    pub order_id: Option<String>,
    /// How it stands.
    pub status: String,
    /// What it was billed, once known.
    pub amount: Option<Money>,
    /// The currency of its money, once any is known.
    pub currency: Option<Currency>,
    /// Refunded, gross.
    pub refunded: i64,
    /// Of that, come back.
    pub reversed: i64,
    /// When it was paid, once known.
    pub paid_at: Option<Timestamp>,
    /// The latest report that it is under way.
    pub processing_at: Option<Timestamp>,
    /// The latest report that an attempt failed.
    pub failed_at: Option<Timestamp>,
    /// Paid after a close.
    pub late: bool,
    /// A report of its payment showed that it is not from before its account's `since`.
    pub ships: bool,
}

#[derive(FromRow)]
struct Row {
    merchant: String,
    provider: String,
    trade_id: String,
    account: String,
    order_id: Option<String>,
    status: String,
    amount: Option<i64>,
    currency: Option<String>,
    refunded: i64,
    reversed: i64,
    paid_at: Option<i64>,
    processing_at: Option<i64>,
    failed_at: Option<i64>,
    late: bool,
    ships: bool,
}

impl TryFrom<Row> for TradeRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let currency = row.currency.as_deref().map(Currency::new).transpose();
        let currency = currency
            .map_err(|_| StoreError::corrupt("trades", format!("currency of trade {}", row.trade_id)))?;
        Ok(Self {
            amount: row
                .amount
                .zip(currency)
                .map(|(minor, currency)| Money::new(minor, currency)),
            currency,
            key: TradeKey {
                merchant: row.merchant,
                provider: row.provider,
                trade_id: row.trade_id,
            },
            account: row.account,
            order_id: row.order_id,
            status: row.status,
            refunded: row.refunded,
            reversed: row.reversed,
            paid_at: row.paid_at.map(Timestamp::from_micros),
            processing_at: row.processing_at.map(Timestamp::from_micros),
            failed_at: row.failed_at.map(Timestamp::from_micros),
            late: row.late,
            ships: row.ships,
        })
    }
}

/// Creates those of `trades` (key and account, sorted by key) that are new, and locks all of them.
pub async fn lock(
    tx: &mut Tx,
    trades: &[(&TradeKey, &str)],
    now: Timestamp,
) -> Result<Vec<TradeRow>, StoreError> {
    if trades.is_empty() {
        return Ok(Vec::new());
    }
    let rows = Rows::of(trades)
        .text(|(key, _)| key.merchant.as_str())
        .text(|(key, _)| key.provider.as_str())
        .text(|(key, _)| key.trade_id.as_str())
        .text(|(_, account)| *account)
        .each(now.micros());
    on_tx!(&mut *tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT);
        rows.push_to(&mut sql);
        // The condition tells SQLite that what follows belongs to the insert.
        sql.push(") as named where true on conflict do nothing");
        sql.build().execute(conn).await.map(drop)
    })?;
    let for_update = tx.pick(" order by merchant, provider, trade_id for update", "");
    let rows: Vec<Row> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        let keys = trades.iter().map(|(key, _)| key.parts());
        push_keys(&mut sql, "merchant, provider, trade_id", keys);
        sql.push(for_update);
        sql.build_query_as().fetch_all(conn).await
    })?;
    rows.into_iter().map(TradeRow::try_from).collect()
}

/// The trades linked to `orders`. They cannot change while the orders are locked.
pub async fn of_orders(tx: &mut Tx, orders: &[OrderKey]) -> Result<Vec<TradeRow>, StoreError> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        push_keys(&mut sql, "merchant, order_id", orders.iter().map(OrderKey::parts));
        sql.build_query_as().fetch_all(conn).await
    })?;
    rows.into_iter().map(TradeRow::try_from).collect()
}

/// Writes `trades`, which are locked.
pub async fn update(tx: &mut Tx, trades: &[&TradeRow], now: Timestamp) -> Result<(), StoreError> {
    if trades.is_empty() {
        return Ok(());
    }
    let rows = Rows::of(trades)
        .text(|trade| trade.key.merchant.as_str())
        .text(|trade| trade.key.provider.as_str())
        .text(|trade| trade.key.trade_id.as_str())
        .text(|trade| trade.order_id.as_deref())
        .text(|trade| trade.status.as_str())
        .int(|trade| trade.amount.map(|money| money.minor))
        .text(|trade| trade.currency.as_ref().map(Currency::as_str))
        .int(|trade| trade.refunded)
        .int(|trade| trade.reversed)
        .int(|trade| trade.paid_at.map(Timestamp::micros))
        .int(|trade| trade.processing_at.map(Timestamp::micros))
        .int(|trade| trade.failed_at.map(Timestamp::micros))
        .bool(|trade| trade.late)
        .bool(|trade| trade.ships)
        .each(now.micros());
    let written = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(UPDATE);
        rows.push_to(&mut sql);
        sql.push(
            ") as v where trades.merchant = v.column1 and trades.provider = v.column2 \
             and trades.trade_id = v.column3",
        );
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    if u64::try_from(trades.len()).is_ok_and(|wanted| wanted == written) {
        Ok(())
    } else {
        Err(StoreError::corrupt("trades", "a locked trade is gone"))
    }
}
