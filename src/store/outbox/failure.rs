//! An event could not be applied, or a row not be published: counted here, never in the broker.
//!
//! Each failure sets `due_at` by exponential backoff with full jitter, so that a thousand events that failed
//! together do not come back together. The last one buries the event: dead letter, attention item, outcome and
//! the row's end are one transaction, so it is never half dead.

use std::time::Duration;

use super::tell::{Alarm, tell};
use super::{finish_applied, id_list, over_ids};
use crate::event::{AttentionCode, Event, EventId, text};
use crate::store::{Store, StoreError, Tx, Unreadable, dead_letters, on_tx};
use crate::time::{Timestamp, micros};

/// A row that is missing (a message came back after its row was done) is written anew: the failure is a fact.
const COUNT_FAILURE: &str = "insert into outbox \
     (id, kind, event_id, created_at, due_at, published_at, publishes, attempts, last_error) \
     values ($1, 'event', $1, $2, $2, $2, 1, 1, $3) \
     on conflict (id) do update set attempts = outbox.attempts + 1, last_error = excluded.last_error, \
     claimed_by = null, publishes = case when outbox.publishes > 1 then 1 else outbox.publishes end \
     returning attempts";

const MERCHANT: &str = "select merchant from events where id = $1";
const ATTEMPTS: &str = "select attempts from outbox where id = $1";
const HAS_OUTCOME: &str = "select exists (select 1 from event_outcomes where event_id = $1)";
const END_ROW: &str = "delete from outbox where id = $1";
const SET_DUE: &str = "update outbox set due_at = $2 where id = $1";

const MARK_UNPUBLISHABLE: (&str, &str) = over_ids!(
    "update outbox set unpublishable = true, claimed_by = null, last_error = $2, due_at = $3, \
     published_at = case when kind = 'message' then published_at else $3 end where kind <> 'resend' and id in ",
    ""
);

/// What goes to one queue, or is a message again, waits for nothing else.
const END_RESEND: &str = "delete from outbox where id = $1 and kind = 'resend'";
const END_RESENDS: &str =
    "delete from outbox where replay_id is not null and event_id = $1 and kind = 'resend'";

const BURY_OUTCOME: &str = "insert into event_outcomes (event_id, outcome, reason, decided_at) \
     values ($1, 'dead', $2, $3) on conflict (event_id) do nothing";

/// When to try again, and when to stop.
#[derive(Clone, Copy, Debug)]
pub struct FailurePolicy {
    /// The first backoff; doubled with each failure.
    pub base: Duration,
    /// The longest backoff.
    pub cap: Duration,
    /// With this many failures the event is buried.
    pub max_attempts: u32,
    /// Whether there is no broker, so that no publish is owed.
    pub embedded: bool,
}

impl FailurePolicy {
    /// One second doubling up to ten minutes.
    pub fn new(max_attempts: u32, embedded: bool) -> Self {
        Self {
            base: Duration::from_secs(1),
            cap: Duration::from_mins(10),
            max_attempts,
            embedded,
        }
    }

    /// A random wait between nothing and the backoff after `attempts` failures.
    fn wait(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(20);
        let most = self.base.saturating_mul(1 << doublings).min(self.cap);
        let most = u64::try_from(micros(most)).unwrap_or_default();
        Duration::from_micros(rand::random_range(0..=most))
    }
}

/// What became of an event that could not be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It is due again then.
    Retry(Timestamp),
    /// That was the last attempt: a dead letter, and a human was told.
    Buried,
}

/// Why an event is given up.
#[derive(Clone, Debug)]
pub struct Burial {
    /// The last error, in words.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
}

impl Store {
    /// Notes that `event` could not be applied, and why.
    pub async fn record_failure(
        &self,
        event: &Event,
        error: &str,
        policy: &FailurePolicy,
    ) -> Result<Failed, StoreError> {
        let error = text::storable(text::cut(error, 1000)).into_owned();
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let id = event.id.as_str();
        let attempts: i32 = on_tx!(&mut tx, |conn| sqlx::query_scalar(COUNT_FAILURE)
            .bind(id)
            .bind(now.micros())
            .bind(&error)
            .fetch_one(conn)
            .await)?;
        let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
        let failed = if attempts < policy.max_attempts {
            let due = now.plus(policy.wait(attempts));
            on_tx!(&mut tx, |conn| sqlx::query(SET_DUE)
                .bind(id)
                .bind(due.micros())
                .execute(conn)
                .await
                .map(drop))?;
            Failed::Retry(due)
        } else {
            bury(&mut tx, event, &Burial { error, attempts }, policy.embedded, now).await?;
            Failed::Buried
        };
        tx.commit().await?;
        Ok(failed)
    }

    /// Notes that the broker will not take `row`'s message. An event goes to the workers all the same, under
    /// its name alone; a message stays for a human; what was only sent again is done. `about` is the row's event, if it has one.
    pub async fn mark_unpublishable(
        &self,
        row: &str,
        about: Option<&Event>,
        reason: &str,
    ) -> Result<(), StoreError> {
        let reason = text::cut(reason, 1000);
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let sql = tx.pick(MARK_UNPUBLISHABLE.0, MARK_UNPUBLISHABLE.1);
        on_tx!(&mut tx, |conn| sqlx::query(sql)
            .bind(id_list([row]))
            .bind(reason)
            .bind(now.micros())
            .execute(conn)
            .await
            .map(drop))?;
        on_tx!(&mut tx, |conn| sqlx::query(END_RESEND)
            .bind(row)
            .execute(conn)
            .await
            .map(drop))?;
        let explanation = format!("the broker does not take this message: {reason}");
        let alarm = Alarm::new(AttentionCode::Unpublishable, row, explanation).about(about);
        tell(&mut tx, &alarm, now).await?;
        tx.commit().await
    }
}

impl Store {
    /// Gives `event` up unless it has an outcome. `true`: it is buried now.
    pub async fn bury_unfinished(&self, event: &Event, error: &str) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let attempts: i32 = on_tx!(&mut tx, |conn| sqlx::query_scalar(ATTEMPTS)
            .bind(event.id.as_str())
            .fetch_optional(conn)
            .await)?
        .unwrap_or_default();
        let finished: bool = on_tx!(&mut tx, |conn| sqlx::query_scalar(HAS_OUTCOME)
            .bind(event.id.as_str())
            .fetch_one(conn)
            .await)?;
        if finished {
            return Ok(false);
        }
        let burial = Burial {
            error: error.to_owned(),
            attempts: u32::try_from(attempts).unwrap_or_default(),
        };
        bury(&mut tx, event, &burial, false, now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Gives up an event that does not read, so that it keeps nobody from being sent or applied. None of its
    /// rows is left; when it reads again (a newer version), a redrive applies it and a replay publishes it.
    pub async fn bury_unreadable(&self, event: &Unreadable) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let id = &event.id;
        let merchant: Option<String> = on_tx!(&mut tx, |conn| sqlx::query_scalar(MERCHANT)
            .bind(id.as_str())
            .fetch_optional(conn)
            .await)?;
        let merchant = merchant.unwrap_or_default();
        let burial = Burial {
            error: format!(
                "the stored event does not read, so it was neither sent nor applied: {}",
                event.reason
            ),
            attempts: 0,
        };
        let finished: bool = on_tx!(&mut tx, |conn| sqlx::query_scalar(HAS_OUTCOME)
            .bind(id.as_str())
            .fetch_one(conn)
            .await)?;
        if !finished {
            dead_letters::insert_event(&mut tx, (id, &event.key), &merchant, &burial, now).await?;
            end_as_dead(&mut tx, id, &burial.error, now).await?;
            let alarm = Alarm::new(AttentionCode::DeadLetter, id.as_str(), burial.error)
                .merchant(&merchant)
                .event(id);
            tell(&mut tx, &alarm, now).await?;
        }
        finish_applied(&mut tx, std::slice::from_ref(id), true).await?;
        on_tx!(&mut tx, |conn| sqlx::query(END_RESENDS)
            .bind(id.as_str())
            .execute(conn)
            .await
            .map(drop))?;
        tx.commit().await
    }

    /// Ends a row whose event or message is not in the store: there is nothing to send, now or later.
    pub async fn end_missing(&self, row: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        on_tx!(&mut tx, |conn| sqlx::query(END_ROW)
            .bind(row)
            .execute(conn)
            .await
            .map(drop))?;
        let explanation = "its event or message is not in the store, so there was nothing to send".to_owned();
        tell(
            &mut tx,
            &Alarm::new(AttentionCode::Unpublishable, row, explanation),
            now,
        )
        .await?;
        tx.commit().await
    }
}

/// Gives `event` up: dead letter, attention item, outcome, and its row ends. What it did before, by an earlier
/// application, stands, and so does that outcome.
pub async fn bury(
    tx: &mut Tx,
    event: &Event,
    burial: &Burial,
    embedded: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let id: &EventId = &event.id;
    dead_letters::insert_event(tx, (id, &event.key), &event.merchant, burial, now).await?;
    end_as_dead(tx, id, &burial.error, now).await?;
    let explanation = format!("given up after {} attempts: {}", burial.attempts, burial.error);
    let alarm = Alarm::new(AttentionCode::DeadLetter, id.as_str(), explanation).about(Some(event));
    tell(tx, &alarm, now).await?;
    finish_applied(tx, std::slice::from_ref(id), embedded).await
}

/// The outcome of what is given up, unless an earlier application has one that stands.
async fn end_as_dead(tx: &mut Tx, id: &EventId, error: &str, now: Timestamp) -> Result<(), StoreError> {
    on_tx!(&mut *tx, |conn| sqlx::query(BURY_OUTCOME)
        .bind(id.as_str())
        .bind(error)
        .bind(now.micros())
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}
