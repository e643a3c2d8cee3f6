//! Commits batches of events and answers those that are new.
//!
//! If the database refuses the data, the batch is halved until the refused event is alone, so that it does not keep
//! its neighbours out. If the store is away, or the connection is lost before the commit is confirmed, all of the batch
//! fail: what was committed after all is a duplicate when the provider retries. Events whose keys are stored go to
//! repeats, so that nothing new waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{gauge, histogram};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::batch::Batches;
use super::pending::{Pending, in_time, warn_dropped};
use super::unrecordable::Unrecordable;
use crate::crash;
use crate::event::{Event, ProviderName};
use crate::store::outbox::{CLAIM, Handoff};
use crate::store::{Bisection, Recorded, StoreError, Writer};
use crate::telemetry::metrics::names;
use crate::time::Timestamp;

/// The task that commits.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) writer: Writer,
    pub(super) handoff: Option<mpsc::Sender<Handoff>>,
    pub(super) process_id: String,
    /// Where repeats go.
    pub(super) repeats: mpsc::UnboundedSender<Pending>,
    pub(super) unrecordable: Arc<Unrecordable>,
    pub(super) deadline: Duration,
}

impl Committer {
    /// Runs until the queue is closed and empty.
    ///
    /// The database gets the next batch, if there is one, before the last one is answered: it works while the
    /// answers are given.
    pub(super) async fn run(mut self, mut queue: Batches) {
        let mut stored = Vec::new();
        loop {
            let mut batch = queue.ready();
            if batch.is_empty() {
                answer_fresh(std::mem::take(&mut stored));
                batch = queue.next().await;
            }
            if batch.is_empty() {
                break;
            }
            let last = std::mem::take(&mut stored);
            (stored, ()) = tokio::join!(self.commit(batch), async { answer_fresh(last) });
        }
        self.writer.rest();
    }

    /// Commits `batch`, in parts if need be. Returns what the last part stored, not answered yet.
    async fn commit(&mut self, batch: Vec<Pending>) -> Vec<Pending> {
        let mut stored = Vec::new();
        let mut parts = Bisection::of(batch);
        while let Some(part) = parts.take() {
            answer_fresh(std::mem::take(&mut stored));
            match self.insert(&part).await {
                Ok(fresh) => stored = self.sort(part, fresh),
                Err(error @ StoreError::Refused(_)) => {
                    if let Some(refused) = parts.halve(part) {
                        self.unrecordable.keep(refused, &error).await;
                    }
                }
                // The other parts would only wait for the same store.
                Err(error) => warn_dropped(parts.drain(part).len(), &error),
            }
        }
        stored
    }

    /// Inserts, and hands over what is fresh. The rows are born claimed only if the hand-off has room for all
    /// of them: a claim without a holder would delay its event.
    async fn insert(&mut self, part: &[Pending]) -> Result<Vec<bool>, StoreError> {
        let events: Vec<Arc<Event>> = part.iter().map(|pending| Arc::clone(&pending.event)).collect();
        let claimed_until = Instant::now() + CLAIM;
        let handoff = self.handoff.as_ref();
        let permits = handoff.and_then(|handoff| handoff.try_reserve_many(events.len()).ok());
        let claimant = permits.as_ref().map(|_| self.process_id.as_str());
        let fresh = in_time(self.deadline, self.writer.insert_fresh(&events, claimant)).await?;
        crash::point(crash::Point::RecorderCommitted);
        let fresh_events = std::iter::zip(events, &fresh).filter(|(_, fresh)| **fresh);
        for (permit, (event, _)) in std::iter::zip(permits.into_iter().flatten(), fresh_events) {
            permit.send(Handoff { event, claimed_until });
        }
        Ok(fresh)
    }

    /// Returns the requests whose events are fresh, and sends the others to repeats.
    fn sort(&self, part: Vec<Pending>, fresh: Vec<bool>) -> Vec<Pending> {
        histogram!(names::BATCH_EVENTS).record(f64::from(u32::try_from(part.len()).unwrap_or(u32::MAX)));
        let mut stored = Vec::with_capacity(part.len());
        for (pending, fresh) in std::iter::zip(part, fresh) {
            if fresh {
                stored.push(pending);
            } else {
                drop(self.repeats.send(pending));
            }
        }
        stored
    }
}

fn answer_fresh(stored: Vec<Pending>) {
    set_last_events(&stored);
    let now = Instant::now();
    let late = stored.iter().filter(|pending| pending.is_expired(now)).count();
    if late > 0 {
        tracing::warn!(
            events = late,
            "events recorded after their deadline, the providers will retry"
        );
    }
    for pending in stored {
        pending.answer(Ok(Recorded::Fresh));
    }
}

/// Sets the arrival of each account's last event: one look-up for an account, not for an event.
fn set_last_events(stored: &[Pending]) {
    let mut last: BTreeMap<(ProviderName, &str), Timestamp> = BTreeMap::new();
    for pending in stored {
        let event = &pending.event;
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
