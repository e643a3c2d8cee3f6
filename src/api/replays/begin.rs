//! `POST /v1/replays` and `POST /v1/events/{id}/replay`: a plan, or a replay that runs from then on.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::FutureExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::wish::{Granted, How, Wish};
use crate::api::ApiState;
use crate::api::auth::Operator;
use crate::api::openapi::NotAllowed;
use crate::api::operation::{Operation, answer, refusal};
use crate::api::page::Segment;
use crate::api::problem::{Code, Problem};
use crate::event::EventId;
use crate::idempotency::{Answer, Withdrawn};
use crate::replay::Plan;
use crate::store::audit::{self, Deed};
use crate::store::replays::{self, NewReplay, ReplayFilter, ReplayView, What};
use crate::store::{StoreError, Tx};

/// What would be done, as it is told.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplayPlan)]
struct Told<'a> {
    dry_run: bool,
    what: What,
    to: Option<&'a str>,
    filter: &'a ReplayFilter,
    #[serde(flatten)]
    plan: Plan,
}

/// Everything that a filter finds.
#[utoipa::path(
    post,
    path = "/v1/replays",
    operation_id = "begin_replay",
    tag = "replays",
    request_body(
        content = Wish,
        examples(
            ("begun" = (value = json!({ "filter": { "order_id": "ORDER-1001" }, "reason": "the shop lost its queue" }))),
            ("plan" = (value = json!({ "filter": { "provider": "alipay" }, "dry_run": true }))),
        ),
    ),
    responses(
        (status = 202, description = "It runs from now on.", body = ReplayView, examples(("begun" = (summary = "a replay")))),
        (status = 200, description = "What it would do.", body = Told, examples(("plan" = (summary = "a dry run")))),
        NotAllowed,
    )
)]
pub(in crate::api) async fn begin(State(state): State<ApiState>, operation: Operation<Wish>) -> Response {
    let run = state.clone();
    operation
        .long()
        .once_in_steps(&state, move |operator, wish| {
            let (filter, how) = wish.parts();
            let asked = Asked {
                state: run,
                operator,
                how,
            };
            async move { asked.carry_out(filter, None).await }.boxed()
        })
        .await
}

/// One event.
#[utoipa::path(
    post,
    path = "/v1/events/{id}/replay",
    operation_id = "replay_event",
    tag = "replays",
    params(("id" = String, Path, description = "The event's `id`.")),
    request_body(
        content = How,
        examples(
            ("begun" = (value = json!({ "reason": "the shop lost its queue" }))),
            ("plan" = (value = json!({ "dry_run": true }))),
        ),
    ),
    responses(
        (status = 202, description = "It runs from now on.", body = ReplayView, examples(("begun" = (summary = "a replay")))),
        (status = 200, description = "What it would do.", body = Told, examples(("plan" = (summary = "a dry run")))),
        NotAllowed,
    )
)]
pub(in crate::api) async fn begin_one(
    State(state): State<ApiState>,
    Segment(id): Segment,
    operation: Operation<How>,
) -> Response {
    let run = state.clone();
    operation
        .once_in_steps(&state, move |operator, how| {
            let asked = Asked {
                state: run,
                operator,
                how,
            };
            async move { asked.carry_out_one(id).await }.boxed()
        })
        .await
}

/// A replay that somebody asked for.
struct Asked {
    state: ApiState,
    operator: Operator,
    how: How,
}

impl Asked {
    async fn carry_out_one(self, id: String) -> Result<(Tx, Answer), Withdrawn> {
        let store = &self.state.store;
        let event = store
            .event_view(&self.operator.merchant, &EventId::from_text(id.as_str()))
            .await?;
        let Some(event) = event else {
            let problem = if store.is_quarantined(&self.operator.merchant, &id).await? {
                Problem::not_allowed(
                    "this notification was refused and is no event: nothing is sent again that was never verified",
                )
            } else {
                Problem::not_found("no such event")
            };
            return self.refuse(&problem, json!({ "event": id })).await;
        };
        if self.how.sends(&self.state.replays) == What::Orders {
            // What was told of its order.
            let Some(order_id) = event.order_id else {
                let problem = Problem::not_allowed("the event names no order, so no message tells of it");
                return self.refuse(&problem, json!({ "event": id })).await;
            };
            let filter = ReplayFilter {
                order_id: Some(order_id),
                ..ReplayFilter::default()
            };
            return self.carry_out(filter, None).await;
        }
        let filter = ReplayFilter {
            event_key: Some(event.event_key.clone()),
            ..ReplayFilter::default()
        };
        let account = (event.provider, event.kind, event.account);
        self.carry_out(filter, Some(account)).await
    }

    /// `one`: provider, type and account of the only event it is about, which is refused at once if it is.
    async fn carry_out(
        self,
        filter: ReplayFilter,
        one: Option<(String, String, String)>,
    ) -> Result<(Tx, Answer), Withdrawn> {
        let granted = match self.how.grant(&filter, &self.state.replays) {
            Ok(granted) => granted,
            Err(problem) => return self.refuse(&problem, self.details(&filter)).await,
        };
        if self.how.dry_run {
            return Ok(self.plan(&filter, &granted).await?);
        }
        let refused = one
            .and_then(|(provider, kind, account)| granted.rules.refusal(Some((&provider, &account)), &kind));
        if let Some(why) = refused {
            return self
                .refuse(&Problem::not_allowed(why), self.details(&filter))
                .await;
        }
        let mut tx = self.state.store.begin().await?;
        let new = NewReplay {
            merchant: &self.operator.merchant,
            actor: &self.operator.name,
            reason: &granted.reason,
            what: granted.what,
            queue: granted.to.as_deref(),
            filter: &filter,
            per_second: granted.per_second,
        };
        let begun = replays::begin(&mut tx, &new).await?;
        let mut details = self.details(&filter);
        if let Some(members) = details.as_object_mut() {
            members.insert("replay".to_owned(), begun.id.clone().into());
        }
        let deed = self.deed("replay.begin", &granted.reason, details);
        audit::enter(&mut tx, &deed).await?;
        tracing::info!(replay.id = begun.id, actor = self.operator.name, "replay begun");
        Ok((tx, answer(StatusCode::ACCEPTED, &begun)?))
    }

    async fn plan(&self, filter: &ReplayFilter, granted: &Granted) -> Result<(Tx, Answer), Problem> {
        let plan = self
            .state
            .replays
            .plan(granted.what, &self.operator.merchant, filter, &granted.rules)
            .await?;
        let mut details = self.details(filter);
        if let Some(members) = details.as_object_mut() {
            members.insert("would_publish".to_owned(), plan.would_publish.into());
        }
        let told = Told {
            dry_run: true,
            what: granted.what,
            to: granted.to.as_deref(),
            filter,
            plan,
        };
        let answer = answer(StatusCode::OK, &told)?;
        let mut tx = self.state.store.begin().await?;
        let deed = self.deed("replay.dry_run", &granted.reason, details);
        audit::enter(&mut tx, &deed).await?;
        Ok((tx, answer))
    }

    /// Enters what was refused, and why. What may succeed after a correction frees its key.
    async fn refuse(&self, problem: &Problem, mut details: Value) -> Result<(Tx, Answer), Withdrawn> {
        if let Some(members) = details.as_object_mut() {
            members.insert("refused".to_owned(), problem.detail().into());
        }
        let reason = self.how.reason.as_deref().unwrap_or_default();
        let mut tx = self.state.store.begin().await?;
        let deed = self.deed("replay.refuse", reason, details);
        audit::enter(&mut tx, &deed).await?;
        if problem.code() == Code::NotAllowed {
            return Ok((tx, refusal(problem)?));
        }
        tx.commit()
            .await
            .map_err(|error: StoreError| Withdrawn::from(error))?;
        Err(problem.clone().into())
    }

    fn details(&self, filter: &ReplayFilter) -> Value {
        json!({
            "what": self.how.what,
            "to": self.how.to,
            "filter": filter,
            "rate": self.how.rate,
            "dry_run": self.how.dry_run,
        })
    }

    fn deed<'a>(&'a self, action: &'static str, reason: &'a str, details: Value) -> Deed<'a> {
        Deed {
            merchant: &self.operator.merchant,
            actor: &self.operator.name,
            action,
            reason,
            details,
        }
    }
}
