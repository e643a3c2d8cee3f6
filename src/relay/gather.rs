//! What is to be sent next: handed-over events first, else what the sweep finds.
//!
//! Nothing is claimed while the broker takes nothing: a claim that cannot be used only keeps other daemons
//! from trying. A hand-off whose claim has all but run out is dropped here; its row is the sweep's.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Batch, RelayOptions};
use crate::broker::{Link, Rabbitmq};
use crate::crash::{self, Point};
use crate::store::outbox::{Bell, Claimed, Content, Handoff, Scope};
use crate::store::{Store, StoreError};

/// What must be left of a claim for its row to be sent: the confirm has to be noted within it.
const MARGIN: Duration = Duration::from_secs(2);

/// The most that one batch has in bodies, unless a single row has more: they are in memory twice while they are
/// on their way.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// How long to rest when the store fails.
const REST: Duration = Duration::from_secs(1);

/// The sources of batches.
#[derive(Debug)]
pub(super) struct Gatherer {
    store: Store,
    broker: Rabbitmq,
    handoffs: mpsc::Receiver<Handoff>,
    /// The recorder is gone: only the sweep is left.
    closed: bool,
    bell: Bell,
    process: String,
    batch: usize,
    poll: Duration,
    again_most: u32,
    again_backlog: u32,
    /// When the sweep has to look next.
    look_at: Instant,
    /// When to ask next for events that have not ended.
    again_at: Instant,
    /// The workers' queue seemed empty when it was asked last.
    seen_empty: bool,
}

impl Gatherer {
    pub(super) fn new(
        store: Store,
        broker: Rabbitmq,
        handoffs: mpsc::Receiver<Handoff>,
        bell: Bell,
        process: &str,
        options: &RelayOptions,
    ) -> Self {
        Self {
            store,
            broker,
            handoffs,
            closed: false,
            bell,
            process: process.to_owned(),
            batch: options.batch.max(1),
            poll: options.poll,
            again_most: options.again_most,
            again_backlog: options.again_backlog,
            look_at: Instant::now(),
            again_at: Instant::now(),
            seen_empty: false,
        }
    }

    pub(super) fn link(&self) -> Link {
        self.broker.link()
    }

    /// Waits until there is something to send, it is time to look, or `shutdown`. Not to be dropped halfway:
    /// it may have claimed rows.
    pub(super) async fn next(&mut self, shutdown: &CancellationToken) -> Result<Vec<Batch>, StoreError> {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(Vec::new()),
            () = self.broker.wait_up() => {}
        }
        if self.look_at <= Instant::now() {
            return self.sweep().await;
        }
        let mut handed = Vec::new();
        tokio::select! {
            count = self.handoffs.recv_many(&mut handed, self.batch), if !self.closed => {
                self.closed = count == 0;
            }
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep_until(self.look_at) => {}
            () = self.bell.rung() => self.look_at = Instant::now(),
        }
        Ok(handed_batches(handed))
    }

    /// What can be had without waiting: everything handed over, and one look of the sweep.
    pub(super) async fn at_hand(&mut self) -> Result<Vec<Batch>, StoreError> {
        if self.broker.link() != Link::Up {
            return Ok(Vec::new());
        }
        let mut handed = Vec::new();
        while handed.len() < self.batch {
            match self.handoffs.try_recv() {
                Ok(handoff) => handed.push(handoff),
                Err(_) => break,
            }
        }
        let mut batches = handed_batches(handed);
        self.again_at = Instant::now();
        match self.sweep().await {
            Ok(swept) => batches.extend(swept),
            Err(error) if batches.is_empty() => return Err(error),
            Err(error) => tracing::warn!(%error, "the store does not answer the relay"),
        }
        Ok(batches)
    }

    pub(super) async fn rest(&self, shutdown: &CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(REST) => {}
        }
    }

    async fn sweep(&mut self) -> Result<Vec<Batch>, StoreError> {
        let limit = u32::try_from(self.batch).unwrap_or(u32::MAX);
        let mut batches = Vec::new();
        let rows = self.store.claim_due(Scope::First, &self.process, limit).await?;
        if !rows.is_empty() {
            crash::point(Point::RelayClaimed);
        }
        // After a full batch there is more, and the next look is at once.
        let bytes = rows.iter().map(|row| row.content.bytes()).sum::<usize>();
        let full = rows.len() >= self.batch || bytes >= BATCH_BYTES.div_euclid(2);
        self.look_at = Instant::now() + if full { Duration::ZERO } else { self.poll };
        if !rows.is_empty() {
            batches.push(Batch { rows });
        }
        if self.again_at <= Instant::now() {
            self.again_at = Instant::now() + self.poll.max(Duration::from_secs(1));
            match self.unfinished().await {
                Ok(again) => batches.extend(again),
                Err(error) if batches.is_empty() => return Err(error),
                // What has been claimed goes out all the same.
                Err(error) => tracing::warn!(%error, "events that have not ended could not be looked for"),
            }
        }
        Ok(batches)
    }

    /// Events that were published and have not ended in time, unless the workers are only behind.
    async fn unfinished(&mut self) -> Result<Option<Batch>, StoreError> {
        if !self.store.has_unfinished_due().await? {
            return Ok(None);
        }
        let waiting = self.broker.apply_backlog().await;
        let was_empty = std::mem::replace(&mut self.seen_empty, waiting == Some(0));
        // A broker that is too busy to look says that nothing waits, too: it is asked twice, a round apart.
        if waiting == Some(0) && !was_empty {
            return Ok(None);
        }
        if waiting.is_none_or(|waiting| waiting > self.again_backlog) {
            return Ok(None);
        }
        let rows = self
            .store
            .claim_due(Scope::AgainByName, &self.process, self.again_most)
            .await?;
        Ok((!rows.is_empty()).then_some(Batch { rows }))
    }
}

/// The hand-offs whose claims hold long enough, in batches of at most [`BATCH_BYTES`].
fn handed_batches(handed: Vec<Handoff>) -> Vec<Batch> {
    let good_until = Instant::now() + MARGIN;
    let mut batches = Vec::new();
    let (mut batch, mut bytes) = (Batch::default(), 0_usize);
    for handoff in handed {
        if handoff.claimed_until <= good_until {
            continue;
        }
        let size = handoff.event.bytes();
        if !batch.rows.is_empty() && bytes.saturating_add(size) > BATCH_BYTES {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes = bytes.saturating_add(size);
        batch.rows.push(Claimed {
            row: handoff.event.id.as_str().to_owned(),
            content: Content::Event(handoff.event, None),
            queue: None,
            claimed_until: handoff.claimed_until,
        });
    }
    if !batch.rows.is_empty() {
        batches.push(batch);
    }
    batches
}
