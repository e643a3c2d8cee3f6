//! What waits for a database, taken in batches.

use tokio::sync::mpsc;

use super::recorder::Waiting;
use crate::store::events::{BATCH_BYTES, batch_bytes};

/// What waits, and the one that was too much for the batch before.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: mpsc::Receiver<Waiting>,
    over: Option<Waiting>,
}

impl Queue {
    pub(super) fn new(waiting: mpsc::Receiver<Waiting>) -> Self {
        Self { waiting, over: None }
    }

    /// Waits for one and takes what is behind it. Empty: nothing will come.
    pub(super) async fn next(&mut self, rows: usize) -> Vec<Waiting> {
        if self.over.is_none() {
            self.over = self.waiting.recv().await;
        }
        self.ready(rows)
    }

    /// Takes what waits, up to `rows` and [`BATCH_BYTES`].
    pub(super) fn ready(&mut self, rows: usize) -> Vec<Waiting> {
        let Some(first) = self.over.take().or_else(|| self.waiting.try_recv().ok()) else {
            return Vec::new();
        };
        let mut bytes = batch_bytes(&first.event);
        let mut batch = vec![first];
        while batch.len() < rows {
            let Ok(next) = self.waiting.try_recv() else {
                break;
            };
            bytes = bytes.saturating_add(batch_bytes(&next.event));
            if bytes > BATCH_BYTES {
                self.over = Some(next);
                break;
            }
            batch.push(next);
        }
        batch
    }
}
