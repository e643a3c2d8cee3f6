//! Events whose keys are stored: duplicates (same content) and conflicts (other content, I4).
//!
//! The first copy is durable, so a duplicate is answered right after the comparison; that it arrived is written to
//! `deliveries` later, or dropped if the database does not keep up. A conflict is answered when it is kept beside the
//! first content. Keeping takes several statements and may wait for locks: it runs in a task of its own, one batch at a
//! time, while the next repeats are compared.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use tokio::sync::{Mutex, mpsc};
use tokio_util::task::TaskTracker;

use super::batch::Batches;
use super::pending::{Pending, cause, drop_expired, in_time, warn_dropped};
use super::unrecordable::Unrecordable;
use crate::event::{Event, EventId};
use crate::store::events::BATCH_ROWS;
use crate::store::{Bisection, Delivery, Recorded, Repeat, Store, StoreError, Writer};
use crate::telemetry::metrics::names;

/// The task that compares repeats.
#[derive(Debug)]
pub(super) struct Repeats {
    pub(super) writer: Writer,
    /// Deliveries of duplicates, to [`write_notes`].
    pub(super) notes: mpsc::Sender<Delivery>,
    pub(super) conflicts: Arc<Conflicts>,
    /// Where conflicts are kept.
    pub(super) tasks: TaskTracker,
    pub(super) deadline: Duration,
}

impl Repeats {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self, mut queue: Batches) {
        loop {
            let mut batch = queue.next().await;
            if batch.is_empty() {
                break;
            }
            drop_expired(&mut batch);
            self.compare(batch).await;
        }
        self.writer.rest();
    }

    async fn compare(&mut self, batch: Vec<Pending>) {
        let events: Vec<Arc<Event>> = batch.iter().map(|pending| Arc::clone(&pending.event)).collect();
        let compared = match in_time(self.deadline, self.writer.compare_repeats(&events)).await {
            Ok(compared) => compared,
            Err(error) => return warn_dropped(batch.len(), &error),
        };
        let (mut unwritten, mut purged, mut conflicts) = (0_u32, 0_u32, Vec::new());
        for (pending, repeat) in std::iter::zip(batch, compared) {
            match repeat {
                Repeat::Duplicate(event_id) => {
                    if self
                        .notes
                        .try_send(Delivery::of(&event_id, &pending.event))
                        .is_err()
                    {
                        unwritten = unwritten.saturating_add(1);
                    }
                    pending.answer(Ok(Recorded::Duplicate { event_id }));
                }
                Repeat::Conflict(event_id) => conflicts.push((event_id, pending)),
                Repeat::Gone => purged = purged.saturating_add(1),
            }
        }
        if unwritten > 0 {
            count_dropped(unwritten.into());
            tracing::warn!(deliveries = unwritten, "too many duplicates, deliveries dropped");
        }
        if purged > 0 {
            tracing::info!(
                events = purged,
                "first copies purged meanwhile, the providers will retry"
            );
        }
        if !conflicts.is_empty() {
            self.tasks.spawn(Arc::clone(&self.conflicts).keep(conflicts));
        }
    }
}

/// Keeps conflicts, one batch at a time.
#[derive(Debug)]
pub(super) struct Conflicts {
    store: Store,
    unrecordable: Arc<Unrecordable>,
    turn: Mutex<()>,
}

impl Conflicts {
    /// Keeps conflicts in `store`.
    pub(super) fn new(store: Store, unrecordable: Arc<Unrecordable>) -> Self {
        Self {
            store,
            unrecordable,
            turn: Mutex::default(),
        }
    }

    /// Keeps conflicts, each with the stored event that it contradicts, and answers them. They have one deadline, that
    /// of the request that waits longest, so that few batches gather behind a lock.
    async fn keep(self: Arc<Self>, conflicts: Vec<(EventId, Pending)>) {
        let Some(until) = conflicts.iter().map(|(_, pending)| pending.until).max() else {
            return;
        };
        let events = conflicts.len();
        let keeping = async {
            let _turn = self.turn.lock().await;
            self.keep_in_parts(conflicts).await;
        };
        if tokio::time::timeout_at(until, keeping).await.is_err() {
            tracing::warn!(events, "conflicts not kept in time, the providers will retry");
        }
    }

    async fn keep_in_parts(&self, conflicts: Vec<(EventId, Pending)>) {
        let mut parts = Bisection::of(conflicts);
        while let Some(part) = parts.take() {
            let contents: Vec<(EventId, Arc<Event>)> = part
                .iter()
                .map(|(with, pending)| (with.clone(), Arc::clone(&pending.event)))
                .collect();
            match self.store.keep_conflicts(&contents).await {
                Ok(()) => {
                    for (event_id, pending) in part {
                        pending.answer(Ok(Recorded::Conflict { event_id }));
                    }
                }
                Err(error @ StoreError::Refused(_)) => {
                    if let Some((_, refused)) = parts.halve(part) {
                        self.unrecordable.keep(refused, &error).await;
                    }
                }
                Err(error) => warn_dropped(parts.drain(part).len(), &error),
            }
        }
    }
}

/// Writes deliveries of duplicates until the last sender is dropped. Nothing waits for them: what the database does not
/// take is dropped and counted.
pub(super) async fn write_notes(mut writer: Writer, mut notes: mpsc::Receiver<Delivery>, deadline: Duration) {
    // A counter that starts at zero shows its first increment.
    count_dropped(0);
    let mut batch = Vec::new();
    while notes.recv_many(&mut batch, BATCH_ROWS).await > 0 {
        if let Err(error) = in_time(deadline, writer.note_deliveries(&batch)).await {
            // What gathered meanwhile would only wait for the same database.
            while let Ok(note) = notes.try_recv() {
                batch.push(note);
            }
            count_dropped(u64::try_from(batch.len()).unwrap_or_default());
            let cause = cause(&error);
            tracing::warn!(deliveries = batch.len(), %error, cause, "deliveries of duplicates not written, dropped");
        }
        batch.clear();
    }
    writer.rest();
}

fn count_dropped(deliveries: u64) {
    counter!(names::DELIVERIES_DROPPED).increment(deliveries);
}
