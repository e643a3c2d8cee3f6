//! `POST /v1/replays/{id}/cancel`: ends a replay; what the broker has not got yet is not sent.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::list::no_such_replay;
use crate::api::ApiState;
use crate::api::auth::Operator;
use crate::api::openapi::NotAllowed;
use crate::api::operation::{Operation, answer, refusal};
use crate::api::page::Segment;
use crate::api::problem::Problem;
use crate::idempotency::{Answer, Withdrawn};
use crate::store::Tx;
use crate::store::audit::{self, Deed};
use crate::store::replays::{self, ReplayView, seen_by};

/// Why.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CancelReplay)]
pub(in crate::api) struct Why {
    #[serde(default)]
    reason: String,
}

/// The replay, ended.
#[utoipa::path(
    post,
    path = "/v1/replays/{id}/cancel",
    operation_id = "cancel_replay",
    tag = "replays",
    params(("id" = String, Path, description = "The replay's `id`.")),
    request_body(content = Option<Why>, example = json!({ "reason": "the wrong queue" })),
    responses(
        (
            status = 200,
            description = "The replay, ended.",
            body = ReplayView,
            examples(("cancelled" = (summary = "cancelled"))),
        ),
        NotAllowed,
    )
)]
pub(in crate::api) async fn cancel(
    State(state): State<ApiState>,
    Segment(id): Segment,
    operation: Operation<Why>,
) -> Response {
    let run = state.clone();
    operation
        .once_in_steps(&state, move |operator, why| {
            async move { carry_out(&run, &id, &operator, &why).await }.boxed()
        })
        .await
}

async fn carry_out(
    state: &ApiState,
    id: &str,
    operator: &Operator,
    why: &Why,
) -> Result<(Tx, Answer), Withdrawn> {
    let mut tx = state.store.begin().await?;
    let deed = |action, details| Deed {
        merchant: &operator.merchant,
        actor: &operator.name,
        action,
        reason: &why.reason,
        details,
    };
    let taken_back = replays::cancel(&mut tx, &operator.merchant, id).await?;
    let found = seen_by(&mut tx, &operator.merchant, id).await?;
    let Some(found) = found else {
        return Err(no_such_replay().into());
    };
    let Some(taken_back) = taken_back else {
        let problem = Problem::not_allowed(format!("the replay is {} already", found.state));
        let details = json!({ "replay": id, "cancel": true, "refused": problem.detail() });
        audit::enter(&mut tx, &deed("replay.refuse", details)).await?;
        return Ok((tx, refusal(&problem)?));
    };
    let details = json!({ "replay": id, "sent": found.sent, "taken_back": taken_back });
    audit::enter(&mut tx, &deed("replay.cancel", details)).await?;
    tracing::info!(replay.id = id, actor = operator.name, "replay cancelled");
    Ok((tx, answer(StatusCode::OK, &found)?))
}
