//! `POST /v1/orders`: what an order costs, said before or after its notifications came.
//!
//! A payment that differs needs a human; a second registration that differs is refused.

use std::time::Duration;

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
use crate::orders::apply::{ApplyError, Registration, register as apply};
use crate::store::Tx;
use crate::store::audit::{self, Deed};
use crate::store::orders::OrderKey;
use crate::store::view::OrderView;

/// How often a registration is tried that meets the order's payments.
const TRIES: u32 = 8;
/// The longest pause before the next try.
const PAUSE: Duration = Duration::from_millis(100);

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
    if amount.minor >= 0 {
        Ok(amount)
    } else {
        Err(D::Error::custom("`amount.minor` must not be less than nothing"))
    }
}

fn described() -> Object {
    ObjectBuilder::new()
        .property(
            "minor",
            ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)),
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
        .once_in_steps(&state, move |operator, wish| {
            until_settled(run, operator, wish).boxed()
        })
        .await
}

/// The order's first payment may link its trade between our look at the trades and our lock on the order. Then
/// nothing was written, and a transaction that begins now sees that trade.
async fn until_settled(state: ApiState, operator: Operator, wish: Wish) -> Result<(Tx, Answer), Withdrawn> {
    let order = OrderKey {
        merchant: operator.merchant,
        order_id: wish.order_id,
    };
    let mut tries = 1;
    loop {
        let mut tx = state.store.begin().await?;
        match apply(&mut tx, &order, wish.amount, &state.policy, state.clock.now()).await {
            Err(ApplyError::Contended) if tries < TRIES => {
                tries += 1;
                drop(tx);
                tokio::time::sleep(PAUSE.mul_f64(rand::random())).await;
            }
            ended => {
                let answer = told(&mut tx, &operator.name, &order, wish.amount, ended?).await?;
                return Ok((tx, answer));
            }
        }
    }
}

async fn told(
    tx: &mut Tx,
    actor: &str,
    order: &OrderKey,
    amount: Money,
    registration: Registration,
) -> Result<Answer, Withdrawn> {
    let status = match registration {
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
                actor,
                action: "order.register",
                reason: "",
                details: json!({ "order_id": order.order_id, "amount": amount }),
            };
            audit::enter(tx, &deed).await?;
            StatusCode::CREATED
        }
    };
    Ok(answer(status, &shown(tx, order).await?)?)
}
