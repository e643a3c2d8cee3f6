//! `POST /v1/quarantine/reverify`: judges what was refused again, by today's keys and the time it arrived.
//!
//! What passes is recorded like a notification that just arrived, under its event key and so at most once, and then
//! removed from the quarantine, batch by batch. Running it again, or after a crash, changes nothing that was done. An
//! audit entry is written before the first batch, and another with the result.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::judged::{account_of, notification};
use crate::api::ApiState;
use crate::api::auth::Operator;
use crate::api::openapi::NotFound;
use crate::api::operation::{Operation, answer, reason};
use crate::api::problem::Problem;
use crate::event::{Event, ProviderName};
use crate::idempotency::{Answer, Withdrawn};
use crate::store::audit::{self, Deed};
use crate::store::{Bisection, Delivery, Kept, QuarantineFilter, Repeat, StoreError, Tx};

/// A clock may be wrong by a lot; a century is a slip of the finger.
const LARGEST_CORRECTION: i64 = 100 * 366 * 24 * 3600;

/// Which of them, and by how much our clock was slow when they came.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reverify)]
pub(in crate::api) struct Wish {
    provider: Option<ProviderName>,
    account: Option<String>,
    /// Seconds to be added to the arrival.
    #[serde(default)]
    #[schema(minimum = -3_162_240_000_i64, maximum = 3_162_240_000_i64)]
    clock_correction: i64,
    /// Why, for the audit.
    #[serde(deserialize_with = "reason")]
    #[schema(pattern = r"\S")]
    reason: String,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[schema(as = Reverified)]
struct Tally {
    /// How many are recorded now.
    verified: u64,
    /// How many are refused again.
    refused: u64,
}

/// All that match, once for each key.
#[utoipa::path(
    post,
    path = "/v1/quarantine/reverify",
    operation_id = "reverify_quarantine",
    tag = "quarantine",
    request_body(
        content = Wish,
        example = json!({ "provider": "alipay", "account": "shop-cn", "reason": "the new key is configured" }),
    ),
    responses((status = 200, description = "How many.", body = Tally), NotFound)
)]
pub(in crate::api) async fn reverify(State(state): State<ApiState>, operation: Operation<Wish>) -> Response {
    let run = state.clone();
    operation
        .long()
        .once_in_steps(&state, move |operator, wish| {
            Run {
                state: run,
                operator,
                wish,
            }
            .carry_out()
            .boxed()
        })
        .await
}

impl Wish {
    fn check(&self, state: &ApiState, operator: &Operator) -> Result<(), Problem> {
        if !(-LARGEST_CORRECTION..=LARGEST_CORRECTION).contains(&self.clock_correction) {
            return Err(Problem::validation("`clock_correction` is in seconds"));
        }
        let registry = state.registry.load();
        let names = |provider: ProviderName, account: &str| {
            self.provider.is_none_or(|asked| asked == provider)
                && self.account.as_deref().is_none_or(|asked| asked == account)
        };
        let known = registry
            .iter()
            .any(|known| known.merchant == operator.merchant && names(known.provider, &known.account));
        if known {
            Ok(())
        } else {
            Err(Problem::not_found("no such account"))
        }
    }
}

struct Run {
    state: ApiState,
    operator: Operator,
    wish: Wish,
}

impl Run {
    async fn carry_out(self) -> Result<(Tx, Answer), Withdrawn> {
        // Under the idempotency key: a retry with another body, or after the account was removed, is answered by the key.
        self.wish.check(&self.state, &self.operator)?;
        let began = self.begin().await?;
        let tally = self.walk().await?;
        tracing::info!(
            verified = tally.verified,
            refused = tally.refused,
            actor = self.operator.name,
            "judged the quarantine again"
        );
        let answer = answer(StatusCode::OK, &tally)?;
        let mut tx = self.state.store.begin().await?;
        let details = json!({ "began": began, "verified": tally.verified, "refused": tally.refused });
        audit::enter(&mut tx, &self.deed("quarantine.reverified", details)).await?;
        Ok((tx, answer))
    }

    /// Writes the audit entry of the request.
    async fn begin(&self) -> Result<String, StoreError> {
        let Wish {
            provider,
            account,
            clock_correction,
            ..
        } = &self.wish;
        let details = json!({
            "provider": provider.map(ProviderName::as_str),
            "account": account,
            "clock_correction": clock_correction,
        });
        let mut tx = self.state.store.begin().await?;
        let id = audit::enter(&mut tx, &self.deed("quarantine.reverify", details)).await?;
        tx.commit().await?;
        Ok(id)
    }

    fn deed(&self, action: &'static str, details: serde_json::Value) -> Deed<'_> {
        Deed {
            merchant: &self.operator.merchant,
            actor: &self.operator.name,
            action,
            reason: &self.wish.reason,
            details,
        }
    }

    /// Judges and records, from the oldest to the newest of those that were kept when it began.
    async fn walk(&self) -> Result<Tally, StoreError> {
        let store = &self.state.store;
        let filter = QuarantineFilter {
            merchant: self.operator.merchant.clone(),
            provider: self.wish.provider,
            account: self.wish.account.clone(),
            ..QuarantineFilter::default()
        };
        let mut tally = Tally::default();
        let Some(last) = store.newest_quarantined(&filter).await? else {
            return Ok(tally);
        };
        let mut after = String::new();
        loop {
            let page = store.quarantined_page(&filter, &after, &last).await?;
            let Some(end) = page.last().map(|kept| kept.view.id.clone()) else {
                return Ok(tally);
            };
            let judged = page.len();
            let passed = self.passed(page);
            let failed = judged.saturating_sub(passed.len());
            let recorded = self.record(passed).await?;
            tally.verified = tally.verified.saturating_add(recorded.verified);
            tally.refused = tally
                .refused
                .saturating_add(recorded.refused)
                .saturating_add(u64::try_from(failed).unwrap_or_default());
            after = end;
        }
    }

    /// Records what passed and removes it from the quarantine. Two calls at once may record the same rows, which makes
    /// one event of each; a row counts for the call that removes it.
    async fn record(&self, passed: Vec<(String, Arc<Event>)>) -> Result<Tally, StoreError> {
        let mut tally = Tally::default();
        let mut parts = Bisection::of(passed);
        while let Some(part) = parts.take() {
            let events: Vec<Arc<Event>> = part.iter().map(|(_, event)| Arc::clone(event)).collect();
            match self.make_durable(&events).await {
                Ok(()) => {
                    let ids: Vec<String> = part.into_iter().map(|(id, _)| id).collect();
                    let released = self.state.store.release_quarantined(&ids).await?;
                    tally.verified = tally.verified.saturating_add(released);
                }
                Err(StoreError::Refused(_)) => {
                    // It stays in the quarantine; attention was raised when it arrived.
                    if parts.halve(part).is_some() {
                        tally.refused = tally.refused.saturating_add(1);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(tally)
    }

    /// Stores `events`, or what each brought as a repeat, as the recorder does with notifications.
    async fn make_durable(&self, events: &[Arc<Event>]) -> Result<(), StoreError> {
        let store = &self.state.store;
        let mut writer = store.writer();
        let fresh = writer.insert_fresh(events, None).await?;
        let repeats = std::iter::zip(events, fresh).filter(|(_, fresh)| !fresh);
        let repeats: Vec<Arc<Event>> = repeats.map(|(event, _)| Arc::clone(event)).collect();
        let (mut deliveries, mut conflicts) = (Vec::new(), Vec::new());
        for (event, repeat) in std::iter::zip(&repeats, writer.compare_repeats(&repeats).await?) {
            match repeat {
                // Stored by this call, in a part that was then refused for another.
                Repeat::Duplicate(of) if of == event.id => {}
                Repeat::Duplicate(of) => deliveries.push(Delivery::of(&of, event)),
                Repeat::Conflict(with) => conflicts.push((with, Arc::clone(event))),
                // Its first copy was purged a moment ago; the next call stores it.
                Repeat::Gone => return Err(StoreError::timed_out()),
            }
        }
        store.keep_conflicts(&conflicts).await?;
        if let Err(error) = writer.note_deliveries(&deliveries).await {
            tracing::warn!(deliveries = deliveries.len(), %error, "deliveries of duplicates not written, dropped");
        }
        writer.rest();
        Ok(())
    }

    fn passed(&self, page: Vec<Kept>) -> Vec<(String, Arc<Event>)> {
        let registry = self.state.registry.load();
        let mut passed = Vec::new();
        for kept in page {
            // An account may belong to another merchant by now.
            let account =
                account_of(&registry, &kept).filter(|account| account.merchant == self.operator.merchant);
            let Some(account) = account else {
                continue;
            };
            let notification = match notification(&kept, self.wish.clock_correction) {
                Ok(notification) => notification,
                Err(error) => {
                    tracing::warn!(%error, "quarantined notification not readable, skipped");
                    continue;
                }
            };
            if let Ok(verified) = account.judge(&notification) {
                let event = account.event(&notification, verified);
                passed.push((kept.view.id, Arc::new(event)));
            }
        }
        passed
    }
}
