//! `GET /v1/quarantine` and `/{id}`: what was refused, and the judgement of one step by step.

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

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
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Query {
    provider: Option<ProviderName>,
    account: Option<String>,
    reason: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Those that match.
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
#[derive(Serialize)]
pub(in crate::api) struct Detail {
    #[serde(flatten)]
    view: QuarantineView,
    path: String,
    headers: Box<RawValue>,
    /// The exact bytes, in base64.
    body: String,
    today: Option<Today>,
}

/// One of them.
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
