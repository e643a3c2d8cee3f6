//! `GET /v1/replays` and one of them, with how far it has come.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::ApiState;
use crate::api::auth::Reader;
use crate::api::page::{Page, Params, Segment, Span};
use crate::api::problem::Problem;
use crate::store::replays::ReplayView;

/// What the list may be asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Query {
    /// 1 to 500; 50 if it is absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// The merchant's replays.
#[utoipa::path(
    get,
    path = "/v1/replays",
    operation_id = "list_replays",
    tag = "replays",
    params(Query),
    responses((status = 200, description = "A page of them, newest first.", body = Page<ReplayView>))
)]
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
#[utoipa::path(
    get,
    path = "/v1/replays/{id}",
    operation_id = "show_replay",
    tag = "replays",
    params(("id" = String, Path, description = "The replay's `id`.")),
    responses((status = 200, description = "The replay and how far it has come.", body = ReplayView))
)]
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
