//! Moves orders: takes events, by name from the broker or by claim from the outbox, and applies them.
//!
//! What is acted on is read from the store, never from a message: a message that names no stored event is kept
//! as a dead letter and believed in nothing. Up to 128 events are applied in one transaction and acked after its
//! commit; if that transaction fails they are tried one by one, so that one bad event costs its neighbours
//! nothing but time. A failure is counted in the store and comes back by the sweep, with backoff; nothing is
//! ever put back into the queue to fail again at once. A panic in a provider's or the orders' code is the
//! failure of the event that caused it.
//!
//! Store unreachable: the consumer is cancelled, what it holds goes back to the queue once, and work resumes
//! when the store answers.

mod applier;
mod consume;
mod dead;
mod embedded;
mod growth;
mod overdue;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::orders::apply::Policy;
use crate::provider::Registry;
use crate::store::outbox::{Bell, FailurePolicy, Handoff};
use crate::store::{Store, StoreError};
use crate::time::Clock;
use applier::Applier;

pub use applier::Tally;

/// `[worker]`.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// After how many failed attempts an event is a dead letter.
    pub max_attempts: u32,
    /// Events in one transaction.
    pub batch: usize,
    /// Deliveries held beyond their ack, in messages.
    pub prefetch: u16,
    /// How often the embedded broker's worker looks when nothing rings.
    pub poll: Duration,
    /// How often a consumer asks whether the broker still knows it.
    pub check_every: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            max_attempts: 8,
            batch: 128,
            prefetch: 256,
            poll: Duration::from_millis(250),
            check_every: Duration::from_secs(30),
        }
    }
}

/// Everything a worker is built from.
#[derive(Debug)]
pub struct WorkerParts {
    /// Where events are read and orders are written.
    pub store: Store,
    /// Where events come from.
    pub broker: Broker,
    /// Who understands them; replaced whole when the configuration changes.
    pub registry: Arc<ArcSwap<Registry>>,
    /// `[orders]`.
    pub policy: Policy,
    /// The decision's time.
    pub clock: Clock,
    /// Rung after each commit: it may have written messages, which the relay sends.
    pub bell: Bell,
    /// With the embedded broker: committed events that this process has claimed. The other end may be closed.
    pub handoffs: mpsc::Receiver<Handoff>,
}

/// The worker of one process.
#[derive(Debug)]
pub struct Worker {
    applier: Applier,
    broker: Broker,
    bell: Bell,
    handoffs: mpsc::Receiver<Handoff>,
    options: WorkerOptions,
}

impl Worker {
    /// Puts it together; nothing runs yet.
    pub fn new(parts: WorkerParts, options: WorkerOptions) -> Self {
        let applier = Applier {
            failures: FailurePolicy::new(options.max_attempts, parts.broker.is_embedded()),
            store: parts.store,
            registry: parts.registry,
            policy: parts.policy,
            clock: parts.clock,
            bell: parts.bell.clone(),
        };
        Self {
            applier,
            broker: parts.broker,
            bell: parts.bell,
            handoffs: parts.handoffs,
            options,
        }
    }

    /// Works until `shutdown`; what is begun is finished, what is held goes back.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self {
            applier,
            broker,
            bell,
            handoffs,
            options,
        } = self;
        let overdue = overdue::run(&applier, &shutdown);
        let growth = growth::run(&applier, &shutdown);
        match broker {
            Broker::Rabbitmq(rabbitmq) => {
                let buried = dead::run(&applier, &rabbitmq, &shutdown);
                let applied = consume::run(&applier, &rabbitmq, &options, &shutdown);
                tokio::join!(applied, buried, overdue, growth);
            }
            Broker::Embedded(outbox) => {
                let mut queue = embedded::Queue::new(outbox, handoffs, bell, &options);
                tokio::join!(queue.run(&applier, &shutdown), overdue, growth);
            }
        }
    }

    /// With the embedded broker: applies what has been handed over and what is due, once, and gives how it
    /// went. For tests; with RabbitMQ there is nothing to step.
    pub async fn step(&mut self) -> Result<Tally, StoreError> {
        let Broker::Embedded(outbox) = &self.broker else {
            return Ok(Tally::default());
        };
        embedded::step(outbox, &mut self.handoffs, &self.applier, self.options.batch).await
    }
}
