//! Group commit: stores events in batches and answers each request when its event is durable.
//!
//! ```text
//! record(event) ─── no room ──────────────────────────────────────────▶ Overloaded
//!    │ Pending
//!    ▼
//! committer: inserts a batch, commits
//!    ├── stored ──────────────────────────────────────────────────────▶ Fresh, handed to relay or worker
//!    ├── refused by the database: halved until the item is alone ─────▶ Unrecordable: quarantine, attention
//!    │ key already stored
//!    ▼
//! repeats: compares with the stored event
//!    ├── same content ────────────────────────────────────────────────▶ Duplicate; written to `deliveries` later
//!    └── other content: kept in `event_conflicts`, attention raised ──▶ Conflict (or Unrecordable)
//!
//! not answered by its deadline, or dropped (store away, event purged) ▶ Unavailable
//! ```
//!
//! While one commit is in flight the next batch gathers, so batches grow with load and a lone request waits for
//! nothing; there is no timer. A request that is cancelled or expires leaves its event in the queue: it is recorded
//! with its batch. The queues have no limit of their own: every [`Pending`] holds its share of the room, wherever
//! it is, until it is answered or dropped.

mod batch;
mod committer;
mod pending;
mod repeats;
mod unrecordable;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

pub use pending::Unrecorded;

use self::batch::Batches;
use self::committer::Committer;
use self::pending::Pending;
use self::repeats::{Conflicts, Repeats};
use self::unrecordable::Unrecordable;
use super::quarantine::Quarantine;
use crate::event::Event;
use crate::store::events::batch_bytes;
use crate::store::outbox::Handoff;
use crate::store::{Recorded, Store, StoreOptions};
use crate::telemetry::Restraint;
use crate::time::Clock;

/// Most requests that wait.
const ROOM: usize = 4096;

/// Most bytes of their events.
const ROOM_BYTES: usize = 32 * 1024 * 1024;

/// Most deliveries of duplicates that are not written yet.
const NOTES: usize = 4096;

/// How a recorder works.
#[derive(Debug)]
pub struct RecorderOptions {
    /// How long a request waits, and how long a commit may take.
    pub ack_deadline: Duration,
    /// Where fresh events go at once, claimed: this process's relay or worker, if it has one.
    pub handoff: Option<mpsc::Sender<Handoff>>,
    /// The claimant of their outbox rows.
    pub process_id: String,
    /// Most requests that wait.
    pub room: usize,
}

impl RecorderOptions {
    /// Options without a hand-off.
    pub fn new(ack_deadline: Duration, process_id: impl Into<String>) -> Self {
        Self {
            ack_deadline,
            handoff: None,
            process_id: process_id.into(),
            room: ROOM,
        }
    }
}

/// Records events; clones share the queue.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::UnboundedSender<Pending>,
    /// Free bytes.
    room: Arc<Semaphore>,
    /// The least that a request takes of them, which limits the number of requests.
    least_bytes: usize,
    ack_deadline: Duration,
    /// Limits the log lines about a full recorder.
    refusals: Arc<Restraint>,
}

impl Recorder {
    /// Starts the recorder's tasks on `tasks`; they end when the last clone is dropped and the queues are empty.
    /// `store` has a connection each for committer, repeats and the readiness probe.
    pub fn start(
        store: &Store,
        options: RecorderOptions,
        quarantine: Quarantine,
        clock: Clock,
        tasks: &TaskTracker,
    ) -> Self {
        let ack_deadline = options.ack_deadline;
        // One connection for notes, one for conflicts and attention. A transaction that is abandoned at its deadline
        // keeps its connection until the server answers, so these are not the connections of `store`.
        let aside = store.dedicated(&StoreOptions {
            max_connections: 2,
            statement_timeout: ack_deadline,
            acquire_timeout: store.acquire_timeout(),
            ..StoreOptions::default()
        });
        let unrecordable = Arc::new(Unrecordable {
            store: aside.clone(),
            quarantine,
            clock,
            deadline: ack_deadline,
        });

        let (notes, unwritten) = mpsc::channel(NOTES);
        tasks.spawn(repeats::write_notes(aside.writer(), unwritten, ack_deadline));

        let (repeats, repeated) = mpsc::unbounded_channel();
        let conflicts = Conflicts::new(aside, Arc::clone(&unrecordable));
        let comparing = Repeats {
            writer: store.writer(),
            notes,
            conflicts: Arc::new(conflicts),
            tasks: tasks.clone(),
            deadline: ack_deadline,
        };
        tasks.spawn(comparing.run(Batches::new(repeated)));

        let (queue, queued) = mpsc::unbounded_channel();
        let committer = Committer {
            writer: store.writer(),
            handoff: options.handoff,
            process_id: options.process_id,
            repeats,
            unrecordable,
            deadline: ack_deadline,
        };
        tasks.spawn(committer.run(Batches::new(queued)));

        Self {
            queue,
            room: Arc::new(Semaphore::new(ROOM_BYTES)),
            least_bytes: ROOM_BYTES.div_euclid(options.room.max(1)),
            ack_deadline,
            refusals: Arc::default(),
        }
    }

    /// Waits until `event`, or the earlier copy it duplicates, is durable.
    pub async fn record(&self, event: Arc<Event>) -> Result<Recorded, Unrecorded> {
        let until = Instant::now() + self.ack_deadline;
        let bytes = batch_bytes(&event).clamp(self.least_bytes, ROOM_BYTES);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) else {
            self.warn_no_room(&event);
            return Err(Unrecorded::Overloaded);
        };
        let (pending, answer) = Pending::new(event, until, room);
        // Fails only without a committer; then `answer` ends at once.
        drop(self.queue.send(pending));
        match tokio::time::timeout_at(until, answer).await {
            Ok(Ok(answer)) => answer,
            // The task that drops it, or answers too late, logs why.
            Ok(Err(_)) | Err(_) => Err(Unrecorded::Unavailable),
        }
    }

    fn warn_no_room(&self, event: &Event) {
        if let Some(withheld) = self.refusals.pass() {
            tracing::warn!(
                event.key = %event.key,
                withheld = (withheld > 0).then_some(withheld),
                "recorder full, the provider will retry"
            );
        }
    }
}
