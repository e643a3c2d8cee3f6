//! `GET /v1/attention`: what needs a human, and the ways out that each item offers.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::api::ApiState;
use crate::api::auth::Reader;
use crate::api::page::{Page, Params, Segment, Span};
use crate::api::problem::Problem;
use crate::store::attention::{AttentionFilter, AttentionView};

/// What the list may be asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Query {
    /// `open` if it is absent.
    #[serde(default)]
    #[param(inline)]
    state: Which,
    /// About this order.
    order_id: Option<String>,
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

/// The open items, or all of them.
#[utoipa::path(
    get,
    path = "/v1/attention",
    operation_id = "list_attention",
    tag = "attention",
    params(Query),
    responses((status = 200, description = "A page of them, newest first.", body = Page<AttentionView>))
)]
pub(in crate::api) async fn list(
    State(state): State<ApiState>,
    reader: Reader,
    Params(query): Params<Query>,
) -> Result<Json<Page<AttentionView>>, Problem> {
    let span = Span::read("attention", query.limit, query.cursor.as_deref())?;
    let filter = AttentionFilter {
        merchant: reader.merchant,
        all: matches!(query.state, Which::All),
        order_id: query.order_id,
        before: span.after.clone(),
        limit: span.rows(),
    };
    let rows = state.store.attention(&filter).await?;
    Ok(Json(Page::new("attention", &span, rows, |row| row.id.clone())))
}

/// One item.
#[utoipa::path(
    get,
    path = "/v1/attention/{id}",
    operation_id = "show_attention",
    tag = "attention",
    params(("id" = String, Path, description = "The item's `id`.")),
    responses((status = 200, description = "The item.", body = AttentionView))
)]
pub(in crate::api) async fn show(
    State(state): State<ApiState>,
    reader: Reader,
    Segment(id): Segment,
) -> Result<Json<AttentionView>, Problem> {
    let item = state.store.attention_item(&reader.merchant, &id).await?;
    item.map(Json).ok_or_else(|| Problem::not_found("no such item"))
}
