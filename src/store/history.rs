//! How events ended, which orders they concerned, and what each did to an order, or why it did nothing.

use std::collections::BTreeMap;

use sqlx::QueryBuilder;

use super::orders::OrderKey;
use super::rows::{Rows, push_keys};
use super::trades::TradeKey;
use super::{StoreError, Tx, on_tx};
use crate::event::EventId;
use crate::time::Timestamp;

const INSERT_HISTORY: &str = "insert into order_history \
     (merchant, order_id, at, event_id, fact, outcome, reason, status_before, status_after) ";
const INSERT_OUTCOMES: &str =
    "insert into event_outcomes (event_id, outcome, reason, decided_at) select * from (";
const OVER_WHAT_STOOD: &str = ") as decided where true on conflict (event_id) do update set \
     outcome = excluded.outcome, reason = excluded.reason, decided_at = excluded.decided_at";
const SELECT_OUTCOMES: &str = "select event_id, outcome from event_outcomes where ";
const INSERT_EVENT_ORDERS: &str = "insert into event_orders (event_id, merchant, order_id) select * from (";

/// What is named comes first, then whether it is parked: a join could read all that is parked instead.
const NAMED: &str = "with named as materialized (";
/// By the trade's id alone, which hardly two merchants share: with the merchant beside it Postgres may prefer an index
/// that begins with that, and read all his events for each trade.
const EVENTS_OF_TRADES: &str = "select id, merchant, provider, trade_id from events where ";
const EVENTS_OF_ORDERS: &str = "select event_id as id, merchant, order_id from event_orders where ";
const THAT_ARE_PARKED: &str =
    ") select named.* from named join event_outcomes o on o.event_id = named.id where o.outcome = 'parked'";
const WHOSE_ORDER_IS_PARKED: &str = ") select named.* from named join orders o \
     on o.merchant = named.merchant and o.order_id = named.order_id where o.parked_until is not null";

/// A line of an order's history.
#[derive(Clone, Debug)]
pub struct NewHistory {
    /// Whose history.
    pub order: OrderKey,
    /// The event; absent for what the merchant itself said.
    pub event_id: Option<EventId>,
    /// The facts it told.
    pub fact: String,
    /// How it ended.
    pub outcome: &'static str,
    /// Why, in words.
    pub reason: String,
    /// The order's status before.
    pub before: &'static str,
    /// And after.
    pub after: &'static str,
}

/// An event's end.
#[derive(Clone, Debug)]
pub struct NewOutcome {
    /// The event.
    pub event_id: EventId,
    /// How it ended.
    pub outcome: &'static str,
    /// Why, in words.
    pub reason: String,
}

/// Adds lines, in their order.
pub async fn insert(tx: &mut Tx, lines: &[NewHistory], now: Timestamp) -> Result<(), StoreError> {
    if lines.is_empty() {
        return Ok(());
    }
    let rows = Rows::of(lines)
        .text(|line| line.order.merchant.as_str())
        .text(|line| line.order.order_id.as_str())
        .each(now)
        .text(|line| line.event_id.as_ref().map(EventId::as_str))
        .text(|line| line.fact.as_str())
        .text(|line| line.outcome)
        .text(|line| line.reason.as_str())
        .text(|line| line.before)
        .text(|line| line.after);
    on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT_HISTORY);
        rows.push_to(&mut sql);
        sql.build().execute(conn).await.map(drop)
    })?;
    Ok(())
}

/// How `events` ended so far.
pub async fn outcomes(tx: &mut Tx, events: &[&EventId]) -> Result<BTreeMap<String, String>, StoreError> {
    if events.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<(String, String)> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT_OUTCOMES);
        push_keys(&mut sql, "event_id", events.iter().map(|event| [event.as_str()]));
        sql.build_query_as().fetch_all(conn).await
    })?;
    Ok(rows.into_iter().collect())
}

/// [`outcomes`], locked: what else wakes a part of the same events waits until this transaction has ended.
pub async fn lock_outcomes(tx: &mut Tx, events: &[&EventId]) -> Result<BTreeMap<String, String>, StoreError> {
    if events.is_empty() {
        return Ok(BTreeMap::new());
    }
    let for_update = tx.pick(" order by event_id for update", "");
    let rows: Vec<(String, String)> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT_OUTCOMES);
        push_keys(&mut sql, "event_id", events.iter().map(|event| [event.as_str()]));
        sql.push(for_update);
        sql.build_query_as().fetch_all(conn).await
    })?;
    Ok(rows.into_iter().collect())
}

/// Which orders that wait for their registration `events` concern.
pub async fn parked_orders(tx: &mut Tx, events: &[&EventId]) -> Result<Vec<(EventId, OrderKey)>, StoreError> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(String, String, String)> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(NAMED);
        sql.push(EVENTS_OF_ORDERS);
        push_keys(&mut sql, "event_id", events.iter().map(|event| [event.as_str()]));
        sql.push(WHOSE_ORDER_IS_PARKED);
        sql.build_query_as().fetch_all(conn).await
    })?;
    Ok(rows.into_iter().map(with_order).collect())
}

fn with_order((event, merchant, order_id): (String, String, String)) -> (EventId, OrderKey) {
    (EventId::from_text(event), OrderKey { merchant, order_id })
}

/// Writes how events ended, over what stood there; each event once.
pub async fn decide(tx: &mut Tx, outcomes: &[NewOutcome], now: Timestamp) -> Result<(), StoreError> {
    if outcomes.is_empty() {
        return Ok(());
    }
    let rows = Rows::of(outcomes)
        .text(|outcome| outcome.event_id.as_str())
        .text(|outcome| outcome.outcome)
        .text(|outcome| outcome.reason.as_str())
        .each(now);
    on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT_OUTCOMES);
        rows.push_to(&mut sql);
        sql.push(OVER_WHAT_STOOD);
        sql.build().execute(conn).await.map(drop)
    })?;
    Ok(())
}

/// Notes which orders events concern.
pub async fn concern(tx: &mut Tx, pairs: &[(EventId, OrderKey)]) -> Result<(), StoreError> {
    if pairs.is_empty() {
        return Ok(());
    }
    let rows = Rows::of(pairs)
        .text(|(event, _)| event.as_str())
        .text(|(_, order)| order.merchant.as_str())
        .text(|(_, order)| order.order_id.as_str());
    on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT_EVENT_ORDERS);
        rows.push_to(&mut sql);
        sql.push(") as pairs where true on conflict do nothing");
        sql.build().execute(conn).await.map(drop)
    })?;
    Ok(())
}

/// The parked events about `trades`.
pub async fn parked_by_trade(
    tx: &mut Tx,
    trades: &[TradeKey],
) -> Result<Vec<(EventId, TradeKey)>, StoreError> {
    if trades.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(String, String, String, String)> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(NAMED);
        sql.push(EVENTS_OF_TRADES);
        let ids = trades.iter().map(|trade| [trade.trade_id.as_str()]);
        push_keys(&mut sql, "trade_id", ids);
        sql.push(THAT_ARE_PARKED);
        sql.build_query_as().fetch_all(conn).await
    })?;
    let found = rows.into_iter().map(|(event, merchant, provider, trade_id)| {
        let trade = TradeKey {
            merchant,
            provider,
            trade_id,
        };
        (EventId::from_text(event), trade)
    });
    Ok(found.filter(|(_, trade)| trades.contains(trade)).collect())
}

/// The parked events that concern `orders`.
pub async fn parked_by_order(
    tx: &mut Tx,
    orders: &[OrderKey],
) -> Result<Vec<(EventId, OrderKey)>, StoreError> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(String, String, String)> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(NAMED);
        sql.push(EVENTS_OF_ORDERS);
        push_keys(&mut sql, "merchant, order_id", orders.iter().map(OrderKey::parts));
        sql.push(THAT_ARE_PARKED);
        sql.build_query_as().fetch_all(conn).await
    })?;
    Ok(rows.into_iter().map(with_order).collect())
}
