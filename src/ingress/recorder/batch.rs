//! A queue of waiting requests, taken in batches.

use tokio::sync::mpsc;

use super::pending::Pending;
use crate::store::events::{BATCH_BYTES, BATCH_ROWS, batch_bytes};

/// The receiving side of a queue.
#[derive(Debug)]
pub(super) struct Batches {
    queue: mpsc::UnboundedReceiver<Pending>,
    /// The request that did not fit into the last batch.
    over: Option<Pending>,
}

impl Batches {
    /// Takes batches from `queue`.
    pub(super) fn new(queue: mpsc::UnboundedReceiver<Pending>) -> Self {
        Self { queue, over: None }
    }

    /// Waits for a request and takes what is queued behind it. Empty: the queue is closed and empty.
    pub(super) async fn next(&mut self) -> Vec<Pending> {
        if self.over.is_none() {
            self.over = self.queue.recv().await;
        }
        self.ready()
    }

    /// Takes what is queued, up to [`BATCH_ROWS`] and [`BATCH_BYTES`].
    pub(super) fn ready(&mut self) -> Vec<Pending> {
        let (mut batch, mut bytes) = (Vec::new(), 0_usize);
        while batch.len() < BATCH_ROWS
            && let Some(next) = self.over.take().or_else(|| self.queue.try_recv().ok())
        {
            bytes = bytes.saturating_add(batch_bytes(&next.event));
            if bytes > BATCH_BYTES && !batch.is_empty() {
                self.over = Some(next);
                break;
            }
            batch.push(next);
        }
        batch
    }
}
