//! Group commit, the committing side: takes all that wait, commits once, answers each.
//!
//! An answer is given only after the commit. If the database refuses the data, the batch is halved until the
//! culprit is alone, so that one odd event does not keep its neighbours out. If the store is away, or the
//! connection is lost while nobody knows whether the commit happened, everybody in the batch is told to come
//! again: what was committed after all is then a duplicate.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use metrics::{gauge, histogram};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::quarantine::Quarantine;
use super::recorder::{RecorderOptions, Unrecorded, Waiting};
use crate::crash;
use crate::event::{AttentionCode, Event, EventId, ProviderName};
use crate::store::attention::{self, NewAttention};
use crate::store::events::{BATCH_BYTES, batch_bytes};
use crate::store::outbox::{CLAIM, Handoff};
use crate::store::{Recorded, Repeat, Store, StoreError, Writer};
use crate::telemetry::metrics::names;
use crate::time::{Clock, Timestamp};

/// The one who commits.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) store: Store,
    /// For the rare transactions of several statements. One that is abandoned at its deadline keeps its
    /// connection until the server answers: not one of those that everybody needs.
    pub(super) aside: Store,
    pub(super) options: RecorderOptions,
    pub(super) quarantine: Quarantine,
    pub(super) clock: Clock,
}

impl Committer {
    /// Until the queue is closed and empty. Several may share a queue: it is held only while a batch is taken.
    ///
    /// The database gets the next batch, if there is one, before the last one is answered: it works while the
    /// answers are given, and while the repeats among them are looked at over a connection of their own.
    pub(super) async fn run(self: Arc<Self>, queue: Arc<Mutex<Queue>>) {
        let (mut writer, mut other) = (self.store.writer(), self.store.writer());
        let mut committed = Committed::default();
        loop {
            let ready = match queue.try_lock() {
                Ok(mut queue) => queue.ready(self.options.batch),
                Err(_) => Vec::new(),
            };
            let batch = if ready.is_empty() {
                self.answer(std::mem::take(&mut committed), &mut writer).await;
                queue.lock().await.next(self.options.batch).await
            } else {
                ready
            };
            if batch.is_empty() {
                break;
            }
            let next = pin!(self.commit(batch, &mut writer));
            let answered = pin!(self.answer(std::mem::take(&mut committed), &mut other));
            committed = match select(next, answered).await {
                Either::Left((mut next, answered)) => {
                    next.tell_fresh();
                    answered.await;
                    next
                }
                Either::Right(((), next)) => next.await,
            };
        }
        writer.rest();
        other.rest();
    }

    /// Commits `batch`, in parts if need be. Gives the last part that was, not answered yet.
    async fn commit(&self, batch: Vec<Waiting>, writer: &mut Writer) -> Committed {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            let events: Vec<Arc<Event>> = part.iter().map(|waiting| Arc::clone(&waiting.event)).collect();
            match self.insert(&events, writer).await {
                Ok(fresh) if parts.is_empty() => return Committed::of(part, fresh),
                Ok(fresh) => self.answer(Committed::of(part, fresh), writer).await,
                Err(StoreError::Refused(_)) if part.len() > 1 => {
                    let half = part.split_off(part.len().div_euclid(2));
                    parts.push(half);
                    parts.push(part);
                }
                Err(error @ StoreError::Refused(_)) => {
                    for waiting in part {
                        self.refuse(waiting, &error).await;
                    }
                }
                Err(error) => {
                    // The store is away: the other parts would only wait for it in turn.
                    let left = parts.drain(..).flatten().chain(part);
                    fail(left.collect(), &error);
                }
            }
        }
        Committed::default()
    }

    /// Inserts, and hands over what is fresh. The rows are born claimed only if the hand-off has room for all
    /// of them: a claim that nobody holds would delay its event.
    async fn insert(&self, events: &[Arc<Event>], writer: &mut Writer) -> Result<Vec<bool>, StoreError> {
        let claimed_until = Instant::now() + CLAIM;
        let handoff = self.options.handoff.as_ref();
        let permits = handoff.and_then(|handoff| handoff.try_reserve_many(events.len()).ok());
        let claimant = permits.as_ref().map(|_| self.options.process_id.as_str());
        let fresh = self.in_time(writer.insert_fresh(events, claimant)).await?;
        crash::point(crash::Point::RecorderCommitted);
        let fresh_events = std::iter::zip(events, &fresh).filter(|(_, fresh)| **fresh);
        for (permit, (event, _)) in std::iter::zip(permits.into_iter().flatten(), fresh_events) {
            permit.send(Handoff {
                event: Arc::clone(event),
                claimed_until,
            });
        }
        Ok(fresh)
    }

    /// Answers those whose events are fresh, then finds out about the others, each as its own event ends.
    async fn answer(&self, mut committed: Committed, writer: &mut Writer) {
        committed.tell_fresh();
        let repeats = committed.repeats;
        let events: Vec<Arc<Event>> = repeats.iter().map(|waiting| Arc::clone(&waiting.event)).collect();
        let compared = match self.in_time(writer.compare_repeats(&events)).await {
            Ok(compared) => compared,
            Err(error) => return fail(repeats, &error),
        };
        let mut conflicts = Vec::new();
        for (waiting, repeat) in std::iter::zip(repeats, compared) {
            match repeat {
                Repeat::Duplicate(event_id) => tell(waiting, Ok(Recorded::Duplicate { event_id })),
                Repeat::Conflict(event_id) => conflicts.push((event_id, waiting)),
                Repeat::Gone => fail(vec![waiting], &StoreError::timed_out()),
            }
        }
        if conflicts.is_empty() || self.keep(&mut conflicts).await {
            return;
        }
        for conflict in conflicts {
            self.keep(&mut vec![conflict]).await;
        }
    }

    /// Keeps conflicts and answers them. `false`: the data of one of several is at fault, and nobody is
    /// answered yet.
    async fn keep(&self, conflicts: &mut Vec<(EventId, Waiting)>) -> bool {
        let kept: Vec<(EventId, Arc<Event>)> = conflicts
            .iter()
            .map(|(id, waiting)| (id.clone(), Arc::clone(&waiting.event)))
            .collect();
        let answer = self.in_time(self.aside.keep_conflicts(&kept)).await;
        if matches!(answer, Err(StoreError::Refused(_))) && conflicts.len() > 1 {
            return false;
        }
        for (event_id, waiting) in conflicts.drain(..) {
            match &answer {
                Ok(()) => tell(waiting, Ok(Recorded::Conflict { event_id })),
                Err(error @ StoreError::Refused(_)) => self.refuse(waiting, error).await,
                Err(error) => fail(vec![waiting], error),
            }
        }
        true
    }

    /// An event that the database does not take, for a human.
    async fn refuse(&self, waiting: Waiting, error: &StoreError) {
        let event = &waiting.event;
        tracing::error!(event.key = %event.key, cause = cause(error), "the database refuses this event");
        self.quarantine.keep_event(event);
        let raised = self.in_time(self.raise(event)).await;
        if let Err(error) = raised {
            tracing::error!(event.key = %event.key, cause = cause(&error), "attention could not be raised");
        }
        tell(waiting, Err(Unrecorded::Unrecordable));
    }

    async fn raise(&self, event: &Event) -> Result<(), StoreError> {
        let item = NewAttention {
            code: AttentionCode::Unrecordable,
            source: event.key.as_str().to_owned(),
            merchant: event.merchant.clone(),
            provider: Some(event.provider),
            account: Some(event.account.clone()),
            order_id: None,
            trade_id: None,
            event_id: None,
            explanation:
                "The database refuses a genuine event of this account. It is kept in the quarantine; \
                          the provider was told to send it again."
                    .to_owned(),
        };
        let mut tx = self.aside.begin().await?;
        attention::raise(&mut tx, &item, self.clock.now()).await?;
        tx.commit().await
    }

    /// A database that hangs may not hold the committer.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        tokio::time::timeout(self.options.ack_deadline, work)
            .await
            .unwrap_or_else(|_| Err(StoreError::timed_out()))
    }
}

/// Those whose batch was committed and who do not know it yet.
#[derive(Debug, Default)]
struct Committed {
    fresh: Vec<Waiting>,
    repeats: Vec<Waiting>,
}

impl Committed {
    fn of(part: Vec<Waiting>, fresh: Vec<bool>) -> Self {
        histogram!(names::BATCH_EVENTS).record(f64::from(u32::try_from(part.len()).unwrap_or(u32::MAX)));
        let mut committed = Self::default();
        for (waiting, fresh) in std::iter::zip(part, fresh) {
            if fresh {
                committed.fresh.push(waiting);
            } else {
                committed.repeats.push(waiting);
            }
        }
        committed
    }

    fn tell_fresh(&mut self) {
        note_last_events(&self.fresh);
        for waiting in self.fresh.drain(..) {
            tell(waiting, Ok(Recorded::Fresh));
        }
    }
}

/// What waits, and the one that was too much for the batch before.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: mpsc::Receiver<Waiting>,
    over: Option<Waiting>,
}

impl Queue {
    pub(super) fn new(waiting: mpsc::Receiver<Waiting>) -> Self {
        Self { waiting, over: None }
    }

    /// Waits for one and takes what is behind it. Empty: nothing will come.
    async fn next(&mut self, rows: usize) -> Vec<Waiting> {
        if self.over.is_none() {
            self.over = self.waiting.recv().await;
        }
        self.ready(rows)
    }

    /// Takes what waits, up to `rows` and [`BATCH_BYTES`].
    fn ready(&mut self, rows: usize) -> Vec<Waiting> {
        let Some(first) = self.over.take().or_else(|| self.waiting.try_recv().ok()) else {
            return Vec::new();
        };
        let mut bytes = batch_bytes(&first.event);
        let mut batch = vec![first];
        while batch.len() < rows {
            let Ok(next) = self.waiting.try_recv() else {
                break;
            };
            bytes = bytes.saturating_add(batch_bytes(&next.event));
            if bytes > BATCH_BYTES {
                self.over = Some(next);
                break;
            }
            batch.push(next);
        }
        batch
    }
}

fn fail(batch: Vec<Waiting>, error: &StoreError) {
    if batch.is_empty() {
        return;
    }
    tracing::warn!(events = batch.len(), %error, cause = cause(error), "not recorded, the providers will retry");
    for waiting in batch {
        tell(waiting, Err(Unrecorded::Unavailable));
    }
}

/// Whoever asked may have gone; what was recorded stays recorded.
fn tell(waiting: Waiting, recorded: Result<Recorded, Unrecorded>) {
    drop(waiting.answer.send(recorded));
}

fn cause(error: &StoreError) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}

/// The arrival of each account's last event in a batch: one look-up for an account, not for an event.
fn note_last_events(fresh: &[Waiting]) {
    let mut last: BTreeMap<(ProviderName, &str), Timestamp> = BTreeMap::new();
    for waiting in fresh {
        let event = &waiting.event;
        let latest = last
            .entry((event.provider, &event.account))
            .or_insert(event.received_at);
        *latest = event.received_at.max(*latest);
    }
    for ((provider, account), at) in last {
        let micros = u64::try_from(at.micros()).unwrap_or_default();
        gauge!(names::LAST_EVENT, "provider" => provider.as_str(), "account" => account.to_owned())
            .set(Duration::from_micros(micros).as_secs_f64());
    }
}
