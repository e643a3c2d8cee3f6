//! `GET /v1/dead-letters`: what could not be applied, and messages in payhook's queue that name no event.
//!
//! The latter belong to no merchant; every reader sees that they exist, and nobody sees here what they held.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::api::ApiState;
use crate::api::auth::Reader;
use crate::api::page::{Page, Params, Segment, Span};
use crate::api::problem::Problem;
use crate::store::dead_letters::DeadLetter;
use crate::time::Timestamp;

/// What the list may be asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Query {
    /// `open` if it is absent.
    #[serde(default)]
    #[param(inline)]
    state: Which,
    /// 1 to 500; 50 if it is absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Which {
    #[default]
    Open,
    All,
}

/// A dead letter as it is shown.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(in crate::api) struct View {
    id: String,
    event_id: Option<String>,
    event_key: Option<String>,
    error: String,
    attempts: i32,
    created_at: Timestamp,
    /// For a message that names no event: when its attention item was resolved.
    redriven_at: Option<Timestamp>,
}

impl From<DeadLetter> for View {
    fn from(letter: DeadLetter) -> Self {
        Self {
            id: letter.id,
            event_id: letter.event_id,
            event_key: letter.event_key,
            error: letter.error,
            attempts: letter.attempts,
            created_at: letter.created_at,
            redriven_at: letter.redriven_at,
        }
    }
}

/// Those that wait, or all of them.
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    operation_id = "list_dead_letters",
    tag = "dead letters",
    params(Query),
    responses((status = 200, description = "A page of them, newest first.", body = Page<View>))
)]
pub(in crate::api) async fn list(
    State(state): State<ApiState>,
    reader: Reader,
    Params(query): Params<Query>,
) -> Result<Json<Page<View>>, Problem> {
    let span = Span::read("dead_letters", query.limit, query.cursor.as_deref())?;
    let all = matches!(query.state, Which::All);
    let rows = state
        .store
        .dead_letters(&reader.merchant, span.after.as_deref(), all, span.rows())
        .await?;
    let page = Page::new("dead_letters", &span, rows, |row| row.id.clone());
    Ok(Json(page.map(View::from)))
}

/// One of them.
#[utoipa::path(
    get,
    path = "/v1/dead-letters/{id}",
    operation_id = "show_dead_letter",
    tag = "dead letters",
    params(("id" = String, Path, description = "The dead letter's `id`.")),
    responses((status = 200, description = "The dead letter.", body = View))
)]
pub(in crate::api) async fn show(
    State(state): State<ApiState>,
    reader: Reader,
    Segment(id): Segment,
) -> Result<Json<View>, Problem> {
    let letter = owned(&state, &reader.merchant, &id).await?;
    Ok(Json(View::from(letter)))
}

/// One that is this merchant's, or nobody's.
pub(super) async fn owned(state: &ApiState, merchant: &str, id: &str) -> Result<DeadLetter, Problem> {
    let letter = state.store.dead_letter(id).await?;
    letter
        .filter(|letter| letter.merchant.as_ref().is_none_or(|owner| owner == merchant))
        .ok_or_else(|| Problem::not_found("no such dead letter"))
}
