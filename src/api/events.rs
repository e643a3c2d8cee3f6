//! `GET /v1/events`, one event with its timeline, and the exact bytes that came.
//!
//! The bytes ask for the scope `raw`, and are served as nothing but bytes: what a stranger sent must not become
//! a page in an operator's browser.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};

use super::ApiState;
use super::auth::{RawReader, Reader};
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
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    provider: Option<ProviderName>,
    account: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    order_id: Option<String>,
    trade_id: Option<String>,
    event_key: Option<String>,
    outcome: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// The events that match.
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
#[derive(Serialize)]
pub(super) struct Detail {
    #[serde(flatten)]
    event: EventView,
    timeline: Vec<Moment>,
}

/// One event.
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
