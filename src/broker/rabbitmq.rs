//! RabbitMQ: the handle that the flows hold.
//!
//! Publishing goes through one task ([`super::Publisher`]) that owns the publishing connection; this handle
//! sends it messages and waits for their fate. Consumers have connections of their own, since a broker short
//! of memory blocks whoever publishes and must not block whoever would relieve it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use lapin::uri::AMQPUri;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{mpsc, oneshot, watch};

use super::connection;
use super::consumer::Source;
use super::declare::Asserter;
use super::publisher::{Command, Publisher, WINDOW};
use super::{BrokerError, BrokerOptions, Mismatch, Outgoing, Published, Subscription, Topology};
use crate::store::Store;

/// What the publishing connection is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Not connected, or topology not asserted yet.
    #[default]
    Down,
    /// Messages can leave.
    Up,
    /// The broker is short of memory or disk and takes no messages.
    Blocked,
}

/// A handle to RabbitMQ; clones share it.
#[derive(Clone)]
pub struct Rabbitmq {
    uri: Arc<AMQPUri>,
    process: Arc<str>,
    topology: Arc<Topology>,
    merchants: Arc<[String]>,
    store: Store,
    commands: mpsc::Sender<Command>,
    link: watch::Receiver<Link>,
    mismatches: Arc<Mutex<Vec<Mismatch>>>,
}

impl Rabbitmq {
    pub(super) fn new(
        url: &SecretString,
        options: &BrokerOptions,
        store: Store,
        process: &str,
    ) -> Result<(Self, Publisher), BrokerError> {
        let uri = Arc::new(connection::parse(url.expose_secret(), options.heartbeat)?);
        let topology = Arc::new(Topology::new(&options.config.prefix, &options.config.queues)?);
        let asserter = Asserter::new(Arc::clone(&topology), store.clone(), &options.merchants);
        let (commands, received) = mpsc::channel(WINDOW);
        let (link, seen) = watch::channel(Link::Down);
        let handle = Self {
            uri: Arc::clone(&uri),
            process: process.into(),
            topology: Arc::clone(&topology),
            merchants: options.merchants.as_slice().into(),
            store,
            commands,
            link: seen,
            mismatches: asserter.mismatches(),
        };
        let publisher = Publisher {
            uri,
            name: format!("payhook relay {process}"),
            topology,
            asserter,
            commands: received,
            link,
            confirm_timeout: options.confirm_timeout,
            assert_every: options.assert_every,
            suspects: VecDeque::new(),
        };
        Ok((handle, publisher))
    }

    /// Sends one message and waits for its fate: for its place in the window, and then for its confirm, which has the
    /// confirm timeout. Not sent at all once its `until` has passed.
    pub async fn publish(&self, message: Outgoing) -> Published {
        let (reply, fate) = oneshot::channel();
        if self
            .commands
            .send(Command::Publish(message, reply))
            .await
            .is_err()
        {
            return Published::Failed;
        }
        fate.await.unwrap_or(Published::Failed)
    }

    /// What the publishing connection is doing now.
    pub fn link(&self) -> Link {
        *self.link.borrow()
    }

    /// Returns when messages can leave; never, when nobody runs the publisher any more.
    pub async fn wait_up(&self) {
        let mut link = self.link.clone();
        if link.wait_for(|link| *link == Link::Up).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns at the next change of the publishing connection.
    pub async fn changed(&self, from: Link) -> Link {
        let mut link = self.link.clone();
        match link.wait_for(|link| *link != from).await.map(|link| *link) {
            Ok(link) => link,
            Err(_) => std::future::pending().await,
        }
    }

    /// How many messages wait for the workers; `None` when the broker cannot say. RabbitMQ also says 0 when the leader of
    /// a quorum queue is too busy to be asked.
    pub async fn apply_backlog(&self) -> Option<u32> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Backlog(reply)).await.ok()?;
        answer.await.ok().flatten()
    }

    /// Whether the operator has declared a queue of this name.
    pub fn declares(&self, queue: &str) -> bool {
        self.topology.declares(queue)
    }

    /// Whether a declared queue asks for order messages with `routing_key`.
    pub fn wants_order_message(&self, routing_key: &str) -> bool {
        self.topology.wants_order_message(routing_key)
    }

    /// Consumes one of payhook's queues, at most `prefetch` messages ahead of their acks.
    pub async fn subscribe(&self, source: Source, prefetch: u16) -> Result<Subscription, BrokerError> {
        let name = format!("payhook worker {}", self.process);
        let queue = source.queue(&self.topology);
        let mut asserter = self.asserter();
        Subscription::open(&self.uri, &name, &mut asserter, queue, prefetch).await
    }

    /// Existing queues that are not as payhook would declare them, as of the last connect.
    pub fn mismatches(&self) -> Vec<Mismatch> {
        self.mismatches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn asserter(&self) -> Asserter {
        Asserter::new(Arc::clone(&self.topology), self.store.clone(), &self.merchants)
    }
}

impl std::fmt::Debug for Rabbitmq {
    /// Without the URL: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rabbitmq")
            .field("link", &self.link())
            .finish_non_exhaustive()
    }
}
