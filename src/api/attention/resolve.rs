//! `POST /v1/attention/{id}/resolve`: a human's decision, with the reason.
//!
//! `accept_payment`, `keep` and `apply_once` change what is known, in the transaction that closes the item; every
//! other action only closes it, and with the item about messages that name no event these messages. So does `keep` of an
//! item that names no trade. Each item is closed once: the database's guard decides between two who try.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::auth::Operator;
use crate::api::openapi::NotAllowed;
use crate::api::operation::{Operation, answer, reason, refusal};
use crate::api::page::Segment;
use crate::api::problem::Problem;
use crate::event::{AttentionCode, Event, EventId, ProviderName, Reading};
use crate::idempotency::{Answer, Withdrawn};
use crate::orders::apply::{Item, OwnFact, apply, apply_fact};
use crate::store::attention::{self, AttentionView, Resolution};
use crate::store::audit::{self, Deed};
use crate::store::dead_letters;
use crate::store::history::{self, NewOutcome};
use crate::store::trades::TradeKey;
use crate::store::{StoreError, Tx, locks};

/// What was decided.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Decision {
    /// One of the item's ways out.
    action: String,
    /// Why, for the audit.
    #[serde(deserialize_with = "reason")]
    #[schema(pattern = r"\S")]
    reason: String,
}

/// The item, closed.
#[utoipa::path(
    post,
    path = "/v1/attention/{id}/resolve",
    operation_id = "resolve_attention",
    tag = "attention",
    params(("id" = String, Path, description = "The item's `id`.")),
    request_body(
        content = Decision,
        example = json!({ "action": "dismiss", "reason": "checked with the customer" }),
    ),
    responses(
        (
            status = 200,
            description = "The item, closed.",
            body = AttentionView,
            examples(("resolved" = (summary = "resolved"))),
        ),
        NotAllowed,
    )
)]
pub(in crate::api) async fn resolve(
    State(state): State<ApiState>,
    Segment(id): Segment,
    operation: Operation<Decision>,
) -> Response {
    let event = told(&state, &operation, &id).await;
    let run = Run {
        state: state.clone(),
        id,
        event,
    };
    operation
        .once(&state, move |tx, operator, decision| {
            run.carry_out(tx, operator, decision).boxed()
        })
        .await
}

/// The event that is to be applied once, read before the transaction: a second connection is not waited for
/// while one is held.
async fn told(
    state: &ApiState,
    operation: &Operation<Decision>,
    id: &str,
) -> Result<Option<Arc<Event>>, StoreError> {
    if operation.body.action != APPLY_ONCE {
        return Ok(None);
    }
    let item = state
        .store
        .attention_item(&operation.operator.merchant, id)
        .await?;
    match item.and_then(|item| item.event_id) {
        Some(event) => state.store.event(&EventId::from_text(event)).await,
        None => Ok(None),
    }
}

const ACCEPT_PAYMENT: &str = "accept_payment";
const APPLY_ONCE: &str = "apply_once";
const KEEP: &str = "keep";

struct Run {
    state: ApiState,
    id: String,
    /// A failure counts only once the key has had its say.
    event: Result<Option<Arc<Event>>, StoreError>,
}

impl Run {
    async fn carry_out(
        self,
        tx: &mut Tx,
        operator: Operator,
        decision: Decision,
    ) -> Result<Answer, Withdrawn> {
        let Self { state, id, event } = self;
        let event = event?;
        let found = attention::item(tx, &operator.merchant, &id).await?;
        let item = found.ok_or_else(|| Problem::not_found("no such item"))?;
        if let Some(refused) = refused(&item, &decision.action) {
            return Ok(refusal(&refused)?);
        }
        // Not final: with the account configured again the same call goes through.
        let once = (decision.action == APPLY_ONCE)
            .then(|| readable(&state, event.as_deref()))
            .transpose()?;
        let decided = own_fact(&item, &decision.action)?;
        // Before the item: a worker closes items while it holds the trade's lock.
        let trades: Vec<&TradeKey> = decided.iter().map(|(trade, _)| trade).collect();
        locks::lock_trades(tx, &trades).await?;
        let resolution = Resolution {
            action: decision.action.clone(),
            reason: decision.reason.clone(),
            resolved_by: operator.name.clone(),
            resolved_at: state.clock.now(),
        };
        if !attention::resolve(tx, &item.id, &resolution).await? {
            return Ok(refusal(&Problem::not_allowed(
                "it was resolved in the same moment",
            ))?);
        }
        if item.code == AttentionCode::DeadLetter.as_str() {
            dead_letters::close_unknown(tx, &item.source, state.clock.now()).await?;
        }
        // The item is closed first: the rules take what is closed by a human as settled.
        let applied = match (decided, &once) {
            (Some((_, fact)), _) => {
                let now = state.clock.now();
                let applied = apply_fact(tx, &item.merchant, &fact, &state.policy, now).await?;
                Some(applied.reason)
            }
            (None, Some((event, reading))) => Some(apply_once(&state, tx, event, reading).await?),
            (None, None) => None,
        };
        let details = json!({
            "id": item.id, "code": item.code, "action": decision.action,
            "order_id": item.order_id, "event_id": item.event_id, "applied": applied,
        });
        let deed = Deed {
            merchant: &operator.merchant,
            actor: &operator.name,
            action: "attention.resolve",
            reason: &decision.reason,
            details,
        };
        audit::enter(tx, &deed).await?;
        let closed = attention::item(tx, &operator.merchant, &id).await?;
        Ok(answer(StatusCode::OK, &closed)?)
    }
}

/// The event that is to be applied although it is about another account, and what it says today.
fn readable<'a>(state: &ApiState, event: Option<&'a Event>) -> Result<(&'a Event, Reading), Problem> {
    let event = event.ok_or_else(|| Problem::not_allowed("its event is not kept any more"))?;
    let reading = state.registry.load().read(event);
    let reading = reading.map_err(|why| Problem::not_allowed(format!("its event cannot be read: {why}")))?;
    Ok((event, reading))
}

/// Applies it; what came of it, in words.
async fn apply_once(
    state: &ApiState,
    tx: &mut Tx,
    event: &Event,
    reading: &Reading,
) -> Result<String, Withdrawn> {
    let items = [Item { event, reading }];
    let now = state.clock.now();
    let applied = apply(tx, &items, &state.policy, now).await?;
    // What is a mere repetition of facts leaves the outcome alone; this one said that a human must look, and has.
    let decided: Vec<NewOutcome> = applied
        .iter()
        .map(|applied| NewOutcome {
            event_id: event.id.clone(),
            outcome: applied.outcome.as_str(),
            reason: applied.reason.clone(),
        })
        .collect();
    history::decide(tx, &decided, now).await?;
    Ok(applied.into_iter().map(|applied| applied.reason).collect())
}

/// Why this action is none of the item's.
fn refused(item: &AttentionView, action: &str) -> Option<Problem> {
    if let Some(resolution) = &item.resolution {
        let (by, action) = (&resolution.resolved_by, &resolution.action);
        return Some(Problem::not_allowed(format!("it was resolved by {by}: {action}")));
    }
    (!item.actions.contains(&action)).then(|| {
        let ways = item.actions.join(", ");
        Problem::not_allowed(format!("`{}` may be resolved with: {ways}", item.code))
    })
}

/// What the action says of the item's payment, and the trade that it says it of.
fn own_fact(item: &AttentionView, action: &str) -> Result<Option<(TradeKey, OwnFact)>, StoreError> {
    let provider: Option<ProviderName> = item
        .provider
        .as_deref()
        .and_then(|provider| provider.parse().ok());
    let (provider, trade_id) = match (action, provider.zip(item.trade_id.clone())) {
        (ACCEPT_PAYMENT | KEEP, Some(named)) => named,
        (ACCEPT_PAYMENT, None) => {
            return Err(StoreError::corrupt(
                "attention",
                format!("trade of item {}", item.id),
            ));
        }
        _ => return Ok(None),
    };
    let trade = TradeKey {
        merchant: item.merchant.clone(),
        provider: provider.as_str().to_owned(),
        trade_id: trade_id.clone(),
    };
    let attention_id = item.id.clone();
    let fact = if action == KEEP {
        OwnFact::PaymentKept {
            attention_id,
            provider,
            trade_id,
        }
    } else {
        OwnFact::PaymentAccepted {
            attention_id,
            provider,
            trade_id,
        }
    };
    Ok(Some((trade, fact)))
}
