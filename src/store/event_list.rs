//! Events as an operator sees them: which came, what became of each, how often it came again.
//!
//! Newest first; a page goes on below the last id of the page before. Everything is one merchant's. The bodies
//! stay where they are: see [`Store::event_raw`].
//!
//! Each filter finds its page by an index that is in the order of the page, however many events there are and
//! however few of them match. Moments are ranges of ids, which begin with the moment of arrival.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use sqlx::{Database, Encode, FromRow, QueryBuilder, Type};

use super::event_kinds::Kind;
use super::event_row::money;
use super::{Store, StoreError, on_pool};
use crate::event::{EventId, Money, ProviderName};
use crate::time::Timestamp;

const COLUMNS: &str = "select e.id, e.event_key, e.provider, e.account, e.merchant, e.type, \
    e.provider_event_type, e.order_id, e.trade_id, e.refund_id, e.amount, e.currency, e.occurred_at, \
    e.received_at, o.outcome, o.reason as outcome_reason, \
    (select count(*) from deliveries d where d.event_id = e.id) as duplicates";
const OF_EVENTS: &str = " from events e left join event_outcomes o on o.event_id = e.id where e.merchant = ";
/// SQLite joins in the order that a cross join is written in.
const OF_OUTCOMES: &str =
    " from event_outcomes o cross join events e where e.id = o.event_id and e.merchant = ";

/// In [`EventFilter::outcome`]: the events that have none yet.
pub const UNFINISHED: &str = "none";

/// Which events. Absent parts do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Whose; never absent.
    pub merchant: String,
    /// From this provider.
    pub provider: Option<ProviderName>,
    /// To this account.
    pub account: Option<String>,
    /// Of this type (`payment.succeeded`).
    pub kind: Option<String>,
    /// About this order: it carried the id, or its trade belongs to the order.
    pub order_id: Option<String>,
    /// About this trade.
    pub trade_id: Option<String>,
    /// Under exactly this key.
    pub event_key: Option<String>,
    /// That ended so; [`UNFINISHED`]: that have not ended.
    pub outcome: Option<String>,
    /// Received at this moment or later.
    pub since: Option<Timestamp>,
    /// Received before this moment.
    pub until: Option<Timestamp>,
}

/// An event without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// payhook's own id.
    pub id: EventId,
    /// What makes it the same event when it comes again.
    pub event_key: String,
    /// Who sent it.
    pub provider: String,
    /// The account it came to.
    pub account: String,
    /// The owner of its orders.
    pub merchant: String,
    /// payhook's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The provider's own type.
    pub provider_event_type: String,
    /// The order it carried.
    pub order_id: Option<String>,
    /// The provider's payment.
    pub trade_id: Option<String>,
    /// The provider's refund.
    pub refund_id: Option<String>,
    /// The amount it speaks of.
    pub amount: Option<Money>,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// When it arrived.
    pub received_at: Timestamp,
    /// How it ended; absent while it has not.
    pub outcome: Option<String>,
    /// Why, in words.
    pub outcome_reason: Option<String>,
    /// How often it came again, up to about a hundred.
    pub duplicates: i64,
}

#[derive(FromRow)]
struct ViewRow {
    id: String,
    event_key: String,
    provider: String,
    account: String,
    merchant: String,
    r#type: String,
    provider_event_type: String,
    order_id: Option<String>,
    trade_id: Option<String>,
    refund_id: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
    occurred_at: Timestamp,
    received_at: Timestamp,
    outcome: Option<String>,
    outcome_reason: Option<String>,
    duplicates: i64,
}

impl Store {
    /// A page of events, newest first: those below `before`, at most `limit`.
    pub async fn events(
        &self,
        filter: &EventFilter,
        before: Option<&EventId>,
        limit: i64,
    ) -> Result<Vec<EventView>, StoreError> {
        let way = self.way(filter).await?;
        let rows: Vec<ViewRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new("");
            select(&mut sql, filter, &way, before, limit);
            sql.build_query_as().fetch_all(pool).await
        })?;
        Ok(rows.into_iter().map(ViewRow::view).collect())
    }

    /// One event as it is listed, if it is this merchant's.
    pub async fn event_view(&self, merchant: &str, id: &EventId) -> Result<Option<EventView>, StoreError> {
        let row: Option<ViewRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(COLUMNS);
            sql.push(OF_EVENTS)
                .push_bind(merchant)
                .push(" and e.id = ")
                .push_bind(id.as_str());
            sql.build_query_as().fetch_optional(pool).await
        })?;
        Ok(row.map(ViewRow::view))
    }
}

/// By which index a page is found.
#[derive(Debug)]
enum Way {
    /// A merchant's events, or those of one order, trade or key.
    Events,
    /// Those that ended so.
    Outcomes,
    /// Those of each of these kinds; together they hold the page of all.
    Kinds(Vec<Kind>),
}

impl Store {
    async fn way(&self, filter: &EventFilter) -> Result<Way, StoreError> {
        let outcome = filter.outcome.as_deref().filter(|text| *text != UNFINISHED);
        if filter.names_single() {
            return Ok(Way::Events);
        }
        // Nearly all events are applied, so that a kind says more than that.
        if outcome.is_some_and(|outcome| outcome != "applied" || !filter.speaks_of_kinds()) {
            return Ok(Way::Outcomes);
        }
        if filter.speaks_of_kinds()
            && let Some(kinds) = self.event_kinds(filter).await?
        {
            return Ok(Way::Kinds(kinds));
        }
        Ok(Way::Events)
    }

    /// How the database goes about a page. For tests.
    pub async fn explain_events(&self, filter: &EventFilter) -> Result<Vec<String>, StoreError> {
        let way = self.way(filter).await?;
        Ok(match self {
            Self::Postgres(pool) => {
                let mut sql = QueryBuilder::new("explain ");
                select(&mut sql, filter, &way, None, 50);
                sql.build_query_scalar().fetch_all(pool).await?
            }
            Self::Sqlite(pools) => {
                let mut sql = QueryBuilder::new("explain query plan ");
                select(&mut sql, filter, &way, None, 50);
                let rows: Vec<(i64, i64, i64, String)> =
                    sql.build_query_as().fetch_all(&pools.reader).await?;
                rows.into_iter().map(|(.., line)| line).collect()
            }
        })
    }
}

/// One page: those below `before`, at most `limit`.
fn select<'a, DB>(
    sql: &mut QueryBuilder<'a, DB>,
    filter: &'a EventFilter,
    way: &'a Way,
    before: Option<&'a EventId>,
    limit: i64,
) where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
    String: Encode<'a, DB> + Type<DB>,
    i64: Encode<'a, DB> + Type<DB>,
    Timestamp: Encode<'a, DB> + Type<DB>,
{
    sql.push(COLUMNS);
    let id = match way {
        Way::Events => {
            sql.push(OF_EVENTS).push_bind(filter.merchant.as_str());
            narrow(sql, filter);
            "e.id"
        }
        Way::Outcomes => {
            sql.push(OF_OUTCOMES).push_bind(filter.merchant.as_str());
            narrow(sql, filter);
            "o.event_id"
        }
        Way::Kinds(kinds) => {
            sql.push(OF_EVENTS).push_bind(filter.merchant.as_str());
            sql.push(" and e.id in (select '' as id");
            for kind in kinds {
                sql.push(" union all select id from (select e.id")
                    .push(OF_EVENTS)
                    .push_bind(filter.merchant.as_str());
                push_kind(sql, kind);
                narrow(sql, filter);
                push(sql, " and e.id < ", before.map(EventId::as_str));
                sql.push(" order by e.id desc limit ").push_bind(limit);
                sql.push(") as of_kind");
            }
            sql.push(")");
            "e.id"
        }
    };
    push(sql, format!(" and {id} < "), before.map(EventId::as_str));
    sql.push(format!(" order by {id} desc limit ")).push_bind(limit);
}

fn push_kind<'a, DB>(sql: &mut QueryBuilder<'a, DB>, kind: &'a Kind)
where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
{
    push(sql, " and e.provider = ", Some(kind.provider.as_str()));
    push(sql, " and e.account = ", Some(kind.account.as_str()));
    push(sql, " and e.type = ", Some(kind.event_type.as_str()));
}

/// Adds the filter's conditions on `events e` and `event_outcomes o`, but for the merchant.
pub(super) fn narrow<'a, DB>(sql: &mut QueryBuilder<'a, DB>, filter: &'a EventFilter)
where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
    String: Encode<'a, DB> + Type<DB>,
    i64: Encode<'a, DB> + Type<DB>,
    Timestamp: Encode<'a, DB> + Type<DB>,
{
    let texts = [
        (" and e.provider = ", filter.provider.map(ProviderName::as_str)),
        (" and e.account = ", filter.account.as_deref()),
        (" and e.type = ", filter.kind.as_deref()),
        (" and e.trade_id = ", filter.trade_id.as_deref()),
        (" and e.event_key = ", filter.event_key.as_deref()),
        (
            " and o.outcome = ",
            filter.outcome.as_deref().filter(|text| *text != UNFINISHED),
        ),
    ];
    for (condition, value) in texts {
        push(sql, condition, value);
    }
    if filter.outcome.as_deref() == Some(UNFINISHED) {
        // Whatever has not ended has its row in the outbox, which is short.
        sql.push(" and o.event_id is null and e.id in (select id from outbox where kind = 'event')");
    }
    if let Some(order_id) = filter.order_id.as_deref() {
        // Two index lookups; an `or` over both tables would read every event.
        sql.push(" and e.id in (select id from events where merchant = ")
            .push_bind(filter.merchant.as_str());
        push(sql, " and order_id = ", Some(order_id));
        sql.push(" union select event_id from event_orders where merchant = ")
            .push_bind(filter.merchant.as_str());
        push(sql, " and order_id = ", Some(order_id));
        sql.push(")");
    }
    push(sql, " and e.id >= ", filter.since.map(EventId::least));
    push(sql, " and e.received_at >= ", filter.since);
    let after = |until: Timestamp| EventId::least(until.plus(Duration::from_millis(1)));
    push(sql, " and e.id < ", filter.until.map(after));
    push(sql, " and e.received_at < ", filter.until);
}

fn push<'a, DB: Database, T>(sql: &mut QueryBuilder<'a, DB>, condition: impl Display, value: Option<T>)
where
    T: Encode<'a, DB> + Type<DB> + 'a,
{
    if let Some(value) = value {
        sql.push(condition).push_bind(value);
    }
}

impl ViewRow {
    fn view(self) -> EventView {
        // A currency of a newer version: the event is a dead letter here, and has to be looked at all the same.
        let amount = money(self.amount, self.currency.as_deref()).unwrap_or_default();
        EventView {
            id: EventId::from_text(self.id),
            event_key: self.event_key,
            provider: self.provider,
            account: self.account,
            merchant: self.merchant,
            kind: self.r#type,
            provider_event_type: self.provider_event_type,
            order_id: self.order_id,
            trade_id: self.trade_id,
            refund_id: self.refund_id,
            amount,
            occurred_at: self.occurred_at,
            received_at: self.received_at,
            outcome: self.outcome,
            outcome_reason: self.outcome_reason,
            duplicates: self.duplicates,
        }
    }
}
