//! `GET /v1/orders` and one order with everything that happened to it.
//!
//! An order that waits for its registration does not exist yet for anybody who asks by its id; `state=parked`
//! lists those.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use crate::api::ApiState;
use crate::api::auth::Reader;
use crate::api::page::{Page, Params, Segment, Span};
use crate::api::problem::Problem;
use crate::store::view::{OrderFilter, OrderHead, OrderView};
use crate::time::Timestamp;

const STATES: [&str; 9] = [
    "pending",
    "processing",
    "failed",
    "closed",
    "paid",
    "partially_refunded",
    "finished",
    "refunded",
    "parked",
];

/// What the list may be asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Query {
    state: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// The orders, newest first.
pub(in crate::api) async fn list(
    State(state): State<ApiState>,
    reader: Reader,
    Params(query): Params<Query>,
) -> Result<Json<Page<OrderHead>>, Problem> {
    let span = Span::read("orders", query.limit, query.cursor.as_deref())?;
    if let Some(asked) = &query.state
        && !STATES.contains(&asked.as_str())
    {
        let known = STATES.join(", ");
        return Err(Problem::validation(format!("`state` must be one of {known}")));
    }
    let before = span.after.as_deref().map(position).transpose()?;
    let filter = OrderFilter {
        merchant: reader.merchant,
        state: query.state,
        before,
        limit: span.rows(),
    };
    let rows = state.store.orders(&filter).await?;
    Ok(Json(Page::new("orders", &span, rows, |row| {
        format!("{}:{}", row.created_at.micros(), row.order_id)
    })))
}

/// Where a page begins: orders sort by when they became known, then by id.
fn position(key: &str) -> Result<(Timestamp, String), Problem> {
    let parsed = key.split_once(':').and_then(|(micros, order_id)| {
        Some((Timestamp::from_micros(micros.parse().ok()?), order_id.to_owned()))
    });
    parsed.ok_or_else(|| Problem::validation("`cursor` is not one of this list's"))
}

/// One order.
pub(in crate::api) async fn show(
    State(state): State<ApiState>,
    reader: Reader,
    Segment(order_id): Segment,
) -> Result<Json<OrderView>, Problem> {
    let order = state.store.order(&reader.merchant, &order_id).await?;
    order.map(Json).ok_or_else(|| Problem::not_found("no such order"))
}
