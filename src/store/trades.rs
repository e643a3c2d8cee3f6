//! Trades as rows. A transaction that writes one has locked it ([`super::locks`]).

use sqlx::{FromRow, QueryBuilder};

use super::orders::OrderKey;
use super::rows::{Rows, push_keys};
use super::{StoreError, Tx, on_tx};
use crate::event::{Currency, Money};
use crate::time::Timestamp;

const INSERT: &str = "insert into trades (merchant, provider, trade_id, order_id, status, amount, currency, refunded, \
     reversed, paid_at, processing_at, failed_at, late, ships, updated_at, created_at, account) ";
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
    paid_at: Option<Timestamp>,
    processing_at: Option<Timestamp>,
    failed_at: Option<Timestamp>,
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
            paid_at: row.paid_at,
            processing_at: row.processing_at,
            failed_at: row.failed_at,
            late: row.late,
            ships: row.ships,
        })
    }
}

impl TradeRow {
    /// Returns a trade of which nothing is known yet.
    pub fn new(key: TradeKey, account: &str) -> Self {
        Self {
            key,
            account: account.to_owned(),
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
}

/// Returns those of `trades` that exist.
pub async fn read(tx: &mut Tx, trades: &[&TradeKey]) -> Result<Vec<TradeRow>, StoreError> {
    if trades.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        let keys = trades.iter().map(|key| key.parts());
        push_keys(&mut sql, "merchant, provider, trade_id", keys);
        sql.build_query_as().fetch_all(conn).await
    })?;
    rows.into_iter().map(TradeRow::try_from).collect()
}

/// Returns the trades linked to `orders`. They cannot change while the orders are locked.
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

/// Inserts `trades`, which are locked and do not exist.
pub async fn insert(tx: &mut Tx, trades: &[&TradeRow], now: Timestamp) -> Result<(), StoreError> {
    if trades.is_empty() {
        return Ok(());
    }
    let rows = rows(trades, now).each(now).text(|trade| trade.account.as_str());
    let written = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT);
        rows.push_to(&mut sql);
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    all_written(written, trades.len())
}

/// Updates `trades`, which are locked.
pub async fn update(tx: &mut Tx, trades: &[&TradeRow], now: Timestamp) -> Result<(), StoreError> {
    if trades.is_empty() {
        return Ok(());
    }
    let rows = rows(trades, now);
    let written = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(UPDATE);
        rows.push_to(&mut sql);
        sql.push(
            ") as v where trades.merchant = v.column1 and trades.provider = v.column2 \
             and trades.trade_id = v.column3",
        );
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    all_written(written, trades.len())
}

/// The columns that an insert and an update share.
fn rows<'r>(trades: &'r [&TradeRow], now: Timestamp) -> Rows<'r, &'r TradeRow> {
    Rows::of(trades)
        .text(|trade| trade.key.merchant.as_str())
        .text(|trade| trade.key.provider.as_str())
        .text(|trade| trade.key.trade_id.as_str())
        .text(|trade| trade.order_id.as_deref())
        .text(|trade| trade.status.as_str())
        .int(|trade| trade.amount.map(|money| money.minor))
        .text(|trade| trade.currency.as_ref().map(Currency::as_str))
        .int(|trade| trade.refunded)
        .int(|trade| trade.reversed)
        .time(|trade| trade.paid_at)
        .time(|trade| trade.processing_at)
        .time(|trade| trade.failed_at)
        .bool(|trade| trade.late)
        .bool(|trade| trade.ships)
        .each(now)
}

fn all_written(written: u64, wanted: usize) -> Result<(), StoreError> {
    if u64::try_from(wanted).is_ok_and(|wanted| wanted == written) {
        Ok(())
    } else {
        Err(StoreError::corrupt(
            "trades",
            "a locked trade was written elsewhere",
        ))
    }
}
