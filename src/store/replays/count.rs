//! How much a filter finds, and what it will never find.
//!
//! Counted a window at a time, up to a number of rows and for [`LONGEST`]: a plan says "at least" sooner than it keeps a
//! caller, or the database, waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{FromRow, QueryBuilder};
use tokio::time::Instant;

use super::walk::{first_place, push_span};
use super::{Place, ReplayFilter, What};
use crate::store::event_list::narrow;
use crate::store::{Store, StoreError, on_pool};

/// The most rows that are looked at, unless a test says fewer.
pub const COUNTED_AT_MOST: i64 = 1_000_000;
/// No window is begun later than this.
const LONGEST: Duration = Duration::from_secs(3);
/// Rows of one window.
const WINDOW: i64 = 25_000;

const EVENT_GROUPS: &str = "select e.provider, e.account, e.type as kind, count(*) as found, min(e.id) as example \
     from events e left join event_outcomes o on o.event_id = e.id where e.merchant = ";
const MESSAGE_GROUPS: &str = "select cast(null as text) as provider, cast(null as text) as account, \
     m.routing_key as kind, count(*) as found, min(m.id) as example from messages m where m.merchant = ";

const NEVER_VERIFIED: &str = "select count(*) from quarantine q where q.merchant = ";

/// All that a filter finds of one account and type, or under one routing key.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Group {
    /// Of events.
    pub provider: Option<String>,
    /// Of events.
    pub account: Option<String>,
    /// The type, or the routing key.
    pub kind: String,
    /// How many.
    pub found: i64,
    /// One of them.
    pub example: String,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// By what decides whether it may be sent again.
    pub groups: Vec<Group>,
    /// There was more to look at.
    pub at_least: bool,
}

impl Store {
    /// How much `filter` finds among about `most` rows. `end`: up to there.
    pub async fn count_replayed(
        &self,
        what: What,
        merchant: &str,
        filter: &ReplayFilter,
        end: Option<&Place>,
        most: i64,
    ) -> Result<Counted, StoreError> {
        let began = Instant::now();
        let mut all: BTreeMap<(Option<String>, Option<String>, String), Group> = BTreeMap::new();
        let mut after = first_place(what, filter, &Place::default()).unwrap_or_default();
        let (mut looked, mut at_least) = (0_i64, false);
        loop {
            let border = if filter.is_indexed() {
                None
            } else {
                self.border(what, merchant, (&after, end), WINDOW).await?
            };
            let within = border.as_ref().or(end);
            for group in self.groups(what, merchant, filter, (&after, within)).await? {
                let key = (group.provider.clone(), group.account.clone(), group.kind.clone());
                all.entry(key)
                    .and_modify(|known| known.found = known.found.saturating_add(group.found))
                    .or_insert(group);
            }
            let Some(border) = border else { break };
            looked = looked.saturating_add(WINDOW);
            if looked >= most || began.elapsed() >= LONGEST {
                at_least = true;
                break;
            }
            after = border;
        }
        Ok(Counted {
            groups: all.into_values().collect(),
            at_least,
        })
    }

    async fn groups(
        &self,
        what: What,
        merchant: &str,
        filter: &ReplayFilter,
        span: (&Place, Option<&Place>),
    ) -> Result<Vec<Group>, StoreError> {
        let of_events = filter.of_events(merchant);
        Ok(on_pool!(self, |pool| {
            let mut sql = match what {
                What::Events => {
                    let mut sql = QueryBuilder::new(EVENT_GROUPS);
                    sql.push_bind(merchant);
                    narrow(&mut sql, &of_events);
                    sql
                }
                What::Orders => {
                    let mut sql = QueryBuilder::new(MESSAGE_GROUPS);
                    sql.push_bind(merchant);
                    filter.narrow_messages(&mut sql, merchant);
                    sql
                }
            };
            push_span(&mut sql, what, span);
            sql.push(match what {
                What::Events => " group by e.provider, e.account, e.type",
                What::Orders => " group by m.routing_key",
            });
            sql.build_query_as().fetch_all(pool).await
        })?)
    }

    /// How many notifications came in the same place and time and were refused: they are no events, and no replay
    /// sends them. Nothing, if the filter asks for what only an event has.
    pub async fn never_verified(&self, merchant: &str, filter: &ReplayFilter) -> Result<i64, StoreError> {
        let of_events_only = filter.kind.is_some()
            || filter.order_id.is_some()
            || filter.trade_id.is_some()
            || filter.event_key.is_some()
            || filter.outcome.is_some();
        if of_events_only {
            return Ok(0);
        }
        let found = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(NEVER_VERIFIED);
            sql.push_bind(merchant);
            if let Some(provider) = filter.provider {
                sql.push(" and q.provider = ").push_bind(provider.as_str());
            }
            if let Some(account) = filter.account.as_deref() {
                sql.push(" and q.account = ").push_bind(account);
            }
            let times = [
                (" and q.received_at >= ", filter.since),
                (" and q.received_at < ", filter.until),
            ];
            for (condition, at) in times {
                if let Some(at) = at {
                    sql.push(condition).push_bind(at);
                }
            }
            sql.build_query_scalar().fetch_one(pool).await
        })?;
        Ok(found)
    }

    /// Whether this id is a refused notification of the merchant's: there, but no event.
    pub async fn is_quarantined(&self, merchant: &str, id: &str) -> Result<bool, StoreError> {
        const THERE: &str = "select exists (select 1 from quarantine where merchant = $1 and id = $2)";
        Ok(on_pool!(self, |pool| sqlx::query_scalar(THERE)
            .bind(merchant)
            .bind(id)
            .fetch_one(pool)
            .await)?)
    }
}
