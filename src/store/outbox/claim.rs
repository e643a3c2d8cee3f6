//! The sweep's hand: takes rows that are due and holds them for [`CLAIM`].
//!
//! Chosen by state, never by "id greater than the last one": a row whose transaction commits late is found
//! when it is there. On Postgres `skip locked` keeps two daemons from taking the same row; SQLite has one
//! writer. What was taken is read after the claim has committed ([`super::read`]), so the lock is held for one
//! statement; at most [`CLAIM_BYTES`] of it, for all of it is in memory at once.

use std::time::Duration;

use sqlx::FromRow;
use tokio::time::Instant;

use super::{CLAIM, Claimed};
use crate::store::time::db_now;
use crate::store::{Store, StoreError, on_pool, on_tx};

/// The most that one claim reads, in bytes of bodies, unless a single row has more.
const CLAIM_BYTES: i64 = 16 * 1024 * 1024;

/// Which due rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Never confirmed by the broker: to be published.
    First,
    /// Events that were published and have not ended in time: to the workers again.
    Again,
    /// The same, where their names are enough.
    AgainByName,
    /// Events that were never published: what the embedded broker's worker applies.
    Apply,
}

macro_rules! claim {
    ($which:literal, $lock:literal, $those:literal, $end:literal) => {
        concat!(
            "with due as materialized (select id, event_id, message_id, due_at from outbox where due_at <= $1 and ",
            $which,
            " order by due_at limit $4 ",
            $lock,
            "), sized as (select due.id, due.due_at, coalesce(length(e.body), 0) + coalesce(length(e.content), 0) \
             + coalesce(length(m.body), 0) as bytes from due left join events e on e.id = due.event_id \
             left join messages m on m.id = due.message_id), \
             summed as (select id, bytes, sum(bytes) over (order by due_at, id) as upto from sized) \
             update outbox set due_at = $2, claimed_by = $3 \
             where id ",
            $those,
            "(select id from summed where upto - bytes < $5)",
            $end,
            " returning id, event_id, message_id, replay_id, replay_reason, queue"
        )
    };
    ($which:literal) => {
        (
            claim!($which, "for update skip locked", "= any (array", ")"),
            claim!($which, "", "in ", ""),
        )
    };
}

const CLAIM_FIRST: (&str, &str) = claim!("published_at is null and not unpublishable");
const CLAIM_AGAIN: (&str, &str) = claim!("published_at is not null");
const CLAIM_APPLY: (&str, &str) =
    claim!("published_at is null and not unpublishable and kind in ('event', 'replay')");

const HAS_DUE: (&str, &str) = (
    concat!(
        "select exists (select 1 from outbox where published_at is not null and due_at <= ",
        db_now!(postgres),
        ")"
    ),
    concat!(
        "select exists (select 1 from outbox where published_at is not null and due_at <= ",
        db_now!(sqlite),
        ")"
    ),
);

const HAS_OLD: &str = "select exists (select 1 from outbox where published_at is not null and kind = 'event' \
     and created_at < $1)";

const RELEASE: (&str, &str) = (
    concat!(
        "update outbox set claimed_by = null, due_at = least(due_at, ",
        db_now!(postgres),
        ") where claimed_by = $1 and published_at is null and attempts = 0 and not unpublishable"
    ),
    concat!(
        "update outbox set claimed_by = null, due_at = min(due_at, ",
        db_now!(sqlite),
        ") where claimed_by = $1 and published_at is null and attempts = 0 and not unpublishable"
    ),
);
const DONE_WITH_MESSAGES: &str = "delete from outbox where kind in ('message', 'resend')";

/// A row that was claimed, before what it names has been read.
#[derive(Clone, Debug, FromRow)]
pub(super) struct ClaimedRow {
    pub(super) id: String,
    pub(super) event_id: Option<String>,
    pub(super) message_id: Option<String>,
    pub(super) replay_id: Option<String>,
    pub(super) replay_reason: Option<String>,
    pub(super) queue: Option<String>,
}

impl Store {
    /// Claims up to `limit` due rows for `process` and reads what they are about. Fewer, if those have long
    /// bodies. If they cannot be read they are given back.
    pub async fn claim_due(
        &self,
        scope: Scope,
        process: &str,
        limit: u32,
    ) -> Result<Vec<Claimed>, StoreError> {
        let claimed_until = Instant::now() + CLAIM;
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let ((postgres, sqlite), bytes) = match scope {
            Scope::First => (CLAIM_FIRST, CLAIM_BYTES),
            Scope::Again => (CLAIM_AGAIN, CLAIM_BYTES),
            Scope::AgainByName => (CLAIM_AGAIN, i64::MAX),
            Scope::Apply => (CLAIM_APPLY, CLAIM_BYTES),
        };
        let sql = tx.pick(postgres, sqlite);
        let mut rows: Vec<ClaimedRow> = on_tx!(&mut tx, |conn| {
            sqlx::query_as(sql)
                .bind(now)
                .bind(now.plus(CLAIM))
                .bind(process)
                .bind(i64::from(limit))
                .bind(bytes)
                .fetch_all(conn)
                .await
        })?;
        tx.commit().await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        // Ids sort by arrival, and `returning` by nothing.
        rows.sort_by(|one, other| one.id.cmp(&other.id));
        self.read_claimed(rows, scope, process, claimed_until).await
    }

    /// Whether an event was published and has not ended in time; a read, so that a poll takes no lock.
    pub async fn has_unfinished_due(&self) -> Result<bool, StoreError> {
        let sql = self.pick(HAS_DUE.0, HAS_DUE.1);
        Ok(on_pool!(self, |pool| sqlx::query_scalar(sql)
            .fetch_one(pool)
            .await)?)
    }

    /// Whether an event was published and has no outcome, although it came longer than `age` ago.
    pub async fn has_unfinished_older_than(&self, age: Duration) -> Result<bool, StoreError> {
        let mut tx = self.begin_reading().await?;
        let since = tx.now().await?.minus(age);
        let found = on_tx!(&mut tx, |conn| sqlx::query_scalar(HAS_OLD)
            .bind(since)
            .fetch_one(conn)
            .await)?;
        tx.commit().await?;
        Ok(found)
    }

    /// Gives back what `process` has claimed and will not send any more, so that nobody waits for the claims to
    /// run out. What it has published is not touched; how many rows it gave back.
    pub async fn release_claims(&self, process: &str) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let sql = self.pick(RELEASE.0, RELEASE.1);
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
