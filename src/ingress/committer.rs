//! Group commit, the committing side: takes all that wait, commits once, answers each.
//!
//! An answer is given only after the commit. If the database refuses the data, the batch is halved until the
//! culprit is alone, so that one odd event does not keep its neighbours out. If the store is away, or the
//! connection is lost while nobody knows whether the commit happened, everybody in the batch is told to come
//! again: what was committed after all is then a duplicate. Those whose keys were taken go to the
//! [settler](super::settler), so that nothing fresh waits for what came twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{gauge, histogram};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::queue::Queue;
use super::recorder::{RecorderOptions, Waiting, fail, in_time, no_room};
use super::unrecordable::Unrecordable;
use crate::crash;
use crate::event::{Event, ProviderName};
use crate::store::outbox::{CLAIM, Handoff};
use crate::store::{Recorded, Store, StoreError, Writer};
use crate::telemetry::metrics::names;
use crate::time::Timestamp;

/// The one who commits.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) store: Store,
    pub(super) options: RecorderOptions,
    pub(super) unrecordable: Arc<Unrecordable>,
    /// Where repeats go.
    pub(super) repeats: mpsc::Sender<Waiting>,
}

impl Committer {
    /// Until the queue is closed and empty. Several may share a queue: it is held only while a batch is taken.
    ///
    /// The database gets the next batch, if there is one, before the last one is answered: it works while the
    /// answers are given.
    pub(super) async fn run(self: Arc<Self>, queue: Arc<Mutex<Queue>>) {
        let mut writer = self.store.writer();
        let mut fresh = Vec::new();
        loop {
            let ready = match queue.try_lock() {
                Ok(mut queue) => queue.ready(self.options.batch),
                Err(_) => Vec::new(),
            };
            let batch = if ready.is_empty() {
                tell_fresh(std::mem::take(&mut fresh));
                queue.lock().await.next(self.options.batch).await
            } else {
                ready
            };
            if batch.is_empty() {
                break;
            }
            let last = std::mem::take(&mut fresh);
            (fresh, ()) = tokio::join!(self.commit(batch, &mut writer), async { tell_fresh(last) });
        }
        writer.rest();
    }

    /// Commits `batch`, in parts if need be. Gives the fresh ones of the last part, who do not know it yet;
    /// the repeats go to the settler.
    async fn commit(&self, batch: Vec<Waiting>, writer: &mut Writer) -> Vec<Waiting> {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            let events: Vec<Arc<Event>> = part.iter().map(|waiting| Arc::clone(&waiting.event)).collect();
            match self.insert(&events, writer).await {
                Ok(fresh) => {
                    let committed = self.sort(part, fresh);
                    if parts.is_empty() {
                        return committed;
                    }
                    tell_fresh(committed);
                }
                Err(StoreError::Refused(_)) if part.len() > 1 => {
                    let half = part.split_off(part.len().div_euclid(2));
                    parts.push(half);
                    parts.push(part);
                }
                Err(error @ StoreError::Refused(_)) => {
                    for waiting in part {
                        self.unrecordable.keep(waiting, &error).await;
                    }
                }
                Err(error) => {
                    // The store is away: the other parts would only wait for it in turn.
                    let left = parts.drain(..).flatten().chain(part);
                    fail(left.collect(), &error);
                }
            }
        }
        Vec::new()
    }

    /// Inserts, and hands over what is fresh. The rows are born claimed only if the hand-off has room for all
    /// of them: a claim that nobody holds would delay its event.
    async fn insert(&self, events: &[Arc<Event>], writer: &mut Writer) -> Result<Vec<bool>, StoreError> {
        let claimed_until = Instant::now() + CLAIM;
        let handoff = self.options.handoff.as_ref();
        let permits = handoff.and_then(|handoff| handoff.try_reserve_many(events.len()).ok());
        let claimant = permits.as_ref().map(|_| self.options.process_id.as_str());
        let fresh = in_time(self.options.ack_deadline, writer.insert_fresh(events, claimant)).await?;
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

    /// Gives those whose events are fresh, and hands the others to the settler.
    fn sort(&self, part: Vec<Waiting>, fresh: Vec<bool>) -> Vec<Waiting> {
        histogram!(names::BATCH_EVENTS).record(f64::from(u32::try_from(part.len()).unwrap_or(u32::MAX)));
        let mut committed = Vec::with_capacity(part.len());
        let mut refused = Vec::new();
        for (waiting, fresh) in std::iter::zip(part, fresh) {
            if fresh {
                committed.push(waiting);
            } else if let Err(full) = self.repeats.try_send(waiting) {
                refused.push(full.into_inner());
            }
        }
        no_room("repeats", refused);
        committed
    }
}

fn tell_fresh(fresh: Vec<Waiting>) {
    note_last_events(&fresh);
    let now = Instant::now();
    let late = fresh.iter().filter(|waiting| waiting.is_late(now)).count();
    if late > 0 {
        tracing::warn!(
            events = late,
            "recorded, but too late to say so: the providers will retry"
        );
    }
    for waiting in fresh {
        waiting.tell(Ok(Recorded::Fresh));
    }
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
