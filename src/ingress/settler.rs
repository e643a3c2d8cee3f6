//! Second arrivals: told apart, noted and answered beside the [committer](super::committer).
//!
//! The committer found their keys taken, so an earlier copy is durable. Whether it is the same one is looked up
//! here, over a connection of its own: a lock on what a repeat writes keeps repeats waiting and nothing fresh.

use std::sync::Arc;
use std::time::Duration;

use super::queue::Queue;
use super::recorder::{Waiting, fail, in_time};
use super::unrecordable::Unrecordable;
use crate::event::{Event, EventId};
use crate::store::{Recorded, Repeat, Store, StoreError, Writer};

/// The one who answers repeats.
#[derive(Debug)]
pub(super) struct Settler {
    pub(super) store: Store,
    /// For conflicts, which take several statements. One that is abandoned at its deadline keeps its connection
    /// until the server answers: not one of those that everybody needs.
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
    async fn settle(&self, mut repeats: Vec<Waiting>, writer: &mut Writer) {
        // Else what piled up behind a lock would be looked at for nobody, and take the room of others.
        repeats.retain(|waiting| !waiting.is_gone());
        let events: Vec<Arc<Event>> = repeats.iter().map(|waiting| Arc::clone(&waiting.event)).collect();
        let compared = match in_time(self.ack_deadline, writer.compare_repeats(&events)).await {
            Ok(compared) => compared,
            Err(error) => return fail(repeats, &error),
        };
        let mut conflicts = Vec::new();
        for (waiting, repeat) in std::iter::zip(repeats, compared) {
            match repeat {
                Repeat::Duplicate(event_id) => waiting.tell(Ok(Recorded::Duplicate { event_id })),
                Repeat::Conflict(event_id) => conflicts.push((event_id, waiting)),
                Repeat::Gone => fail(vec![waiting], &StoreError::timed_out()),
            }
        }
        if conflicts.is_empty() || self.keep(&mut conflicts).await {
            return;
        }
        for conflict in conflicts.into_iter().filter(|(_, waiting)| !waiting.is_gone()) {
            self.keep(&mut vec![conflict]).await;
        }
    }

    /// Keeps conflicts and answers them. `false`: the data of one of several is at fault, and nobody is
    /// answered yet.
    async fn keep(&self, conflicts: &mut Vec<(EventId, Waiting)>) -> bool {
        let kept: Vec<(EventId, Arc<Event>)> = conflicts
            .iter()
            .map(|(id, waiting)| (id.clone(), Arc::clone(&waiting.event)))
            .collect();
        let answer = in_time(self.ack_deadline, self.aside.keep_conflicts(&kept)).await;
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
