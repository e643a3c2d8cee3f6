//! A prefix of its own at the shared RabbitMQ, a test's own view of it, and a running publisher.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use payhook::broker::{Broker, BrokerOptions, Rabbitmq};
use payhook::config::{BrokerConfig, BrokerUrl, Exchange, Queue};
use payhook::store::Store;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::services::amqp_url;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// A test's corner of a RabbitMQ.
pub(crate) struct Rabbit {
    pub(crate) url: String,
    pub(crate) prefix: String,
    connection: Connection,
}

/// A message as a consumer of the test sees it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) routing_key: String,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Vec<u8>,
}

impl Rabbit {
    /// Runs `test` at the shared server and deletes its queues and exchanges afterwards, also when it fails.
    pub(crate) async fn with<F: Future<Output = Self>>(test: impl FnOnce(Self) -> F) {
        let url = amqp_url();
        let rabbit = Self::at(&url).await;
        let prefix = rabbit.prefix.clone();
        let ended = AssertUnwindSafe(test(rabbit)).catch_unwind().await;
        let after = Self::at(&url).await;
        after.clean(&prefix).await;
        match ended {
            Ok(rabbit) => drop(rabbit),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// At a server that nobody else uses.
    pub(crate) async fn at(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default())
            .await
            .expect("this test needs RabbitMQ: see tests/run");
        Self {
            url: url.to_owned(),
            prefix: format!("payhook-test-{:016x}", rand::random::<u64>()),
            connection,
        }
    }

    /// The names a test may have made with this prefix.
    async fn clean(&self, prefix: &str) {
        for queue in ["apply", "dead", "q", "q.dead", "q2", "q2.dead", "own", "own2"] {
            let channel = self.channel().await;
            let name = format!("{prefix}.{queue}");
            let deleted = channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default());
            deleted.await.map(drop).unwrap_or_default();
        }
        for exchange in ["events", "orders"] {
            let channel = self.channel().await;
            let name = format!("{prefix}.{exchange}");
            let deleted = channel.exchange_delete(name.as_str().into(), ExchangeDeleteOptions::default());
            deleted.await.unwrap_or_default();
        }
    }

    pub(crate) async fn channel(&self) -> Channel {
        self.connection.create_channel().await.unwrap()
    }

    /// `{prefix}.{name}`.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    /// Options for this corner, with fast reactions.
    pub(crate) fn options(&self) -> BrokerOptions {
        let config = BrokerConfig {
            url: BrokerUrl::Rabbitmq(self.url.clone().into()),
            management_url: None,
            prefix: self.prefix.clone(),
            reapply_after: Duration::from_mins(5),
            queues: Vec::new(),
        };
        let mut options = BrokerOptions::new(config, vec!["default".to_owned()]);
        // A machine that stalls is no broker that does; tests of one that does say how long they wait.
        options.confirm_timeout = Duration::from_secs(30);
        options.assert_every = Duration::from_millis(500);
        options
    }

    /// A consumer queue `{prefix}.q` on the orders exchange.
    pub(crate) fn order_queue(&self, bind: &str) -> Queue {
        Queue {
            name: self.name("q"),
            exchange: Exchange::Orders,
            bind: vec![bind.to_owned()],
        }
    }

    /// A queue of the test's own, bound to one of payhook's exchanges.
    pub(crate) async fn own_queue(&self, exchange: &str, bind: &str) -> String {
        let channel = self.channel().await;
        let name = self.name("own");
        channel
            .queue_declare(
                name.as_str().into(),
                QueueDeclareOptions::durable(),
                FieldTable::default(),
            )
            .await
            .unwrap();
        channel
            .queue_bind(
                name.as_str().into(),
                self.name(exchange).as_str().into(),
                bind.into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .unwrap();
        name
    }

    pub(crate) async fn delete(&self, queue: &str) {
        let channel = self.channel().await;
        channel
            .queue_delete(queue.into(), QueueDeleteOptions::default())
            .await
            .unwrap();
    }

    /// How many messages are ready; `None`: no such queue.
    pub(crate) async fn ready(&self, queue: &str) -> Option<u32> {
        let options = QueueDeclareOptions::durable().passive();
        let declared = self
            .channel()
            .await
            .queue_declare(queue.into(), options, FieldTable::default())
            .await;
        declared.ok().map(|queue| queue.message_count())
    }

    /// Takes one message off a queue.
    pub(crate) async fn take(&self, queue: &str) -> Option<Seen> {
        let options = BasicGetOptions { no_ack: true };
        let got = self
            .channel()
            .await
            .basic_get(queue.into(), options)
            .await
            .unwrap()?;
        Some(Seen {
            id: got
                .properties
                .message_id()
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            routing_key: got.routing_key.to_string(),
            properties: got.properties.clone(),
            body: got.delivery.data,
        })
    }

    /// Takes `count` messages, waiting for them, and then whatever more there is.
    pub(crate) async fn take_all(&self, queue: &str, count: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while seen.len() < count {
            if let Some(message) = self.take(queue).await {
                seen.push(message);
                continue;
            }
            assert!(Instant::now() < deadline, "{queue}: {} of {count}", seen.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while let Some(message) = self.take(queue).await {
            seen.push(message);
        }
        seen
    }

    /// Puts a message into a dead-letter queue, as the broker would for `reason`.
    pub(crate) async fn put_dead(&self, queue: &str, id: &str, reason: &str) {
        let mut headers = FieldTable::default();
        headers.insert(
            "x-first-death-reason".into(),
            AMQPValue::LongString(reason.into()),
        );
        let properties = BasicProperties::default()
            .with_message_id(id.into())
            .with_headers(headers);
        self.publish(queue, properties, b"").await;
    }

    /// Puts a message into a queue, as somebody else would.
    pub(crate) async fn put(&self, queue: &str, id: Option<&str>, body: &[u8]) {
        let mut properties = BasicProperties::default();
        if let Some(id) = id {
            properties = properties.with_message_id(id.into());
        }
        self.publish(queue, properties, body).await;
    }

    pub(crate) async fn publish(&self, queue: &str, properties: BasicProperties, body: &[u8]) {
        let channel = self.channel().await;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .unwrap();
        let confirm = channel
            .basic_publish(
                "".into(),
                queue.into(),
                BasicPublishOptions::default(),
                body,
                properties,
            )
            .await
            .unwrap();
        assert!(confirm.await.unwrap().is_ack());
    }
}

/// A publisher that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) rabbitmq: Rabbitmq,
    shutdown: CancellationToken,
    _tasks: JoinSet<()>,
}

impl Running {
    /// Starts it; it need not be connected yet.
    pub(crate) fn start(options: &BrokerOptions, store: &Store, process: &str) -> Self {
        let (broker, publisher) = Broker::new(options, store.clone(), process).unwrap();
        let Broker::Rabbitmq(rabbitmq) = broker else {
            panic!("not RabbitMQ");
        };
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(publisher.unwrap().run(shutdown.clone()));
        Self {
            rabbitmq,
            shutdown,
            _tasks: tasks,
        }
    }

    /// Starts it and waits until messages can leave.
    pub(crate) async fn connected(options: &BrokerOptions, store: &Store, process: &str) -> Self {
        let running = Self::start(options, store, process);
        within("connected", running.rabbitmq.wait_up()).await;
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Fails when `what` does not happen in time.
pub(crate) async fn within<T>(what: &str, happening: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, happening)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// Asks again and again until the answer is yes.
pub(crate) async fn until(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
