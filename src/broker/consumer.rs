//! One consumer on a connection of its own, from subscription to its end.
//!
//! A [`Subscription`] owns connection, channel and consumer, and an ack can be given only to the subscription
//! that delivered: after a reconnect the old one is gone and with it every tag of the old channel. What was not
//! acked comes again. Ends when the broker cancels the consumer, the queue is deleted or the connection breaks;
//! its owner then subscribes anew.

use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Connection, Consumer, Queue};

use super::acks::{Ack, Outstanding};
use super::connection::{self, answered};
use super::declare::{Asserter, durable};
use super::{BrokerError, Topology};

/// Longer than RabbitMQ 3.10 waits for the leader of a quorum queue: of one that is too busy it says that there is neither
/// message nor consumer.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// One message, as the broker delivered it. It names something; what it holds is not to be believed.
#[derive(Clone)]
pub struct Delivered {
    /// For the ack, within the subscription that delivered it.
    pub tag: u64,
    /// `message_id`.
    pub id: Option<String>,
    /// Whether the broker has delivered it before.
    pub redelivered: bool,
    /// Why the broker took it out of the queue before, if it says so.
    pub death: Death,
    /// The message's bytes, kept only for one that names nothing known.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for Delivered {
    /// Without the body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivered")
            .field("tag", &self.tag)
            .field("id", &self.id)
            .field("redelivered", &self.redelivered)
            .finish_non_exhaustive()
    }
}

/// Why a message went to the dead-letter queue first, as its `x-first-death-reason` has it. A hint: whoever may write to
/// the queue may write that too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// It waited longer than a message TTL allows.
    Expired,
    /// The queue was longer than a policy allows.
    MaxLength,
    /// It came back to the queue too often without an ack.
    DeliveryLimit,
    /// A consumer refused it.
    Rejected,
    /// Nothing that is known.
    Unknown,
}

impl Death {
    /// The broker's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::MaxLength => "maxlen",
            Self::DeliveryLimit => "delivery_limit",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
        }
    }

    fn of(properties: &BasicProperties) -> Self {
        let headers = properties.headers().as_ref();
        let reason = headers.and_then(|headers| headers.inner().get("x-first-death-reason"));
        let Some(AMQPValue::LongString(reason)) = reason else {
            return Self::Unknown;
        };
        [
            Self::Expired,
            Self::MaxLength,
            Self::DeliveryLimit,
            Self::Rejected,
        ]
        .into_iter()
        .find(|death| death.as_str().as_bytes() == reason.as_bytes())
        .unwrap_or(Self::Unknown)
    }
}

/// A consumer that is running.
pub struct Subscription {
    connection: Connection,
    channel: Channel,
    consumer: Consumer,
    queue: ShortString,
    outstanding: Outstanding,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("queue", &self.queue)
            .field("outstanding", &self.outstanding.len())
            .finish_non_exhaustive()
    }
}

impl Subscription {
    /// Connects, asserts the topology, and consumes `queue`.
    pub(super) async fn open(
        uri: &AMQPUri,
        name: &str,
        asserter: &mut Asserter,
        queue: ShortString,
        prefetch: u16,
    ) -> Result<Self, BrokerError> {
        let connection = connection::open(uri, name).await?;
        asserter.assert(&connection).await?;
        let channel = connection::channel(&connection).await?;
        answered(channel.basic_qos(prefetch, BasicQosOptions::default())).await?;
        let consumer = answered(channel.basic_consume(
            queue.clone(),
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        ))
        .await?;
        Ok(Self {
            connection,
            channel,
            consumer,
            queue,
            outstanding: Outstanding::default(),
        })
    }

    /// The next message; `None`: the subscription has ended. Safe to drop while it waits.
    pub async fn next(&mut self) -> Option<Delivered> {
        match self.consumer.next().await? {
            Ok(delivery) => {
                self.outstanding.add(delivery.delivery_tag);
                Some(Delivered {
                    tag: delivery.delivery_tag,
                    id: delivery
                        .properties
                        .message_id()
                        .as_ref()
                        .map(|id| id.as_str().to_owned()),
                    redelivered: delivery.redelivered,
                    death: Death::of(&delivery.properties),
                    body: delivery.data,
                })
            }
            Err(error) => {
                tracing::warn!(%error, queue = %self.queue, "subscription ended");
                None
            }
        }
    }

    /// Tells the broker that these are done. An error ends the subscription: what it had acked comes again at
    /// worst, and is then found to be done.
    pub async fn ack(&mut self, done: impl IntoIterator<Item = u64>) -> Result<(), BrokerError> {
        for ack in self.outstanding.settle(done) {
            let (tag, multiple) = match ack {
                Ack::UpTo(tag) => (tag, true),
                Ack::One(tag) => (tag, false),
            };
            answered(self.channel.basic_ack(tag, BasicAckOptions { multiple })).await?;
        }
        Ok(())
    }

    /// Whether the broker still knows our consumer. A consumer can be lost without a word while the connection
    /// lives on; then messages pile up and nothing comes.
    pub async fn check(&self) -> Result<bool, BrokerError> {
        let mut found = self.found().await?;
        if found.consumer_count() == 0 && found.message_count() == 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
            found = self.found().await?;
        }
        Ok(found.consumer_count() > 0)
    }

    async fn found(&self) -> Result<Queue, BrokerError> {
        let asked = self
            .channel
            .queue_declare(self.queue.clone(), durable(true), FieldTable::default());
        answered(asked).await
    }

    /// Stops the consumer and gives everything not acked back to the queue, once.
    pub async fn hand_back(self) {
        let cancel = self
            .channel
            .basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
        let returned = async {
            answered(cancel).await?;
            let all = BasicNackOptions {
                multiple: true,
                requeue: true,
            };
            answered(self.channel.basic_nack(0, all)).await
        };
        if let Err(error) = returned.await {
            tracing::debug!(%error, "not handed back by name; the broker takes it from the closed connection");
        }
        connection::close(self.connection).await;
    }

    /// How many deliveries are not acked.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }
}

/// Which of payhook's own queues to consume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The workers' queue.
    Apply,
    /// What the broker gave up on.
    Dead,
}

impl Source {
    pub(super) fn queue(self, topology: &Topology) -> ShortString {
        match self {
            Self::Apply => topology.apply.clone(),
            Self::Dead => topology.dead.clone(),
        }
    }
}
