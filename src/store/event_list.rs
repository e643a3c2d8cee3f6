<<<<<<< HEAD
//! Events as an operator sees them: which came, what became of each, how often it came again.
//!
//! Newest first; a page goes on below the last id of the page before. Everything is one merchant's. The bodies
//! stay where they are: see [`Store::event_raw`].

use std::fmt::Display;

use serde::Serialize;
use sqlx::{Database, Encode, FromRow, QueryBuilder, Type};

use super::event_row::money;
use super::{Store, StoreError, on_pool};
use crate::event::{EventId, Money, ProviderName};
use crate::time::Timestamp;

const SELECT: &str = "select e.id, e.event_key, e.provider, e.account, e.merchant, e.type, \
    e.provider_event_type, e.order_id, e.trade_id, e.refund_id, e.amount, e.currency, e.occurred_at, \
    e.received_at, o.outcome, o.reason as outcome_reason, \
    (select count(*) from deliveries d where d.event_id = e.id) as duplicates \
    from events e left join event_outcomes o on o.event_id = e.id where e.merchant = ";

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
    /// That ended so.
    pub outcome: Option<String>,
    /// Received at this moment or later.
    pub since: Option<Timestamp>,
    /// Received before this moment.
    pub until: Option<Timestamp>,
}

/// An event without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventView {
    /// payhook's own id.
    pub id: EventId,
=======
//! Stored events as a reader sees them: what each says, how it ended, how often it came. Never the body.
//!
//! Every query is confined to one merchant. Newest first means by id: ids are UUID v7 and sort by arrival.

use serde::Serialize;
use sqlx::{FromRow, QueryBuilder};

use super::{Store, StoreError, on_pool};
use crate::event::{Currency, Money, OrderPart, ProviderName};
use crate::time::Timestamp;

const SELECT: &str = "select e.id, e.event_key, e.provider, e.account, e.merchant, e.type, \
     e.provider_event_type, e.order_id, e.trade_id, e.refund_id, e.amount, e.currency, e.orders, \
     e.occurred_at, e.received_at, o.outcome, o.reason, \
     (select count(*) from deliveries d where d.event_id = e.id) as duplicates \
     from events e left join event_outcomes o on o.event_id = e.id where e.merchant = ";
const RAW: &str = "select body from events where merchant = $1 and id = $2";

/// An event as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventView {
    /// payhook's own id.
    pub id: String,
>>>>>>> 87803b3 (Show events, their timelines and the attention list)
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
<<<<<<< HEAD
    /// The order it carried.
=======
    /// The order, when it speaks of exactly one.
>>>>>>> 87803b3 (Show events, their timelines and the attention list)
    pub order_id: Option<String>,
    /// The provider's payment.
    pub trade_id: Option<String>,
    /// The provider's refund.
    pub refund_id: Option<String>,
    /// The amount it speaks of.
    pub amount: Option<Money>,
<<<<<<< HEAD
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
=======
    /// The orders of a combined event.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<OrderPart>,
    /// When it happened, by the provider.
    pub occurred_at: Timestamp,
    /// When it arrived.
    pub received_at: Timestamp,
    /// How it ended; `None`: not yet.
    pub outcome: Option<String>,
    /// Why, in words.
    pub outcome_reason: Option<String>,
    /// How often it came again; at most about a hundred are counted.
    pub duplicates: i64,
}

/// Which events to list.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only this merchant's.
    pub merchant: String,
    /// Only this provider's.
    pub provider: Option<ProviderName>,
    /// Only this account's.
    pub account: Option<String>,
    /// Only of this type.
    pub kind: Option<String>,
    /// Only those that concern this order, by what they carry or by their trade.
    pub order_id: Option<String>,
    /// Only about this trade.
    pub trade_id: Option<String>,
    /// Only the one under this key.
    pub event_key: Option<String>,
    /// Only those that ended so.
    pub outcome: Option<OutcomeFilter>,
    /// Only those that arrived then or later.
    pub since: Option<Timestamp>,
    /// Only those that arrived before.
    pub until: Option<Timestamp>,
    /// Only events older than this one: the id of the last item of the page before.
    pub before: Option<String>,
    /// At most so many.
    pub limit: i64,
}

/// How a listed event must have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeFilter {
    /// With this outcome.
    Ended(String),
    /// Not yet.
    Unfinished,
}

#[derive(FromRow)]
struct Row {
>>>>>>> 87803b3 (Show events, their timelines and the attention list)
    id: String,
    event_key: String,
    provider: String,
    account: String,
    merchant: String,
<<<<<<< HEAD
    r#type: String,
=======
    #[sqlx(rename = "type")]
    kind: String,
>>>>>>> 87803b3 (Show events, their timelines and the attention list)
    provider_event_type: String,
    order_id: Option<String>,
    trade_id: Option<String>,
    refund_id: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
<<<<<<< HEAD
    occurred_at: i64,
    received_at: i64,
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
        let rows: Vec<ViewRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            sql.push_bind(&filter.merchant);
            narrow(&mut sql, filter);
            if let Some(before) = before {
                sql.push(" and e.id < ").push_bind(before.as_str());
            }
            sql.push(" order by e.id desc limit ").push_bind(limit);
            sql.build_query_as().fetch_all(pool).await
        })?;
        rows.into_iter().map(ViewRow::view).collect()
    }

    /// One event as it is listed, if it is this merchant's.
    pub async fn event_view(&self, merchant: &str, id: &EventId) -> Result<Option<EventView>, StoreError> {
        let row: Option<ViewRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            sql.push_bind(merchant)
                .push(" and e.id = ")
                .push_bind(id.as_str());
            sql.build_query_as().fetch_optional(pool).await
        })?;
        row.map(ViewRow::view).transpose()
    }
}

/// Adds the filter's conditions on `events e` and `event_outcomes o`, but for the merchant.
pub(super) fn narrow<'a, DB>(sql: &mut QueryBuilder<DB>, filter: &'a EventFilter)
where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
    i64: Encode<'a, DB> + Type<DB>,
{
    let texts = [
        (" and e.provider = ", filter.provider.map(ProviderName::as_str)),
        (" and e.account = ", filter.account.as_deref()),
        (" and e.type = ", filter.kind.as_deref()),
        (" and e.trade_id = ", filter.trade_id.as_deref()),
        (" and e.event_key = ", filter.event_key.as_deref()),
        (" and o.outcome = ", filter.outcome.as_deref()),
    ];
    for (condition, value) in texts {
        push(sql, condition, value);
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
    push(sql, " and e.received_at >= ", filter.since.map(Timestamp::micros));
    push(sql, " and e.received_at < ", filter.until.map(Timestamp::micros));
}

fn push<'a, DB: Database, T>(sql: &mut QueryBuilder<DB>, condition: impl Display, value: Option<T>)
where
    T: Encode<'a, DB> + Type<DB> + 'a,
{
    if let Some(value) = value {
        sql.push(condition).push_bind(value);
    }
}

impl ViewRow {
    fn view(self) -> Result<EventView, StoreError> {
        let amount = money(self.amount, self.currency.as_deref())
            .map_err(|()| StoreError::corrupt("events", format!("currency of {}", self.id)))?;
        Ok(EventView {
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
            occurred_at: Timestamp::from_micros(self.occurred_at),
            received_at: Timestamp::from_micros(self.received_at),
            outcome: self.outcome,
            outcome_reason: self.outcome_reason,
            duplicates: self.duplicates,
        })
    }
}
=======
    orders: Option<String>,
    occurred_at: i64,
    received_at: i64,
    outcome: Option<String>,
    reason: Option<String>,
    duplicates: i64,
}

impl TryFrom<Row> for EventView {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let corrupt = |column: &str| StoreError::corrupt("events", format!("{column} of {}", row.id));
        let amount = match (row.amount, &row.currency) {
            (Some(minor), Some(code)) => Some(Money::new(
                minor,
                Currency::new(code).map_err(|_| corrupt("currency"))?,
            )),
            _ => None,
        };
        let orders = match &row.orders {
            Some(json) => serde_json::from_str(json).map_err(|_| corrupt("orders"))?,
            None => Vec::new(),
        };
        Ok(Self {
            id: row.id,
            event_key: row.event_key,
            provider: row.provider,
            account: row.account,
            merchant: row.merchant,
            kind: row.kind,
            provider_event_type: row.provider_event_type,
            order_id: row.order_id,
            trade_id: row.trade_id,
            refund_id: row.refund_id,
            amount,
            orders,
            occurred_at: Timestamp::from_micros(row.occurred_at),
            received_at: Timestamp::from_micros(row.received_at),
            outcome: row.outcome,
            outcome_reason: row.reason,
            duplicates: row.duplicates,
        })
    }
}

impl Store {
    /// The events that match, newest first.
    pub async fn events(&self, filter: &EventFilter) -> Result<Vec<EventView>, StoreError> {
        let rows: Vec<Row> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            sql.push_bind(&filter.merchant);
            let equal = [
                (" and e.provider = ", filter.provider.map(ProviderName::as_str)),
                (" and e.account = ", filter.account.as_deref()),
                (" and e.type = ", filter.kind.as_deref()),
                (" and e.trade_id = ", filter.trade_id.as_deref()),
                (" and e.event_key = ", filter.event_key.as_deref()),
                (" and e.id < ", filter.before.as_deref()),
            ];
            for (condition, value) in equal {
                if let Some(value) = value {
                    sql.push(condition).push_bind(value);
                }
            }
            if let Some(order_id) = &filter.order_id {
                sql.push(" and e.id in (select event_id from event_orders where merchant = ")
                    .push_bind(&filter.merchant)
                    .push(" and order_id = ")
                    .push_bind(order_id)
                    .push(" union select id from events where merchant = ")
                    .push_bind(&filter.merchant)
                    .push(" and order_id = ")
                    .push_bind(order_id)
                    .push(")");
            }
            match &filter.outcome {
                Some(OutcomeFilter::Ended(outcome)) => {
                    sql.push(" and o.outcome = ").push_bind(outcome);
                }
                Some(OutcomeFilter::Unfinished) => {
                    sql.push(" and o.event_id is null");
                }
                None => {}
            }
            if let Some(since) = filter.since {
                sql.push(" and e.received_at >= ").push_bind(since.micros());
            }
            if let Some(until) = filter.until {
                sql.push(" and e.received_at < ").push_bind(until.micros());
            }
            sql.push(" order by e.id desc limit ").push_bind(filter.limit);
            sql.build_query_as().fetch_all(pool).await
        })?;
        rows.into_iter().map(EventView::try_from).collect()
    }

    /// One event of this merchant.
    pub async fn event_view(&self, merchant: &str, id: &str) -> Result<Option<EventView>, StoreError> {
        let row: Option<Row> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            sql.push_bind(merchant).push(" and e.id = ").push_bind(id);
            sql.build_query_as().fetch_optional(pool).await
        })?;
        row.map(EventView::try_from).transpose()
    }

    /// The bytes that came, of one event of this merchant.
    pub async fn event_raw(&self, merchant: &str, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(on_pool!(self, |pool| sqlx::query_scalar(RAW)
            .bind(merchant)
            .bind(id)
            .fetch_optional(pool)
            .await)?)
    }
}
>>>>>>> 87803b3 (Show events, their timelines and the attention list)
