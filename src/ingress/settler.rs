//! Second arrivals: told apart, noted and answered beside the [committer](super::committer).
//!
//! The committer found their keys taken, so an earlier copy is durable. Whether it is the same one is looked up
//! here, over a connection of its own: a lock on what a repeat writes keeps nothing fresh waiting, and each batch of
//! duplicates no longer than [`NOTING`]. What is not the same goes to [`Conflicts`](super::conflicts).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::conflicts::Conflict;
use super::queue::Queue;
use super::recorder::{Unrecorded, Waiting, cause, fail, in_their_time, in_time, no_room};
use crate::event::{Event, EventId};
use crate::store::{Recorded, Repeat, Store, Writer};

/// How long a note may take.
const NOTING: Duration = Duration::from_millis(500);

/// When the server gives a note up, so that it is heard to.
pub(super) const NOTE_STATEMENT: Duration = Duration::from_millis(400);

/// The one who answers repeats.
#[derive(Debug)]
pub(super) struct Settler {
    pub(super) store: Store,
    /// For notes, whose statements the server ends after [`NOTE_STATEMENT`].
    pub(super) notes: Store,
    /// Where conflicts go.
    pub(super) conflicts: mpsc::Sender<Conflict>,
    /// Most repeats at once.
    pub(super) batch: usize,
    pub(super) ack_deadline: Duration,
}

impl Settler {
    /// Until no committer is left and all are answered.
    pub(super) async fn run(self, mut repeats: Queue) {
        let (mut writer, mut notes) = (self.store.writer(), self.notes.writer());
        loop {
            let batch = repeats.next(self.batch).await;
            if batch.is_empty() {
                break;
            }
            self.settle(batch, &mut writer, &mut notes).await;
        }
        writer.rest();
        notes.rest();
    }

    /// Answers each as its own event ends.
    async fn settle(&self, repeats: Vec<Waiting>, writer: &mut Writer, notes: &mut Writer) {
        let repeats = in_their_time(repeats, |waiting| waiting);
        let events: Vec<Arc<Event>> = repeats.iter().map(|waiting| Arc::clone(&waiting.event)).collect();
        let compared = match in_time(self.ack_deadline, writer.compare_repeats(&events)).await {
            Ok(compared) => compared,
            Err(error) => return fail(repeats, &error),
        };
        let (mut duplicates, mut gone, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (waiting, repeat) in std::iter::zip(repeats, compared) {
            match repeat {
                Repeat::Duplicate(event_id) => duplicates.push((event_id, waiting)),
                Repeat::Conflict(with) => {
                    if let Err(full) = self.conflicts.try_send(Conflict { with, waiting }) {
                        refused.push(full.into_inner().waiting);
                    }
                }
                Repeat::Gone => gone.push(waiting),
            }
        }
        no_room("conflicts", refused);
        if !gone.is_empty() {
            tracing::info!(
                events = gone.len(),
                "what they repeat was purged a moment ago, the providers will retry"
            );
        }
        for waiting in gone {
            waiting.tell(Err(Unrecorded::Unavailable));
        }
        note(&duplicates, notes).await;
        for (event_id, waiting) in duplicates {
            waiting.tell(Ok(Recorded::Duplicate { event_id }));
        }
    }
}

/// Notes that `duplicates` came again. They are duplicates all the same: a lock on the notes delays their answers, and
/// those whose place they take, by no more than [`NOTING`].
async fn note(duplicates: &[(EventId, Waiting)], notes: &mut Writer) {
    let again: Vec<(EventId, Arc<Event>)> = duplicates
        .iter()
        .map(|(id, waiting)| (id.clone(), Arc::clone(&waiting.event)))
        .collect();
    if let Err(error) = in_time(NOTING, notes.note_deliveries(&again)).await {
        tracing::warn!(events = again.len(), %error, cause = cause(&error), "it is not noted that they came again");
    }
}
