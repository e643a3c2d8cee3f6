//! `GET /v1/events`, one event with its timeline, and the exact bytes that came.
//!
//! The bytes ask for the scope `raw`, and are served as nothing but bytes: what a stranger sent must not become
//! a page in an operator's browser.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::Object;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::auth::{RawReader, Reader};
use super::openapi::one_of;
use super::page::{Page, Params, Segment, Span};
use super::problem::Problem;
use crate::event::{EventId, ProviderName};
use crate::store::timeline::Moment;
use crate::store::{EventFilter, EventView, UNFINISHED};
use crate::time::Timestamp;

const OUTCOMES: [&str; 7] = [
    "applied",
    "already_applied",
    "stale",
    "unmapped",
    "parked",
    "attention",
    "dead",
];

/// What the list may be asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// From this provider.
    provider: Option<ProviderName>,
    /// To this account.
    account: Option<String>,
    /// Of this type.
    #[serde(rename = "type")]
    #[param(example = "payment.succeeded")]
    kind: Option<String>,
    /// About this order.
    order_id: Option<String>,
    /// About this trade.
    trade_id: Option<String>,
    /// Under this key.
    event_key: Option<String>,
    #[param(schema_with = outcomes)]
    outcome: Option<String>,
    /// Received at this moment or later.
    since: Option<Timestamp>,
    /// Received before this moment.
    until: Option<Timestamp>,
    /// 1 to 500; 50 if it is absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// The events that match.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "list_events",
    tag = "events",
    params(Query),
    responses((status = 200, description = "A page of them, newest first.", body = Page<EventView>))
)]
pub(super) async fn list(
    State(state): State<ApiState>,
    reader: Reader,
    Params(query): Params<Query>,
) -> Result<Json<Page<EventView>>, Problem> {
    let span = Span::read("events", query.limit, query.cursor.as_deref())?;
    let outcome = query.outcome.map(outcome).transpose()?;
    let filter = EventFilter {
        merchant: reader.merchant,
        provider: query.provider,
        account: query.account,
        kind: query.kind,
        order_id: query.order_id,
        trade_id: query.trade_id,
        event_key: query.event_key,
        outcome,
        since: query.since,
        until: query.until,
    };
    let before = span.after.clone().map(EventId::from_text);
    let rows = state.store.events(&filter, before.as_ref(), span.rows()).await?;
    Ok(Json(Page::new("events", &span, rows, |row| row.id.to_string())))
}

fn outcomes() -> Object {
    let about = "That ended so; `none`: that has not ended.";
    one_of(about, OUTCOMES.into_iter().chain([UNFINISHED]))
}

/// An outcome, or `none` for events that have not ended.
pub(super) fn outcome(text: String) -> Result<String, Problem> {
    if text == UNFINISHED || OUTCOMES.contains(&text.as_str()) {
        return Ok(text);
    }
    let known = OUTCOMES.join(", ");
    Err(Problem::validation(format!(
        "`outcome` must be one of {known}, {UNFINISHED}"
    )))
}

/// One event with everything that happened to it.
#[derive(Serialize, ToSchema)]
#[schema(as = EventDetail)]
pub(super) struct Detail {
    #[serde(flatten)]
    event: EventView,
    timeline: Vec<Moment>,
}

/// One event.
#[utoipa::path(
    get,
    path = "/v1/events/{id}",
    operation_id = "show_event",
    tag = "events",
    params(("id" = String, Path, description = "The event's `id`.")),
    responses((status = 200, description = "The event and its timeline.", body = Detail))
)]
pub(super) async fn show(
    State(state): State<ApiState>,
    reader: Reader,
    Segment(id): Segment,
) -> Result<Json<Detail>, Problem> {
    let event = state
        .store
        .event_view(&reader.merchant, &EventId::from_text(id))
        .await?
        .ok_or_else(no_such_event)?;
    let timeline = state.store.timeline(event.id.as_str()).await?;
    Ok(Json(Detail { event, timeline }))
}

/// The bytes that came.
#[utoipa::path(
    get,
    path = "/v1/events/{id}/raw",
    operation_id = "raw_event",
    tag = "events",
    params(("id" = String, Path, description = "The event's `id`.")),
    responses((
        status = 200,
        description = "The request's body, byte for byte.",
        body = String,
        content_type = "application/octet-stream",
        example = json!("notify_id=2026112900222100000000000000000001&trade_status=TRADE_SUCCESS"),
    )),
    security(("bearer" = ["raw"]))
)]
pub(super) async fn raw(
    State(state): State<ApiState>,
    reader: RawReader,
    Segment(id): Segment,
) -> Result<impl IntoResponse, Problem> {
    let notification = state
        .store
        .event_raw(&reader.merchant, &EventId::from_text(id))
        .await?
        .ok_or_else(no_such_event)?;
    let headers = [
        (CONTENT_TYPE, "application/octet-stream"),
        (CONTENT_DISPOSITION, "attachment"),
    ];
    Ok((headers, notification.body))
}

fn no_such_event() -> Problem {
    Problem::not_found("no such event")
}
