//! `GET /v1/attention`: what needs a human, and the ways out that each item offers.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use crate::api::ApiState;
use crate::api::auth::Reader;
use crate::api::page::{Page, Params, Segment, Span};
use crate::api::problem::Problem;
use crate::store::attention::{AttentionFilter, AttentionView};

/// What the list may be asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Query {
    #[serde(default)]
    state: Which,
    order_id: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Which {
    #[default]
    Open,
    All,
}

/// The open items, or all of them.
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
pub(in crate::api) async fn show(
    State(state): State<ApiState>,
    reader: Reader,
    Segment(id): Segment,
) -> Result<Json<AttentionView>, Problem> {
    let item = state.store.attention_item(&reader.merchant, &id).await?;
    item.map(Json).ok_or_else(|| Problem::not_found("no such item"))
}
