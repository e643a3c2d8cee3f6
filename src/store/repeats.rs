//! The second arrival of an event: a duplicate, or a conflict (I4).
//!
//! The earlier copy was committed before the comparison, so a duplicate may be acked. Its delivery is written to
//! `deliveries` (about a hundred an event). A conflict's content is kept in `event_conflicts`, and attention is raised
//! once, however often it arrives.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::{FromRow, QueryBuilder};

use super::attention::{self, NewAttention};
use super::rows::{Rows, push_keys};
use super::{Store, StoreError, Tx, Writer, heard, on_tx};
use crate::event::{AttentionCode, Event, EventId, Fingerprint};
use crate::time::Timestamp;

const EARLIER: &str = "select event_key, id, fingerprint from events where ";

const DELIVERIES: &str = "insert into deliveries (event_id, received_at, remote_addr) select * from (";
const ABOUT_A_HUNDRED: &str =
    ") as again where (select count(*) from deliveries where event_id = again.column1) < 100";

const CONFLICT: (&str, &str) = (
    "insert into event_conflicts (event_id, fingerprint, received_at, headers, body, content, remote_addr) \
     values ($1, $2, $3, $4::text::jsonb, $5, $6, $7) on conflict do nothing",
    "insert into event_conflicts (event_id, fingerprint, received_at, headers, body, content, remote_addr) \
     values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing",
);

#[derive(FromRow)]
struct EarlierRow {
    event_key: String,
    id: String,
    fingerprint: Vec<u8>,
}

/// What is stored under a key.
struct Earlier {
    id: EventId,
    /// `None`: of a format that this version cannot read.
    fingerprint: Option<Fingerprint>,
}

/// How an event compares with the one that is stored under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The same content as this event; [`Writer::note_deliveries`] writes the delivery.
    Duplicate(EventId),
    /// Other content than this event's, or that one cannot be read; [`Store::keep_conflicts`] keeps both.
    Conflict(EventId),
    /// The stored event was purged meanwhile. The provider's next retry is stored as new.
    Gone,
}

/// One more arrival of a stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The stored event.
    pub event_id: EventId,
    /// When it arrived.
    pub received_at: Timestamp,
    /// Its sender.
    pub remote_addr: Option<String>,
}

impl Delivery {
    /// The arrival of `again`, a duplicate of the stored event `of`.
    pub fn of(of: &EventId, again: &Event) -> Self {
        Self {
            event_id: of.clone(),
            received_at: again.received_at,
            remote_addr: again.remote_addr.map(|addr| addr.to_string()),
        }
    }
}

impl Writer {
    /// Compares each of `repeats` with the event that is stored under its key.
    pub async fn compare_repeats(&mut self, repeats: &[Arc<Event>]) -> Result<Vec<Repeat>, StoreError> {
        if repeats.is_empty() {
            return Ok(Vec::new());
        }
        let earlier = self.earlier(repeats).await?;
        let compared = repeats
            .iter()
            .map(|event| match earlier.get(event.key.as_str()) {
                None => Repeat::Gone,
                Some(Earlier { id, fingerprint }) => {
                    let agrees = |first: &Fingerprint| first.agrees_with(&event.fingerprint);
                    if fingerprint.as_ref().is_some_and(agrees) {
                        Repeat::Duplicate(id.clone())
                    } else {
                        Repeat::Conflict(id.clone())
                    }
                }
            })
            .collect();
        Ok(compared)
    }

    /// Writes deliveries of duplicates.
    pub async fn note_deliveries(&mut self, again: &[Delivery]) -> Result<(), StoreError> {
        if again.is_empty() {
            return Ok(());
        }
        let rows = Rows::of(again)
            .text(|delivery| delivery.event_id.as_str())
            .time(|delivery| delivery.received_at)
            .text(|delivery| delivery.remote_addr.as_deref());
        macro_rules! query {
            ($conn:expr) => {{
                let mut sql = QueryBuilder::new(DELIVERIES);
                rows.push_to(&mut sql);
                sql.push(ABOUT_A_HUNDRED);
                sql.build().execute($conn).await.map(drop)
            }};
        }
        match &self.store {
            Store::Postgres(pool) => {
                let mut lease = self.lease.take(pool).await?;
                let answer = heard(async { query!(lease.conn()?) }).await;
                self.lease.end(lease, answer)?;
                self.lease.did();
            }
            Store::Sqlite(pools) => query!(pools.writing()?)?,
        }
        Ok(())
    }

    async fn earlier(&mut self, repeats: &[Arc<Event>]) -> Result<HashMap<String, Earlier>, StoreError> {
        macro_rules! query {
            ($conn:expr) => {{
                let mut sql = QueryBuilder::new(EARLIER);
                push_keys(
                    &mut sql,
                    "event_key",
                    repeats.iter().map(|event| [event.key.as_str()]),
                );
                sql.build_query_as().fetch_all($conn).await
            }};
        }
        let rows: Vec<EarlierRow> = match &self.store {
            Store::Postgres(pool) => {
                let mut lease = self.lease.take(pool).await?;
                let answer = heard(async { query!(lease.conn()?) }).await;
                let rows = self.lease.end(lease, answer)?;
                self.lease.did();
                rows
            }
            Store::Sqlite(pools) => query!(&pools.reader)?,
        };
        let earlier = rows.into_iter().map(|row| {
            let fingerprint = Fingerprint::from_slice(&row.fingerprint);
            let id = EventId::from_text(row.id);
            (row.event_key, Earlier { id, fingerprint })
        });
        Ok(earlier.collect())
    }
}

impl Store {
    /// Keeps the contents of `conflicts` beside the first ones and raises attention, in one transaction. All contents are
    /// written before the first attention, both in the order of the events' ids: daemons that keep the same conflicts
    /// wait for each other in one order instead of deadlocking.
    pub async fn keep_conflicts(&self, conflicts: &[(EventId, Arc<Event>)]) -> Result<(), StoreError> {
        if conflicts.is_empty() {
            return Ok(());
        }
        let mut sorted: Vec<&(EventId, Arc<Event>)> = conflicts.iter().collect();
        sorted.sort_by_cached_key(|(id, event)| (id.as_str().to_owned(), event.fingerprint.to_bytes()));
        let mut tx = self.begin().await?;
        for (event_id, event) in &sorted {
            keep(&mut tx, event_id, event).await?;
        }
        sorted.dedup_by(|(later, _), (first, _)| later == first);
        for (event_id, event) in sorted {
            attention::raise(&mut tx, &conflict(event_id, event), event.received_at).await?;
        }
        tx.commit().await
    }
}

async fn keep(tx: &mut Tx, event_id: &EventId, event: &Event) -> Result<(), StoreError> {
    let sql = tx.pick(CONFLICT.0, CONFLICT.1);
    on_tx!(&mut *tx, |conn| sqlx::query(sql)
        .bind(event_id.as_str())
        .bind(event.fingerprint.to_bytes())
        .bind(event.received_at)
        .bind(&event.headers)
        .bind(&event.body[..])
        .bind(event.content.as_deref())
        .bind(event.remote_addr.map(|addr| addr.to_string()))
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}

fn conflict(event_id: &EventId, event: &Event) -> NewAttention {
    let explanation = "The provider sent this event again under the same id with other signed content. \
                       The first one counts; the other is kept beside it and moved nothing.";
    NewAttention {
        event_id: Some(event_id.clone()),
        ..NewAttention::about(
            event,
            AttentionCode::EventConflict,
            event_id.as_str(),
            explanation,
        )
    }
}
