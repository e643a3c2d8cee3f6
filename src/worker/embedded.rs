//! The worker where the outbox is the queue: hand-offs from memory, else what is due.
//!
//! A row is applied only while this process's claim on it holds. Order messages have no reader here but the
//! feed, so their rows are ended on the way.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::applier::{Applier, Tally};
use super::{WorkerOptions, consume};
use crate::broker::Embedded;
use crate::event::Event;
use crate::store::StoreError;
use crate::store::outbox::{Bell, Claimed, Content, Handoff};

/// What must be left of a claim for its row to be applied.
const MARGIN: Duration = Duration::from_secs(2);

/// The sources of the embedded worker.
pub(super) struct Queue {
    outbox: Embedded,
    handoffs: mpsc::Receiver<Handoff>,
    closed: bool,
    bell: Bell,
    batch: usize,
    poll: Duration,
}

impl Queue {
    pub(super) fn new(
        outbox: Embedded,
        handoffs: mpsc::Receiver<Handoff>,
        bell: Bell,
        options: &WorkerOptions,
    ) -> Self {
        Self {
            outbox,
            handoffs,
            closed: false,
            bell,
            batch: options.batch.max(1),
            poll: options.poll,
        }
    }

    /// Applies until `shutdown`.
    pub(super) async fn run(&mut self, applier: &Applier, shutdown: &CancellationToken) {
        let mut look_at = Instant::now();
        while !shutdown.is_cancelled() {
            let worked = if look_at <= Instant::now() {
                let swept = sweep(&self.outbox, applier, self.batch).await;
                let full = matches!(swept, Ok((_, taken)) if taken >= self.batch);
                look_at = Instant::now() + if full { Duration::ZERO } else { self.poll };
                swept.map(|(tally, _)| tally)
            } else {
                let mut handed = Vec::new();
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    count = self.handoffs.recv_many(&mut handed, self.batch), if !self.closed => {
                        self.closed = count == 0;
                    }
                    () = tokio::time::sleep_until(look_at) => {}
                    () = self.bell.rung() => look_at = Instant::now(),
                }
                applier.apply(&still_ours(handed)).await
            };
            if let Err(error) = worked {
                tracing::warn!(%error, "the store does not answer; the worker waits for it");
                consume::pause(consume::PAUSE, shutdown).await;
                consume::wait_for_store(applier, shutdown).await;
            }
        }
    }
}

/// Applies what is at hand, once.
pub(super) async fn step(
    outbox: &Embedded,
    handoffs: &mut mpsc::Receiver<Handoff>,
    applier: &Applier,
    batch: usize,
) -> Result<Tally, StoreError> {
    let mut handed = Vec::new();
    while handed.len() < batch {
        match handoffs.try_recv() {
            Ok(handoff) => handed.push(handoff),
            Err(_) => break,
        }
    }
    let mut tally = applier.apply(&still_ours(handed)).await?;
    tally.add(sweep(outbox, applier, batch).await?.0);
    Ok(tally)
}

/// One look into the outbox; gives how it went and how many rows were taken.
async fn sweep(outbox: &Embedded, applier: &Applier, batch: usize) -> Result<(Tally, usize), StoreError> {
    let rows = outbox.take(u32::try_from(batch).unwrap_or(u32::MAX)).await?;
    let taken = rows.len();
    let mut events = Vec::with_capacity(taken);
    let (mut unreadable, mut missing) = (Vec::new(), Vec::new());
    for Claimed { row, content, .. } in rows {
        match content {
            Content::Event(event, _) => events.push(event),
            Content::Unreadable(event) => unreadable.push((row, event)),
            Content::Name(_) | Content::Message(_) | Content::Unsendable(_) | Content::Missing => {
                missing.push(row);
            }
        }
    }
    let mut tally = applier.apply(&events).await?;
    // Last: whatever the store says to these, the others have been applied.
    for (row, event) in unreadable {
        tally.add(applier.fail_unreadable(&event, &row).await?);
    }
    for row in missing {
        applier.store.end_missing(&row).await?;
    }
    outbox.done_with_messages().await?;
    Ok((tally, taken))
}

/// The hand-offs whose claims hold long enough; the others are the sweep's.
fn still_ours(handed: Vec<Handoff>) -> Vec<Arc<Event>> {
    let good_until = Instant::now() + MARGIN;
    handed
        .into_iter()
        .filter(|handoff| handoff.claimed_until > good_until)
        .map(|handoff| handoff.event)
        .collect()
}
