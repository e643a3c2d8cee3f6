//! Which kinds of events a merchant has: from which provider, to which account, of which type.
//!
//! There are few of them among millions of events, and the index that holds them in order is walked by leaps, from
//! each kind to the next. So a filter on one of the three need not look at events that do not match.

use sqlx::FromRow;

use super::event_list::EventFilter;
use super::{Store, StoreError, on_pool};
use crate::event::ProviderName;

const NEXT: &str = "select provider, account, type from events \
     where merchant = $1 and (provider, account, type) > ($2, $3, $4) \
     order by provider, account, type limit 1";

/// The most kinds whose pages are put together, and of leaps to find them: with more, nothing is rare among them.
const MOST: usize = 64;
const LEAPS: usize = 512;

/// One kind of event.
#[derive(Clone, Debug, Default, PartialEq, Eq, FromRow)]
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
    /// Whether it names single events, which then are found by their own indexes.
    pub(super) fn names_single(&self) -> bool {
        let single = [&self.order_id, &self.trade_id, &self.event_key];
        single.iter().any(|part| part.is_some())
    }

    /// Whether it asks for some kinds only.
    pub(super) fn speaks_of_kinds(&self) -> bool {
        self.provider.is_some() || self.account.is_some() || self.kind.is_some()
    }

    fn takes(&self, kind: &Kind) -> bool {
        let matches = |part: Option<&str>, value: &str| part.is_none_or(|part| part == value);
        matches(self.provider.map(ProviderName::as_str), &kind.provider)
            && matches(self.account.as_deref(), &kind.account)
            && matches(self.kind.as_deref(), &kind.event_type)
    }
}

impl Store {
    /// The kinds of events that the filter's merchant has and the filter takes; `None`: too many to be worth it.
    pub(super) async fn event_kinds(&self, filter: &EventFilter) -> Result<Option<Vec<Kind>>, StoreError> {
        let provider = filter.provider.map(ProviderName::as_str);
        let mut at = Kind::default();
        if let Some(provider) = provider {
            provider.clone_into(&mut at.provider);
        }
        let mut taken = Vec::new();
        for _ in 0..LEAPS {
            let next: Option<Kind> = on_pool!(self, |pool| sqlx::query_as(NEXT)
                .bind(&filter.merchant)
                .bind(&at.provider)
                .bind(&at.account)
                .bind(&at.event_type)
                .fetch_optional(pool)
                .await)?;
            let Some(kind) = next.filter(|kind| provider.is_none_or(|provider| provider == kind.provider))
            else {
                return Ok(Some(taken));
            };
            if filter.takes(&kind) {
                taken.push(kind.clone());
            }
            if taken.len() > MOST {
                return Ok(None);
            }
            at = kind;
        }
        Ok(None)
    }
}
