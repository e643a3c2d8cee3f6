//! `/healthz`: the process answers. `/readyz`: it can take a notification. Neither asks for a token.
//!
//! Ready means that the store takes a write, committed within a second, and that the drain has not begun: what
//! an ack promises. A process with ingress probes over the connections that it records over: that others can be
//! had says nothing about those. The broker and the outbox stand in the body only, since acks do not wait for
//! them; but a process without ingress does nothing without the broker, and says so. The probe's write is shared
//! by all who ask within a second, so that asking often costs nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::ApiState;
use crate::store::{Store, Writer};
use crate::telemetry::BrokerState;
use crate::time::{Clock, Timestamp};

/// How long the store has for the probe's commit, and how long the answer is believed.
const PROBE: Duration = Duration::from_secs(1);

/// How long it is asked why it gives no connection: who asks for readiness waits two seconds at most.
const ASK_WHY: Duration = Duration::from_millis(300);

/// Tries the store's writes; clones share the last answer.
#[derive(Clone, Debug)]
pub struct Readiness {
    store: Store,
    clock: Clock,
    asking: Arc<Mutex<Asking>>,
}

/// Who asks, and what the answer was.
#[derive(Debug)]
struct Asking {
    writer: Writer,
    last: Option<(Instant, bool)>,
}

impl Readiness {
    /// For this store.
    pub fn new(store: Store, clock: Clock) -> Self {
        Self {
            asking: Arc::new(Mutex::new(Asking {
                writer: store.writer(),
                last: None,
            })),
            store,
            clock,
        }
    }

    /// Whether the store commits a write within a second, as of less than a second ago.
    pub async fn store_takes_writes(&self) -> bool {
        // Held across the probe: those who ask meanwhile wait for this answer instead of probing too.
        let mut asking = self.asking.lock().await;
        if let Some((at, ok)) = asking.last
            && at.elapsed() < PROBE
        {
            return ok;
        }
        let probe = tokio::time::timeout(PROBE, asking.writer.probe(self.clock.now())).await;
        asking.writer.rest();
        let ok = match probe {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let refusal = self.store.refusal(ASK_WHY).await;
                tracing::warn!(%error, cause, refusal, "not ready: the store refuses a write");
                false
            }
            Err(_) => {
                let refusal = self.store.refusal(ASK_WHY).await;
                tracing::warn!(
                    refusal,
                    "not ready: the store took longer than a second for a write"
                );
                false
            }
        };
        asking.last = Some((Instant::now(), ok));
        ok
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Live {
    status: &'static str,
}

/// The process answers.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "live",
    tag = "process",
    responses((status = 200, description = "It does.", body = Live))
)]
pub(super) async fn live() -> Json<Live> {
    Json(Live { status: "ok" })
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Readiness)]
pub(super) struct Report {
    ready: bool,
    store: &'static str,
    starting: bool,
    draining: bool,
    broker: BrokerState,
    broker_since: Option<Timestamp>,
    outbox: Option<Outbox>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct Outbox {
    pending: u64,
    oldest_at: Option<Timestamp>,
    oldest_age_seconds: i64,
}

/// Whether this process can do what it is for.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "ready",
    tag = "process",
    responses(
        (status = 200, description = "It can.", body = Report),
        (status = 503, description = "It cannot; the members say why.", body = Report),
    )
)]
pub(super) async fn ready(State(state): State<ApiState>) -> (StatusCode, Json<Report>) {
    let (starting, draining) = (state.health.is_starting(), state.health.is_draining());
    // Until the schema is there a write fails for want of a table, which says nothing of the store.
    let store = !starting && state.readiness.store_takes_writes().await;
    let (broker, broker_since) = state.health.broker();
    let now = state.clock.now();
    let ready = store && !starting && !draining && (state.health.has_ingress() || broker.is_up());
    let body = Report {
        ready,
        store: if store { "ok" } else { "unavailable" },
        starting,
        draining,
        broker,
        broker_since,
        outbox: state.health.outbox().map(|outbox| Outbox {
            pending: outbox.pending,
            oldest_at: outbox.oldest,
            oldest_age_seconds: outbox.oldest.map_or(0, |at| seconds_between(at, now)),
        }),
    };
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(body))
}

/// Whole seconds, never negative: two machines' clocks may differ.
fn seconds_between(earlier: Timestamp, later: Timestamp) -> i64 {
    later.micros_since(earlier).div_euclid(1_000_000).max(0)
}
