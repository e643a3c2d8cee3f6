//! A kept notification before its account once more: today's keys, the arrival's time.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::event::Notification;
use crate::event::text::visible;
use crate::provider::{Judgement, Registered, Registry, Step, headers_as_kept};
use crate::store::{Kept, StoreError};
use crate::time::Timestamp;

/// What would be said of it now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = JudgementToday)]
pub(super) struct Today {
    #[serde(flatten)]
    judgement: Judgement,
    hint: Option<String>,
    steps: Vec<Step>,
    /// The signed string, every character visible.
    signed: Option<String>,
}

impl Today {
    /// Of `kept`; `None` if its account is not configured any more.
    pub(super) fn of(registry: &Registry, kept: &Kept) -> Result<Option<Self>, StoreError> {
        let Some(account) = account_of(registry, kept) else {
            return Ok(None);
        };
        let notification = notification(kept, 0)?;
        let explanation = registry.explain(&account, &notification);
        Ok(Some(Self {
            judgement: Judgement::of(&account.judge(&notification)),
            hint: explanation.hint,
            steps: explanation.steps,
            signed: explanation.signed.map(|signed| visible(&signed)),
        }))
    }
}

/// The account that it came to, as configured today.
pub(super) fn account_of(registry: &Registry, kept: &Kept) -> Option<Arc<Registered>> {
    registry
        .get(kept.view.provider, &kept.view.account)
        .map(Arc::clone)
}

/// The notification as it came, `correction` seconds later by our clock of that day.
pub(super) fn notification(kept: &Kept, correction: i64) -> Result<Notification, StoreError> {
    let corrupt = |what: &str| StoreError::corrupt("quarantine", format!("{what} of {}", kept.view.id));
    let remote_addr = match &kept.view.remote_addr {
        Some(addr) => Some(addr.parse::<IpAddr>().map_err(|_| corrupt("remote_addr"))?),
        None => None,
    };
    let micros = correction.saturating_mul(1_000_000);
    Ok(Notification {
        path: kept.path.clone(),
        headers: headers_as_kept(&kept.headers).ok_or_else(|| corrupt("headers"))?,
        body: kept.body.clone(),
        received_at: Timestamp::from_micros(kept.view.received_at.micros().saturating_add(micros)),
        remote_addr,
    })
}
