//! Every metric by name, unit and meaning, and the recorder behind them.
//!
//! A flow counts with the `metrics` macros under a name from [`names`]; [`Metrics`] renders what has gathered,
//! in the Prometheus text format. Label values come from configuration and from closed lists (providers,
//! outcomes, codes), never from a path or a body: nobody outside decides how many series there are.

use std::fmt;
use std::sync::OnceLock;

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// The names. `payhook_<noun>_<unit>`; a counter ends in `_total`.
pub mod names {
    /// Counter {provider, account, outcome, reason}: answered notifications. `outcome` is `recorded`,
    /// `duplicate`, `conflict`, `refused` or `unavailable`; `reason` is a refusal's, else `none`.
    pub const NOTIFICATIONS: &str = "payhook_notifications_total";
    /// Histogram {provider}: first byte of the request to the last byte of the answer.
    pub const ACK_SECONDS: &str = "payhook_ack_seconds";
    /// Histogram: events in one commit of the recorder.
    pub const BATCH_EVENTS: &str = "payhook_batch_events";
    /// Counter: deliveries of duplicates that were not written to `deliveries`: the database did not keep up.
    pub const DELIVERIES_DROPPED: &str = "payhook_deliveries_dropped_total";
    /// Gauge: outbox rows without a confirmed publish.
    pub const OUTBOX_ROWS: &str = "payhook_outbox_rows";
    /// Gauge: age of the oldest of them.
    pub const OUTBOX_OLDEST_SECONDS: &str = "payhook_outbox_oldest_seconds";
    /// Gauge: 1 while messages can leave, else 0.
    pub const BROKER_UP: &str = "payhook_broker_up";
    /// Counter {kind}: confirmed publishes of an `event`, a `message` or a `replay`.
    pub const PUBLISHED: &str = "payhook_published_total";
    /// Counter {kind}: published, and no queue wanted it.
    pub const UNROUTED: &str = "payhook_unrouted_total";
    /// Counter {outcome}: events applied, by outcome.
    pub const APPLIED: &str = "payhook_applied_total";
    /// Counter {reason}: messages that came out of the workers' dead-letter queue, by the reason that the broker gives:
    /// `expired`, `maxlen`, `delivery_limit`, `rejected` or `unknown`.
    pub const BROKER_DEAD: &str = "payhook_broker_dead_total";
    /// Gauge: events without an outcome.
    pub const UNFINISHED_EVENTS: &str = "payhook_unfinished_events";
    /// Gauge: age of the oldest of them.
    pub const UNFINISHED_OLDEST_SECONDS: &str = "payhook_unfinished_oldest_seconds";
    /// Gauge {code}: open attention items.
    pub const ATTENTION_OPEN: &str = "payhook_attention_open_items";
    /// Gauge: dead letters not yet redriven.
    pub const DEAD_LETTERS_OPEN: &str = "payhook_dead_letters_open_items";
    /// Gauge: replays that have not ended.
    pub const REPLAYS_RUNNING: &str = "payhook_replays_running_items";
    /// Counter {what}: `events` and `orders` messages that replays have handed over to be sent again.
    pub const REPLAYED: &str = "payhook_replayed_total";
    /// Gauge: for how long the oldest open write in the Postgres cluster has held the feed back.
    pub const FEED_DELAY: &str = "payhook_feed_delay_seconds";
    /// Counter {kind}: removed by age: `event`, `quarantine` or `idempotency_key`.
    pub const PURGED: &str = "payhook_purged_total";
    /// Gauge {provider}: our clock minus the signed send time of the last notification.
    pub const CLOCK_OFFSET: &str = "payhook_clock_offset_seconds";
    /// Gauge {provider, account}: when the last event was recorded.
    pub const LAST_EVENT: &str = "payhook_last_event_timestamp_seconds";
    /// Gauge {provider, account, key}: when a certificate ends.
    pub const KEY_EXPIRY: &str = "payhook_key_expiry_timestamp_seconds";
    /// Gauge {provider, account, key}: when the last notification that this key verified arrived.
    pub const KEY_LAST_VERIFIED: &str = "payhook_key_last_verified_timestamp_seconds";
    /// Counter {result}: accounts and keys read again, `ok`, or `failed`: they stayed as they were.
    pub const RELOADS: &str = "payhook_reloads_total";
    /// Counter {result}: calls with an `Idempotency-Key`, by what the key led to: `first`, `replayed`,
    /// `withdrawn`, `in_progress`, `reused`, `outcome_pending`, `too_fast`, `unavailable`, `unstorable`.
    pub const IDEMPOTENCY: &str = "payhook_idempotency_total";
    /// Gauge: age of the oldest call with an `Idempotency-Key` that still runs, or whose outcome is unknown.
    pub const IDEMPOTENCY_OLDEST_SECONDS: &str = "payhook_idempotency_oldest_running_seconds";
    /// Gauge: calls with an effect outside of which nobody knows whether they happened.
    pub const IDEMPOTENCY_UNKNOWN: &str = "payhook_idempotency_unknown_outcomes";
}

/// From the fastest ack to one that the provider has given up on.
const ACK_BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0,
];
/// Up to the recorder's row cap.
const BATCH_BUCKETS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

static INSTALLED: OnceLock<Metrics> = OnceLock::new();

/// What has been counted so far; clones share it.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Makes this the process's recorder and describes every metric. The `metrics` crate has one recorder per
    /// process, so a second call gives the first one's handle.
    pub fn install() -> Result<Self, BuildError> {
        if let Some(installed) = INSTALLED.get() {
            return Ok(installed.clone());
        }
        let metrics = Self(builder()?.install_recorder()?);
        describe();
        Ok(INSTALLED.get_or_init(|| metrics).clone())
    }

    /// The Prometheus text exposition.
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Folds what the histograms have gathered since the last call; to be called now and then, else they grow.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(names::ACK_SECONDS.to_owned()), &ACK_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full(names::BATCH_EVENTS.to_owned()), &BATCH_BUCKETS)
}

fn describe() {
    let counters = [
        (
            names::NOTIFICATIONS,
            "Notifications answered, by outcome and reason",
        ),
        (
            names::DELIVERIES_DROPPED,
            "Deliveries of duplicates that were not written",
        ),
        (names::PUBLISHED, "Publishes that the broker confirmed"),
        (names::UNROUTED, "Published messages that no queue wanted"),
        (names::APPLIED, "Events applied to orders, by outcome"),
        (
            names::BROKER_DEAD,
            "Messages that the broker took out of the workers' queue, by reason",
        ),
        (
            names::IDEMPOTENCY,
            "Calls with an Idempotency-Key, by what the key led to",
        ),
        (
            names::REPLAYED,
            "Events and order messages that replays handed over to be sent again",
        ),
        (names::PURGED, "Rows removed by age, by kind"),
        (
            names::RELOADS,
            "Times that accounts and keys were read again, by result",
        ),
    ];
    for (name, meaning) in counters {
        describe_counter!(name, Unit::Count, meaning);
    }
    describe_gauges();
    describe_histogram!(
        names::ACK_SECONDS,
        Unit::Seconds,
        "From the first byte of a notification to its answer"
    );
    describe_histogram!(
        names::BATCH_EVENTS,
        Unit::Count,
        "Events in one commit of the recorder"
    );
}

fn describe_gauges() {
    let gauges = [
        (
            names::OUTBOX_ROWS,
            Unit::Count,
            "Outbox rows without a confirmed publish",
        ),
        (
            names::OUTBOX_OLDEST_SECONDS,
            Unit::Seconds,
            "Age of the oldest outbox row without a confirmed publish",
        ),
        (
            names::BROKER_UP,
            Unit::Count,
            "1 while messages can leave, else 0",
        ),
        (names::UNFINISHED_EVENTS, Unit::Count, "Events without an outcome"),
        (
            names::UNFINISHED_OLDEST_SECONDS,
            Unit::Seconds,
            "Age of the oldest event without an outcome",
        ),
        (
            names::ATTENTION_OPEN,
            Unit::Count,
            "Open attention items, by code",
        ),
        (
            names::DEAD_LETTERS_OPEN,
            Unit::Count,
            "Dead letters not yet redriven",
        ),
        (names::REPLAYS_RUNNING, Unit::Count, "Replays that have not ended"),
        (
            names::FEED_DELAY,
            Unit::Seconds,
            "How long the oldest open write in the database cluster has held the feed back",
        ),
        (
            names::IDEMPOTENCY_OLDEST_SECONDS,
            Unit::Seconds,
            "Age of the oldest call with an Idempotency-Key that has not ended",
        ),
        (
            names::IDEMPOTENCY_UNKNOWN,
            Unit::Count,
            "Calls with an effect outside whose outcome is unknown",
        ),
        (
            names::CLOCK_OFFSET,
            Unit::Seconds,
            "Our clock minus the signed send time of the provider's last notification",
        ),
        (
            names::LAST_EVENT,
            Unit::Seconds,
            "When the account's last event was recorded, seconds since 1970",
        ),
        (
            names::KEY_EXPIRY,
            Unit::Seconds,
            "When the account's certificate ends, seconds since 1970",
        ),
        (
            names::KEY_LAST_VERIFIED,
            Unit::Seconds,
            "When the last notification that the key verified arrived, seconds since 1970",
        ),
    ];
    for (name, unit, meaning) in gauges {
        describe_gauge!(name, unit, meaning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_rendered_with_its_meaning() {
        let metrics = Metrics::install().unwrap();
        let again = Metrics::install().unwrap();
        metrics::counter!(names::APPLIED, "outcome" => "applied").increment(1);
        metrics::histogram!(names::ACK_SECONDS, "provider" => "alipay").record(0.003);
        metrics.upkeep();
        let text = again.render();
        assert!(
            text.contains("# HELP payhook_applied_total Events applied"),
            "{text}"
        );
        assert!(
            text.contains("payhook_applied_total{outcome=\"applied\"} "),
            "{text}"
        );
        assert!(
            text.contains("payhook_ack_seconds_bucket{provider=\"alipay\",le=\"0.005\"} "),
            "{text}"
        );
    }
}
