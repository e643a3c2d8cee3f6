//! A request that waits until its event is durable.
//!
//! It is answered at most once. One that is dropped is answered [`Unrecorded::Unavailable`] by the recorder, as is one
//! whose deadline has passed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::event::Event;
use crate::store::{Recorded, StoreError};

/// Why an event was not recorded. Each is answered so that the provider retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrecorded {
    /// Too many requests wait.
    #[error("overloaded")]
    Overloaded,
    /// The store did not commit it in time, or not at all as far as is known.
    #[error("store unavailable")]
    Unavailable,
    /// The database refuses this event; it is in the quarantine, and an attention item was raised.
    #[error("unrecordable")]
    Unrecordable,
}

/// What a request waits for.
type Answer = Result<Recorded, Unrecorded>;

/// A waiting request with its event.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) event: Arc<Event>,
    /// When the request is answered 503.
    pub(super) until: Instant,
    answer: oneshot::Sender<Answer>,
    _room: OwnedSemaphorePermit,
}

impl Pending {
    /// A request that waits, and where its answer arrives.
    pub(super) fn new(
        event: Arc<Event>,
        until: Instant,
        room: OwnedSemaphorePermit,
    ) -> (Self, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        let pending = Self {
            event,
            until,
            answer,
            _room: room,
        };
        (pending, answered)
    }

    /// Whether its deadline has passed at `now`.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.until <= now
    }

    /// Answers the request. If it was cancelled, what was recorded stays recorded.
    pub(super) fn answer(self, answer: Answer) {
        drop(self.answer.send(answer));
    }
}

/// Logs that the requests of so many `events` are dropped because the store failed.
pub(super) fn warn_dropped(events: usize, error: &StoreError) {
    let cause = cause(error);
    tracing::warn!(events, %error, cause, "events not recorded, the providers will retry");
}

/// Drops requests whose deadline has passed: work for them would delay the others.
pub(super) fn drop_expired(pending: &mut Vec<Pending>) {
    let (before, now) = (pending.len(), Instant::now());
    pending.retain(|one| !one.is_expired(now));
    let expired = before.saturating_sub(pending.len());
    if expired > 0 {
        tracing::warn!(
            events = expired,
            "repeats expired while they waited, the providers will retry"
        );
    }
}

/// Gives `work` up after `deadline`.
pub(super) async fn in_time<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(deadline, work)
        .await
        .unwrap_or_else(|_| Err(StoreError::timed_out()))
}

/// What the database said.
pub(super) fn cause(error: &StoreError) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}
