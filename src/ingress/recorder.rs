//! Group commit, the waiting side: a bounded queue in front of the one who commits.
//!
//! A request puts its event into the queue and waits for the answer; the [committer](super::committer) takes
//! all that wait. While one commit is in flight the next batch gathers, so batches grow with load and a lone
//! request waits for nothing; there is no timer. A request that is cancelled or runs out of time takes nothing
//! with it: its event is in the queue and is recorded with its batch.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::committer::Committer;
use super::conflicts::Conflicts;
use super::deliveries::{Deliveries, NOTING};
use super::quarantine::Quarantine;
use super::queue::Queue;
use super::settler::Settler;
use super::unrecordable::Unrecordable;
use crate::event::Event;
use crate::store::events::{BATCH_ROWS, batch_bytes};
use crate::store::outbox::Handoff;
use crate::store::{Recorded, Store, StoreError, StoreOptions};
use crate::telemetry::Restraint;
use crate::time::Clock;

/// Most requests in the queue, and most repeats that wait to be settled.
const ROOM: usize = 4096;

/// Most bytes in the queue, in the commit and of repeats.
const ROOM_BYTES: usize = 32 * 1024 * 1024;

/// Why an event was not recorded. The provider is told to come again in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrecorded {
    /// No room in the queue.
    #[error("overloaded")]
    Overloaded,
    /// The store did not commit it in time, or not at all as far as is known.
    #[error("store unavailable")]
    Unavailable,
    /// The database refuses this very event; it is in the quarantine and a human was told.
    #[error("unrecordable")]
    Unrecordable,
}

/// How a recorder works.
#[derive(Debug)]
pub struct RecorderOptions {
    /// How long a request waits, and how long a commit may take.
    pub ack_deadline: Duration,
    /// Where fresh events go at once, claimed: this process's relay or worker, if it has one.
    pub handoff: Option<mpsc::Sender<Handoff>>,
    /// What claims are made under.
    pub process_id: String,
    /// Most requests in the queue.
    pub room: usize,
    /// Most events in one commit.
    pub batch: usize,
    /// Commits under way at once. One gathers the largest batches.
    pub writers: usize,
    /// How long a duplicate waits until it is noted that it came.
    pub noting: Duration,
}

impl RecorderOptions {
    /// Without a hand-off.
    pub fn new(ack_deadline: Duration, process_id: impl Into<String>) -> Self {
        Self {
            ack_deadline,
            handoff: None,
            process_id: process_id.into(),
            room: ROOM,
            batch: BATCH_ROWS,
            writers: 1,
            noting: NOTING,
        }
    }
}

/// The way into the store; clones share the queue.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Waiting>,
    bytes: Arc<Semaphore>,
    ack_deadline: Duration,
    /// Of the log's lines about a full queue.
    refusals: Arc<Restraint>,
}

/// An event in the queue, and who wants to know.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) event: Arc<Event>,
    /// When the provider is told to come again.
    until: Instant,
    answer: oneshot::Sender<Result<Recorded, Unrecorded>>,
    _bytes: OwnedSemaphorePermit,
}

impl Waiting {
    /// Whether its time is up at `now`: the provider was told to come again, unless it has hung up before.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.until <= now
    }

    /// Answers. Whoever asked may have gone; what was recorded stays recorded.
    pub(super) fn tell(self, recorded: Result<Recorded, Unrecorded>) {
        drop(self.answer.send(recorded));
    }
}

/// Tells all of `batch` to come again.
pub(super) fn fail(batch: Vec<Waiting>, error: &StoreError) {
    if batch.is_empty() {
        return;
    }
    tracing::warn!(events = batch.len(), %error, cause = cause(error), "not recorded, the providers will retry");
    for waiting in batch {
        waiting.tell(Err(Unrecorded::Unavailable));
    }
}

/// Tells `refused` to come again: too many `kind` wait.
pub(super) fn no_room(kind: &'static str, refused: Vec<Waiting>) {
    if !refused.is_empty() {
        tracing::warn!(
            events = refused.len(),
            kind,
            "too many of a kind wait, the providers will retry"
        );
    }
    for waiting in refused {
        waiting.tell(Err(Unrecorded::Overloaded));
    }
}

/// Those whose time is not up: else what piled up behind a lock would be looked at for nobody, and take the room of
/// others.
pub(super) fn in_their_time<T>(mut repeats: Vec<T>, waiting: impl Fn(&T) -> &Waiting) -> Vec<T> {
    let (came, now) = (repeats.len(), Instant::now());
    repeats.retain(|repeat| !waiting(repeat).is_late(now));
    let late = came.saturating_sub(repeats.len());
    if late > 0 {
        tracing::warn!(
            events = late,
            "repeats have waited too long, the providers will retry"
        );
    }
    repeats
}

/// A database that hangs may hold nobody for longer than `deadline`.
pub(super) async fn in_time<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(deadline, work)
        .await
        .unwrap_or_else(|_| Err(StoreError::timed_out()))
}

pub(super) fn cause(error: &StoreError) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}

impl Recorder {
    /// Starts the writers and those who settle repeats on `tasks`; they end when the last clone is dropped and the queue is empty.
    pub fn start(
        store: Store,
        options: RecorderOptions,
        quarantine: Quarantine,
        clock: Clock,
        tasks: &TaskTracker,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(options.room);
        let (ack_deadline, writers) = (options.ack_deadline, options.writers.max(1));
        let one = |statement_timeout| {
            store.dedicated(&StoreOptions {
                max_connections: 1,
                statement_timeout,
                acquire_timeout: store.acquire_timeout(),
                ..StoreOptions::default()
            })
        };
        let aside = one(ack_deadline);
        let unrecordable = Arc::new(Unrecordable {
            aside: aside.clone(),
            quarantine,
            clock,
            ack_deadline,
        });
        let (conflicts, found) = mpsc::channel(options.room);
        let keeper = Conflicts {
            aside,
            batch: options.batch,
            ack_deadline,
            unrecordable: Arc::clone(&unrecordable),
        };
        tasks.spawn(keeper.run(found));
        let noting = options.noting.min(ack_deadline.div_f64(4.0));
        let (duplicates, noted) = mpsc::channel(options.room);
        let deliveries = Deliveries {
            // Given up by the server a little earlier, so that it is heard to.
            store: one(noting.mul_f64(0.8)),
            batch: options.batch,
            noting,
            ack_deadline,
        };
        tasks.spawn(deliveries.run(noted));
        let (repeats, repeated) = mpsc::channel(options.room);
        let settler = Settler {
            store: store.clone(),
            duplicates,
            conflicts,
            batch: options.batch,
            ack_deadline,
        };
        tasks.spawn(settler.run(Queue::new(repeated)));
        let committer = Arc::new(Committer {
            store,
            options,
            unrecordable,
            repeats,
        });
        let waiting = Arc::new(Mutex::new(Queue::new(waiting)));
        for _ in 0..writers {
            tasks.spawn(Arc::clone(&committer).run(Arc::clone(&waiting)));
        }
        Self {
            queue,
            bytes: Arc::new(Semaphore::new(ROOM_BYTES)),
            ack_deadline,
            refusals: Arc::default(),
        }
    }

    /// Waits until `event`, or the earlier copy it duplicates, is durable.
    pub async fn record(&self, event: Arc<Event>) -> Result<Recorded, Unrecorded> {
        let until = Instant::now() + self.ack_deadline;
        let answered = self.enqueue(event, until)?;
        match tokio::time::timeout_at(until, answered).await {
            Ok(Ok(recorded)) => recorded,
            // Late: whoever ends its batch says so in the log.
            Ok(Err(_)) | Err(_) => Err(Unrecorded::Unavailable),
        }
    }

    fn enqueue(
        &self,
        event: Arc<Event>,
        until: Instant,
    ) -> Result<oneshot::Receiver<Result<Recorded, Unrecorded>>, Unrecorded> {
        let bytes = u32::try_from(batch_bytes(&event).clamp(1, ROOM_BYTES)).unwrap_or(u32::MAX);
        let bytes = Arc::clone(&self.bytes)
            .try_acquire_many_owned(bytes)
            .map_err(|_| self.no_room(&event))?;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            event,
            until,
            answer,
            _bytes: bytes,
        };
        match self.queue.try_send(waiting) {
            Ok(()) => Ok(answered),
            Err(refused) => Err(self.no_room(&refused.into_inner().event)),
        }
    }

    fn no_room(&self, event: &Event) -> Unrecorded {
        if let Some(withheld) = self.refusals.pass() {
            tracing::warn!(
                event.key = %event.key,
                withheld = (withheld > 0).then_some(withheld),
                "no room in the queue, the provider will retry"
            );
        }
        Unrecorded::Overloaded
    }
}
