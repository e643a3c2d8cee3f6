//! Asserts the topology: on every connect before the first publish, and again every half minute.
//!
//! A queue is looked for before it is declared, because only so is one that vanished told from one that was
//! always there. What exists is used as it is, whatever its arguments; how it differs is logged and kept. A
//! queue whose loss loses messages is declared again only after a human has been told of the span that it
//! missed, so that a crash in between cannot hide the loss; with the store away it waits for the next round,
//! and what it should have got waits in the outbox.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ExchangeKind};

use super::connection::{answered, channel, reply_code};
use super::topology::DeclaredQueue;
use super::{BrokerError, Mismatch, Topology};
use crate::store::{QueueSeen, Store, StoreError};

pub(super) const NOT_FOUND: u16 = 404;
pub(super) const PRECONDITION_FAILED: u16 = 406;

/// How long a queue that has vanished stays away, so that the broker tells its consumers first. If there is a new
/// queue of that name when it comes to them, RabbitMQ 3.10 moves a consumer of the old one over without a word and
/// counts messages as delivered that it never sends (seen here, five times in 175, on a busy machine). A worker
/// gets over that by itself (`worker::consume`), the consumer of a user's queue may wait for ever.
const GOODBYE: Duration = Duration::from_secs(1);

/// What a look at a queue showed.
enum Looked {
    There,
    Missing,
}

/// Asserts one topology, connection after connection.
#[derive(Debug)]
pub(super) struct Asserter {
    topology: Arc<Topology>,
    store: Store,
    merchants: Arc<[String]>,
    mismatches: Arc<Mutex<Vec<Mismatch>>>,
    /// Queues whose arguments have been compared on this connection.
    compared: BTreeSet<String>,
}

impl Asserter {
    pub(super) fn new(topology: Arc<Topology>, store: Store, merchants: &[String]) -> Self {
        Self {
            topology,
            store,
            merchants: merchants.into(),
            mismatches: Arc::default(),
            compared: BTreeSet::new(),
        }
    }

    /// Where differences are kept.
    pub(super) fn mismatches(&self) -> Arc<Mutex<Vec<Mismatch>>> {
        Arc::clone(&self.mismatches)
    }

    /// A new connection: arguments are compared again.
    pub(super) fn forget_comparisons(&mut self) {
        self.compared.clear();
        self.mismatches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Makes everything be there.
    pub(super) async fn assert(&mut self, connection: &Connection) -> Result<(), BrokerError> {
        let topology = Arc::clone(&self.topology);
        let mut on = Scratch::new(connection).await?;
        let mut goodbye = Some(GOODBYE);
        for exchange in [&topology.events, &topology.orders] {
            self.assert_exchange(&mut on, exchange.as_str()).await?;
        }
        let mut there = Vec::with_capacity(topology.queues.len());
        for queue in &topology.queues {
            if self.assert_queue(&mut on, queue, &mut goodbye).await? {
                there.push(queue.name.as_str());
            }
        }
        if let Err(error) = self.store.queues_seen(there).await {
            tracing::debug!(%error, "cannot note which queues are there");
        }
        Ok(())
    }

    async fn assert_exchange(&mut self, on: &mut Scratch<'_>, name: &str) -> Result<(), BrokerError> {
        let options = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let declared = answered(on.channel.exchange_declare(
            super::topology::short(name)?,
            ExchangeKind::Topic,
            options,
            FieldTable::default(),
        ))
        .await;
        match refused(declared, PRECONDITION_FAILED)? {
            None => Ok(()),
            Some(reason) => {
                self.note(name, reason);
                on.renew().await
            }
        }
    }

    /// Whether the queue is there now. The first one that has vanished takes `goodbye`: the others are gone as long.
    async fn assert_queue(
        &mut self,
        on: &mut Scratch<'_>,
        queue: &DeclaredQueue,
        goodbye: &mut Option<Duration>,
    ) -> Result<bool, BrokerError> {
        let mut is_new = false;
        match on.look(queue).await? {
            Looked::There => {
                if !self.compared.contains(queue.name.as_str()) {
                    self.compare(on, queue).await?;
                }
            }
            Looked::Missing => {
                if let Err(error) = self.tell_if_lost(queue, goodbye).await {
                    tracing::warn!(%error, queue = %queue.name, "queue is missing, and the store cannot be told");
                    return Ok(false);
                }
                answered(on.channel.queue_declare(
                    queue.name.clone(),
                    durable(false),
                    queue.arguments.clone(),
                ))
                .await?;
                is_new = true;
            }
        }
        for (exchange, binding) in &queue.bindings {
            answered(on.channel.queue_bind(
                queue.name.clone(),
                exchange.clone(),
                binding.clone(),
                QueueBindOptions::default(),
                FieldTable::default(),
            ))
            .await?;
        }
        if is_new && queue.name == self.topology.apply {
            self.fill_again().await;
        }
        Ok(true)
    }

    /// The workers' queue is new: what an earlier one held comes again at once, not after `reapply_after`.
    async fn fill_again(&self) {
        match self.store.unfinished_are_due().await {
            Ok(0) => {}
            Ok(events) => tracing::warn!(
                events,
                "the workers' queue was empty anew; its events are sent again"
            ),
            Err(error) => tracing::warn!(%error, "events that the workers lost come again only by the sweep"),
        }
    }

    /// Tells whoever must know before the queue is there again, and after its `goodbye`: others publish meanwhile.
    async fn tell_if_lost(
        &self,
        queue: &DeclaredQueue,
        goodbye: &mut Option<Duration>,
    ) -> Result<(), StoreError> {
        let name = queue.name.as_str();
        let since = match self.store.queue_last_seen(name).await {
            Ok(QueueSeen::Until(since)) => Some(since),
            Ok(QueueSeen::Never) => return Ok(()),
            // What payhook's own queues held is sent again; their loss is not worth waiting for the store.
            Err(_) if !queue.precious => None,
            Err(error) => return Err(error),
        };
        tokio::time::sleep(goodbye.take().unwrap_or_default()).await;
        let Some(since) = since else { return Ok(()) };
        tracing::warn!(queue = name, %since, "queue had vanished and is declared again");
        if queue.precious {
            self.store
                .tell_queue_missing(name, since, &self.merchants)
                .await?;
        }
        Ok(())
    }

    /// Declares what exists, which the broker refuses if it is otherwise.
    async fn compare(&mut self, on: &mut Scratch<'_>, queue: &DeclaredQueue) -> Result<(), BrokerError> {
        let declared = answered(on.channel.queue_declare(
            queue.name.clone(),
            durable(false),
            queue.arguments.clone(),
        ))
        .await;
        if let Some(reason) = refused(declared, PRECONDITION_FAILED)? {
            self.note(queue.name.as_str(), reason);
            on.renew().await?;
        }
        self.compared.insert(queue.name.as_str().to_owned());
        Ok(())
    }

    fn note(&self, queue: &str, reason: String) {
        let mut mismatches = self.mismatches.lock().unwrap_or_else(PoisonError::into_inner);
        if mismatches.iter().all(|known| known.queue != queue) {
            tracing::warn!(queue, reason, "exists with other arguments; used as it is");
            mismatches.push(Mismatch {
                queue: queue.to_owned(),
                reason,
            });
        }
    }
}

/// A channel that is replaced whenever the broker closes it over a question.
pub(super) struct Scratch<'a> {
    connection: &'a Connection,
    channel: Channel,
}

impl<'a> Scratch<'a> {
    pub(super) async fn new(connection: &'a Connection) -> Result<Self, BrokerError> {
        let channel = channel(connection).await?;
        Ok(Self { connection, channel })
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    pub(super) async fn renew(&mut self) -> Result<(), BrokerError> {
        self.channel = channel(self.connection).await?;
        Ok(())
    }

    async fn look(&mut self, queue: &DeclaredQueue) -> Result<Looked, BrokerError> {
        let seen = answered(self.channel.queue_declare(
            queue.name.clone(),
            durable(true),
            FieldTable::default(),
        ))
        .await;
        if refused(seen, NOT_FOUND)?.is_some() {
            self.renew().await?;
            return Ok(Looked::Missing);
        }
        Ok(Looked::There)
    }
}

pub(super) fn durable(passive: bool) -> QueueDeclareOptions {
    QueueDeclareOptions {
        passive,
        durable: true,
        ..QueueDeclareOptions::default()
    }
}

/// The broker's words if it refused with `code`; any other error is one.
pub(super) fn refused<T>(answer: Result<T, BrokerError>, code: u16) -> Result<Option<String>, BrokerError> {
    match answer {
        Ok(_) => Ok(None),
        Err(BrokerError::Unreachable(error)) if reply_code(&error) == Some(code) => {
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(error),
    }
}
