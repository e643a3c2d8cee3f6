//! Which kinds of events a merchant has: from which provider, to which account, of which type.
//!
//! There are few of them among millions of events, and the index that holds them in order is walked by leaps, from
//! each kind to the next. So a filter on one of the three need not look at events that do not match.

use sqlx::FromRow;

use super::event_list::EventFilter;
use super::{Store, StoreError, on_pool};
use crate::event::ProviderName;

const FIRST: &str = "select provider, account, type from events where merchant = $1 \
     order by provider, account, type limit 1";
const NEXT: &str = "select provider, account, type from events \
     where merchant = $1 and (provider, account, type) > ($2, $3, $4) \
     order by provider, account, type limit 1";

/// One kind of event.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub(super) struct Kind {
    /// Who sends it.
    pub(super) provider: String,
    /// To whom.
    pub(super) account: String,
    /// payhook's type.
    #[sqlx(rename = "type")]
    pub(super) event_type: String,
}

impl EventFilter {
    /// Whether the kinds are what narrows it: not if something names single events.
    pub(super) fn speaks_of_kinds(&self) -> bool {
        let single = [&self.order_id, &self.trade_id, &self.event_key];
        let kinds = self.provider.is_some() || self.account.is_some() || self.kind.is_some();
        kinds && single.iter().all(|part| part.is_none())
    }

    fn takes(&self, kind: &Kind) -> bool {
        let matches = |part: Option<&str>, value: &str| part.is_none_or(|part| part == value);
        matches(self.provider.map(ProviderName::as_str), &kind.provider)
            && matches(self.account.as_deref(), &kind.account)
            && matches(self.kind.as_deref(), &kind.event_type)
    }
}

impl Store {
    /// The kinds of events that the filter's merchant has and the filter takes.
    pub(super) async fn event_kinds(&self, filter: &EventFilter) -> Result<Vec<Kind>, StoreError> {
        let mut taken = Vec::new();
        let mut next: Option<Kind> = on_pool!(self, |pool| sqlx::query_as(FIRST)
            .bind(&filter.merchant)
            .fetch_optional(pool)
            .await)?;
        while let Some(kind) = next {
            next = on_pool!(self, |pool| sqlx::query_as(NEXT)
                .bind(&filter.merchant)
                .bind(&kind.provider)
                .bind(&kind.account)
                .bind(&kind.event_type)
                .fetch_optional(pool)
                .await)?;
            if filter.takes(&kind) {
                taken.push(kind);
            }
        }
        Ok(taken)
    }
}
