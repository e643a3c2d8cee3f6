//! Ledger entries as rows: each movement of money once (I6), never changed.

use sqlx::{FromRow, QueryBuilder};

use super::rows::{Rows, push_keys};
use super::trades::TradeKey;
use super::{StoreError, Tx, on_tx};
use crate::event::{Currency, EventId};
use crate::time::Timestamp;

const INSERT: &str = "insert into ledger_entries (merchant, provider, source, entry_type, trade_id, order_id, \
     amount, currency, event_id, at) ";
const SELECT: &str = "select id, merchant, provider, trade_id, entry_type, source, amount, currency \
     from ledger_entries where ";

/// An entry to be written.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Whose trade.
    pub trade: TradeKey,
    /// The order.
    pub order_id: String,
    /// What moved it.
    pub source: String,
    /// What kind of movement.
    pub entry_type: &'static str,
    /// Signed minor units.
    pub amount: i64,
    /// The currency.
    pub currency: Currency,
    /// The event that told it.
    pub event_id: Option<EventId>,
}

/// An entry that was written.
#[derive(Clone, Debug, FromRow)]
pub struct EntryRow {
    /// In the order in which they were written.
    pub id: i64,
    /// Whose.
    pub merchant: String,
    /// The provider.
    pub provider: String,
    /// The trade.
    pub trade_id: String,
    /// What kind of movement.
    pub entry_type: String,
    /// What moved it.
    pub source: String,
    /// Signed minor units.
    pub amount: i64,
    /// The currency.
    pub currency: String,
}

/// What is booked for `trades`.
pub async fn of_trades(tx: &mut Tx, trades: &[TradeKey]) -> Result<Vec<EntryRow>, StoreError> {
    if trades.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows: Vec<EntryRow> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        push_keys(
            &mut sql,
            "merchant, provider, trade_id",
            trades.iter().map(TradeKey::parts),
        );
        sql.build_query_as().fetch_all(conn).await
    })?;
    // Not by the database: it would rather walk all entries in that order than look these up and sort them.
    rows.sort_by_key(|row| row.id);
    Ok(rows)
}

/// Writes `entries`. A source that is booked already, for another trade, is an error: money moves once.
pub async fn insert(tx: &mut Tx, entries: &[NewEntry], now: Timestamp) -> Result<(), StoreError> {
    if entries.is_empty() {
        return Ok(());
    }
    let rows = Rows::of(entries)
        .text(|entry| entry.trade.merchant.as_str())
        .text(|entry| entry.trade.provider.as_str())
        .text(|entry| entry.source.as_str())
        .text(|entry| entry.entry_type)
        .text(|entry| entry.trade.trade_id.as_str())
        .text(|entry| entry.order_id.as_str())
        .int(|entry| entry.amount)
        .text(|entry| entry.currency.as_str())
        .text(|entry| entry.event_id.as_ref().map(EventId::as_str))
        .each(now);
    let written = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT);
        rows.push_to(&mut sql);
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    if u64::try_from(entries.len()).is_ok_and(|wanted| wanted == written) {
        Ok(())
    } else {
        Err(StoreError::corrupt(
            "ledger_entries",
            "a movement was booked before",
        ))
    }
}
