//! Events that have waited too long for their order: shown to a human, once each. They go on waiting, and are
//! applied whenever what they wait for comes; then nobody need look any more.

use sqlx::{FromRow, QueryBuilder};

use super::attention::{self, NewAttention};
use super::history::parked_orders;
use super::rows::push_keys;
use super::{StoreError, Tx, on_tx};
use crate::event::{AttentionCode, EventId};
use crate::time::Timestamp;

const OVERDUE: &str = "select e.id, e.merchant, e.provider, e.account, e.order_id, e.trade_id, o.reason \
     from event_outcomes o join events e on e.id = o.event_id \
     where o.outcome = 'parked' and o.decided_at < $1 and not exists (select 1 from attention a \
     where a.merchant = e.merchant and a.code = 'parked_too_long' and a.source = e.id) \
     order by o.decided_at limit 100";

const SETTLE: &str = "update attention set state = 'resolved', resolution = 'resolved_itself', resolved_by = 'payhook', \
     resolution_reason = 'what the event had waited for has come', resolved_at = ";

#[derive(FromRow)]
struct Row {
    id: String,
    merchant: String,
    provider: String,
    account: String,
    order_id: Option<String>,
    trade_id: Option<String>,
    reason: String,
}

/// Raises `parked_too_long` for at most 100 events that were parked before `since`; how many there were.
pub async fn raise_overdue(tx: &mut Tx, since: Timestamp, now: Timestamp) -> Result<usize, StoreError> {
    let rows: Vec<Row> = on_tx!(&mut *tx, |conn| sqlx::query_as(OVERDUE)
        .bind(since.micros())
        .fetch_all(conn)
        .await)?;
    let found = rows.len();
    let events: Vec<EventId> = rows
        .iter()
        .map(|row| EventId::from_text(row.id.as_str()))
        .collect();
    let waited_for = parked_orders(tx, &events.iter().collect::<Vec<_>>()).await?;
    for row in rows {
        let orders: Vec<&str> = waited_for
            .iter()
            .filter(|(event, _)| event.as_str() == row.id)
            .map(|(_, order)| order.order_id.as_str())
            .collect();
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
    Ok(found)
}

/// Resolves the items about `events`, which have waited and were applied now.
pub async fn settle_overdue(tx: &mut Tx, events: &[EventId], now: Timestamp) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    Ok(on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SETTLE);
        sql.push_bind(now.micros());
        sql.push(" where code = 'parked_too_long' and state = 'open' and ");
        push_keys(&mut sql, "event_id", events.iter().map(|event| [event.as_str()]));
        sql.build().execute(conn).await.map(drop)
    })?)
}
