//! `GET /v1/orders` and one order with everything that happened to it.
//!
//! An order that waits for its registration does not exist yet for anybody who asks by its id; `state=parked`
//! lists those.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::schema::Object;

use crate::api::ApiState;
use crate::api::auth::Reader;
use crate::api::openapi::one_of;
use crate::api::page::{Page, Params, Segment, Span};
use crate::api::problem::Problem;
use crate::store::OrderFilter;
use crate::store::view::{OrderHead, OrderView};
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
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Query {
    #[param(schema_with = states)]
    state: Option<String>,
    /// 1 to 500; 50 if it is absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

fn states() -> Object {
    one_of(
        "That stand so; `parked`: that wait for their registration.",
        STATES,
    )
}

/// The orders, newest first.
#[utoipa::path(
    get,
    path = "/v1/orders",
    operation_id = "list_orders",
    tag = "orders",
    params(Query),
    responses((status = 200, description = "A page of them, newest first.", body = Page<OrderHead>))
)]
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
#[utoipa::path(
    get,
    path = "/v1/orders/{order_id}",
    operation_id = "show_order",
    tag = "orders",
    params(("order_id" = String, Path, description = "The merchant's id, as one percent-encoded segment.")),
    responses((status = 200, description = "The order with all that belongs to it.", body = OrderView))
)]
pub(in crate::api) async fn show(
    State(state): State<ApiState>,
    reader: Reader,
    Segment(order_id): Segment,
) -> Result<Json<OrderView>, Problem> {
    if let Some(order) = state.store.order(&reader.merchant, &order_id).await? {
        return Ok(Json(order));
    }
    // It does not exist for whoever asks, and yet money may have come for it.
    let waits = state.store.is_parked(&reader.merchant, &order_id).await?;
    Err(Problem::not_found(if waits {
        "no such order yet: notifications of it wait for its registration (`payhook orders list --state parked`)"
    } else {
        "no such order"
    }))
}
