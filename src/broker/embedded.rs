//! No broker: the outbox row is the queue entry.
//!
//! A worker claims rows and deletes them in the transaction that applies their events. The claim runs out by
//! itself, so a crash loses nothing, and on Postgres `skip locked` lets several daemons share the work. Order
//! messages have no reader but the feed, so their rows are done as soon as somebody looks.

use std::sync::Arc;

use crate::store::outbox::{Claimed, Scope};
use crate::store::{Store, StoreError};

/// The outbox as a queue.
#[derive(Clone, Debug)]
pub struct Embedded {
    store: Store,
    process: Arc<str>,
}

impl Embedded {
    pub(super) fn new(store: Store, process: &str) -> Self {
        Self {
            store,
            process: process.into(),
        }
    }

    /// Claims up to `limit` events that are due; also those that were published in the days of another broker,
    /// or redriven.
    pub async fn take(&self, limit: u32) -> Result<Vec<Claimed>, StoreError> {
        let mut taken = self.store.claim_due(Scope::Apply, &self.process, limit).await?;
        let room = limit.saturating_sub(u32::try_from(taken.len()).unwrap_or(limit));
        if room > 0 {
            match self.again(room).await {
                Ok(again) => taken.extend(again),
                Err(error) if taken.is_empty() => return Err(error),
                // What has been claimed is applied all the same.
                Err(error) => tracing::warn!(%error, "events that have not ended could not be looked for"),
            }
        }
        Ok(taken)
    }

    async fn again(&self, room: u32) -> Result<Vec<Claimed>, StoreError> {
        if !self.store.has_unfinished_due().await? {
            return Ok(Vec::new());
        }
        self.store.claim_due(Scope::Again, &self.process, room).await
    }

    /// Ends the rows of messages that only the feed sends.
    pub async fn done_with_messages(&self) -> Result<u64, StoreError> {
        self.store.done_with_messages().await
    }
}
