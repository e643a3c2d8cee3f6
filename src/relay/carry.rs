//! Takes a batch to the broker and its fate to the store.
//!
//! All rows of a batch are on their way at once; each ends on its own. What was routed is confirmed in one
//! transaction. What no queue wanted is done too, except when somebody does want it: an event always has the
//! workers' queue, and a declared queue that asks for the message must have vanished; then the row stays.
//!
//! What goes to one queue goes only where that queue is declared. A process that does not declare it leaves the row
//! to another, whose configuration may be newer; when nobody has sent it for [`OTHERS_HAVE`] it ends, and a human
//! is told.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::{Batch, RelayOptions};
use crate::broker::{Link, Outgoing, Published, Rabbitmq, Route};
use crate::crash::{self, Point};
use crate::event::{CloudEvent, Event, Replay};
use crate::store::outbox::{Claimed, Content, EventName, Failed, Message};
use crate::store::{Store, Unreadable};
use crate::telemetry::metrics::names;

/// How long a row rests that met a queue which had vanished, or that the broker did not take.
const PAUSE: Duration = Duration::from_secs(5);

/// Its longest rest, when this has gone on for a while.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How long a row may wait for a process that declares its queue.
const OTHERS_HAVE: Duration = Duration::from_hours(1);

/// What became of a batch, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Confirmed by broker and store.
    pub published: usize,
    /// Of these: no queue wanted it, and none had to.
    pub unrouted: usize,
    /// Not confirmed; will be sent again.
    pub failed: usize,
    /// Cannot be sent; a human was told.
    pub refused: usize,
}

impl Carried {
    /// Adds another batch's fate.
    pub fn add(&mut self, other: Self) {
        self.published += other.published;
        self.unrouted += other.unrouted;
        self.failed += other.failed;
        self.refused += other.refused;
    }
}

/// The fate of one row.
enum Fate<'a> {
    /// To be confirmed; counted under this kind.
    Confirmed(&'static str),
    /// To be confirmed: nobody wanted it.
    Unwanted(&'static str),
    Refused(String),
    /// It does not read.
    Unreadable(&'a Unreadable),
    /// There is nothing to send.
    Missing,
    Again,
    /// To a queue that another process may declare.
    Elsewhere(&'a str),
}

/// Carries batches; shared by all that are under way.
#[derive(Debug)]
pub(super) struct Carrier {
    store: Store,
    broker: Rabbitmq,
    process: String,
    options: RelayOptions,
}

impl Carrier {
    pub(super) fn new(store: Store, broker: Rabbitmq, process: &str, options: RelayOptions) -> Self {
        Self {
            store,
            broker,
            process: process.to_owned(),
            options,
        }
    }

    /// Publishes a batch and notes what became of it.
    pub(super) async fn carry(&self, batch: Batch) -> Carried {
        let mut carried = Carried::default();
        let mut confirmed = Vec::with_capacity(batch.rows.len());
        let mut again = Vec::new();
        let mut elsewhere = Vec::new();
        let mut on_their_way: FuturesUnordered<_> = batch.rows.iter().map(|row| self.send(row)).collect();
        while let Some((row, fate)) = on_their_way.next().await {
            crash::point(Point::RelayPublished);
            match fate {
                Fate::Confirmed(kind) => {
                    metrics::counter!(names::PUBLISHED, "kind" => kind).increment(1);
                    confirmed.push(row.row.clone());
                }
                Fate::Unwanted(kind) => {
                    metrics::counter!(names::UNROUTED, "kind" => kind).increment(1);
                    carried.unrouted += 1;
                    confirmed.push(row.row.clone());
                }
                Fate::Refused(reason) => {
                    carried.refused += 1;
                    self.mark_unpublishable(row, &reason).await;
                }
                Fate::Unreadable(event) => {
                    if self.count_unreadable(row, event).await {
                        carried.refused += 1;
                    } else {
                        carried.failed += 1;
                    }
                }
                Fate::Missing => {
                    carried.refused += 1;
                    if let Err(error) = self.store.end_missing(&row.row).await {
                        tracing::warn!(%error, outbox.row = row.row, "an empty row cannot be ended; tried again later");
                    }
                }
                Fate::Again => again.push(row.row.clone()),
                Fate::Elsewhere(queue) => elsewhere.push((row, queue)),
            }
        }
        drop(on_their_way);
        crash::point(Point::RelayConfirmed);
        carried.failed += again.len();
        match self
            .store
            .confirm_published(&confirmed, self.options.reapply_after)
            .await
        {
            Ok(_) => carried.published = confirmed.len(),
            Err(error) => {
                tracing::warn!(%error, rows = confirmed.len(), "published, but the store cannot note it");
                carried.failed += confirmed.len();
            }
        }
        if !again.is_empty() && self.broker.link() == Link::Up {
            tracing::warn!(
                rows = again.len(),
                "the broker did not take these: they go again, also to those queues that did"
            );
        }
        let rest = (PAUSE, LONGEST_PAUSE);
        if let Err(error) = self.store.release(&again, &self.process, rest).await {
            tracing::debug!(%error, "rows not released; their claims run out by themselves");
        }
        let ended = self.leave_to_others(&elsewhere).await;
        carried.refused += ended;
        carried.failed += elsewhere.len().saturating_sub(ended);
        carried
    }

    /// Gives back what goes to queues that this process does not declare; how many have waited too long.
    async fn leave_to_others(&self, rows: &[(&Claimed, &str)]) -> usize {
        let ids: Vec<String> = rows.iter().map(|(row, _)| row.row.clone()).collect();
        let left = self
            .store
            .leave_to_others(&ids, &self.process, PAUSE, OTHERS_HAVE)
            .await;
        let outlived = left.unwrap_or_else(|error| {
            tracing::debug!(%error, "rows not left to others; their claims run out by themselves");
            Vec::new()
        });
        for (row, queue) in rows.iter().filter(|(row, _)| outlived.contains(&row.row)) {
            self.mark_unpublishable(row, &format!("queue {queue} is not configured any more"))
                .await;
        }
        outlived.len()
    }

    async fn mark_unpublishable(&self, row: &Claimed, reason: &str) {
        let about = match &row.content {
            Content::Event(event, _) => Some(event.as_ref()),
            Content::Name(_)
            | Content::Message(_)
            | Content::Unreadable(_)
            | Content::Unsendable(_)
            | Content::Missing => None,
        };
        tracing::warn!(outbox.row = row.row, reason, "cannot be published");
        if let Err(error) = self.store.mark_unpublishable(&row.row, about, reason).await {
            tracing::warn!(%error, outbox.row = row.row, "cannot be marked unpublishable; tried again later");
        }
    }

    /// `true`: it is given up. Otherwise it is due again, and a newer daemon may read it.
    async fn count_unreadable(&self, row: &Claimed, event: &Unreadable) -> bool {
        tracing::warn!(event.id = %event.id, reason = event.reason, "the stored event does not read");
        match self
            .store
            .record_unreadable(event, &row.row, &self.options.failures)
            .await
        {
            Ok(Failed::Buried) => true,
            Ok(Failed::Retry(_) | Failed::Finished) => false,
            Err(error) => {
                tracing::warn!(%error, event.id = %event.id, "cannot be counted; tried again later");
                false
            }
        }
    }

    async fn send<'a>(&self, row: &'a Claimed) -> (&'a Claimed, Fate<'a>) {
        if let Some(queue) = &row.queue
            && !self.broker.declares(queue)
        {
            return (row, Fate::Elsewhere(queue));
        }
        let (mut outgoing, mut kind) = match &row.content {
            _ if row.claimed_until <= Instant::now() => return (row, Fate::Again),
            Content::Event(event, replay) => {
                let kind = if replay.is_some() { "replay" } else { "event" };
                (whole(event, replay.as_ref()), kind)
            }
            Content::Name(name) => (named_only(name), "event"),
            Content::Message(message) => (about_order(message), "message"),
            Content::Unreadable(event) => return (row, Fate::Unreadable(event)),
            Content::Unsendable(why) => return (row, Fate::Refused(why.clone())),
            Content::Missing => return (row, Fate::Missing),
        };
        outgoing.until = Some(row.claimed_until);
        if let Some(queue) = &row.queue {
            outgoing.route = Route::Queue(queue.clone());
            kind = "replay";
        }
        let wanted = match &outgoing.route {
            Route::Events(_) | Route::Apply | Route::Queue(_) => true,
            Route::Orders(routing_key) => self.broker.wants_order_message(routing_key),
        };
        let fate = match self.broker.publish(outgoing).await {
            Published::Routed => Fate::Confirmed(kind),
            Published::Unrouted if wanted => Fate::Again,
            Published::Unrouted => Fate::Unwanted(kind),
            Published::Refused(reason) => Fate::Refused(reason),
            Published::Failed => Fate::Again,
        };
        (row, fate)
    }
}

/// An event for everybody.
fn whole(event: &Arc<Event>, replay: Option<&Replay>) -> Outgoing {
    Outgoing {
        route: Route::Events(event.routing_key()),
        id: event.key.as_str().to_owned(),
        kind: event.kind.clone(),
        at: event.occurred_at,
        body: CloudEvent::new(event, replay, true).to_bytes().into(),
        until: None,
    }
}

/// An event for the workers, who read it from the store: its name is enough.
fn named_only(name: &EventName) -> Outgoing {
    Outgoing {
        route: Route::Apply,
        id: name.key.as_str().to_owned(),
        kind: name.kind.clone(),
        at: name.occurred_at,
        body: bytes::Bytes::from_static(b"{}"),
        until: None,
    }
}

fn about_order(message: &Message) -> Outgoing {
    Outgoing {
        route: Route::Orders(message.routing_key.clone()),
        id: message.id.clone(),
        kind: message.routing_key.clone(),
        at: message.at,
        body: message.body.clone(),
        until: None,
    }
}
