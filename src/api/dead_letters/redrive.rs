//! `POST /v1/dead-letters/{id}/redrive` and `/v1/dead-letters/redrive`: to the workers again, once the cause is gone.
//!
//! The events are due at once, with their attempts forgotten. By filter: in batches, each harmless to repeat, from
//! the oldest to the newest of those that were there when it was asked; what is given up again meanwhile is not
//! taken up again. One call does at most [`MOST`], or what can be done in [`LONGEST`], so that it ends well within
//! the lease of its idempotency key; the answer says what remains, and the `until` to ask for it with.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::list::{View, owned};
use crate::api::ApiState;
use crate::api::auth::Operator;
use crate::api::openapi::NotAllowed;
use crate::api::operation::{Operation, answer, filter, refusal};
use crate::api::page::Segment;
use crate::api::problem::Problem;
use crate::event::{ProviderName, new_id};
use crate::idempotency::{Answer, Withdrawn};
use crate::store::audit::{self, Deed};
use crate::store::dead_letters::{self, LetterFilter, Redriven};
use crate::store::{EventFilter, StoreError, Tx};
use crate::time::Timestamp;

/// Redriven in one transaction.
const BATCH: i64 = 100;
/// Redriven by one call.
const MOST: usize = 1000;
/// No batch is begun later than this.
const LONGEST: Duration = Duration::from_secs(20);

/// Why, for the audit.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RedriveOne)]
pub(in crate::api) struct Why {
    #[serde(default)]
    reason: String,
}

/// Which of them, and why.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Redrive)]
pub(in crate::api) struct Wish {
    /// `{}`: all.
    #[serde(deserialize_with = "filter")]
    filter: Filter,
    #[serde(default)]
    reason: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = DeadLetterFilter)]
struct Filter {
    provider: Option<ProviderName>,
    account: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    order_id: Option<String>,
    /// Given up at this moment or later.
    since: Option<Timestamp>,
    /// Given up before this moment.
    until: Option<Timestamp>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = RedriveTally)]
pub(in crate::api) struct Tally {
    /// How many are due again.
    redriven: u64,
    /// How many that match were left for another call.
    remaining: i64,
    /// Those that were given up before this moment were looked at. In the filter of the next call it keeps out what
    /// is given up again meanwhile.
    until: Timestamp,
}

/// One of them.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/{id}/redrive",
    operation_id = "redrive_dead_letter",
    tag = "dead letters",
    params(("id" = String, Path, description = "The dead letter's `id`.")),
    request_body(content = Option<Why>, example = json!({ "reason": "the mapping is fixed" })),
    responses(
        (
            status = 200,
            description = "The dead letter, redriven.",
            body = View,
            examples(("redriven" = (summary = "redriven"))),
        ),
        NotAllowed,
    )
)]
pub(in crate::api) async fn redrive_one(
    State(state): State<ApiState>,
    Segment(id): Segment,
    operation: Operation<Why>,
) -> Response {
    let run = state.clone();
    operation
        .once_in_steps(&state, move |operator, why| {
            let run = Run {
                state: run,
                operator,
                reason: why.reason,
            };
            async move { run.one(&id).await }.boxed()
        })
        .await
}

/// All that match.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/redrive",
    operation_id = "redrive_dead_letters",
    tag = "dead letters",
    request_body(
        content = Wish,
        example = json!({ "filter": { "provider": "alipay" }, "reason": "the mapping is fixed" }),
    ),
    responses((status = 200, description = "How many.", body = Tally))
)]
pub(in crate::api) async fn redrive(State(state): State<ApiState>, operation: Operation<Wish>) -> Response {
    let run = state.clone();
    operation
        .long()
        .once_in_steps(&state, move |operator, wish| {
            let run = Run {
                state: run,
                operator,
                reason: wish.reason,
            };
            async move { run.all(&wish.filter).await }.boxed()
        })
        .await
}

struct Run {
    state: ApiState,
    operator: Operator,
    reason: String,
}

impl Run {
    async fn one(&self, id: &str) -> Result<(Tx, Answer), Withdrawn> {
        let mut letter = owned(&self.state, &self.operator.merchant, id).await?;
        let mut tx = self.state.store.begin().await?;
        let why_not = match dead_letters::redrive(&mut tx, id).await? {
            Redriven::Due => None,
            Redriven::NotOpen => Some("it was redriven before"),
            Redriven::NoEvent => {
                Some("it names no event: there is nothing to apply; resolving its attention item closes it")
            }
        };
        if let Some(why_not) = why_not {
            drop(tx);
            let mut tx = self.state.store.begin().await?;
            let details = json!({ "dead_letter": id, "refused": why_not });
            audit::enter(&mut tx, &self.deed("dead_letter.refuse", details)).await?;
            return Ok((tx, refusal(&Problem::not_allowed(why_not))?));
        }
        letter.redriven_at = Some(tx.now().await?);
        let details = json!({ "dead_letter": id, "event": letter.event_id });
        audit::enter(&mut tx, &self.deed("dead_letter.redrive", details)).await?;
        Ok((tx, answer(StatusCode::OK, &View::from(letter))?))
    }

    async fn all(&self, filter: &Filter) -> Result<(Tx, Answer), Withdrawn> {
        let texts = [&filter.account, &filter.kind, &filter.order_id];
        if texts.into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(Problem::validation("`filter`: no text may hold NUL").into());
        }
        let began = self.begin(filter).await?;
        let tally = self.walk(filter).await?;
        let Tally {
            redriven, remaining, ..
        } = tally;
        tracing::info!(
            redriven,
            remaining,
            actor = self.operator.name,
            "dead letters redriven"
        );
        let answer = answer(StatusCode::OK, &tally)?;
        let mut tx = self.state.store.begin().await?;
        let details = json!({ "began": began, "redriven": redriven, "remaining": remaining });
        audit::enter(&mut tx, &self.deed("dead_letter.redriven", details)).await?;
        Ok((tx, answer))
    }

    /// Enters what was asked.
    async fn begin(&self, filter: &Filter) -> Result<String, StoreError> {
        let mut tx = self.state.store.begin().await?;
        let deed = self.deed("dead_letter.redrive", json!({ "filter": filter }));
        let id = audit::enter(&mut tx, &deed).await?;
        tx.commit().await?;
        Ok(id)
    }

    async fn walk(&self, filter: &Filter) -> Result<Tally, StoreError> {
        let store = &self.state.store;
        let began = Instant::now();
        // Above every id that was there before.
        let now = self.now().await?.plus(Duration::from_millis(1));
        let until = filter.until.map_or(now, |until| until.min(now));
        let last = new_id(now);
        let wanted = LetterFilter {
            events: EventFilter {
                merchant: self.operator.merchant.clone(),
                provider: filter.provider,
                account: filter.account.clone(),
                kind: filter.kind.clone(),
                order_id: filter.order_id.clone(),
                ..EventFilter::default()
            },
            since: filter.since,
            until: Some(until),
        };
        let mut after = String::new();
        let (mut seen, mut redriven) = (0_usize, 0_u64);
        while seen < MOST && began.elapsed() < LONGEST {
            let page = store.open_dead_letters(&wanted, (&after, &last), BATCH).await?;
            let Some(end) = page.last().cloned() else {
                return Ok(Tally {
                    redriven,
                    remaining: 0,
                    until,
                });
            };
            let mut tx = store.begin().await?;
            redriven = redriven.saturating_add(dead_letters::redrive_all(&mut tx, &page).await?);
            tx.commit().await?;
            seen = seen.saturating_add(page.len());
            after = end;
        }
        let remaining = store.count_open_dead_letters(&wanted, (&after, &last)).await?;
        Ok(Tally {
            redriven,
            remaining,
            until,
        })
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.state.store.begin().await?.now().await
    }

    fn deed(&self, action: &'static str, details: Value) -> Deed<'_> {
        Deed {
            merchant: &self.operator.merchant,
            actor: &self.operator.name,
            action,
            reason: &self.reason,
            details,
        }
    }
}
