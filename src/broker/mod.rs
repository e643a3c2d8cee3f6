//! The way out of the process: RabbitMQ, or nothing but the outbox itself.
//!
//! The seam between the flows and the broker. `relay` publishes through it and `worker` consumes through it;
//! neither sees a type of the AMQP library. An enum and not a trait: there are two brokers, and every flow has
//! to say what it does with each.
//!
//! With RabbitMQ a message is [`Published::Routed`] only after a confirm that was not a return. Whatever else
//! happens (no connection, a nack, no confirm in time) is [`Published::Failed`] and the outbox row stays.

mod acks;
mod connection;
mod consumer;
mod declare;
mod embedded;
mod inspect;
mod publisher;
mod rabbitmq;
mod send;
mod topic;
mod topology;

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use consumer::{Death, Delivered, Source, Subscription};
pub use embedded::Embedded;
pub use inspect::{Found, Inspected, Management, inspect};
pub use publisher::Publisher;
pub use rabbitmq::{Link, Rabbitmq};
pub use topic::{binding_matches, is_valid_binding};
pub use topology::{Mismatch, Topology};

use crate::config::{BrokerConfig, BrokerUrl};
use crate::store::Store;
use crate::telemetry::metrics::names;
use crate::telemetry::{BrokerState, Health};
use crate::time::{Clock, Timestamp};

/// What an operator decides about the broker, and how patient we are with it.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// `[broker]`.
    pub config: BrokerConfig,
    /// Who is told when a queue has vanished: every merchant of the configuration.
    pub merchants: Vec<String>,
    /// How long a publish waits for its confirm.
    pub confirm_timeout: Duration,
    /// How often the topology is asserted while connected.
    pub assert_every: Duration,
    /// Seconds between heartbeats, unless the URL says otherwise.
    pub heartbeat: u16,
}

impl BrokerOptions {
    /// With the usual patience.
    pub fn new(config: BrokerConfig, merchants: Vec<String>) -> Self {
        Self {
            config,
            merchants,
            confirm_timeout: Duration::from_secs(10),
            assert_every: Duration::from_secs(30),
            heartbeat: 15,
        }
    }
}

/// Where messages go.
#[derive(Clone, Debug)]
pub enum Broker {
    /// A RabbitMQ server or cluster.
    Rabbitmq(Rabbitmq),
    /// The outbox is the queue.
    Embedded(Embedded),
}

impl Broker {
    /// Reads the options; does not connect. `process` names this process in claims and connections. The
    /// publisher, where there is one, is run by whoever has a relay.
    pub fn new(
        options: &BrokerOptions,
        store: Store,
        process: &str,
    ) -> Result<(Self, Option<Publisher>), BrokerError> {
        match &options.config.url {
            BrokerUrl::Embedded => Ok((Self::Embedded(Embedded::new(store, process)), None)),
            BrokerUrl::Rabbitmq(url) => {
                let (rabbitmq, publisher) = Rabbitmq::new(url, options, store, process)?;
                Ok((Self::Rabbitmq(rabbitmq), Some(publisher)))
            }
        }
    }

    /// Whether the outbox is the queue.
    pub fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded(_))
    }

    /// Tells `health` and the metrics how the broker is, at every change, until `shutdown`.
    pub async fn report(&self, health: &Health, clock: &Clock, shutdown: &CancellationToken) {
        let Self::Rabbitmq(rabbitmq) = self else {
            health.set_broker(BrokerState::Embedded, clock.now());
            metrics::gauge!(names::BROKER_UP).set(1.0);
            return;
        };
        let mut link = rabbitmq.link();
        loop {
            let (state, up) = match link {
                Link::Up => (BrokerState::Connected, 1.0),
                Link::Blocked => (BrokerState::Blocked, 0.0),
                Link::Down => (BrokerState::Unreachable, 0.0),
            };
            health.set_broker(state, clock.now());
            metrics::gauge!(names::BROKER_UP).set(up);
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = rabbitmq.changed(link) => link = changed,
            }
        }
    }
}

/// A message on its way.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Where to.
    pub route: Route,
    /// `message_id`: the CloudEvent's id, which names the event or the order's version.
    pub id: String,
    /// `type`: the CloudEvent's type.
    pub kind: String,
    /// `timestamp`.
    pub at: Timestamp,
    /// The CloudEvent.
    pub body: Bytes,
    /// Not sent after this: it is somebody else's then.
    pub until: Option<Instant>,
}

/// Which exchange, with which routing key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The events exchange.
    Events(String),
    /// The orders exchange.
    Orders(String),
    /// The apply queue alone: its consumers have had the message, the workers need it again.
    Apply,
    /// One of the declared queues alone.
    Queue(String),
}

/// What became of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// Confirmed, and at least one queue has it.
    Routed,
    /// Confirmed, and no queue wanted it.
    Unrouted,
    /// This message cannot be sent, now or later; why, in words.
    Refused(String),
    /// Not confirmed: it may or may not have arrived. To be sent again.
    Failed,
}

/// Why the broker could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The URL is not one.
    #[error("[broker] url: {0}")]
    Url(String),
    /// The prefix or a queue cannot be declared as written.
    #[error("[broker] {0}")]
    Topology(String),
    /// The broker cannot be reached, or the connection broke.
    #[error("broker unreachable")]
    Unreachable(#[source] lapin::Error),
    /// It did not answer in time.
    #[error("broker did not answer within {0:?}")]
    Timeout(Duration),
}

impl From<lapin::Error> for BrokerError {
    fn from(error: lapin::Error) -> Self {
        Self::Unreachable(error)
    }
}
