//! The attention list: what needs a human, told once.
//!
//! An item is unique by merchant, code and source (the fact, event or queue it is about), so a replay, a second
//! worker or a restart raises nothing twice; its `attention.{code}` message is written with it. The database
//! allows one change to an item: being resolved, once.

use serde::Serialize;
use sqlx::{FromRow, QueryBuilder};

use super::messages::{self, NewMessage};
use super::orders::OrderKey;
use super::rows::push_keys;
use super::{Store, StoreError, Tx, on_pool, on_tx};
use crate::event::{Announcement, AttentionCode, Event, EventId, ProviderName, new_id, text};
use crate::time::Timestamp;

const INSERT: &str = "insert into attention \
     (id, code, source, merchant, provider, account, order_id, trade_id, event_id, explanation, created_at) \
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict do nothing returning id";

const RESOLVE: &str = "update attention set state = 'resolved', resolved_at = $2, resolved_by = $3, \
     resolution = $4, resolution_reason = $5 where id = $1 and state = 'open'";

const SETTLE: &str = "update attention set state = 'resolved', resolved_at = $4, resolved_by = $5, \
     resolution = $6, resolution_reason = $7 \
     where merchant = $1 and code = $2 and source = $3 and state = 'open'";

const OF_ORDERS: &str = "select merchant, code, source, state from attention where ";

pub(super) const SELECT: &str = "select id, code, source, merchant, provider, account, order_id, trade_id, \
     event_id, explanation, events, state, created_at, resolved_at, resolved_by, resolution, resolution_reason \
     from attention where ";

/// An item to be raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAttention {
    /// Why.
    pub code: AttentionCode,
    /// What it is about; with merchant and code its identity.
    pub source: String,
    /// Whose it is.
    pub merchant: String,
    /// The provider, if one is concerned.
    pub provider: Option<ProviderName>,
    /// The account, if one is concerned.
    pub account: Option<String>,
    /// The order, if one is concerned.
    pub order_id: Option<String>,
    /// The trade, if one is concerned.
    pub trade_id: Option<String>,
    /// The event that showed it.
    pub event_id: Option<EventId>,
    /// In words, for the operator; without payer data.
    pub explanation: String,
}

impl NewAttention {
    /// Returns an item of `merchant` about `source`, of which nothing else is known.
    pub fn new(merchant: &str, code: AttentionCode, source: &str, explanation: &str) -> Self {
        Self {
            code,
            source: source.to_owned(),
            merchant: merchant.to_owned(),
            provider: None,
            account: None,
            order_id: None,
            trade_id: None,
            event_id: None,
            explanation: text::storable(explanation).into_owned(),
        }
    }

    /// Returns an item about `event`.
    pub fn about(event: &Event, code: AttentionCode, source: &str, explanation: &str) -> Self {
        Self {
            provider: Some(event.provider),
            account: Some(event.account.clone()),
            order_id: event.order_id.clone(),
            trade_id: event.trade_id.clone(),
            event_id: Some(event.id.clone()),
            ..Self::new(&event.merchant, code, source, explanation)
        }
    }
}

/// How an item was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Resolution {
    /// One of the code's actions, or `resolved_itself`.
    pub action: String,
    /// In the operator's words, or ours.
    pub reason: String,
    /// The token's name, or `payhook`.
    pub resolved_by: String,
    /// When.
    pub resolved_at: Timestamp,
}

/// An item as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = AttentionItem)]
pub struct AttentionView {
    /// Its id.
    pub id: String,
    /// Why; see [`AttentionCode`].
    pub code: String,
    /// The order, if one is concerned.
    pub order_id: Option<String>,
    /// The event that showed it.
    pub event_id: Option<String>,
    /// `open` or `resolved`.
    pub state: String,
    /// In words.
    pub explanation: String,
    /// How many events it stands for: one, unless it is about a kind of event at an account.
    pub count: i64,
    /// What may be answered; empty once resolved.
    pub actions: Vec<&'static str>,
    /// When it was raised.
    pub created_at: Timestamp,
    /// How it was closed.
    pub resolution: Option<Resolution>,
    /// The provider, if one is concerned.
    pub provider: Option<String>,
    /// The account, if one is concerned.
    pub account: Option<String>,
    /// The trade, if one is concerned.
    pub trade_id: Option<String>,
    /// Whose it is; not shown, since a reader sees only its own merchant's.
    #[serde(skip)]
    pub merchant: String,
    /// What it is about; with merchant and code its identity.
    #[serde(skip)]
    pub source: String,
}

#[derive(FromRow)]
pub(super) struct AttentionRow {
    id: String,
    code: String,
    source: String,
    merchant: String,
    provider: Option<String>,
    account: Option<String>,
    order_id: Option<String>,
    trade_id: Option<String>,
    event_id: Option<String>,
    explanation: String,
    events: i64,
    state: String,
    created_at: Timestamp,
    resolved_at: Option<Timestamp>,
    resolved_by: Option<String>,
    resolution: Option<String>,
    resolution_reason: Option<String>,
}

impl From<AttentionRow> for AttentionView {
    fn from(row: AttentionRow) -> Self {
        let resolution = row.resolved_at.map(|at| Resolution {
            action: row.resolution.unwrap_or_default(),
            reason: row.resolution_reason.unwrap_or_default(),
            resolved_by: row.resolved_by.unwrap_or_default(),
            resolved_at: at,
        });
        let actions = match &resolution {
            Some(_) => &[][..],
            None => AttentionCode::from_text(&row.code).map_or(&[][..], AttentionCode::actions),
        };
        Self {
            id: row.id,
            order_id: row.order_id,
            event_id: row.event_id,
            state: row.state,
            explanation: row.explanation,
            count: row.events,
            actions: actions.to_vec(),
            created_at: row.created_at,
            resolution,
            provider: row.provider,
            account: row.account,
            trade_id: row.trade_id,
            merchant: row.merchant,
            source: row.source,
            code: row.code,
        }
    }
}

/// Puts `item` on the list and writes its message, unless it has been raised before. `true`: it is new.
pub async fn raise(tx: &mut Tx, item: &NewAttention, now: Timestamp) -> Result<bool, StoreError> {
    let id = new_id(now);
    let fresh: Option<String> = on_tx!(&mut *tx, |conn| sqlx::query_scalar(INSERT)
        .bind(&id)
        .bind(item.code.as_str())
        .bind(&item.source)
        .bind(&item.merchant)
        .bind(item.provider.map(ProviderName::as_str))
        .bind(&item.account)
        .bind(&item.order_id)
        .bind(&item.trade_id)
        .bind(item.event_id.as_ref().map(EventId::as_str))
        .bind(&item.explanation)
        .bind(now)
        .fetch_optional(conn)
        .await)?;
    if fresh.is_none() {
        return Ok(false);
    }
    announce(tx, &id, item, 1, now).await?;
    Ok(true)
}

/// Writes the message of an item that is new and stands for `count` events.
pub(super) async fn announce(
    tx: &mut Tx,
    id: &str,
    item: &NewAttention,
    count: i64,
    now: Timestamp,
) -> Result<(), StoreError> {
    let message = message(id, item, count, now)?;
    messages::insert(tx, std::slice::from_ref(&message), now).await
}

/// One item of this merchant, as this transaction sees it.
pub async fn item(tx: &mut Tx, merchant: &str, id: &str) -> Result<Option<AttentionView>, StoreError> {
    let row: Option<AttentionRow> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        sql.push("id = ").push_bind(id);
        sql.push(" and merchant = ").push_bind(merchant);
        sql.build_query_as().fetch_optional(conn).await
    })?;
    Ok(row.map(AttentionView::from))
}

/// Closes an item. `false`: there is none by that id, or it was closed before.
pub async fn resolve(tx: &mut Tx, id: &str, resolution: &Resolution) -> Result<bool, StoreError> {
    let changed = on_tx!(&mut *tx, |conn| sqlx::query(RESOLVE)
        .bind(id)
        .bind(resolution.resolved_at)
        .bind(&resolution.resolved_by)
        .bind(&resolution.action)
        .bind(&resolution.reason)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(changed == 1)
}

/// Closes the open item that is identified so, if there is one.
pub async fn settle(
    tx: &mut Tx,
    (merchant, code, source): (&str, &str, &str),
    resolution: &Resolution,
) -> Result<(), StoreError> {
    on_tx!(&mut *tx, |conn| sqlx::query(SETTLE)
        .bind(merchant)
        .bind(code)
        .bind(source)
        .bind(resolution.resolved_at)
        .bind(&resolution.resolved_by)
        .bind(&resolution.action)
        .bind(&resolution.reason)
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}

/// (merchant, code, source, state) of every item about `orders`.
pub async fn of_orders(
    tx: &mut Tx,
    orders: &[OrderKey],
) -> Result<Vec<(String, String, String, String)>, StoreError> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    Ok(on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(OF_ORDERS);
        push_keys(&mut sql, "merchant, order_id", orders.iter().map(OrderKey::parts));
        sql.build_query_as().fetch_all(conn).await
    })?)
}

/// Which of these items, by merchant and source, were resolved with `action`; their sources.
pub async fn resolved_with(
    tx: &mut Tx,
    code: AttentionCode,
    action: &str,
    about: &[(&str, &str)],
) -> Result<Vec<String>, StoreError> {
    if about.is_empty() {
        return Ok(Vec::new());
    }
    Ok(on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new("select source from attention where code = ");
        sql.push_bind(code.as_str())
            .push(" and resolution = ")
            .push_bind(action)
            .push(" and ");
        let keys = about.iter().map(|(merchant, source)| [*merchant, *source]);
        push_keys(&mut sql, "merchant, source", keys);
        sql.build_query_scalar().fetch_all(conn).await
    })?)
}

fn message(id: &str, item: &NewAttention, count: i64, now: Timestamp) -> Result<NewMessage, StoreError> {
    let view = AttentionView {
        id: id.to_owned(),
        code: item.code.as_str().to_owned(),
        order_id: item.order_id.clone(),
        event_id: item.event_id.as_ref().map(|id| id.as_str().to_owned()),
        state: "open".to_owned(),
        explanation: item.explanation.clone(),
        count,
        actions: item.code.actions().to_vec(),
        created_at: now,
        resolution: None,
        provider: item.provider.map(|provider| provider.as_str().to_owned()),
        account: item.account.clone(),
        trade_id: item.trade_id.clone(),
        merchant: item.merchant.clone(),
        source: item.source.clone(),
    };
    let message_id = format!("attention/{id}");
    let routing_key = format!("attention.{}", item.code);
    let subject = item.order_id.as_deref().or(Some(item.source.as_str()));
    let owner = ("attention", item.merchant.as_str());
    let body = Announcement::new(&message_id, owner, &routing_key, subject, now, &view)
        .to_bytes()
        .map_err(|_| StoreError::corrupt("attention", "an item that is not JSON"))?;
    Ok(NewMessage {
        id: message_id,
        merchant: item.merchant.clone(),
        order_id: item.order_id.clone(),
        routing_key,
        body,
    })
}

/// Which items to list.
#[derive(Clone, Debug, Default)]
pub struct AttentionFilter {
    /// Only this merchant's.
    pub merchant: String,
    /// Resolved ones too.
    pub all: bool,
    /// Only this order's.
    pub order_id: Option<String>,
    /// Only items raised before this one: the id of the last item of the page before.
    pub before: Option<String>,
    /// At most so many.
    pub limit: i64,
}

impl Store {
    /// The attention list, newest first.
    pub async fn attention(&self, filter: &AttentionFilter) -> Result<Vec<AttentionView>, StoreError> {
        let rows: Vec<AttentionRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            sql.push("merchant = ").push_bind(&filter.merchant);
            if !filter.all {
                sql.push(" and state = 'open'");
            }
            if let Some(order_id) = &filter.order_id {
                sql.push(" and order_id = ").push_bind(order_id);
            }
            if let Some(before) = &filter.before {
                sql.push(" and id < ").push_bind(before);
            }
            sql.push(" order by id desc limit ").push_bind(filter.limit);
            sql.build_query_as().fetch_all(pool).await
        })?;
        Ok(rows.into_iter().map(AttentionView::from).collect())
    }

    /// One item.
    pub async fn attention_item(
        &self,
        merchant: &str,
        id: &str,
    ) -> Result<Option<AttentionView>, StoreError> {
        let row: Option<AttentionRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            sql.push("id = ").push_bind(id);
            sql.push(" and merchant = ").push_bind(merchant);
            sql.build_query_as().fetch_optional(pool).await
        })?;
        Ok(row.map(AttentionView::from))
    }
}
