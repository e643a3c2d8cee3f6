//! `/metrics`, and the sampler behind the figures that nobody counts as they happen.
//!
//! Counters are kept by the flows. What must be looked up (what waits in the outbox, what needs a human, when
//! a certificate ends) is looked up by the [`Sampler`] every few seconds, so that a scrape costs no query and
//! `/readyz` can show the outbox's age.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use metrics::gauge;

use super::ApiState;
use crate::event::AttentionCode;
use crate::idempotency::{Keys, KeysError};
use crate::provider::Registry;
use crate::store::feed::FeedWatch;
use crate::store::{Store, StoreError};
use crate::telemetry::metrics::names;
use crate::telemetry::{Health, Metrics, OutboxState};
use crate::time::{Clock, Timestamp};

/// What has been counted, in the Prometheus text format.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "process",
    responses((
        status = 200,
        description = "Every family with its help.",
        body = String,
        content_type = "text/plain; version=0.0.4; charset=utf-8",
        example = json!("# HELP payhook_events_total Events stored.\n# TYPE payhook_events_total counter\npayhook_events_total 1\n"),
    ))
)]
pub(super) async fn render(State(state): State<ApiState>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        state.metrics.render(),
    )
}

/// Looks up what is not counted as it happens. Driven by its owner: [`Sampler::step`] each [`Sampler::EVERY`].
#[derive(Debug)]
pub struct Sampler {
    store: Store,
    health: Arc<Health>,
    metrics: Metrics,
    registry: Arc<ArcSwap<Registry>>,
    keys: Keys,
    clock: Clock,
    seeded: bool,
    feed: FeedWatch,
    shown: BTreeSet<ShownKey>,
}

/// A key with an end, as a series is labelled: provider, account, key.
type ShownKey = (&'static str, String, String);

impl Sampler {
    /// How often.
    pub const EVERY: Duration = Duration::from_secs(5);

    /// A sampler for one process.
    pub fn new(
        store: Store,
        health: Arc<Health>,
        metrics: Metrics,
        registry: Arc<ArcSwap<Registry>>,
        keys: Keys,
        clock: Clock,
    ) -> Self {
        Self {
            store,
            health,
            metrics,
            registry,
            keys,
            clock,
            seeded: false,
            feed: FeedWatch::default(),
            shown: BTreeSet::new(),
        }
    }

    /// One round. What failed is logged by the owner and tried again at the next.
    pub async fn step(&mut self) -> Result<(), StoreError> {
        self.metrics.upkeep();
        self.report_keys();
        gauge!(names::BROKER_UP).set(if self.health.broker().0.is_up() { 1.0 } else { 0.0 });
        self.seed_last_events().await?;
        let found = self.store.gauges().await?;
        let now = self.clock.now();
        self.health.set_outbox(OutboxState {
            pending: u64::try_from(found.unpublished).unwrap_or_default(),
            oldest: found.oldest_unpublished,
        });
        gauge!(names::OUTBOX_ROWS).set(count(found.unpublished));
        gauge!(names::OUTBOX_OLDEST_SECONDS).set(age(found.oldest_unpublished, now));
        gauge!(names::UNFINISHED_EVENTS).set(count(found.unfinished));
        gauge!(names::UNFINISHED_OLDEST_SECONDS).set(age(found.oldest_unfinished, now));
        gauge!(names::REPLAYS_RUNNING).set(count(found.replays));
        gauge!(names::DEAD_LETTERS_OPEN).set(count(found.dead_letters));
        for (_, code) in AttentionCode::ALL {
            // Every code at every round: one that has none open any more must not be left standing.
            let open = found.attention.iter().find(|(found, _)| found == code);
            gauge!(names::ATTENTION_OPEN, "code" => code).set(count(open.map_or(0, |(_, n)| *n)));
        }
        self.report_calls().await?;
        let delay = self.feed.step(&self.store, now).await?;
        gauge!(names::FEED_DELAY).set(delay.as_secs_f64());
        Ok(())
    }

    /// The calls under an Idempotency-Key that have not ended.
    async fn report_calls(&self) -> Result<(), StoreError> {
        let standing = self.keys.standing().await.map_err(|error| match error {
            KeysError::Store(error) => StoreError::from(error),
            other => StoreError::corrupt("idempotency_keys", other.to_string()),
        })?;
        let oldest = u64::try_from(standing.oldest_running).unwrap_or_default();
        gauge!(names::IDEMPOTENCY_OLDEST_SECONDS).set(Duration::from_micros(oldest).as_secs_f64());
        gauge!(names::IDEMPOTENCY_UNKNOWN).set(count(standing.unknown_outcomes));
        Ok(())
    }

    /// A key that a reload took away shows no end any more: its series cannot be removed, so it says nothing.
    fn report_keys(&mut self) {
        let mut ends = BTreeMap::new();
        for account in self.registry.load().iter() {
            for key in account.scheme.keys() {
                if let Some(at) = key.expires_at {
                    let series = (account.provider.as_str(), account.account.clone(), key.id);
                    ends.insert(series, epoch(at));
                }
            }
        }
        for gone in std::mem::take(&mut self.shown) {
            ends.entry(gone).or_insert(f64::NAN);
        }
        for ((provider, account, key), end) in ends {
            if !end.is_nan() {
                self.shown.insert((provider, account.clone(), key.clone()));
            }
            gauge!(names::KEY_EXPIRY, "provider" => provider, "account" => account, "key" => key).set(end);
        }
    }

    /// Once after a start, so that "silent for a day" does not look like "never heard of": from then on the
    /// ingress keeps the gauge. An account that is not configured any more gets no series.
    async fn seed_last_events(&mut self) -> Result<(), StoreError> {
        if self.seeded {
            return Ok(());
        }
        let registry = self.registry.load_full();
        for (provider, account, at) in self.store.last_events().await? {
            let known = provider
                .parse()
                .is_ok_and(|provider| registry.get(provider, &account).is_some());
            if known {
                gauge!(names::LAST_EVENT, "provider" => provider, "account" => account).set(epoch(at));
            }
        }
        self.seeded = true;
        Ok(())
    }
}

/// A count as a gauge's value. Beyond 2^32 the figure no longer matters.
fn count(n: i64) -> f64 {
    f64::from(u32::try_from(n.max(0)).unwrap_or(u32::MAX))
}

fn age(oldest: Option<Timestamp>, now: Timestamp) -> f64 {
    let micros = oldest.map_or(0, |at| now.micros_since(at));
    Duration::from_micros(u64::try_from(micros).unwrap_or_default()).as_secs_f64()
}

fn epoch(at: Timestamp) -> f64 {
    Duration::from_micros(u64::try_from(at.micros()).unwrap_or_default()).as_secs_f64()
}
