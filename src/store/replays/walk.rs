//! What a filter finds: a page of it in the order of arrival, how much there is, and where it ends.

use sqlx::{FromRow, QueryBuilder};

use super::{Place, ReplayFilter, What};
use crate::store::event_list::narrow;
use crate::store::{Store, StoreError, Tx, on_pool, on_tx};
use crate::time::Timestamp;

const NEWEST_EVENT: &str =
    "select cast(0 as bigint) as position, id from events where merchant = $1 order by id desc limit 1";
const NEWEST_MESSAGE: &str =
    "select position, id from messages where merchant = $1 order by position desc, id desc limit 1";

const EVENTS: &str = "select cast(0 as bigint) as position, e.id, e.provider, e.account, e.type as kind \
     from events e left join event_outcomes o on o.event_id = e.id where e.merchant = ";
const MESSAGES: &str = "select m.position, m.id, cast(null as text) as provider, cast(null as text) as account, \
     m.routing_key as kind from messages m where m.merchant = ";

const EVENT_GROUPS: &str = "select e.provider, e.account, e.type as kind, count(*) as found, min(e.id) as example \
     from events e left join event_outcomes o on o.event_id = e.id where e.merchant = ";
const MESSAGE_GROUPS: &str = "select cast(null as text) as provider, cast(null as text) as account, \
     m.routing_key as kind, count(*) as found, min(m.id) as example from messages m where m.merchant = ";

const NEVER_VERIFIED: &str = "select count(*) from quarantine q where q.merchant = ";

/// An event or message that a filter finds.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Candidate {
    /// In the order of the messages' commits; of events nothing.
    pub position: i64,
    /// Its id.
    pub id: String,
    /// Of an event.
    pub provider: Option<String>,
    /// Of an event.
    pub account: Option<String>,
    /// An event's type, a message's routing key.
    pub kind: String,
}

impl Candidate {
    /// Where a walk stands behind it.
    pub fn place(&self) -> Place {
        Place {
            position: self.position,
            id: self.id.clone(),
        }
    }
}

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

/// The end of a walk that begins now.
pub(super) async fn newest(tx: &mut Tx, what: What, merchant: &str) -> Result<Place, StoreError> {
    let sql = match what {
        What::Events => NEWEST_EVENT,
        What::Orders => NEWEST_MESSAGE,
    };
    let found: Option<Place> = on_tx!(tx, |conn| sqlx::query_as(sql)
        .bind(merchant)
        .fetch_optional(conn)
        .await)?;
    Ok(found.unwrap_or_default())
}

impl Store {
    /// Up to `limit` of what `filter` finds after `after` and up to `end` (absent: all), the oldest first.
    pub async fn replay_candidates(
        &self,
        what: What,
        merchant: &str,
        filter: &ReplayFilter,
        (after, end): (&Place, Option<&Place>),
        limit: u16,
    ) -> Result<Vec<Candidate>, StoreError> {
        let of_events = filter.of_events(merchant);
        let rows = on_pool!(self, |pool| {
            let mut sql = match what {
                What::Events => {
                    let mut sql = QueryBuilder::new(EVENTS);
                    sql.push_bind(merchant);
                    narrow(&mut sql, &of_events);
                    sql.push(" and e.id > ").push_bind(after.id.as_str());
                    if let Some(end) = end {
                        sql.push(" and e.id <= ").push_bind(end.id.as_str());
                    }
                    sql.push(" order by e.id limit ");
                    sql
                }
                What::Orders => {
                    let mut sql = QueryBuilder::new(MESSAGES);
                    sql.push_bind(merchant);
                    filter.narrow_messages(&mut sql, merchant);
                    sql.push(" and (m.position, m.id) > (")
                        .push_bind(after.position)
                        .push(", ")
                        .push_bind(after.id.as_str())
                        .push(")");
                    if let Some(end) = end {
                        sql.push(" and (m.position, m.id) <= (")
                            .push_bind(end.position)
                            .push(", ")
                            .push_bind(end.id.as_str())
                            .push(")");
                    }
                    sql.push(" order by m.position, m.id limit ");
                    sql
                }
            };
            sql.push_bind(i64::from(limit));
            sql.build_query_as().fetch_all(pool).await
        })?;
        Ok(rows)
    }

    /// How much `filter` finds, by what decides whether it may be sent again. `end`: up to there.
    pub async fn replay_groups(
        &self,
        what: What,
        merchant: &str,
        filter: &ReplayFilter,
        end: Option<&Place>,
    ) -> Result<Vec<Group>, StoreError> {
        let of_events = filter.of_events(merchant);
        let rows = on_pool!(self, |pool| {
            let mut sql = match what {
                What::Events => {
                    let mut sql = QueryBuilder::new(EVENT_GROUPS);
                    sql.push_bind(merchant);
                    narrow(&mut sql, &of_events);
                    if let Some(end) = end {
                        sql.push(" and e.id <= ").push_bind(end.id.as_str());
                    }
                    sql.push(" group by e.provider, e.account, e.type order by 1, 2, 3");
                    sql
                }
                What::Orders => {
                    let mut sql = QueryBuilder::new(MESSAGE_GROUPS);
                    sql.push_bind(merchant);
                    filter.narrow_messages(&mut sql, merchant);
                    if let Some(end) = end {
                        sql.push(" and (m.position, m.id) <= (")
                            .push_bind(end.position)
                            .push(", ")
                            .push_bind(end.id.as_str())
                            .push(")");
                    }
                    sql.push(" group by m.routing_key order by 3");
                    sql
                }
            };
            sql.build_query_as().fetch_all(pool).await
        })?;
        Ok(rows)
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
                if let Some(at) = at.map(Timestamp::micros) {
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
