//! Applies a batch of events in one transaction, or each alone when that fails.
//!
//! The transaction writes what the events do, their outcomes and the end of their outbox rows; the caller acks
//! after its commit. What an error means is decided here: the store does not answer (the caller stops and
//! waits), the moment was bad (a deadlock, a race: tried again), or this event cannot be applied (counted).

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;

use crate::crash::{self, Point};
use crate::event::{Event, EventId, Reading};
use crate::orders::apply::{Applied, ApplyError, Item, Policy, apply};
use crate::provider::Registry;
use crate::store::outbox::{Bell, Failed, FailurePolicy, finish_applied};
use crate::store::{Store, StoreError, Unreadable, dead_letters};
use crate::telemetry::causes;
use crate::telemetry::metrics::names;
use crate::time::Clock;

/// How often one event is tried while only the moment is bad.
const TRIES: u32 = 4;

/// What became of a batch, in events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Applied, whatever the outcome.
    pub applied: usize,
    /// Failed; due again.
    pub retried: usize,
    /// Failed for the last time.
    pub buried: usize,
}

impl Tally {
    /// Adds another batch's.
    pub fn add(&mut self, other: Self) {
        self.applied += other.applied;
        self.retried += other.retried;
        self.buried += other.buried;
    }
}

/// Why a transaction did not happen.
enum Failure {
    /// Not this event's fault; the same may succeed.
    Moment(ApplyError),
    /// This event cannot be applied as things are.
    Event(String),
}

/// What is needed to apply events.
#[derive(Debug)]
pub(super) struct Applier {
    pub(super) store: Store,
    pub(super) registry: Arc<ArcSwap<Registry>>,
    pub(super) policy: Policy,
    pub(super) failures: FailurePolicy,
    pub(super) clock: Clock,
    pub(super) bell: Bell,
}

impl Applier {
    /// Applies `events`; one that is there twice counts once. An error: the store does not answer, and any of
    /// them may or may not have been applied.
    pub(super) async fn apply(&self, events: &[Arc<Event>]) -> Result<Tally, StoreError> {
        if events.is_empty() {
            return Ok(Tally::default());
        }
        crash::point(Point::WorkerTaken);
        let registry = self.registry.load_full();
        let mut seen: HashSet<&EventId> = HashSet::with_capacity(events.len());
        let mut tally = Tally::default();
        let mut readable: Vec<(&Event, Reading)> = Vec::with_capacity(events.len());
        for event in events {
            if !seen.insert(&event.id) {
                continue;
            }
            match registry.read(event) {
                Ok(reading) => readable.push((event, reading)),
                Err(reason) => tally.add(self.fail(event, &reason).await?),
            }
        }
        if readable.is_empty() {
            return Ok(tally);
        }
        match self.transaction(&readable).await {
            Ok(applied) => tally.add(self.done(&applied)),
            Err(failure) => {
                if let Failure::Moment(ApplyError::Store(error)) = &failure {
                    tracing::debug!(%error, events = readable.len(), "batch not applied; one by one");
                }
                for one in &readable {
                    tally.add(self.alone(one).await?);
                }
            }
        }
        Ok(tally)
    }

    /// Applies one event, and is patient while only the moment is bad.
    async fn alone(&self, one: &(&Event, Reading)) -> Result<Tally, StoreError> {
        let mut tries = 1;
        loop {
            match self.transaction(std::slice::from_ref(one)).await {
                Ok(applied) => return Ok(self.done(&applied)),
                Err(Failure::Event(reason)) => return self.fail(one.0, &reason).await,
                Err(Failure::Moment(error)) => {
                    // A store that takes no writes says so here, and the event is not blamed.
                    self.store.probe(self.clock.now()).await?;
                    if tries >= TRIES {
                        return self.fail(one.0, &causes(&error)).await;
                    }
                    let pause = rand::random_range(5..=25_u64).saturating_mul(u64::from(tries));
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    tries += 1;
                }
            }
        }
    }

    async fn transaction(&self, events: &[(&Event, Reading)]) -> Result<Vec<Applied>, Failure> {
        let whole = AssertUnwindSafe(self.write(events)).catch_unwind();
        match whole.await {
            Ok(Ok(applied)) => Ok(applied),
            Ok(Err(error)) if error.is_transient() => Err(Failure::Moment(error)),
            Ok(Err(error)) => Err(Failure::Event(causes(&error))),
            Err(_) => Err(Failure::Event("applying it panicked".to_owned())),
        }
    }

    async fn write(&self, events: &[(&Event, Reading)]) -> Result<Vec<Applied>, ApplyError> {
        let items: Vec<Item<'_>> = events
            .iter()
            .map(|(event, reading)| Item { event, reading })
            .collect();
        let ids: Vec<EventId> = events.iter().map(|(event, _)| event.id.clone()).collect();
        let mut tx = self.store.begin().await?;
        let applied = apply(&mut tx, &items, &self.policy, self.clock.now()).await?;
        finish_applied(&mut tx, &ids, self.failures.embedded).await?;
        dead_letters::succeeded(&mut tx, &ids).await?;
        crash::point(Point::WorkerWritten);
        tx.commit().await?;
        crash::point(Point::WorkerCommitted);
        Ok(applied)
    }

    fn done(&self, applied: &[Applied]) -> Tally {
        self.bell.ring();
        for event in applied {
            metrics::counter!(names::APPLIED, "outcome" => event.outcome.as_str()).increment(1);
        }
        Tally {
            applied: applied.len(),
            ..Tally::default()
        }
    }

    async fn fail(&self, event: &Event, reason: &str) -> Result<Tally, StoreError> {
        tracing::warn!(event.id = %event.id, reason, "event cannot be applied");
        let failed = self.store.record_failure(event, reason, &self.failures).await;
        self.failed(&event.id, failed)
    }

    /// Counts an event that does not read, on the outbox row that named it; a newer daemon may read it.
    pub(super) async fn fail_unreadable(&self, event: &Unreadable, row: &str) -> Result<Tally, StoreError> {
        tracing::warn!(event.id = %event.id, reason = event.reason, "the stored event does not read");
        let failed = self.store.record_unreadable(event, row, &self.failures).await;
        self.failed(&event.id, failed)
    }

    /// Counts an event over which workers stopped before they could count it themselves.
    pub(super) async fn crashed(&self, event: &Event, reason: &str) -> Result<Tally, StoreError> {
        let failed = self.store.record_crash(event, reason, &self.failures).await;
        self.failed(&event.id, failed)
    }

    fn failed(&self, event: &EventId, failed: Result<Failed, StoreError>) -> Result<Tally, StoreError> {
        let mut tally = Tally::default();
        match failed {
            Ok(Failed::Retry(_)) => tally.retried = 1,
            Ok(Failed::Finished) => {}
            Ok(Failed::Buried) => {
                self.buried();
                tally.buried = 1;
            }
            // Nothing is wrong with the store: it will not count this one. It has no outcome, so its claim or
            // the sweep brings it again; its neighbours go on.
            Err(error) if !error.is_transient() => {
                tracing::error!(event.id = %event, error = causes(&error), "its failure cannot be counted");
                tally.retried = 1;
            }
            Err(error) => return Err(error),
        }
        Ok(tally)
    }

    fn buried(&self) {
        metrics::counter!(names::APPLIED, "outcome" => "dead").increment(1);
        self.bell.ring();
    }
}
