//! Lets go of what is old: events, the quarantine, idempotency keys.
//!
//! In small batches, each followed by a pause of several times what it took, so that ingest keeps most of the
//! database whatever its speed. What may go, and the guard, are the store's ([`crate::store::retention`]);
//! orders, facts, ledger, history, messages and audit are never touched.

use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::RetentionConfig;
use crate::idempotency::{Keys, KeysError};
use crate::store::retention::PurgedEvents;
use crate::store::{Store, StoreError};
use crate::telemetry::metrics::names;
use crate::time::Clock;

/// Between two rounds.
const EVERY: Duration = Duration::from_mins(10);
/// Rows in one batch.
const BATCH: u16 = 200;
/// The least pause after a batch.
const PAUSE: Duration = Duration::from_millis(50);
/// A pause is so many times as long as its batch.
const REST: u32 = 4;

/// Removes by age, for one process.
#[derive(Clone, Debug)]
pub struct Retention {
    store: Store,
    keys: Keys,
    events: Duration,
    clock: Clock,
}

/// What a round removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Events, with what hung on them.
    pub events: u64,
    /// Quarantined notifications.
    pub quarantine: u64,
    /// Answers to an Idempotency-Key.
    pub idempotency_keys: u64,
}

/// Why a round ended early; the next one goes on.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The keys' table.
    #[error(transparent)]
    Keys(#[from] KeysError),
}

impl Retention {
    /// For `store`; each key knows by itself when it expires.
    pub fn new(store: Store, keys: Keys, config: &RetentionConfig, clock: Clock) -> Self {
        Self {
            store,
            keys,
            events: config.events,
            clock,
        }
    }

    /// A round now and then until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            match self.round(&shutdown).await {
                Ok(purged) if purged != Purged::default() => tracing::info!(
                    purged.events,
                    purged.quarantine,
                    purged.idempotency_keys,
                    "removed what was past its age"
                ),
                Ok(_) => {}
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "retention goes on later");
                }
            }
            if rest(EVERY, &shutdown).await {
                return;
            }
        }
    }

    /// Removes everything that is due, or what it gets to before `shutdown`. Nothing, while another daemon is
    /// at it.
    pub async fn round(&self, shutdown: &CancellationToken) -> Result<Purged, RetentionError> {
        let cutoff = self.clock.now().minus(self.events);
        let mut purged = Purged::default();
        let mut after = None;
        loop {
            let began = Instant::now();
            match self.store.purge_events(cutoff, after.as_ref(), BATCH).await? {
                PurgedEvents::Elsewhere => return Ok(purged),
                PurgedEvents::Purged { count, next } => {
                    report("event", count, &mut purged.events);
                    after = next;
                }
            }
            if pause(began, shutdown).await {
                return Ok(purged);
            }
            if after.is_none() {
                break;
            }
        }
        loop {
            let began = Instant::now();
            let count = self.store.purge_quarantine(cutoff, BATCH).await?;
            report("quarantine", count, &mut purged.quarantine);
            if count < u64::from(BATCH) {
                break;
            }
            if pause(began, shutdown).await {
                return Ok(purged);
            }
        }
        loop {
            let began = Instant::now();
            let count = self.keys.purge(i64::from(BATCH)).await?;
            report("idempotency_key", count, &mut purged.idempotency_keys);
            if count < u64::from(BATCH) || pause(began, shutdown).await {
                return Ok(purged);
            }
        }
    }
}

fn report(kind: &'static str, count: u64, total: &mut u64) {
    if count > 0 {
        counter!(names::PURGED, "kind" => kind).increment(count);
        *total = total.saturating_add(count);
    }
}

/// Leaves the database to others after a batch; whether the end has come.
async fn pause(began: Instant, shutdown: &CancellationToken) -> bool {
    rest(began.elapsed().saturating_mul(REST).max(PAUSE), shutdown).await
}

async fn rest(time: Duration, shutdown: &CancellationToken) -> bool {
    shutdown
        .run_until_cancelled(tokio::time::sleep(time))
        .await
        .is_none()
}
