//! Duplicates: what came twice with the same content. It is noted that they came, and they are answered.
//!
//! The notes have a queue and a connection of their own, beside the [settler](super::settler): the next repeats are
//! told apart while these are noted, and nobody waits for a note longer than [`NOTING`].

use std::time::Duration;

use tokio::sync::mpsc;

use super::recorder::{Waiting, cause, in_their_time, in_time};
use crate::event::EventId;
use crate::store::{Delivery, Recorded, Store, Writer};

/// How long a duplicate waits for its note, unless somebody says otherwise; never longer than a quarter of its time.
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
        let mut taken = Vec::new();
        while found.recv_many(&mut taken, self.batch).await > 0 {
            let batch = in_their_time(std::mem::take(&mut taken), |duplicate| &duplicate.waiting);
            if batch.is_empty() {
                continue;
            }
            let again: Vec<Delivery> = batch
                .iter()
                .map(|duplicate| Delivery::of(&duplicate.of, &duplicate.waiting.event))
                .collect();
            let mut noting = std::pin::pin!(self.note(&again, &mut writer));
            let mut noted = tokio::time::timeout(self.noting, &mut noting).await.ok();
            batch.into_iter().for_each(Duplicate::tell);
            // Making a connection takes its time. Who comes meanwhile is a duplicate all the same, and so is who waits
            // where nothing can be noted: one after the other they would wait too long.
            let mut unnoted = 0_u32;
            let mut tell = |duplicate: Duplicate| {
                unnoted = unnoted.saturating_add(1);
                duplicate.tell();
            };
            while noted.is_none() {
                tokio::select! {
                    over = &mut noting => noted = Some(over),
                    Some(duplicate) = found.recv() => tell(duplicate),
                }
            }
            if noted == Some(false) {
                while let Ok(duplicate) = found.try_recv() {
                    tell(duplicate);
                }
            }
            warn_unnoted(unnoted);
        }
        writer.rest();
    }

    /// Whether it could be noted.
    async fn note(&self, again: &[Delivery], writer: &mut Writer) -> bool {
        let noted = in_time(self.ack_deadline, writer.note_deliveries(again)).await;
        if let Err(error) = &noted {
            tracing::warn!(events = again.len(), %error, cause = cause(error), "it is not noted that they came again");
        }
        noted.is_ok()
    }
}

/// Says that so many were answered without a note.
pub(super) fn warn_unnoted(events: u32) {
    if events > 0 {
        tracing::warn!(
            events,
            "duplicates come faster than they can be noted: it is not noted that these came again"
        );
    }
}
