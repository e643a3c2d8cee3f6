//! Duplicates: what came twice with the same content. It is noted that they came, and they are answered.
//!
//! The notes have a queue and a connection of their own, beside the [settler](super::settler): the next repeats are
//! told apart while these are noted, and nobody waits for a note longer than [`NOTING`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::recorder::{Waiting, cause, in_time};
use crate::event::{Event, EventId};
use crate::store::{Recorded, Store, Writer};

/// How long a duplicate waits for its note, unless somebody says otherwise.
pub(super) const NOTING: Duration = Duration::from_millis(500);

/// What came, and the stored event that it is.
#[derive(Debug)]
pub(super) struct Duplicate {
    pub(super) of: EventId,
    pub(super) waiting: Waiting,
}

impl Duplicate {
    /// Answers: it happened, and nothing more.
    pub(super) fn tell(self) {
        self.waiting.tell(Ok(Recorded::Duplicate { event_id: self.of }));
    }
}

/// The one who notes duplicates.
#[derive(Debug)]
pub(super) struct Deliveries {
    /// For the notes alone.
    pub(super) store: Store,
    /// Most at once.
    pub(super) batch: usize,
    /// How long a duplicate waits for its note.
    pub(super) noting: Duration,
    pub(super) ack_deadline: Duration,
}

impl Deliveries {
    /// Until the settler is gone and all are answered.
    pub(super) async fn run(self, mut found: mpsc::Receiver<Duplicate>) {
        let mut writer = self.store.writer();
        let mut batch = Vec::new();
        while found.recv_many(&mut batch, self.batch).await > 0 {
            let again: Vec<(EventId, Arc<Event>)> = batch
                .iter()
                .map(|duplicate| (duplicate.of.clone(), Arc::clone(&duplicate.waiting.event)))
                .collect();
            let mut noting = std::pin::pin!(self.note(&again, &mut writer));
            let mut over = tokio::time::timeout(self.noting, &mut noting).await.is_ok();
            batch.drain(..).for_each(Duplicate::tell);
            // A connection may take longer to make. Who comes meanwhile is a duplicate all the same.
            let mut unnoted = 0_u32;
            while !over {
                tokio::select! {
                    () = &mut noting => over = true,
                    Some(duplicate) = found.recv() => {
                        unnoted = unnoted.saturating_add(1);
                        duplicate.tell();
                    }
                }
            }
            warn_unnoted(unnoted);
        }
        writer.rest();
    }

    async fn note(&self, again: &[(EventId, Arc<Event>)], writer: &mut Writer) {
        if let Err(error) = in_time(self.ack_deadline, writer.note_deliveries(again)).await {
            tracing::warn!(events = again.len(), %error, cause = cause(&error), "it is not noted that they came again");
        }
    }
}

/// Says that so many were answered without a note.
pub(super) fn warn_unnoted(events: u32) {
    if events > 0 {
        tracing::warn!(
            events,
            "duplicates come faster than they are noted: it is not noted that these came again"
        );
    }
}
