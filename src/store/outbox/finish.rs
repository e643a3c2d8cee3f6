//! The ends of an event's outbox rows: it was applied, an attempt failed, or it is given up.
//!
//! ```text
//!            ┌─ applied ─▶ outcome; published rows deleted, the others end at their confirm
//! unfinished ┤
//!            └─ failed ──▶ attempts + 1, due after a backoff ─ attempts = max ─▶ dead: outcome, dead letter,
//!                                                                               attention item
//! ```
//!
//! A worker may be done before the relay has recorded the broker's confirm. Such a row stays until the confirm, which
//! finds the outcome; without a confirm the event is published again. So no event leaves the outbox unconfirmed.
//!
//! Attempts are counted here, never in the broker, in a transaction of their own. The burial is a second one that
//! checks again under its locks, because a worker or a redrive may have been faster; a crash between the two leaves a
//! row that is due and has no attempts left, so its next failure buries it. An outcome of an earlier application
//! stands when a replay of the event is buried. Each burial has a dead letter and an attention item of its own.
//!
//! An event that this version cannot read may have been written by a newer daemon, which can. It fails like any other:
//! its row stays, and the next daemon to claim it may be the newer one.

use std::time::Duration;

use super::id_list;
use crate::event::{AttentionCode, Event, EventId, EventKey, text};
use crate::store::attention::{self, NewAttention};
use crate::store::time::db_now;
use crate::store::{Store, StoreError, Tx, Unreadable, dead_letters, heard, on_pool, on_tx};
use crate::time::{Timestamp, micros};

/// The longest error that is kept, in bytes.
const ERROR_BYTES: usize = 1000;

/// The event's own row and its replays, locked by id: a confirm takes its locks in the same order.
macro_rules! locked_rows {
    () => {
        "select id, kind, published_at from outbox where id = any (array( \
           select id from outbox where kind = 'event' and id = any (array(select json_array_elements_text($1::json))) \
           union select id from outbox where replay_id is not null and kind = 'replay' \
             and event_id = any (array(select json_array_elements_text($1::json))))) \
         order by id for update"
    };
}
const LOCK_POSTGRES: &str = locked_rows!();

/// Rows whose publish is confirmed, or not owed (`$2`), go. The outcome does not end a replay's row, since a repetition
/// leaves the outcome as it was.
const FINISH_POSTGRES: &str = concat!(
    "with locked as materialized (",
    locked_rows!(),
    "), gone as (delete from outbox using locked where outbox.id = locked.id \
       and (locked.published_at is not null or $2)) \
     update outbox set applied_at = clock_timestamp() from locked \
      where outbox.id = locked.id and locked.kind = 'replay' and locked.published_at is null and not $2"
);
const DELETE_SQLITE: &str = "delete from outbox where (published_at is not null or $2) \
     and (kind = 'event' and id in (select value from json_each($1)) \
          or kind = 'replay' and replay_id is not null and event_id in (select value from json_each($1)))";
const APPLIED_SQLITE: &str = concat!(
    "update outbox set applied_at = ",
    db_now!(sqlite),
    " \
     where kind = 'replay' and replay_id is not null and event_id in (select value from json_each($1))"
);

/// A redelivery may fail after the event's row was deleted, so the row is inserted again.
const COUNT_FAILURE: &str = "insert into outbox \
     (id, kind, event_id, created_at, due_at, published_at, publishes, attempts, last_error) \
     values ($1, 'event', $1, $2, $2, $2, 1, 1, $3) \
     on conflict (id) do update set attempts = outbox.attempts + 1, last_error = excluded.last_error, \
     claimed_by = null, publishes = case when outbox.publishes > 1 then 1 else outbox.publishes end \
     returning attempts";
/// The row of a replay or resend is not inserted again: without it nobody waits for it.
const COUNT_AGAIN: &str = "update outbox set attempts = attempts + 1, last_error = $2, claimed_by = null \
     where id = $1 returning attempts";
const SET_DUE: &str = "update outbox set due_at = $2 where id = $1";
const ATTEMPTS: &str = "select coalesce(max(attempts), 0) from outbox where id = $1";

const HAS_OUTCOME: &str = "select exists (select 1 from event_outcomes where event_id = $1)";
/// Waits for a worker that is writing the event's outcome.
const DEAD_OUTCOME: &str = "insert into event_outcomes (event_id, outcome, reason, decided_at) \
     values ($1, 'dead', $2, $3) on conflict (event_id) do nothing";
const END_RESEND: &str = "delete from outbox where id = $1 and kind = 'resend' and attempts >= $2";
const MERCHANT: &str = "select merchant from events where id = $1";

/// When to try again, and when to give up.
#[derive(Clone, Copy, Debug)]
pub struct FailurePolicy {
    /// The first backoff; doubled with each failure.
    pub base: Duration,
    /// The longest backoff.
    pub cap: Duration,
    /// Failures after which the event is buried.
    pub max_attempts: u32,
    /// Whether the broker is embedded, so that no publish is owed.
    pub embedded: bool,
}

impl FailurePolicy {
    /// Backoffs from one second to ten minutes.
    pub fn new(max_attempts: u32, embedded: bool) -> Self {
        Self {
            base: Duration::from_secs(1),
            cap: Duration::from_mins(10),
            max_attempts,
            embedded,
        }
    }

    /// Returns a random wait of at most the backoff after `attempts` failures (full jitter), so that events that
    /// failed together are not retried together.
    fn wait(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(20);
        let most = self.base.saturating_mul(1 << doublings).min(self.cap);
        let most = u64::try_from(micros(most)).unwrap_or_default();
        Duration::from_micros(rand::random_range(0..=most))
    }
}

/// The result of recording a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The event is due again at this time.
    Retry(Timestamp),
    /// It was the last attempt: the event has a dead letter and an attention item.
    Buried,
    /// The event has ended otherwise in the meantime; nothing was counted.
    Finished,
}

/// The last error of an event that is given up, and its attempts.
#[derive(Clone, Debug)]
pub struct Burial {
    /// The last error.
    pub error: String,
    /// Failed attempts.
    pub attempts: u32,
}

/// A failed attempt.
struct Failure<'a> {
    event_id: &'a EventId,
    key: &'a EventKey,
    merchant: &'a str,
    /// The event, if it could be read.
    event: Option<&'a Event>,
    /// The outbox row whose attempts are counted.
    row: &'a str,
    error: &'a str,
    policy: FailurePolicy,
}

/// Ends the rows of `events`, whose outcomes this transaction has written. With `embedded` no publish is owed. Rows
/// that are inserted meanwhile are not touched, so that no lock is taken out of order.
pub async fn finish_applied(tx: &mut Tx, events: &[EventId], embedded: bool) -> Result<(), StoreError> {
    let events = id_list(events.iter().map(EventId::as_str));
    let statements: &[&str] = tx.pick(&[FINISH_POSTGRES], &[DELETE_SQLITE, APPLIED_SQLITE]);
    for sql in statements {
        on_tx!(&mut *tx, |conn| sqlx::query(sql)
            .bind(&events)
            .bind(embedded)
            .execute(conn)
            .await
            .map(drop))?;
    }
    Ok(())
}

impl Store {
    /// Records that `event` could not be applied.
    pub async fn record_failure(
        &self,
        event: &Event,
        error: &str,
        policy: &FailurePolicy,
    ) -> Result<Failed, StoreError> {
        self.fail(&Failure {
            event_id: &event.id,
            key: &event.key,
            merchant: &event.merchant,
            event: Some(event),
            row: event.id.as_str(),
            error: &text::storable(text::cut(error, ERROR_BYTES)),
            policy: *policy,
        })
        .await
    }

    /// Records that workers repeatedly stopped while applying `event`: one failed attempt, unless it has an outcome.
    pub async fn record_crash(
        &self,
        event: &Event,
        error: &str,
        policy: &FailurePolicy,
    ) -> Result<Failed, StoreError> {
        let ended: bool = on_pool!(self, |pool| sqlx::query_scalar(HAS_OUTCOME)
            .bind(event.id.as_str())
            .fetch_one(pool)
            .await)?;
        if ended {
            return Ok(Failed::Finished);
        }
        self.record_failure(event, error, policy).await
    }

    /// Records that the event of `row` (the event's own row, or that of a replay or resend) could not be read, and so
    /// neither sent nor applied. A buried event has no row left: once it can be read, a redrive applies it and a
    /// replay publishes it.
    pub async fn record_unreadable(
        &self,
        event: &Unreadable,
        row: &str,
        policy: &FailurePolicy,
    ) -> Result<Failed, StoreError> {
        let merchant: Option<String> = on_pool!(self, |pool| sqlx::query_scalar(MERCHANT)
            .bind(event.id.as_str())
            .fetch_optional(pool)
            .await)?;
        let error = format!(
            "the stored event does not read, so it was neither sent nor applied: {}",
            event.reason
        );
        self.fail(&Failure {
            event_id: &event.id,
            key: &event.key,
            merchant: merchant.as_deref().unwrap_or_default(),
            event: None,
            row,
            error: &text::storable(text::cut(&error, ERROR_BYTES)),
            // This version will never publish it.
            policy: FailurePolicy {
                embedded: true,
                ..*policy
            },
        })
        .await
    }

    async fn fail(&self, failure: &Failure<'_>) -> Result<Failed, StoreError> {
        let mut tx = self.begin().await?;
        let had_outcome = has_outcome(&mut tx, failure.event_id).await?;
        let counted = failure.count(&mut tx).await?;
        // Once more under the row's lock: a worker that held it has written the outcome by now.
        let ended = !had_outcome && has_outcome(&mut tx, failure.event_id).await?;
        let (Some((attempts, due)), false) = (counted, ended) else {
            tx.rollback().await?;
            return Ok(Failed::Finished);
        };
        tx.commit().await?;
        if attempts < failure.policy.max_attempts {
            return Ok(Failed::Retry(due));
        }
        let mut tx = self.begin().await?;
        if failure.bury(&mut tx, had_outcome).await? {
            tx.commit().await?;
            return Ok(Failed::Buried);
        }
        tx.rollback().await?;
        Ok(Failed::Finished)
    }
}

async fn has_outcome(tx: &mut Tx, event: &EventId) -> Result<bool, StoreError> {
    Ok(on_tx!(tx, |conn| sqlx::query_scalar(HAS_OUTCOME)
        .bind(event.as_str())
        .fetch_one(conn)
        .await)?)
}

impl Failure<'_> {
    /// Counts the attempt and sets the next one's time. `None`: the replay's row is gone.
    async fn count(&self, tx: &mut Tx) -> Result<Option<(u32, Timestamp)>, StoreError> {
        let now = tx.now().await?;
        let attempts: Option<i32> = if self.row == self.event_id.as_str() {
            on_tx!(&mut *tx, |conn| sqlx::query_scalar(COUNT_FAILURE)
                .bind(self.row)
                .bind(now)
                .bind(self.error)
                .fetch_optional(conn)
                .await)?
        } else {
            on_tx!(&mut *tx, |conn| sqlx::query_scalar(COUNT_AGAIN)
                .bind(self.row)
                .bind(self.error)
                .fetch_optional(conn)
                .await)?
        };
        let Some(attempts) = attempts.map(count_of) else {
            return Ok(None);
        };
        let due = now.plus(self.policy.wait(attempts));
        on_tx!(tx, |conn| sqlx::query(SET_DUE)
            .bind(self.row)
            .bind(due)
            .execute(conn)
            .await
            .map(drop))?;
        Ok(Some((attempts, due)))
    }

    /// Gives the event up. `false`: a worker has applied it or an operator has redriven it since it was counted.
    async fn bury(&self, tx: &mut Tx, had_outcome: bool) -> Result<bool, StoreError> {
        let now = tx.now().await?;
        if self.end_resend(tx).await? {
            self.raise(
                tx,
                AttentionCode::Unpublishable,
                self.row,
                self.error.to_owned(),
                now,
            )
            .await?;
            return Ok(true);
        }
        let written = on_tx!(&mut *tx, |conn| sqlx::query(DEAD_OUTCOME)
            .bind(self.event_id.as_str())
            .bind(self.error)
            .bind(now)
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        if written == 0 && !had_outcome {
            return Ok(false);
        }
        if let Tx::Postgres(pg) = &mut *tx {
            let rows = id_list([self.event_id.as_str()]);
            heard(sqlx::query(LOCK_POSTGRES).bind(rows).execute(&mut **pg)).await?;
        }
        let attempts = on_tx!(&mut *tx, |conn| sqlx::query_scalar(ATTEMPTS)
            .bind(self.row)
            .fetch_one(conn)
            .await)
        .map(count_of)?;
        if attempts < self.policy.max_attempts {
            return Ok(false);
        }
        finish_applied(tx, std::slice::from_ref(self.event_id), self.policy.embedded).await?;
        let error = self.error.to_owned();
        let explanation = format!("given up after {attempts} attempts: {error}");
        let burial = Burial { error, attempts };
        let about = (self.event_id, self.key);
        let letter = dead_letters::insert_event(tx, about, self.merchant, &burial, now).await?;
        self.raise(tx, AttentionCode::DeadLetter, &letter, explanation, now)
            .await?;
        Ok(true)
    }

    /// Deletes the row of a resend to one queue, which has no part in the event's outcome. `false`: it is none.
    async fn end_resend(&self, tx: &mut Tx) -> Result<bool, StoreError> {
        let ended = on_tx!(tx, |conn| sqlx::query(END_RESEND)
            .bind(self.row)
            .bind(i64::from(self.policy.max_attempts))
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        Ok(ended == 1)
    }

    async fn raise(
        &self,
        tx: &mut Tx,
        code: AttentionCode,
        source: &str,
        explanation: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let item = match self.event {
            Some(event) => NewAttention::about(event, code, source, &explanation),
            None => NewAttention {
                event_id: Some(self.event_id.clone()),
                ..NewAttention::new(self.merchant, code, source, &explanation)
            },
        };
        attention::raise(tx, &item, now).await?;
        Ok(())
    }
}

fn count_of(attempts: i32) -> u32 {
    u32::try_from(attempts).unwrap_or_default()
}
