//! Facts as rows: each recorded once, by whatever path it comes (I6). The unique key is the arbiter.

use std::collections::HashMap;

use sqlx::{FromRow, QueryBuilder};

use super::orders::OrderKey;
use super::rows::{Rows, push_keys};
use super::trades::TradeKey;
use super::{StoreError, Tx, on_tx};
use crate::event::{Currency, EventId, Fact, FactKind, Money};
use crate::time::Timestamp;

const INSERT: &str = "insert into facts (merchant, provider, key, kind, order_id, trade_id, refund_id, amount, \
     currency, currency_assumed, at, reason, unsigned_total, event_id, recorded_at) select * from (";
macro_rules! columns {
    () => {
        "id, merchant, provider, key, kind, order_id, trade_id, refund_id, amount, currency, currency_assumed, at, \
         reason, unsigned_total, event_id"
    };
}
const SELECT: &str = concat!("select ", columns!(), " from facts where ");

/// What an order's own facts are looked up by, around its keys. Each by itself: as one join Postgres may go through
/// the own facts of all orders, while it takes them for few.
const OWN_POSTGRES: (&str, &str) = (
    "select own.* from (",
    concat!(
        ") as named cross join lateral (select ",
        columns!(),
        " from facts where trade_id is null and merchant = named.column1 and order_id = named.column2 offset 0) as own"
    ),
);
const OWN_SQLITE: (&str, &str) = (
    concat!(
        "select ",
        columns!(),
        " from facts where trade_id is null and (merchant, order_id) in ("
    ),
    ")",
);

/// A fact to be recorded.
#[derive(Clone, Debug)]
pub struct NewFact<'a> {
    /// Whose.
    pub merchant: &'a str,
    /// The provider, or `payhook` for what the merchant itself says.
    pub provider: &'a str,
    /// What happened.
    pub fact: &'a Fact,
    /// The event that tells it.
    pub event_id: Option<&'a EventId>,
}

/// A recorded fact.
#[derive(Clone, Debug)]
pub struct FactRow {
    /// The order of becoming known.
    pub id: i64,
    /// Whose.
    pub merchant: String,
    /// The provider, or `payhook`.
    pub provider: String,
    /// What happened.
    pub fact: Fact,
    /// The event that told it first.
    pub event_id: Option<EventId>,
}

/// What identifies a fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FactKey {
    /// Whose.
    pub merchant: String,
    /// The provider, or `payhook`.
    pub provider: String,
    /// [`Fact::key`].
    pub key: String,
}

impl FactRow {
    /// What identifies it.
    pub fn key(&self) -> FactKey {
        FactKey {
            merchant: self.merchant.clone(),
            provider: self.provider.clone(),
            key: self.fact.key.clone(),
        }
    }
}

#[derive(FromRow)]
struct Row {
    id: i64,
    merchant: String,
    provider: String,
    key: String,
    kind: String,
    order_id: Option<String>,
    trade_id: Option<String>,
    refund_id: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
    currency_assumed: bool,
    at: Option<Timestamp>,
    reason: Option<String>,
    unsigned_total: Option<i64>,
    event_id: Option<String>,
}

impl TryFrom<Row> for FactRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let corrupt = |what: &str| StoreError::corrupt("facts", format!("{what} of row {}", row.id));
        let currency = row
            .currency
            .as_deref()
            .map(Currency::new)
            .transpose()
            .map_err(|_| corrupt("currency"))?;
        let money = |minor: Option<i64>| -> Result<Option<Money>, StoreError> {
            minor
                .map(|minor| Ok(Money::new(minor, currency.ok_or_else(|| corrupt("currency"))?)))
                .transpose()
        };
        let fact = Fact {
            kind: FactKind::from_text(&row.kind).ok_or_else(|| corrupt("kind"))?,
            amount: money(row.amount)?,
            unsigned: money(row.unsigned_total)?,
            key: row.key,
            order_id: row.order_id,
            trade_id: row.trade_id,
            refund_id: row.refund_id,
            currency_assumed: row.currency_assumed,
            at: row.at,
            reason: row.reason,
        };
        Ok(Self {
            id: row.id,
            merchant: row.merchant,
            provider: row.provider,
            fact,
            event_id: row.event_id.map(EventId::from_text),
        })
    }
}

/// Records those of `facts` that are new, in their order, and returns these.
pub async fn record(tx: &mut Tx, facts: &[NewFact<'_>], now: Timestamp) -> Result<Vec<FactRow>, StoreError> {
    if facts.is_empty() {
        return Ok(Vec::new());
    }
    let rows = Rows::of(facts)
        .text(|new| new.merchant)
        .text(|new| new.provider)
        .text(|new| new.fact.key.as_str())
        .text(|new| new.fact.kind.as_str())
        .text(|new| new.fact.order_id.as_deref())
        .text(|new| new.fact.trade_id.as_deref())
        .text(|new| new.fact.refund_id.as_deref())
        .int(|new| new.fact.amount.map(|money| money.minor))
        .text(|new| currency(new.fact))
        .bool(|new| new.fact.currency_assumed)
        .time(|new| new.fact.at)
        .text(|new| new.fact.reason.as_deref())
        .int(|new| new.fact.unsigned.map(|money| money.minor))
        .text(|new| new.event_id.map(EventId::as_str))
        .each(now);
    let fresh: Vec<(i64, String, String, String)> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT);
        rows.push_to(&mut sql);
        sql.push(") as told where true on conflict do nothing returning id, merchant, provider, key");
        sql.build_query_as().fetch_all(conn).await
    })?;
    let ids: HashMap<[&str; 3], i64> = fresh
        .iter()
        .map(|(id, merchant, provider, key)| ([merchant.as_str(), provider, key], *id))
        .collect();
    let recorded = facts.iter().filter_map(|new| {
        let id = *ids.get(&[new.merchant, new.provider, &new.fact.key])?;
        Some(FactRow {
            id,
            merchant: new.merchant.to_owned(),
            provider: new.provider.to_owned(),
            fact: new.fact.clone(),
            event_id: new.event_id.cloned(),
        })
    });
    Ok(recorded.collect())
}

fn currency(fact: &Fact) -> Option<&str> {
    let money = fact.amount.as_ref().or(fact.unsigned.as_ref());
    money.map(|money| money.currency.as_str())
}

/// The facts of `trades`, and those of `orders` that name no trade; in the order of becoming known.
pub async fn of(tx: &mut Tx, trades: &[TradeKey], orders: &[OrderKey]) -> Result<Vec<FactRow>, StoreError> {
    let mut rows: Vec<Row> = Vec::new();
    if !trades.is_empty() {
        rows.extend::<Vec<Row>>(on_tx!(&mut *tx, |conn| {
            let mut sql = QueryBuilder::new(SELECT);
            let keys = trades.iter().map(TradeKey::parts);
            push_keys(&mut sql, "merchant, provider, trade_id", keys);
            sql.build_query_as().fetch_all(conn).await
        })?);
    }
    if !orders.is_empty() {
        let (before, after) = tx.pick(OWN_POSTGRES, OWN_SQLITE);
        let rows_of_orders = Rows::of(orders)
            .text(|order| order.merchant.as_str())
            .text(|order| order.order_id.as_str());
        rows.extend::<Vec<Row>>(on_tx!(&mut *tx, |conn| {
            let mut sql = QueryBuilder::new(before);
            rows_of_orders.push_to(&mut sql);
            sql.push(after);
            sql.build_query_as().fetch_all(conn).await
        })?);
    }
    rows.sort_by_key(|row| row.id);
    rows.into_iter().map(FactRow::try_from).collect()
}

/// The facts with these keys, wherever they belong.
pub async fn by_key(tx: &mut Tx, keys: &[FactKey]) -> Result<Vec<FactRow>, StoreError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        let parts = keys
            .iter()
            .map(|key| [key.merchant.as_str(), &key.provider, &key.key]);
        push_keys(&mut sql, "merchant, provider, key", parts);
        sql.build_query_as().fetch_all(conn).await
    })?;
    rows.into_iter().map(FactRow::try_from).collect()
}
