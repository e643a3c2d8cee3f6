//! The flows behind the ingress: relay and worker, with the broker between them.
//!
//! With RabbitMQ the relay gets the hand-offs of this process's ingress, with the embedded broker the worker
//! does, for then the outbox row is the queue entry. A process without the one that would take them hands
//! nothing over: its rows are born unclaimed, and whoever sweeps takes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use super::{Role, Stage, flow_options};
use crate::broker::{Broker, BrokerError, BrokerOptions};
use crate::config::{BrokerUrl, Config, DEFAULT_MERCHANT, Queue, UnknownOrder};
use crate::orders::apply::{Policy, Unknown};
use crate::provider::Registry;
use crate::relay::{Relay, RelayOptions};
use crate::store::outbox::{Bell, FailurePolicy, HANDOFF_ROOM, Handoff};
use crate::store::{Plans, Store, StoreOptions};
use crate::telemetry::Health;
use crate::time::Clock;
use crate::worker::{Worker, WorkerOptions, WorkerParts};

/// What relay and workers ask for at once, with some to spare.
const CONNECTIONS: u32 = 6;

/// What the flows share with the rest of the process.
pub(super) struct Shared<'a> {
    pub(super) store: &'a Store,
    pub(super) registry: &'a Arc<ArcSwap<Registry>>,
    pub(super) health: &'a Arc<Health>,
    pub(super) clock: &'a Clock,
    pub(super) process: &'a str,
    pub(super) policy: Policy,
    pub(super) bell: &'a Bell,
}

/// Starts on `stage` what `roles` name; gives where the ingress may hand over to.
pub(super) fn start(
    config: &Config,
    roles: &[Role],
    shared: &Shared<'_>,
    stage: &Stage,
) -> Result<Option<mpsc::Sender<Handoff>>, BrokerError> {
    let (relays, works) = (roles.contains(&Role::Relay), roles.contains(&Role::Worker));
    if !relays && !works {
        return Ok(None);
    }
    let options = BrokerOptions::new(config.broker.clone(), merchants(config));
    let (broker, publisher) = Broker::new(&options, shared.store.clone(), shared.process)?;
    report(&broker, shared, stage);
    if let Some(publisher) = publisher {
        stage.tasks.spawn(publisher.run(stage.stop.clone()));
    }
    let (handoff, handed_over) = mpsc::channel(HANDOFF_ROOM);
    let (_, nothing) = mpsc::channel(1);
    let bell = shared.bell.clone();
    let lookups = shared.store.dedicated(&StoreOptions {
        max_connections: CONNECTIONS,
        plans: Plans::Lookups,
        ..flow_options(config)
    });
    let (for_relay, for_worker, taken) = match &broker {
        Broker::Rabbitmq(_) => (handed_over, nothing, relays),
        Broker::Embedded(_) => (nothing, handed_over, works),
    };
    if let (Broker::Rabbitmq(rabbitmq), true) = (&broker, relays) {
        let options = RelayOptions {
            reapply_after: config.broker.reapply_after,
            failures: FailurePolicy::new(config.worker.max_attempts, false),
            ..RelayOptions::default()
        };
        let (store, broker) = (lookups.clone(), rabbitmq.clone());
        let relay = Relay::new(store, broker, for_relay, bell.clone(), shared.process, options);
        stage.tasks.spawn(relay.run(stage.stop.clone()));
    }
    if works {
        let parts = WorkerParts {
            store: lookups,
            broker,
            registry: Arc::clone(shared.registry),
            policy: shared.policy,
            clock: shared.clock.clone(),
            bell,
            handoffs: for_worker,
        };
        let options = WorkerOptions {
            max_attempts: config.worker.max_attempts,
            batch: usize::try_from(config.worker.batch).unwrap_or(usize::MAX),
            ..WorkerOptions::default()
        };
        stage
            .tasks
            .spawn(Worker::new(parts, options).run(stage.stop.clone()));
    }
    Ok(taken.then_some(handoff))
}

/// Keeps `/readyz` and the metrics told.
fn report(broker: &Broker, shared: &Shared<'_>, stage: &Stage) {
    let (broker, health) = (broker.clone(), Arc::clone(shared.health));
    let (clock, stop) = (shared.clock.clone(), stage.stop.clone());
    stage
        .tasks
        .spawn(async move { broker.report(&health, &clock, &stop).await });
}

/// Whoever must hear that a queue has vanished.
fn merchants(config: &Config) -> Vec<String> {
    let named = config.accounts.iter().map(|account| account.merchant.clone());
    let merchants: BTreeSet<String> = named.collect();
    if merchants.is_empty() {
        vec![DEFAULT_MERCHANT.to_owned()]
    } else {
        merchants.into_iter().collect()
    }
}

/// The queues that a replay may be sent to alone: without a broker there are none, whatever is written down.
pub(super) fn queues(config: &Config) -> &[Queue] {
    match config.broker.url {
        BrokerUrl::Embedded => &[],
        BrokerUrl::Rabbitmq(_) => &config.broker.queues,
    }
}

/// What becomes of orders that nobody registered.
pub(super) fn policy(config: &Config) -> Policy {
    let unknown = match config.orders.unknown {
        UnknownOrder::Create => Unknown::Create,
        UnknownOrder::Park => Unknown::Park,
    };
    Policy {
        unknown,
        park_deadline: config.orders.park_deadline,
    }
}
