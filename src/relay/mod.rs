//! Out of the outbox to the broker. Runs where the broker is RabbitMQ; with the embedded one there is nothing
//! to publish to.
//!
//! Two sources, one path. The recorder hands committed events over in memory, born claimed; the sweep takes
//! what is due: rows that found no room, rows of a process that died, and events that were published and have
//! not ended in time. Either way a row is sent only while its claim holds, confirmed in the store only after
//! the broker's confirm, and several batches are on their way at once.
//!
//! Store or broker away: nothing is claimed, and the relay looks again. What was sent and could not be noted
//! is sent again when its claim has run out; consumers know it by its message id.

mod carry;
mod gather;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use carry::Carried;

use crate::broker::{Link, Rabbitmq};
use crate::store::outbox::{Bell, Claimed, FailurePolicy, Handoff};
use crate::store::{Store, StoreError};
use carry::Carrier;
use gather::Gatherer;

/// How the relay goes about it.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Rows in one batch.
    pub batch: usize,
    /// Batches on their way at once. One is sent while the other is noted; more would be smaller ones, and each costs
    /// the store a transaction.
    pub batches: usize,
    /// How often the sweep looks when nothing rings.
    pub poll: Duration,
    /// After how long an event without an outcome goes to the workers again.
    pub reapply_after: Duration,
    /// Most events sent to the workers again in one round.
    pub again_most: u32,
    /// None are, while more messages than this wait for the workers: a backlog is not a loss.
    pub again_backlog: u32,
    /// How often an event that does not read is tried.
    pub failures: FailurePolicy,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            batch: 256,
            batches: 2,
            poll: Duration::from_millis(250),
            reapply_after: Duration::from_mins(5),
            again_most: 1000,
            again_backlog: 1000,
            failures: FailurePolicy::new(8, false),
        }
    }
}

/// The relay of one process.
#[derive(Debug)]
pub struct Relay {
    carrier: Arc<Carrier>,
    gatherer: Gatherer,
    options: RelayOptions,
}

/// A batch of claimed rows.
#[derive(Debug, Default)]
struct Batch {
    rows: Vec<Claimed>,
}

impl Relay {
    /// `process` names this process in claims; it must differ between processes that share a store.
    pub fn new(
        store: Store,
        broker: Rabbitmq,
        handoffs: mpsc::Receiver<Handoff>,
        bell: Bell,
        process: &str,
        options: RelayOptions,
    ) -> Self {
        let carrier = Carrier::new(store.clone(), broker.clone(), process, options.clone());
        Self {
            carrier: Arc::new(carrier),
            gatherer: Gatherer::new(store, broker, handoffs, bell, process, &options),
            options,
        }
    }

    /// One round to its end: what has been handed over, else what is due, is published and noted. For tests;
    /// [`Relay::run`] does the same with several batches under way.
    pub async fn step(&mut self) -> Result<Carried, StoreError> {
        let mut carried = Carried::default();
        for batch in self.gatherer.at_hand().await? {
            carried.add(self.carrier.carry(batch).await);
        }
        Ok(carried)
    }

    /// Publishes until `shutdown`, then lets the batches that are under way end.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self {
            carrier,
            mut gatherer,
            options,
        } = self;
        let (batches, gathered) = mpsc::channel(1);
        // Apart, so that neither is dropped in the middle: a claim whose batch is forgotten holds its rows
        // back until it runs out.
        let gather = async move {
            while !shutdown.is_cancelled() {
                match gatherer.next(&shutdown).await {
                    Ok(found) => {
                        for batch in found {
                            if batches.send(batch).await.is_err() {
                                return;
                            }
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the store does not answer the relay");
                        gatherer.rest(&shutdown).await;
                    }
                }
            }
        };
        tokio::join!(gather, carry_all(carrier, gathered, options.batches.max(1)));
    }

    /// Whether messages can leave now.
    pub fn link(&self) -> Link {
        self.gatherer.link()
    }
}

/// Carries what comes, a few batches at a time, until nothing more can come and all is done.
async fn carry_all(carrier: Arc<Carrier>, mut gathered: mpsc::Receiver<Batch>, at_once: usize) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            batch = gathered.recv(), if under_way.len() < at_once => match batch {
                Some(batch) => under_way.push(carrier.carry(batch)),
                None => break,
            },
            Some(_) = under_way.next(), if !under_way.is_empty() => {}
        }
    }
    while under_way.next().await.is_some() {}
}
