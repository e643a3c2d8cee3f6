//! Second arrivals: told apart, noted and answered beside the [committer](super::committer).
//!
//! The committer found their keys taken, so an earlier copy is durable. Whether it is the same one is looked up
//! here, over a connection of its own: a lock on what a repeat writes keeps repeats waiting and nothing fresh.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::queue::Queue;
use super::recorder::{Unrecorded, Waiting, cause, fail, in_time};
use super::unrecordable::Unrecordable;
use crate::event::{Event, EventId};
use crate::store::{Recorded, Repeat, Store, StoreError, Writer};

/// How long a note may take.
const NOTING: Duration = Duration::from_millis(500);

/// The one who answers repeats.
#[derive(Debug)]
pub(super) struct Settler {
    pub(super) store: Store,
    /// For notes and conflicts. One that is abandoned at its deadline keeps its connection until the server answers:
    /// not one of those that everybody needs.
    pub(super) aside: Store,
    /// Most repeats at once.
    pub(super) batch: usize,
    pub(super) ack_deadline: Duration,
    pub(super) unrecordable: Arc<Unrecordable>,
}

impl Settler {
    /// Until no committer is left and all are answered.
    pub(super) async fn run(self, mut repeats: Queue) {
        let mut writer = self.store.writer();
        loop {
            let batch = repeats.next(self.batch).await;
            if batch.is_empty() {
                break;
            }
            self.settle(batch, &mut writer).await;
        }
        writer.rest();
    }

    /// Answers each as its own event ends.
    async fn settle(&self, repeats: Vec<Waiting>, writer: &mut Writer) {
        let repeats = in_their_time(repeats);
        let events: Vec<Arc<Event>> = repeats.iter().map(|waiting| Arc::clone(&waiting.event)).collect();
        let compared = match in_time(self.ack_deadline, writer.compare_repeats(&events)).await {
            Ok(compared) => compared,
            Err(error) => return fail(repeats, &error),
        };
        let (mut duplicates, mut conflicts, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for (waiting, repeat) in std::iter::zip(repeats, compared) {
            match repeat {
                Repeat::Duplicate(event_id) => duplicates.push((event_id, waiting)),
                Repeat::Conflict(event_id) => conflicts.push((event_id, waiting)),
                Repeat::Gone => gone.push(waiting),
            }
        }
        if !gone.is_empty() {
            tracing::info!(
                events = gone.len(),
                "what they repeat was purged a moment ago, the providers will retry"
            );
        }
        for waiting in gone {
            waiting.tell(Err(Unrecorded::Unavailable));
        }
        self.note(&duplicates).await;
        for (event_id, waiting) in duplicates {
            waiting.tell(Ok(Recorded::Duplicate { event_id }));
        }
        if conflicts.is_empty() || self.keep(&mut conflicts).await {
            return;
        }
        for (event_id, waiting) in conflicts {
            for waiting in in_their_time(vec![waiting]) {
                self.keep(&mut vec![(event_id.clone(), waiting)]).await;
            }
        }
    }

    /// Notes that `duplicates` came again. They are duplicates all the same: a lock on the notes delays their answers,
    /// and those whose place they take, by no more than [`NOTING`].
    async fn note(&self, duplicates: &[(EventId, Waiting)]) {
        let again = of(duplicates);
        if let Err(error) = in_time(NOTING, self.aside.note_deliveries(&again)).await {
            tracing::warn!(events = again.len(), %error, cause = cause(&error), "it is not noted that they came again");
        }
    }

    /// Keeps conflicts and answers them. `false`: the data of one of several is at fault, and nobody is
    /// answered yet.
    async fn keep(&self, conflicts: &mut Vec<(EventId, Waiting)>) -> bool {
        let answer = in_time(self.ack_deadline, self.aside.keep_conflicts(&of(conflicts))).await;
        if matches!(answer, Err(StoreError::Refused(_))) && conflicts.len() > 1 {
            return false;
        }
        for (event_id, waiting) in conflicts.drain(..) {
            match &answer {
                Ok(()) => waiting.tell(Ok(Recorded::Conflict { event_id })),
                Err(error @ StoreError::Refused(_)) => self.unrecordable.keep(waiting, error).await,
                Err(error) => fail(vec![waiting], error),
            }
        }
        true
    }
}

/// Those whose time is not up: else what piled up behind a lock would be looked at for nobody, and take the room of
/// others.
fn in_their_time(mut repeats: Vec<Waiting>) -> Vec<Waiting> {
    let (came, now) = (repeats.len(), Instant::now());
    repeats.retain(|waiting| !waiting.is_late(now));
    let late = came.saturating_sub(repeats.len());
    if late > 0 {
        tracing::warn!(
            events = late,
            "repeats have waited too long, the providers will retry"
        );
    }
    repeats
}

fn of(repeats: &[(EventId, Waiting)]) -> Vec<(EventId, Arc<Event>)> {
    let each = repeats.iter();
    each.map(|(id, waiting)| (id.clone(), Arc::clone(&waiting.event)))
        .collect()
}
