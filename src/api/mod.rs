//! The private listener: what people, programs and probes ask of a running payhook.
//!
//! One file per noun; this one gathers their calls, each bound and described by one line ([`openapi`]). Everything under `/v1` asks for a token whose
//! merchant and scopes decide what is seen ([`auth`]); every error is a problem document with a code
//! ([`problem`]), every list one shape ([`page`]). Nothing here decides anything about orders: handlers read
//! the store, hand on what is asked, and put rows into the words of the contract. Every POST has a key
//! ([`operation`]).

mod attention;
pub mod auth;
mod dead_letters;
mod events;
mod feed;
mod health;
mod metrics;
mod openapi;
mod operation;
mod orders;
pub mod page;
pub mod problem;
mod quarantine;
mod replays;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::problem::{Code, Problem};
use crate::idempotency::Keys;
use crate::orders::apply::Policy;
use crate::provider::Registry;
use crate::replay::Replays;
use crate::store::Store;
use crate::store::outbox::Bell;
use crate::telemetry::{Health, Metrics};
use crate::time::Clock;

pub use auth::Tokens;
pub use health::Readiness;
pub use metrics::Sampler;
pub use operation::keys;

/// A request that has not been answered by then is answered 503.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// No request here has a long body: a filter and a reason.
const MAX_BODY: usize = 64 * 1024;

/// What the handlers need; clones share it.
#[derive(Clone, Debug)]
pub struct ApiState {
    /// Where everything is read.
    pub store: Store,
    /// Who may ask.
    pub tokens: Tokens,
    /// What the flows report.
    pub health: Arc<Health>,
    /// Whether a notification could be taken.
    pub readiness: Readiness,
    /// What has been counted.
    pub metrics: Metrics,
    /// The accounts and their keys, as of now.
    pub registry: Arc<ArcSwap<Registry>>,
    /// Which calls were made.
    pub keys: Keys,
    /// What becomes of orders that nobody registered.
    pub policy: Policy,
    /// Rung when a call has written messages.
    pub bell: Bell,
    /// What plans replays.
    pub replays: Replays,
    /// The present.
    pub clock: Clock,
}

/// Every path of the private listener.
pub fn router(state: ApiState) -> Router {
    finish(calls(), state)
}

/// What it answers in a process without the role `api`: how the process is.
pub fn health_router(state: ApiState) -> Router {
    finish(health_calls(), state)
}

fn finish(calls: OpenApiRouter<ApiState>, state: ApiState) -> Router {
    let (router, described) = calls.split_for_parts();
    router
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(Extension(openapi::Document::new(described)))
        .layer(middleware::from_fn(guard))
        .with_state(state)
}

/// What every process answers.
fn health_calls() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::render))
}

/// Every call. What is not described cannot be bound here.
fn calls() -> OpenApiRouter<ApiState> {
    health_calls()
        .routes(routes!(openapi::show))
        .routes(routes!(events::list))
        .routes(routes!(events::show))
        .routes(routes!(events::raw))
        .routes(routes!(replays::begin::begin_one))
        .routes(routes!(replays::list::list, replays::begin::begin))
        .routes(routes!(replays::list::show))
        .routes(routes!(replays::cancel::cancel))
        .routes(routes!(feed::read))
        .routes(routes!(orders::list::list, orders::register::register))
        .routes(routes!(orders::list::show))
        .routes(routes!(orders::close::close))
        .routes(routes!(attention::list::list))
        .routes(routes!(attention::list::show))
        .routes(routes!(attention::resolve::resolve))
        .routes(routes!(dead_letters::list::list))
        .routes(routes!(dead_letters::redrive::redrive))
        .routes(routes!(dead_letters::list::show))
        .routes(routes!(dead_letters::redrive::redrive_one))
        .routes(routes!(quarantine::list::list))
        .routes(routes!(quarantine::reverify::reverify))
        .routes(routes!(quarantine::list::show))
}

/// Bounds every request in time and keeps every answer out of caches and content sniffers.
async fn guard(request: Request, next: Next) -> Response {
    let limit = if request.uri().path() == feed::PATH {
        REQUEST_TIMEOUT.saturating_add(feed::LONGEST_WAIT)
    } else {
        REQUEST_TIMEOUT
    };
    let answered = tokio::time::timeout(limit, next.run(request)).await;
    let mut response =
        answered.unwrap_or_else(|_| Problem::unavailable("not answered in time").into_response());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn nowhere() -> Problem {
    Problem::not_found("no such path, or this process runs without the role `api`")
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        Code::MethodNotAllowed,
        "this path does not take that method",
    )
}
