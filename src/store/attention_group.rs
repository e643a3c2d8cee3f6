//! One attention item for many events of one kind at one account: it counts them.
//!
//! A partial unique index lets one item of a group be open at a time, and `attention_events` counts each event
//! once. So a replay, a second worker or a restart adds nothing, and after a human has closed the item the next
//! event raises another.

use sqlx::QueryBuilder;

use super::attention::{NewAttention, announce};
use super::rows::{Rows, push_keys};
use super::{StoreError, Tx, on_tx};
use crate::event::{EventId, ProviderName, new_id};
use crate::time::Timestamp;

const COUNTED: &str = "select event_id from attention_events where code = ";

const INSERT: &str = "insert into attention \
     (id, code, source, merchant, provider, account, event_id, explanation, created_at, group_key, events) \
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict do nothing returning id";

const ADD: &str = "update attention set events = events + $2 where id = $1";

/// A member is still parked as long as its outcome says so.
const SETTLE: &str = "update attention set state = 'resolved', resolution = 'resolved_itself', resolved_by = 'payhook', \
     resolution_reason = 'what the events had waited for has come', resolved_at = $1 \
     where code = 'parked_too_long' and state = 'open' and group_key is not null and not exists \
     (select 1 from attention_events m join event_outcomes o on o.event_id = m.event_id \
     where m.attention_id = attention.id and m.code = 'parked_too_long' and o.outcome = 'parked')";

/// An item to be raised for a kind of event, and the events that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The item as it is raised when none of its group is open: its source is the group, and its event the first of
    /// `events`.
    pub item: NewAttention,
    /// The events, at least one.
    pub events: Vec<EventId>,
}

impl Counted {
    /// The item's group: its account and the events' type. Also the begin of its source.
    pub fn group(provider: &str, account: &str, provider_event_type: &str) -> String {
        format!("{provider}/{account}:{provider_event_type}")
    }
}

/// Counts those of the events that were not counted before in the open item of the group, and raises the item if
/// there is none. Returns how many were new.
pub async fn count(tx: &mut Tx, counted: &Counted, now: Timestamp) -> Result<u64, StoreError> {
    let new = uncounted(tx, counted).await?;
    if new.is_empty() {
        return Ok(0);
    }
    let group = &counted.item.source;
    // Between the two looks another transaction may raise the item, or close it.
    for _ in 0..3 {
        if let Some(id) = open(tx, counted, group).await? {
            let added = enter(tx, counted, &id, &new).await?;
            let number = i64::try_from(added).unwrap_or(i64::MAX);
            on_tx!(&mut *tx, |conn| sqlx::query(ADD)
                .bind(&id)
                .bind(number)
                .execute(conn)
                .await
                .map(drop))?;
            return Ok(added);
        }
        if let Some(id) = raise(tx, counted, group, &new, now).await? {
            return enter(tx, counted, &id, &new).await;
        }
    }
    Err(StoreError::timed_out())
}

async fn uncounted(tx: &mut Tx, counted: &Counted) -> Result<Vec<EventId>, StoreError> {
    if counted.events.is_empty() {
        return Ok(Vec::new());
    }
    let known: Vec<String> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(COUNTED);
        sql.push_bind(counted.item.code.as_str()).push(" and ");
        push_keys(
            &mut sql,
            "event_id",
            counted.events.iter().map(|event| [event.as_str()]),
        );
        sql.build_query_scalar().fetch_all(conn).await
    })?;
    let is_new = |event: &&EventId| !known.iter().any(|known| known == event.as_str());
    Ok(counted.events.iter().filter(is_new).cloned().collect())
}

/// The open item of the group, locked.
async fn open(tx: &mut Tx, counted: &Counted, group: &str) -> Result<Option<String>, StoreError> {
    let for_update = tx.pick(" for update", "");
    Ok(on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new("select id from attention where state = 'open' and merchant = ");
        sql.push_bind(&counted.item.merchant).push(" and code = ");
        sql.push_bind(counted.item.code.as_str())
            .push(" and group_key = ");
        sql.push_bind(group).push(for_update);
        sql.build_query_scalar().fetch_optional(conn).await
    })?)
}

async fn raise(
    tx: &mut Tx,
    counted: &Counted,
    group: &str,
    new: &[EventId],
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    let Some(first) = new.first() else { return Ok(None) };
    let item = NewAttention {
        source: format!("{group}#{first}"),
        event_id: Some(first.clone()),
        ..counted.item.clone()
    };
    let (id, events) = (new_id(now), i64::try_from(new.len()).unwrap_or(i64::MAX));
    let fresh: Option<String> = on_tx!(&mut *tx, |conn| sqlx::query_scalar(INSERT)
        .bind(&id)
        .bind(item.code.as_str())
        .bind(&item.source)
        .bind(&item.merchant)
        .bind(item.provider.map(ProviderName::as_str))
        .bind(&item.account)
        .bind(first.as_str())
        .bind(&item.explanation)
        .bind(now)
        .bind(group)
        .bind(events)
        .fetch_optional(conn)
        .await)?;
    if fresh.is_some() {
        announce(tx, &id, &item, events, now).await?;
    }
    Ok(fresh)
}

async fn enter(tx: &mut Tx, counted: &Counted, id: &str, new: &[EventId]) -> Result<u64, StoreError> {
    let rows = Rows::of(new).text(EventId::as_str);
    Ok(on_tx!(tx, |conn| {
        let mut sql =
            QueryBuilder::new("insert into attention_events (code, event_id, attention_id) select ");
        sql.push_bind(counted.item.code.as_str()).push(", column1, ");
        sql.push_bind(id).push(" from (");
        rows.push_to(&mut sql);
        sql.push(") as shown where true on conflict do nothing");
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?)
}

/// Resolves the items about parked events of which none is parked any more.
pub async fn settle_parked(tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
    on_tx!(tx, |conn| sqlx::query(SETTLE)
        .bind(now)
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}
