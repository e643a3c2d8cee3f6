//! Removing what is old enough: the one path that may delete events.
//!
//! A batch is one short transaction. It states the moment before which rows may go (`retention_cutoff`, which
//! the triggers ask for), removes, notes how far for the readers of the feed, and takes the statement back:
//! nobody else ever sees it. On Postgres one daemon at a time removes events; on SQLite there is one writer.
//!
//! An event goes with everything that hangs on it. It stays, however old, while it has no outcome or that is
//! younger, while it is in the outbox, while a dead letter or an attention item about it is open, and for as
//! long again after its provider or a replay sent it once more. Messages stay: with orders, facts, ledger and
//! history they are the account of what happened, and a reader of the order stream begins where they do.

use sqlx::{FromRow, QueryBuilder};

use super::rows::push_keys;
use super::{Store, StoreError, Tx, heard, on_tx};
use crate::event::{EventId, new_id};
use crate::time::Timestamp;

const TRY_LOCK: &str = "select pg_try_advisory_xact_lock(716300921102)";
// By id, which sorts by arrival: no index on the time is needed, and a batch goes on where the last one ended.
const CANDIDATES: &str = "select e.id, e.position, e.received_at < $3
        and exists (select 1 from event_outcomes o where o.event_id = e.id and o.decided_at < $3)
        and not exists (select 1 from outbox x where x.id = e.id)
        and not exists (select 1 from outbox x where x.replay_id is not null and x.event_id = e.id)
        and not exists (select 1 from replays_sent r where r.event_id = e.id and r.sent_at >= $3)
        and not exists (select 1 from deliveries d where d.event_id = e.id and d.received_at >= $3)
        and not exists (select 1 from event_conflicts c where c.event_id = e.id and c.received_at >= $3)
        and not exists (select 1 from dead_letters l where l.event_id = e.id and l.redriven_at is null)
        and not exists (select 1 from attention a where a.event_id = e.id and a.state = 'open') as expired
   from events e where e.id > $1 and e.id < $2 order by e.id limit $4";
const ALLOW: &str = "insert into retention_cutoff (received_before) values ($1)";
const DISALLOW: &str = "delete from retention_cutoff";
const DELETES: [(&str, &str); 6] = [
    ("delete from deliveries where ", "event_id"),
    ("delete from event_conflicts where ", "event_id"),
    ("delete from event_outcomes where ", "event_id"),
    ("delete from event_orders where ", "event_id"),
    ("delete from replays_sent where ", "event_id"),
    ("delete from events where ", "id"),
];
const HORIZON: &str = "update feed_horizons set position = $1 where stream = 'events' and position < $1";
const QUARANTINE: &str = "delete from quarantine where id in
    (select id from quarantine where id < $1 and received_at < $2 order by id limit $3)";

/// What one batch did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgedEvents {
    /// Another daemon is at it.
    Elsewhere,
    /// So many went.
    Purged {
        /// How many.
        count: u64,
        /// Where the next batch goes on; `None`: the end is reached.
        next: Option<EventId>,
    },
}

#[derive(FromRow)]
struct Candidate {
    id: String,
    position: i64,
    expired: bool,
}

impl Store {
    /// Looks at the `limit` oldest events after `after` and removes those that may go, by what was before
    /// `cutoff`.
    pub async fn purge_events(
        &self,
        cutoff: Timestamp,
        after: Option<&EventId>,
        limit: u16,
    ) -> Result<PurgedEvents, StoreError> {
        let mut tx = self.begin().await?;
        if let Tx::Postgres(pg) = &mut tx {
            let mine: bool = heard(sqlx::query_scalar(TRY_LOCK).fetch_one(&mut **pg)).await?;
            if !mine {
                tx.rollback().await?;
                return Ok(PurgedEvents::Elsewhere);
            }
        }
        let seen: Vec<Candidate> = on_tx!(&mut tx, |conn| sqlx::query_as(CANDIDATES)
            .bind(after.map_or("", EventId::as_str))
            .bind(new_id(cutoff))
            .bind(cutoff)
            .bind(i64::from(limit))
            .fetch_all(conn)
            .await)?;
        let next = seen
            .last()
            .filter(|_| seen.len() >= usize::from(limit))
            .map(|last| EventId::from_text(last.id.as_str()));
        let expired: Vec<&Candidate> = seen.iter().filter(|event| event.expired).collect();
        let count = u64::try_from(expired.len()).unwrap_or_default();
        if let Some(horizon) = expired.iter().map(|event| event.position).max() {
            let ids: Vec<&str> = expired.iter().map(|event| event.id.as_str()).collect();
            remove(&mut tx, cutoff, &ids, horizon).await?;
        }
        tx.commit().await?;
        Ok(PurgedEvents::Purged { count, next })
    }

    /// Removes up to `limit` quarantined notifications that arrived before `cutoff`; gives how many.
    pub async fn purge_quarantine(&self, cutoff: Timestamp, limit: u16) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let done = on_tx!(&mut tx, |conn| sqlx::query(QUARANTINE)
            .bind(new_id(cutoff))
            .bind(cutoff)
            .bind(i64::from(limit))
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        tx.commit().await?;
        Ok(done)
    }
}

async fn remove(tx: &mut Tx, cutoff: Timestamp, ids: &[&str], horizon: i64) -> Result<(), StoreError> {
    on_tx!(&mut *tx, |conn| sqlx::query(ALLOW)
        .bind(cutoff)
        .execute(conn)
        .await
        .map(drop))?;
    let mut events = 0;
    for (delete, column) in DELETES {
        events = on_tx!(&mut *tx, |conn| {
            let mut sql = QueryBuilder::new(delete);
            push_keys(&mut sql, column, ids.iter().map(|id| [*id]));
            sql.build().execute(conn).await.map(|done| done.rows_affected())
        })?;
    }
    if usize::try_from(events).ok() != Some(ids.len()) {
        return Err(StoreError::corrupt(
            "events",
            "a row that was to go was not there",
        ));
    }
    on_tx!(&mut *tx, |conn| sqlx::query(HORIZON)
        .bind(horizon)
        .execute(conn)
        .await
        .map(drop))?;
    on_tx!(tx, |conn| sqlx::query(DISALLOW).execute(conn).await.map(drop))?;
    Ok(())
}
