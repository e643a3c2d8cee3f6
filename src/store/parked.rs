//! Events that have waited too long for their order: shown to a human. They go on waiting, and are applied
//! whenever what they wait for comes; then nobody need look any more.
//!
//! An event that names its order has an item of its own. Those in which no order id is found are mostly of one
//! kind, such as the renewals of subscriptions: one item for each account and type counts them.

use std::collections::BTreeMap;

use sqlx::{FromRow, QueryBuilder};

use super::attention::{self, NewAttention};
use super::attention_group::{self, Counted};
use super::history::parked_orders;
use super::rows::push_keys;
use super::{StoreError, Tx, on_tx};
use crate::event::{AttentionCode, EventId};
use crate::time::Timestamp;

const OVERDUE: &str = "select e.id, e.merchant, e.provider, e.account, e.provider_event_type, e.order_id, e.trade_id, o.reason \
     from event_outcomes o join events e on e.id = o.event_id \
     where o.outcome = 'parked' and o.decided_at < $1 and not exists (select 1 from attention a \
     where a.merchant = e.merchant and a.code = 'parked_too_long' and a.source = e.id) and not exists \
     (select 1 from attention_events m where m.code = 'parked_too_long' and m.event_id = e.id) \
     order by o.decided_at limit 500";

const SETTLE: &str = "update attention set state = 'resolved', resolution = 'resolved_itself', resolved_by = 'payhook', \
     resolution_reason = 'what the event had waited for has come', resolved_at = ";

#[derive(FromRow)]
struct Row {
    id: String,
    merchant: String,
    provider: String,
    account: String,
    provider_event_type: String,
    order_id: Option<String>,
    trade_id: Option<String>,
    reason: String,
}

/// Raises `parked_too_long` for at most 500 events that were parked before `since`; how many there were.
pub async fn raise_overdue(tx: &mut Tx, since: Timestamp, now: Timestamp) -> Result<usize, StoreError> {
    let rows: Vec<Row> = on_tx!(&mut *tx, |conn| sqlx::query_as(OVERDUE)
        .bind(since)
        .fetch_all(conn)
        .await)?;
    let found = rows.len();
    let events: Vec<EventId> = rows
        .iter()
        .map(|row| EventId::from_text(row.id.as_str()))
        .collect();
    let waited_for = parked_orders(tx, &events.iter().collect::<Vec<_>>()).await?;
    let mut counted: BTreeMap<(String, String), Counted> = BTreeMap::new();
    for row in rows {
        let orders: Vec<&str> = waited_for
            .iter()
            .filter(|(event, _)| event.as_str() == row.id)
            .map(|(_, order)| order.order_id.as_str())
            .collect();
        if orders.is_empty() && row.order_id.is_none() {
            add(&mut counted, row);
            continue;
        }
        // Of several orders some may be registered by now; what the event was parked with names them all alike.
        let (why, order_id) = match orders.as_slice() {
            [] => (row.reason, row.order_id),
            [order] => (
                format!("order {order} is not registered"),
                Some((*order).to_owned()),
            ),
            several => (
                format!("orders {} are not registered", several.join(", ")),
                row.order_id,
            ),
        };
        let item = NewAttention {
            code: AttentionCode::ParkedTooLong,
            explanation: format!("an event has waited longer than the deadline: {why}"),
            merchant: row.merchant,
            provider: row.provider.parse().ok(),
            account: Some(row.account),
            order_id,
            trade_id: row.trade_id,
            event_id: Some(EventId::from_text(row.id.as_str())),
            source: row.id,
        };
        attention::raise(tx, &item, now).await?;
    }
    for counted in counted.values() {
        attention_group::count(tx, counted, now).await?;
    }
    attention_group::settle_parked(tx, now).await?;
    Ok(found)
}

/// Adds an event in which no order id is found to those of its account and type.
fn add(counted: &mut BTreeMap<(String, String), Counted>, row: Row) {
    let group = Counted::group(&row.provider, &row.account, &row.provider_event_type);
    let event = EventId::from_text(row.id);
    let key = (row.merchant.clone(), group.clone());
    let of_kind = counted.entry(key).or_insert_with(|| Counted {
        item: NewAttention {
            code: AttentionCode::ParkedTooLong,
            explanation: format!(
                "no order id is found in events {} of {}/{}, and they have waited longer than the deadline for one: \
                 correct order_id_from and replay, or set no_order = \"ignore\" if such payments have no order",
                row.provider_event_type, row.provider, row.account
            ),
            source: group,
            merchant: row.merchant,
            provider: row.provider.parse().ok(),
            account: Some(row.account),
            order_id: None,
            trade_id: None,
            event_id: None,
        },
        events: Vec::new(),
    });
    of_kind.events.push(event);
}

/// Resolves the items about `events`, which have waited and were applied now.
pub async fn settle_overdue(tx: &mut Tx, events: &[EventId], now: Timestamp) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    Ok(on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SETTLE);
        sql.push_bind(now);
        sql.push(" where code = 'parked_too_long' and state = 'open' and ");
        sql.push("group_key is null and ");
        push_keys(&mut sql, "event_id", events.iter().map(|event| [event.as_str()]));
        sql.build().execute(conn).await.map(drop)
    })?)
}
