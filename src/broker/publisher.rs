//! The one task that publishes: owns the connection, the confirm channel and the window of open confirms.
//!
//! A confirm channel has one sequence of numbers, so one task sends on it. Up to [`WINDOW`] messages wait for
//! their confirms at once. Whatever goes wrong with connection or channel, every waiting message is answered
//! [`Published::Failed`], and the next connection starts clean. While the broker blocks the connection for want
//! of memory nothing is taken: callers hear `Failed` at once and the outbox grows instead of this process.
//!
//! A message that the broker refuses closes the whole channel. Those that were waiting with it, or came to it while
//! it closed, are sent again one at a time, so that exactly the culprit is [`Published::Refused`]. The connection may
//! end with the channel: what was on its way there comes to a channel that is none any more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lapin::options::ConfirmSelectOptions;
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, Event};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::connection::{self, answered};
use super::declare::{Asserter, durable};
use super::rabbitmq::Link;
use super::send::{Sent, send};
use super::{BrokerError, Outgoing, Published, Topology};
use crate::telemetry::causes;

/// How many messages may wait for their confirms.
pub(super) const WINDOW: usize = 256;

/// The longest wait between two attempts to connect.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What the handle asks for.
pub(super) enum Command {
    Publish(Outgoing, oneshot::Sender<Published>),
    Backlog(oneshot::Sender<Option<u32>>),
}

impl Command {
    /// Nothing can be done now.
    fn fail(self) {
        match self {
            Self::Publish(_, reply) => answer(reply, Published::Failed),
            Self::Backlog(reply) => {
                if reply.send(None).is_err() {
                    tracing::trace!("nobody waits for the backlog");
                }
            }
        }
    }
}

/// The publishing task; its owner runs it.
pub struct Publisher {
    pub(super) uri: Arc<AMQPUri>,
    pub(super) name: String,
    pub(super) topology: Arc<Topology>,
    pub(super) asserter: Asserter,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) link: watch::Sender<Link>,
    pub(super) confirm_timeout: Duration,
    pub(super) assert_every: Duration,
    /// Waiting when the broker closed a channel over one of them, and not told apart yet.
    pub(super) suspects: VecDeque<Suspect>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A message, and who wants to know its fate.
type Suspect = (Outgoing, oneshot::Sender<Published>);

/// Why serving a connection ended.
enum Ended {
    /// We are to stop.
    Stop,
    /// Something is wrong with it.
    Broken(BrokerError),
}

impl Publisher {
    /// Connects, serves, and connects again, until `shutdown`; then lets open confirms come in and closes.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut failures: u32 = 0;
        loop {
            let ended = self.serve(&shutdown, &mut failures).await;
            self.link.send_replace(Link::Down);
            match ended {
                Ended::Stop => return,
                Ended::Broken(error) => {
                    tracing::warn!(error = %causes(&error), failures, "broker connection is down");
                }
            }
            failures = failures.saturating_add(1);
            if failures > 1 {
                // A broker that is away will not say which of them it refuses.
                self.suspects.clear();
            }
            if self.wait(backoff(failures), &shutdown).await {
                return;
            }
        }
    }

    /// Waits before the next attempt, refusing what comes in meanwhile. `true`: we are to stop.
    async fn wait(&mut self, pause: Duration, shutdown: &CancellationToken) -> bool {
        let pause = tokio::time::sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return true,
                () = &mut pause => return false,
                command = self.commands.recv() => match command {
                    Some(command) => command.fail(),
                    None => return true,
                },
            }
        }
    }

    async fn serve(&mut self, shutdown: &CancellationToken, failures: &mut u32) -> Ended {
        let connection = tokio::select! {
            () = shutdown.cancelled() => return Ended::Stop,
            opened = self.open() => match opened {
                Ok(connection) => connection,
                Err(error) => return Ended::Broken(error),
            },
        };
        // Not all of them are sent at once again: that may have been what ended the connection.
        let channel = match self.send_alone(&connection).await {
            Ok(channel) => channel,
            Err(error) => return Ended::Broken(error),
        };
        *failures = 0;
        tracing::info!("broker connected");
        let ended = self.publish_all(&connection, channel, shutdown).await;
        if matches!(ended, Ended::Stop) {
            connection::close(connection).await;
        }
        ended
    }

    async fn open(&mut self) -> Result<Connection, BrokerError> {
        let connection = connection::open(&self.uri, &self.name).await?;
        self.asserter.forget_comparisons();
        self.asserter.assert(&connection).await?;
        Ok(connection)
    }

    async fn publish_all(
        &mut self,
        connection: &Connection,
        mut channel: Channel,
        shutdown: &CancellationToken,
    ) -> Ended {
        let mut events = std::pin::pin!(connection.events_listener());
        let mut open = FuturesUnordered::new();
        let mut assert = tokio::time::interval(self.assert_every);
        assert.set_missed_tick_behavior(MissedTickBehavior::Delay);
        assert.reset();
        // What was sent alone may have been what the broker blocked the connection at.
        let mut blocked = connection.status().blocked();
        self.link
            .send_replace(if blocked { Link::Blocked } else { Link::Up });
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if open.is_empty() => return Ended::Stop,
                // Before what happens to the connection: over a refused message it may be closed with the channel.
                Some(sent) = open.next(), if !open.is_empty() => match sent {
                    Sent::Answered => {}
                    Sent::TimedOut if blocked => {}
                    Sent::TimedOut => return Ended::Broken(BrokerError::Timeout(self.confirm_timeout)),
                    Sent::Broken(error) => return Ended::Broken(error.into()),
                    Sent::Suspect(message, reply, _) | Sent::Bystander(message, reply, _) => {
                        self.suspects.push_back((message, reply));
                        while let Some(sent) = open.next().await {
                            if let Sent::Suspect(message, reply, _) | Sent::Bystander(message, reply, _) = sent {
                                self.suspects.push_back((message, reply));
                            }
                        }
                        channel = match self.send_alone(connection).await {
                            Ok(channel) => channel,
                            Err(error) => return Ended::Broken(error),
                        };
                    }
                },
                event = events.next() => match event {
                    Some(Event::ConnectionBlocked(reason)) => {
                        tracing::warn!(reason, "broker blocks publishers by an alarm, messages wait in the outbox");
                        blocked = true;
                        self.link.send_replace(Link::Blocked);
                    }
                    Some(Event::ConnectionUnblocked) => {
                        tracing::info!("broker unblocked publishers");
                        blocked = false;
                        self.link.send_replace(Link::Up);
                    }
                    // Without its events the connection cannot be watched: make another.
                    None => return Ended::Broken(BrokerError::Timeout(Duration::ZERO)),
                    Some(Event::Error(error)) if !connection.status().connected() => {
                        return Ended::Broken(error.into());
                    }
                    _ => {}
                },
                _ = assert.tick(), if !blocked => {
                    if let Err(error) = self.asserter.assert(connection).await {
                        return Ended::Broken(error);
                    }
                },
                command = self.commands.recv(), if open.len() < WINDOW && !shutdown.is_cancelled() => match command {
                    None => return Ended::Stop,
                    Some(command) if blocked => command.fail(),
                    Some(Command::Publish(message, reply)) if is_late(&message) => {
                        answer(reply, Published::Failed);
                    }
                    Some(Command::Publish(message, reply)) => {
                        open.push(send(channel.clone(), Arc::clone(&self.topology), message, reply, self.confirm_timeout));
                    }
                    Some(Command::Backlog(reply)) => match self.backlog(connection).await {
                        Ok(ready) => if reply.send(Some(ready)).is_err() {
                            tracing::trace!("nobody waits for the backlog");
                        },
                        Err(error) => return Ended::Broken(error),
                    },
                },
            }
        }
    }

    /// Sends each suspect on its own; the one that closes the channel again is the culprit. Gives a channel
    /// that is whole.
    async fn send_alone(&mut self, connection: &Connection) -> Result<Channel, BrokerError> {
        let mut channel = confirm_channel(connection).await?;
        while let Some((message, reply)) = self.suspects.pop_front() {
            if is_late(&message) {
                answer(reply, Published::Failed);
                continue;
            }
            let topology = Arc::clone(&self.topology);
            match send(channel.clone(), topology, message, reply, self.confirm_timeout).await {
                Sent::Answered => {}
                Sent::TimedOut => {
                    // Nothing speaks against those who wait behind it, nor for waiting with them.
                    self.suspects.clear();
                    return Err(BrokerError::Timeout(self.confirm_timeout));
                }
                Sent::Broken(error) => return Err(error.into()),
                Sent::Bystander(_, reply, error) => {
                    answer(reply, Published::Failed);
                    return Err(error.into());
                }
                Sent::Suspect(message, reply, error) => {
                    tracing::warn!(message.id = message.id, %error, "broker refuses a message");
                    let reason = format!(
                        "refused by the broker: {error}; the message has {} bytes",
                        message.body.len()
                    );
                    answer(reply, Published::Refused(reason));
                    channel = confirm_channel(connection).await?;
                }
            }
        }
        Ok(channel)
    }

    async fn backlog(&self, connection: &Connection) -> Result<u32, BrokerError> {
        let channel = connection::channel(connection).await?;
        let queue = answered(channel.queue_declare(
            self.topology.apply.clone(),
            durable(true),
            lapin::types::FieldTable::default(),
        ))
        .await?;
        Ok(queue.message_count())
    }
}

async fn confirm_channel(connection: &Connection) -> Result<Channel, BrokerError> {
    let channel = connection::channel(connection).await?;
    answered(channel.confirm_select(ConfirmSelectOptions::default())).await?;
    Ok(channel)
}

/// Whether somebody else has it by now.
fn is_late(message: &Outgoing) -> bool {
    message.until.is_some_and(|until| until <= Instant::now())
}

/// Answers whoever still waits.
pub(super) fn answer(reply: oneshot::Sender<Published>, fate: Published) {
    if reply.send(fate).is_err() {
        tracing::trace!("nobody waits for this publish any more");
    }
}

/// A quarter of a second, doubled up to [`LONGEST_WAIT`], with jitter so that daemons do not come together.
fn backoff(failures: u32) -> Duration {
    let most = Duration::from_millis(250)
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(LONGEST_WAIT);
    let half = most / 2;
    let jitter = rand::random_range(0..=u64::try_from(half.as_millis()).unwrap_or_default());
    half.saturating_add(Duration::from_millis(jitter))
}
