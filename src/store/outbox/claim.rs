//! The sweep's hand: takes rows that are due and holds them for [`CLAIM`].
//!
//! Chosen by state, never by "id greater than the last one": a row whose transaction commits late is found
//! when it is there. On Postgres `skip locked` keeps two daemons from taking the same row; SQLite has one
//! writer. What was taken is read after the claim has committed, so the lock is held for one statement.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::FromRow;
use tokio::time::Instant;

use super::{CLAIM, Claimed, Content, Message, id_list, over_ids};
use crate::event::{Event, EventId, Replay};
use crate::store::{Store, StoreError, Unreadable, on_pool, on_tx};
use crate::time::Timestamp;

/// Which due rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Never confirmed by the broker: to be published.
    First,
    /// Events that were published and have not ended in time: to the workers again.
    Again,
    /// Events that were never published: what the embedded broker's worker applies.
    Apply,
}

macro_rules! claim {
    ($which:literal, $lock:literal) => {
        concat!(
            "with due as materialized (select id from outbox where due_at <= $1 and ",
            $which,
            " order by due_at limit $4 ",
            $lock,
            ") update outbox set due_at = $2, claimed_by = $3 where id in (select id from due) \
             returning id, event_id, message_id, replay_id, replay_reason"
        )
    };
    ($which:literal) => {
        (claim!($which, "for update skip locked"), claim!($which, ""))
    };
}

const CLAIM_FIRST: (&str, &str) = claim!("published_at is null and not unpublishable");
const CLAIM_AGAIN: (&str, &str) = claim!("published_at is not null");
const CLAIM_APPLY: (&str, &str) = claim!("published_at is null and not unpublishable and kind <> 'message'");

const HAS_DUE: (&str, &str) = (
    "select exists (select 1 from outbox where published_at is not null \
     and due_at <= (extract(epoch from clock_timestamp()) * 1000000)::bigint)",
    "select exists (select 1 from outbox where published_at is not null \
     and due_at <= cast(unixepoch('subsec') * 1000000 as integer))",
);

const MESSAGES: (&str, &str) = over_ids!(
    "select id, routing_key, body, created_at from messages where id in ",
    ""
);

const RELEASE_POSTGRES: &str = "update outbox set claimed_by = null, \
    due_at = least(due_at, (extract(epoch from clock_timestamp()) * 1000000)::bigint) \
    where claimed_by = $1 and published_at is null and attempts = 0 and not unpublishable";
const RELEASE_SQLITE: &str = "update outbox set claimed_by = null, \
    due_at = min(due_at, cast(unixepoch('subsec') * 1000000 as integer)) \
    where claimed_by = $1 and published_at is null and attempts = 0 and not unpublishable";
const DONE_WITH_MESSAGES: &str = "delete from outbox where kind = 'message'";

#[derive(FromRow)]
struct ClaimedRow {
    id: String,
    event_id: Option<String>,
    message_id: Option<String>,
    replay_id: Option<String>,
    replay_reason: Option<String>,
}

#[derive(FromRow)]
struct MessageRow {
    id: String,
    routing_key: String,
    body: Vec<u8>,
    created_at: i64,
}

impl Store {
    /// Claims up to `limit` due rows for `process` and reads what they are about.
    pub async fn claim_due(
        &self,
        scope: Scope,
        process: &str,
        limit: u32,
    ) -> Result<Vec<Claimed>, StoreError> {
        let claimed_until = Instant::now() + CLAIM;
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let (postgres, sqlite) = match scope {
            Scope::First => CLAIM_FIRST,
            Scope::Again => CLAIM_AGAIN,
            Scope::Apply => CLAIM_APPLY,
        };
        let sql = tx.pick(postgres, sqlite);
        let rows: Vec<ClaimedRow> = on_tx!(&mut tx, |conn| {
            sqlx::query_as(sql)
                .bind(now.micros())
                .bind(now.plus(CLAIM).micros())
                .bind(process)
                .bind(i64::from(limit))
                .fetch_all(conn)
                .await
        })?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        tx.commit().await?;
        self.read_claimed(rows, claimed_until).await
    }

    /// Whether an event was published and has not ended in time; a read, so that a poll takes no lock.
    pub async fn has_unfinished_due(&self) -> Result<bool, StoreError> {
        let sql = self.pick(HAS_DUE.0, HAS_DUE.1);
        Ok(on_pool!(self, |pool| sqlx::query_scalar(sql)
            .fetch_one(pool)
            .await)?)
    }

    async fn read_claimed(
        &self,
        rows: Vec<ClaimedRow>,
        claimed_until: Instant,
    ) -> Result<Vec<Claimed>, StoreError> {
        let ids: BTreeSet<&str> = rows.iter().filter_map(|row| row.event_id.as_deref()).collect();
        let ids: Vec<EventId> = ids.into_iter().map(EventId::from_text).collect();
        let events: HashMap<EventId, Result<Arc<Event>, Unreadable>> = self
            .events_by_id(&ids)
            .await?
            .into_iter()
            .map(|read| {
                let id = read.as_ref().map_or_else(|odd| &odd.id, |event| &event.id);
                (id.clone(), read)
            })
            .collect();
        let mut messages = self
            .messages_by_id(rows.iter().filter_map(|row| row.message_id.as_deref()))
            .await?;
        let claimed = rows.into_iter().map(|row| {
            let event = row
                .event_id
                .and_then(|id| events.get(&EventId::from_text(id)).cloned());
            let message = row.message_id.and_then(|id| messages.remove(&id));
            let replay = row
                .replay_id
                .zip(row.replay_reason)
                .map(|(id, reason)| Replay { id, reason });
            let content = match (event, message) {
                (Some(Ok(event)), _) => Content::Event(event, replay),
                (Some(Err(unreadable)), _) => Content::Unreadable(unreadable),
                (None, Some(message)) => Content::Message(message),
                (None, None) => Content::Missing,
            };
            Claimed {
                row: row.id,
                content,
                claimed_until,
            }
        });
        Ok(claimed.collect())
    }

    async fn messages_by_id<'a>(
        &self,
        ids: impl Iterator<Item = &'a str>,
    ) -> Result<HashMap<String, Message>, StoreError> {
        let ids: Vec<&str> = ids.collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let sql = self.pick(MESSAGES.0, MESSAGES.1);
        let list = id_list(ids);
        let rows: Vec<MessageRow> =
            on_pool!(self, |pool| sqlx::query_as(sql).bind(&list).fetch_all(pool).await)?;
        let messages = rows.into_iter().map(|row| {
            let message = Message {
                id: row.id.clone(),
                routing_key: row.routing_key,
                at: Timestamp::from_micros(row.created_at),
                body: row.body.into(),
            };
            (row.id, message)
        });
        Ok(messages.collect())
    }

    /// Gives back what `process` has claimed and will not send any more, so that nobody waits for the claims to
    /// run out. What it has published is not touched; how many rows it gave back.
    pub async fn release_claims(&self, process: &str) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let sql = self.pick(RELEASE_POSTGRES, RELEASE_SQLITE);
        let released = on_tx!(&mut tx, |conn| sqlx::query(sql)
            .bind(process)
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        tx.commit().await?;
        Ok(released)
    }

    /// Nobody but the feed wants messages where there is no broker: their rows are done at once. The messages
    /// themselves stay.
    pub async fn done_with_messages(&self) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let done = on_tx!(&mut tx, |conn| sqlx::query(DONE_WITH_MESSAGES)
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        tx.commit().await?;
        Ok(done)
    }
}
