//! The worker's side of the apply queue: subscribe, take what has come, apply, ack; again.
//!
//! A batch is whatever has arrived, at most the configured number: a lone event waits for nobody. Acks go to
//! the subscription that delivered, after the commit. If anything is wrong with it, it is dropped, and what
//! was not acked comes again and is found to be applied.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::WorkerOptions;
use super::applier::Applier;
use crate::broker::{Delivered, Rabbitmq, Source, Subscription};
use crate::event::{Event, EventKey};
use crate::store::{Store, StoreError, Unreadable};
use crate::telemetry::causes;

/// How long to wait before subscribing again, or asking the store again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// How old an event is that should have been delivered.
const WAITS: Duration = Duration::from_secs(15);

/// The longest wait while the store fails time after time: each round counts as a delivery of what is handed
/// back, and the broker's patience is for workers that die.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a subscription ended.
pub(super) enum Ended {
    Shutdown,
    /// The broker ended it, or it is not to be trusted.
    Lost,
    /// The store does not answer; `at_once`: before anything was done.
    StoreAway {
        error: StoreError,
        at_once: bool,
    },
}

/// Consumes until `shutdown`.
pub(super) async fn run(
    applier: &Applier,
    broker: &Rabbitmq,
    options: &WorkerOptions,
    shutdown: &CancellationToken,
) {
    let mut wait = PAUSE;
    while wait_for_store(applier, shutdown).await {
        let subscribed = tokio::select! {
            () = shutdown.cancelled() => return,
            subscribed = broker.subscribe(Source::Apply, options.prefetch) => subscribed,
        };
        wait = match subscribed {
            Ok(mut subscription) => {
                let ended = consume(applier, &mut subscription, options, shutdown).await;
                let next = ended.next_wait(wait);
                settle(subscription, ended).await;
                next
            }
            Err(error) => {
                tracing::warn!(%error, "worker cannot consume");
                PAUSE
            }
        };
        pause(wait, shutdown).await;
    }
}

impl Ended {
    /// How long to wait after this end, when the last wait was `wait`.
    fn next_wait(&self, wait: Duration) -> Duration {
        match self {
            Self::StoreAway { at_once: true, .. } => wait.saturating_mul(2).min(LONGEST_PAUSE),
            Self::StoreAway { .. } | Self::Shutdown | Self::Lost => PAUSE,
        }
    }
}

/// Returns when the store takes a write; `false`: at `shutdown`.
pub(super) async fn wait_for_store(applier: &Applier, shutdown: &CancellationToken) -> bool {
    while !shutdown.is_cancelled() {
        if applier.store.probe(applier.clock.now()).await.is_ok() {
            return true;
        }
        pause(PAUSE, shutdown).await;
    }
    false
}

/// Ends a subscription in the way that its end asks for.
pub(super) async fn settle(subscription: Subscription, ended: Ended) {
    match ended {
        Ended::Shutdown => subscription.hand_back().await,
        Ended::StoreAway { error, .. } => {
            tracing::warn!(%error, "the store does not answer; the worker waits for it");
            subscription.hand_back().await;
        }
        Ended::Lost => {}
    }
}

pub(super) async fn pause(wait: Duration, shutdown: &CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(wait) => {}
    }
}

async fn consume(
    applier: &Applier,
    subscription: &mut Subscription,
    options: &WorkerOptions,
    shutdown: &CancellationToken,
) -> Ended {
    let mut check = checks(options.check_every);
    let (mut worked, mut heard) = (false, false);
    loop {
        let first = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ended::Shutdown,
            _ = check.tick() => {
                if !still_consuming(subscription).await || !heard && events_wait(applier).await {
                    return Ended::Lost;
                }
                heard = false;
                continue;
            }
            delivered = subscription.next() => delivered,
        };
        let Some(first) = first else {
            return Ended::Lost;
        };
        heard = true;
        let mut batch = vec![first];
        while batch.len() < options.batch {
            match subscription.next().now_or_never() {
                Some(Some(delivered)) => batch.push(delivered),
                _ => break,
            }
        }
        if let Err(error) = work(applier, &batch).await {
            return Ended::StoreAway {
                error,
                at_once: !worked,
            };
        }
        worked = true;
        if let Err(error) = subscription
            .ack(batch.iter().map(|delivered| delivered.tag))
            .await
        {
            tracing::warn!(%error, "acks not sent; the messages come again");
            return Ended::Lost;
        }
    }
}

/// A timer that does not tick at once.
fn checks(every: Duration) -> Interval {
    let mut check = tokio::time::interval(every);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    check.reset();
    check
}

/// A consumer that hears nothing while events wait is not to be trusted: RabbitMQ 3.10 can move it to a new queue of
/// the same name, and then counts as delivered what it never sends (`broker::declare`). A new subscription on a
/// connection of its own gets all of it, and costs nothing if another daemon's worker is only busy.
async fn events_wait(applier: &Applier) -> bool {
    let wait = applier.store.has_unfinished_older_than(WAITS).await;
    let wait = wait.unwrap_or_default();
    if wait {
        tracing::warn!("nothing is delivered although events wait; the worker subscribes anew");
    }
    wait
}

async fn still_consuming(subscription: &Subscription) -> bool {
    match subscription.check().await {
        Ok(true) => true,
        Ok(false) => {
            tracing::warn!("the broker has forgotten our consumer");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "the broker does not say whether it knows our consumer");
            false
        }
    }
}

/// Applies what the deliveries name. An error: the store is away. What the store will not take although it is
/// there is found by taking each alone, and costs its neighbours nothing.
async fn work(applier: &Applier, batch: &[Delivered]) -> Result<(), StoreError> {
    match together(applier, batch).await {
        Err(error) if !error.is_transient() => {
            tracing::debug!(%error, deliveries = batch.len(), "batch refused; one by one");
        }
        settled => return settled,
    }
    for delivered in batch {
        match together(applier, std::slice::from_ref(delivered)).await {
            Err(error) if !error.is_transient() => {
                // If it is an event of ours it has no outcome, and the sweep brings it again.
                tracing::error!(
                    error = causes(&error),
                    "the store refuses what this message asks for"
                );
            }
            settled => settled?,
        }
    }
    Ok(())
}

/// Applies what the deliveries name; keeps those that name nothing.
async fn together(applier: &Applier, batch: &[Delivered]) -> Result<(), StoreError> {
    let known = named(&applier.store, batch).await?;
    let mut events = Vec::with_capacity(batch.len());
    let mut unknown = Vec::new();
    for delivered in batch {
        match delivered.id.as_ref().and_then(|id| known.get(id)) {
            Some(Ok(event)) => events.push(Arc::clone(event)),
            Some(Err(unreadable)) => {
                applier
                    .fail_unreadable(unreadable, unreadable.id.as_str())
                    .await?;
            }
            None => unknown.push(delivered),
        }
    }
    applier.apply(&events).await?;
    // Last: if the store goes away before, all of it comes again, and nothing is kept twice.
    for delivered in unknown {
        bury_unknown(applier, delivered).await?;
    }
    Ok(())
}

/// The stored events that the deliveries name, by that name.
pub(super) async fn named(
    store: &Store,
    batch: &[Delivered],
) -> Result<HashMap<String, Result<Arc<Event>, Unreadable>>, StoreError> {
    let keys: Vec<EventKey> = batch
        .iter()
        .filter_map(|delivered| delivered.id.as_deref())
        // Anybody may have written it: what can be no key is not asked for, it might be refused.
        .filter(|id| EventKey::is_possible(id))
        .map(EventKey::from_text)
        .collect();
    let events = store.events_by_key(&keys).await?;
    Ok(events
        .into_iter()
        .map(|read| {
            let key = read.as_ref().map_or_else(|odd| &odd.key, |event| &event.key);
            (key.as_str().to_owned(), read)
        })
        .collect())
}

pub(super) async fn bury_unknown(applier: &Applier, delivered: &Delivered) -> Result<(), StoreError> {
    let (name, error) = match delivered.id.as_deref() {
        Some(name) => (name, "it names an event that is not in the store"),
        None => ("", "it names no event: it has no message_id"),
    };
    tracing::warn!(
        error,
        "a message that payhook did not write; kept as a dead letter"
    );
    let registry = applier.registry.load();
    let mut merchants: BTreeSet<String> = registry.iter().map(|account| account.merchant.clone()).collect();
    if merchants.is_empty() {
        merchants.insert("default".to_owned());
    }
    let kept = applier
        .store
        .bury_unknown(&merchants, name, error, &delivered.body);
    kept.await
}
