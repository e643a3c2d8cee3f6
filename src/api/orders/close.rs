//! `POST /v1/orders/{order_id}/close`: the merchant does not want to be paid any more. Final.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::shown;
use crate::api::ApiState;
use crate::api::auth::Operator;
use crate::api::openapi::NotAllowed;
use crate::api::operation::{Operation, answer, refusal};
use crate::api::page::Segment;
use crate::api::problem::Problem;
use crate::idempotency::{Answer, Withdrawn};
use crate::orders::apply::{Close, close as apply};
use crate::store::Tx;
use crate::store::audit::{self, Deed};
use crate::store::orders::OrderKey;
use crate::store::view::OrderView;

/// Nothing need be said.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CloseOrder)]
pub(in crate::api) struct Wish {
    /// Why, for the audit.
    #[serde(default)]
    reason: String,
}

/// The order, closed.
#[utoipa::path(
    post,
    path = "/v1/orders/{order_id}/close",
    operation_id = "close_order",
    tag = "orders",
    params(("order_id" = String, Path, description = "The merchant's id, as one percent-encoded segment.")),
    request_body(content = Option<Wish>, example = json!({ "reason": "out of stock" })),
    responses(
        (status = 200, description = "The order, closed.", body = OrderView, examples(("closed" = (summary = "closed")))),
        NotAllowed,
    )
)]
pub(in crate::api) async fn close(
    State(state): State<ApiState>,
    Segment(order_id): Segment,
    operation: Operation<Wish>,
) -> Response {
    let run = state.clone();
    operation
        .once(&state, move |tx, operator, wish| {
            carry_out(tx, run, operator, order_id, wish).boxed()
        })
        .await
}

async fn carry_out(
    tx: &mut Tx,
    state: ApiState,
    operator: Operator,
    order_id: String,
    wish: Wish,
) -> Result<Answer, Withdrawn> {
    let order = OrderKey {
        merchant: operator.merchant,
        order_id,
    };
    match apply(tx, &order, &state.policy, state.clock.now()).await? {
        Close::NoOrder => {
            return Err(Problem::not_found("no such order, or it waits for its registration").into());
        }
        Close::Paid(status) => {
            let detail = format!("the order is {}: it can only be refunded", status.as_str());
            return Ok(refusal(&Problem::not_allowed(detail))?);
        }
        Close::Known => {}
        Close::New => {
            let deed = Deed {
                merchant: &order.merchant,
                actor: &operator.name,
                action: "order.close",
                reason: &wish.reason,
                details: json!({ "order_id": order.order_id }),
            };
            audit::enter(tx, &deed).await?;
        }
    }
    Ok(answer(StatusCode::OK, &shown(tx, &order).await?)?)
}
