//! `GET /v1/quarantine` and `/{id}`: what was refused, and the judgement of one step by step.

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::judged::Today;
use crate::api::ApiState;
use crate::api::auth::RawReader;
use crate::api::page::{Page, Params, Segment, Span};
use crate::api::problem::Problem;
use crate::event::ProviderName;
use crate::provider::Reason;
use crate::store::{QuarantineFilter, QuarantineView};
use crate::time::Timestamp;

/// What the list may be asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Query {
    /// That came to this provider's path.
    provider: Option<ProviderName>,
    /// That came to this account's path.
    account: Option<String>,
    /// That failed this check.
    #[param(value_type = Option<Reason>)]
    reason: Option<String>,
    /// Arrived at this moment or later.
    since: Option<Timestamp>,
    /// Arrived before this moment.
    until: Option<Timestamp>,
    /// 1 to 500; 50 if it is absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Those that match.
#[utoipa::path(
    get,
    path = "/v1/quarantine",
    operation_id = "list_quarantine",
    tag = "quarantine",
    params(Query),
    responses((status = 200, description = "A page of them, newest first.", body = Page<QuarantineView>)),
    security(("bearer" = ["raw"]))
)]
pub(in crate::api) async fn list(
    State(state): State<ApiState>,
    reader: RawReader,
    Params(query): Params<Query>,
) -> Result<Json<Page<QuarantineView>>, Problem> {
    let span = Span::read("quarantine", query.limit, query.cursor.as_deref())?;
    let filter = QuarantineFilter {
        merchant: reader.merchant,
        provider: query.provider,
        account: query.account,
        reason: query.reason.map(reason).transpose()?,
        since: query.since,
        until: query.until,
    };
    let rows = state
        .store
        .quarantined(&filter, span.after.as_deref(), span.rows())
        .await?;
    Ok(Json(Page::new("quarantine", &span, rows, |row| row.id.clone())))
}

fn reason(text: String) -> Result<String, Problem> {
    let mut known = Reason::ALL.iter().map(|reason| reason.as_str());
    if known.any(|reason| reason == text) {
        return Ok(text);
    }
    let known = Reason::ALL.map(Reason::as_str).join(", ");
    Err(Problem::validation(format!("`reason` must be one of {known}")))
}

/// One of them with everything that came, and what would be said of it today.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantinedDetail)]
pub(in crate::api) struct Detail {
    #[serde(flatten)]
    view: QuarantineView,
    path: String,
    /// Pairs of name and value.
    #[schema(value_type = Vec<Vec<String>>)]
    headers: Box<RawValue>,
    /// The exact bytes, in base64.
    body: String,
    today: Option<Today>,
}

/// One of them.
#[utoipa::path(
    get,
    path = "/v1/quarantine/{id}",
    operation_id = "show_quarantined",
    tag = "quarantine",
    params(("id" = String, Path, description = "The refused notification's `id`.")),
    responses((status = 200, description = "All that came, and what would be said today.", body = Detail)),
    security(("bearer" = ["raw"]))
)]
pub(in crate::api) async fn show(
    State(state): State<ApiState>,
    reader: RawReader,
    Segment(id): Segment,
) -> Result<Json<Detail>, Problem> {
    let kept = state
        .store
        .quarantined_whole(&reader.merchant, &id)
        .await?
        .ok_or_else(|| Problem::not_found("no such refused notification"))?;
    let today = Today::of(&state.registry.load(), &kept)?;
    let body = BASE64_STANDARD.encode(&kept.body);
    let headers = RawValue::from_string(kept.headers).unwrap_or_default();
    Ok(Json(Detail {
        view: kept.view,
        path: kept.path,
        headers,
        body,
        today,
    }))
}
