//! `GET /v1/replays` and one of them, with how far it has come.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use crate::api::ApiState;
use crate::api::auth::Reader;
use crate::api::page::{Page, Params, Segment, Span};
use crate::api::problem::Problem;
use crate::store::replays::ReplayView;

/// What the list may be asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Query {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// The merchant's replays.
pub(in crate::api) async fn list(
    State(state): State<ApiState>,
    reader: Reader,
    Params(query): Params<Query>,
) -> Result<Json<Page<ReplayView>>, Problem> {
    let span = Span::read("replays", query.limit, query.cursor.as_deref())?;
    let rows = state
        .store
        .replays(&reader.merchant, span.after.as_deref(), span.rows())
        .await?;
    Ok(Json(Page::new("replays", &span, rows, |row| row.id.clone())))
}

/// One of them.
pub(in crate::api) async fn show(
    State(state): State<ApiState>,
    reader: Reader,
    Segment(id): Segment,
) -> Result<Json<ReplayView>, Problem> {
    let replay = state.store.replay(&reader.merchant, &id).await?;
    replay.map(Json).ok_or_else(no_such_replay)
}

pub(super) fn no_such_replay() -> Problem {
    Problem::not_found("no such replay")
}
