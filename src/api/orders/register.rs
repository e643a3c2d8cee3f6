//! `POST /v1/orders`: what an order costs, said before or after its notifications came.
//!
//! A payment that differs needs a human; a second registration that differs is refused.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::FutureExt as _;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{PartialSchema as _, ToSchema};

use super::shown;
use crate::api::ApiState;
use crate::api::auth::Operator;
use crate::api::openapi::OrderExists;
use crate::api::operation::{Operation, answer, refusal};
use crate::api::problem::{Code, Problem};
use crate::event::text::{MAX_ID, id};
use crate::event::{Currency, Money};
use crate::idempotency::{Answer, Withdrawn};
use crate::orders::apply::{Registration, register as apply};
use crate::store::Tx;
use crate::store::audit::{self, Deed};
use crate::store::orders::OrderKey;
use crate::store::view::OrderView;

/// The order, as its merchant knows it.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RegisterOrder)]
pub(in crate::api) struct Wish {
    /// Yours; 1 to 255 bytes.
    #[serde(deserialize_with = "order_id")]
    #[schema(min_length = 1, max_length = 255)]
    order_id: String,
    /// What it costs.
    #[serde(deserialize_with = "price")]
    #[schema(schema_with = described)]
    amount: Money,
}

fn order_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let empty = || D::Error::custom(format!("`order_id` must have 1 to {MAX_ID} bytes"));
    id(&text)
        .map_err(|why| D::Error::custom(format!("`order_id` {why}")))?
        .ok_or_else(empty)
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Money, D::Error> {
    let amount = Money::deserialize(deserializer)?;
    if amount.minor > 0 {
        Ok(amount)
    } else {
        Err(D::Error::custom("`amount.minor` must be more than nothing"))
    }
}

fn described() -> Object {
    ObjectBuilder::new()
        .property(
            "minor",
            ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)),
        )
        .required("minor")
        .property("currency", Currency::schema())
        .required("currency")
        .build()
}

/// 201 with the order; 200 if it was registered so before.
#[utoipa::path(
    post,
    path = "/v1/orders",
    operation_id = "register_order",
    tag = "orders",
    request_body(
        content = Wish,
        examples(
            ("registered" = (value = json!({ "order_id": "ORDER-1001", "amount": { "minor": 8888, "currency": "CNY" } }))),
        ),
    ),
    responses(
        (
            status = 201,
            description = "The order.",
            body = OrderView,
            examples(("registered" = (summary = "new"))),
        ),
        (
            status = 200,
            description = "The order, which was registered so before.",
            body = OrderView,
            examples(("known" = (summary = "known"))),
        ),
        OrderExists,
    )
)]
pub(in crate::api) async fn register(State(state): State<ApiState>, operation: Operation<Wish>) -> Response {
    let run = state.clone();
    operation
        .once(&state, move |tx, operator, wish| {
            carry_out(tx, run, operator, wish).boxed()
        })
        .await
}

async fn carry_out(
    tx: &mut Tx,
    state: ApiState,
    operator: Operator,
    wish: Wish,
) -> Result<Answer, Withdrawn> {
    let Wish { order_id, amount } = wish;
    let order = OrderKey {
        merchant: operator.merchant,
        order_id,
    };
    let status = match apply(tx, &order, amount, &state.policy, state.clock.now()).await? {
        Registration::Other(known) => {
            let detail = format!("the order is registered at {known}");
            return Ok(refusal(&Problem::new(
                StatusCode::CONFLICT,
                Code::OrderExists,
                detail,
            ))?);
        }
        Registration::Known => StatusCode::OK,
        Registration::New => {
            let deed = Deed {
                merchant: &order.merchant,
                actor: &operator.name,
                action: "order.register",
                reason: "",
                details: json!({ "order_id": order.order_id, "amount": amount }),
            };
            audit::enter(tx, &deed).await?;
            StatusCode::CREATED
        }
    };
    Ok(answer(status, &shown(tx, &order).await?)?)
}
