//! An event could not be applied, or not even be read: counted here, never in the broker.
//!
//! Each failure sets `due_at` by exponential backoff with full jitter, so that a thousand events that failed
//! together do not come back together. The last one buries the event ([`super::burial`]) in the transaction that
//! counts it, so it is never half dead.
//!
//! An event that this version cannot read may be one that a newer daemon wrote and can read. It is a failure like
//! any other: its row stays, unpublished if it was, and whoever takes it next may be the newer one.

use std::time::Duration;

use super::burial::{Burial, Doomed, TRIES, end_as_dead, end_resend, lay_to_rest};
use super::ended::lock_rows_of;
use crate::event::{Event, text};
use crate::store::{Store, StoreError, Tx, Unreadable, on_pool, on_tx};
use crate::time::{Timestamp, micros};

/// A row that is missing (a message came back after its row was done) is written anew: the failure is a fact.
const COUNT_FAILURE: &str = "insert into outbox \
     (id, kind, event_id, created_at, due_at, published_at, publishes, attempts, last_error) \
     values ($1, 'event', $1, $2, $2, $2, 1, 1, $3) \
     on conflict (id) do update set attempts = outbox.attempts + 1, last_error = excluded.last_error, \
     claimed_by = null, publishes = case when outbox.publishes > 1 then 1 else outbox.publishes end \
     returning attempts";
/// What is sent again has a row of its own, which nobody needs any more once it is gone.
const COUNT_AGAIN: &str = "update outbox set attempts = attempts + 1, last_error = $2, claimed_by = null \
     where id = $1 returning attempts";

const SO_FAR: &str = "select kind, attempts from outbox where id = $1";
const MERCHANT: &str = "select merchant from events where id = $1";
const HAS_OUTCOME: &str = "select exists (select 1 from event_outcomes where event_id = $1)";
const SET_DUE: &str = "update outbox set due_at = $2 where id = $1";

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
    /// It has an outcome, so nothing was counted; of [`Store::record_crash`] only.
    Finished,
}

/// What has failed.
struct Failure<'a> {
    about: Doomed<'a>,
    /// The outbox row that is counted on.
    row: &'a str,
    error: &'a str,
    policy: &'a FailurePolicy,
    /// Whether an event that has an outcome has not failed.
    only_unfinished: bool,
}

impl Store {
    /// Notes that `event` could not be applied, and why.
    pub async fn record_failure(
        &self,
        event: &Event,
        error: &str,
        policy: &FailurePolicy,
    ) -> Result<Failed, StoreError> {
        let error = text::storable(text::cut(error, 1000));
        let failure = Failure {
            about: Doomed::of(event),
            row: event.id.as_str(),
            error: &error,
            policy,
            only_unfinished: false,
        };
        self.count(&failure).await
    }

    /// Notes that workers took `event` again and again and stopped before they could note anything: one failed
    /// attempt, unless the event has an outcome.
    pub async fn record_crash(
        &self,
        event: &Event,
        error: &str,
        policy: &FailurePolicy,
    ) -> Result<Failed, StoreError> {
        let failure = Failure {
            about: Doomed::of(event),
            row: event.id.as_str(),
            error,
            policy,
            only_unfinished: true,
        };
        self.count(&failure).await
    }

    /// Notes that the event which `row` names (its own row, or that of a replay) does not read, so that it could be
    /// neither sent nor applied. Buried, it has no row left: when it reads (a newer version), a redrive applies it
    /// and a replay publishes it. What was to go to one queue alone ends by itself.
    pub async fn record_unreadable(
        &self,
        event: &Unreadable,
        row: &str,
        policy: &FailurePolicy,
    ) -> Result<Failed, StoreError> {
        let merchant = self.merchant_of(event).await?;
        let error = format!(
            "the stored event does not read, so it was neither sent nor applied: {}",
            event.reason
        );
        let error = text::storable(text::cut(&error, 1000));
        let failure = Failure {
            about: Doomed::unread(event, &merchant),
            row,
            error: &error,
            // Nobody of this version is going to publish it.
            policy: &FailurePolicy {
                embedded: true,
                ..*policy
            },
            only_unfinished: false,
        };
        self.count(&failure).await
    }

    async fn merchant_of(&self, event: &Unreadable) -> Result<String, StoreError> {
        let found: Option<String> = on_pool!(self, |pool| sqlx::query_scalar(MERCHANT)
            .bind(event.id.as_str())
            .fetch_optional(pool)
            .await)?;
        Ok(found.unwrap_or_default())
    }

    /// Locks are taken in the one order of [`super`]: the outcome before the row. So it is asked first whether this
    /// will be the last failure; a redrive in the same moment may make that untrue, and it begins again, a few times.
    async fn count(&self, failure: &Failure<'_>) -> Result<Failed, StoreError> {
        for _ in 0..TRIES {
            let mut tx = self.begin().await?;
            match failure.count(&mut tx).await? {
                Some(Failed::Finished) => {
                    tx.rollback().await?;
                    return Ok(Failed::Finished);
                }
                Some(failed) => {
                    tx.commit().await?;
                    return Ok(failed);
                }
                None => tx.rollback().await?,
            }
        }
        Err(StoreError::timed_out())
    }
}

impl Failure<'_> {
    /// `None`: begin again, in a new transaction.
    async fn count(&self, tx: &mut Tx) -> Result<Option<Failed>, StoreError> {
        let now = tx.now().await?;
        let so_far: Option<(String, i32)> = on_tx!(&mut *tx, |conn| sqlx::query_as(SO_FAR)
            .bind(self.row)
            .fetch_optional(conn)
            .await)?;
        if so_far.is_none() && self.row != self.about.id.as_str() {
            // Its replay was cancelled, or another process has sent it.
            return Ok(Some(Failed::Retry(now)));
        }
        let (kind, attempts) = so_far.unwrap_or_default();
        let expected = count_of(attempts).saturating_add(1);
        let last = expected >= self.policy.max_attempts;
        let resend = kind == "resend";
        if last && !resend {
            let ended = end_as_dead(tx, self.about.id, self.error, now).await?;
            if self.only_unfinished && !ended {
                return Ok(Some(Failed::Finished));
            }
            lock_rows_of(tx, std::slice::from_ref(self.about.id)).await?;
        }
        let Some(attempts) = self.one_more(tx, now).await? else {
            // The same, in this very moment.
            return Ok((!last || resend).then_some(Failed::Retry(now)));
        };
        let exhausted = attempts >= self.policy.max_attempts;
        if exhausted != last {
            return Ok(None);
        }
        // Asked with the row's lock in hand: a worker that has not written its outcome by now deletes the row later.
        if self.only_unfinished && !last && self.is_finished(tx).await? {
            return Ok(Some(Failed::Finished));
        }
        if !exhausted {
            let due = now.plus(self.policy.wait(attempts));
            on_tx!(tx, |conn| sqlx::query(SET_DUE)
                .bind(self.row)
                .bind(due.micros())
                .execute(conn)
                .await
                .map(drop))?;
            return Ok(Some(Failed::Retry(due)));
        }
        if resend {
            end_resend(tx, self.row, &self.about, self.error, now).await?;
        } else {
            let error = self.error.to_owned();
            lay_to_rest(
                tx,
                &self.about,
                &Burial { error, attempts },
                self.policy.embedded,
                now,
            )
            .await?;
        }
        Ok(Some(Failed::Buried))
    }

    async fn is_finished(&self, tx: &mut Tx) -> Result<bool, StoreError> {
        Ok(on_tx!(tx, |conn| sqlx::query_scalar(HAS_OUTCOME)
            .bind(self.about.id.as_str())
            .fetch_one(conn)
            .await)?)
    }

    /// Counts it; how often it has failed now.
    async fn one_more(&self, tx: &mut Tx, now: Timestamp) -> Result<Option<u32>, StoreError> {
        let attempts: Option<i32> = if self.row == self.about.id.as_str() {
            on_tx!(tx, |conn| sqlx::query_scalar(COUNT_FAILURE)
                .bind(self.row)
                .bind(now.micros())
                .bind(self.error)
                .fetch_optional(conn)
                .await)?
        } else {
            on_tx!(tx, |conn| sqlx::query_scalar(COUNT_AGAIN)
                .bind(self.row)
                .bind(self.error)
                .fetch_optional(conn)
                .await)?
        };
        Ok(attempts.map(count_of))
    }
}

fn count_of(attempts: i32) -> u32 {
    u32::try_from(attempts).unwrap_or_default()
}
