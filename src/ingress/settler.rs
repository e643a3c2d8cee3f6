//! Second arrivals: told apart beside the [committer](super::committer).
//!
//! The committer found their keys taken, so an earlier copy is durable. Whether it is the same one is looked up
//! here, over a connection of its own. Duplicates go on to [`Deliveries`](super::deliveries), the others to
//! [`Conflicts`](super::conflicts): a lock on what either writes keeps nothing fresh waiting.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::conflicts::Conflict;
use super::deliveries::{Duplicate, warn_unnoted};
use super::queue::Queue;
use super::recorder::{Unrecorded, Waiting, fail, in_their_time, in_time, no_room};
use crate::event::Event;
use crate::store::{Repeat, Store, Writer};

/// The one who tells repeats apart.
#[derive(Debug)]
pub(super) struct Settler {
    pub(super) store: Store,
    /// Where duplicates go.
    pub(super) duplicates: mpsc::Sender<Duplicate>,
    /// Where conflicts go.
    pub(super) conflicts: mpsc::Sender<Conflict>,
    /// Most repeats at once.
    pub(super) batch: usize,
    pub(super) ack_deadline: Duration,
}

impl Settler {
    /// Until no committer is left and all are told apart.
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

    /// Sends each where it is answered.
    async fn settle(&self, repeats: Vec<Waiting>, writer: &mut Writer) {
        let repeats = in_their_time(repeats, |waiting| waiting);
        let events: Vec<Arc<Event>> = repeats.iter().map(|waiting| Arc::clone(&waiting.event)).collect();
        let compared = match in_time(self.ack_deadline, writer.compare_repeats(&events)).await {
            Ok(compared) => compared,
            Err(error) => return fail(repeats, &error),
        };
        let (mut unnoted, mut gone, mut refused) = (0_u32, Vec::new(), Vec::new());
        for (waiting, repeat) in std::iter::zip(repeats, compared) {
            match repeat {
                Repeat::Duplicate(of) => {
                    if let Err(full) = self.duplicates.try_send(Duplicate { of, waiting }) {
                        unnoted = unnoted.saturating_add(1);
                        full.into_inner().tell();
                    }
                }
                Repeat::Conflict(with) => {
                    if let Err(full) = self.conflicts.try_send(Conflict { with, waiting }) {
                        refused.push(full.into_inner().waiting);
                    }
                }
                Repeat::Gone => gone.push(waiting),
            }
        }
        warn_unnoted(unnoted);
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
    }
}
