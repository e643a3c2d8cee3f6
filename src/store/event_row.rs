//! Reading events whole, as the relay, the worker and a replay need them.
//!
//! A row that this version cannot read (a newer one wrote it, or a hand) is told apart where many are read at
//! once: it must not keep its neighbours from being sent and applied.

use std::sync::Arc;

use bytes::Bytes;
use sqlx::{FromRow, QueryBuilder};

use super::rows::push_keys;
use super::{Store, StoreError, Tx, on_pool, on_tx};
use crate::event::{Currency, Event, EventId, EventKey, Fingerprint, Money};
use crate::time::Timestamp;

macro_rules! select_events {
    ($condition:literal) => {
        concat!(
            "select id, event_key, provider, account, merchant, type, provider_event_type, subject, order_id, ",
            "trade_id, refund_id, amount, currency, cast(orders as text) as orders, occurred_at, received_at, fingerprint, \
             cast(headers as text) as headers, body, ",
            "content, remote_addr from events where ",
            $condition
        )
    };
}

const BY_ID: &str = select_events!("id = $1");
const BY_KEY: &str = select_events!("event_key = $1");
const SELECT: &str = select_events!("");
const RAW: &str = "select cast(headers as text), body from events where merchant = $1 and id = $2";

/// A stored event that does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its id.
    pub id: EventId,
    /// Its key.
    pub key: EventKey,
    /// Which column, in words.
    pub reason: String,
}

#[derive(FromRow)]
pub(super) struct EventRow {
    id: String,
    event_key: String,
    provider: String,
    account: String,
    merchant: String,
    r#type: String,
    provider_event_type: String,
    subject: Option<String>,
    order_id: Option<String>,
    trade_id: Option<String>,
    refund_id: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
    orders: Option<String>,
    occurred_at: Timestamp,
    received_at: Timestamp,
    fingerprint: Vec<u8>,
    headers: String,
    body: Vec<u8>,
    content: Option<Vec<u8>>,
    remote_addr: Option<String>,
}

/// A notification's bytes as they came.
#[derive(Clone, PartialEq, Eq)]
pub struct RawNotification {
    /// JSON array of `[name, value]`.
    pub headers: String,
    /// The body.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for RawNotification {
    /// Without the bytes: they hold payer data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawNotification").finish_non_exhaustive()
    }
}

impl Store {
    /// One event, whoever's it is.
    pub async fn event(&self, id: &EventId) -> Result<Option<Arc<Event>>, StoreError> {
        let row: Option<EventRow> = on_pool!(self, |pool| sqlx::query_as(BY_ID)
            .bind(id.as_str())
            .fetch_optional(pool)
            .await)?;
        row.map(|row| row.event().map(Arc::new)).transpose()
    }

    /// The event under a key.
    pub async fn event_by_key(&self, key: &EventKey) -> Result<Option<Arc<Event>>, StoreError> {
        let row: Option<EventRow> = on_pool!(self, |pool| sqlx::query_as(BY_KEY)
            .bind(key.as_str())
            .fetch_optional(pool)
            .await)?;
        row.map(|row| row.event().map(Arc::new)).transpose()
    }

    /// Many events, in no order; an id that names nothing is left out.
    pub async fn events_by_id(
        &self,
        ids: &[EventId],
    ) -> Result<Vec<Result<Arc<Event>, Unreadable>>, StoreError> {
        self.events_in("id", ids.iter().map(EventId::as_str)).await
    }

    /// Many events by their keys, in no order; a key that is not stored is left out.
    pub async fn events_by_key(
        &self,
        keys: &[EventKey],
    ) -> Result<Vec<Result<Arc<Event>, Unreadable>>, StoreError> {
        self.events_in("event_key", keys.iter().map(EventKey::as_str))
            .await
    }

    async fn events_in(
        &self,
        column: &'static str,
        names: impl ExactSizeIterator<Item = &str>,
    ) -> Result<Vec<Result<Arc<Event>, Unreadable>>, StoreError> {
        if names.len() == 0 {
            return Ok(Vec::new());
        }
        let rows: Vec<EventRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            push_keys(&mut sql, column, names.map(|name| [name]));
            sql.build_query_as().fetch_all(pool).await
        })?;
        let read = rows.into_iter().map(|row| {
            let (id, key) = (row.id.clone(), row.event_key.clone());
            row.event().map(Arc::new).map_err(|error| Unreadable {
                id: EventId::from_text(id),
                key: EventKey::from_text(key),
                reason: error.to_string(),
            })
        });
        Ok(read.collect())
    }

    /// The bytes as they came, if the event is this merchant's.
    pub async fn event_raw(
        &self,
        merchant: &str,
        id: &EventId,
    ) -> Result<Option<RawNotification>, StoreError> {
        let row: Option<(String, Vec<u8>)> = on_pool!(self, |pool| sqlx::query_as(RAW)
            .bind(merchant)
            .bind(id.as_str())
            .fetch_optional(pool)
            .await)?;
        Ok(row.map(|(headers, body)| RawNotification { headers, body }))
    }
}

/// Many events as the transaction sees them, in no order; an id that names nothing is left out, and what does not
/// read is too: a dead letter tells a human of it, and a replay by a version that reads it brings it.
pub(super) async fn events_seen_by(tx: &mut Tx, ids: &[EventId]) -> Result<Vec<Arc<Event>>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<EventRow> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        push_keys(&mut sql, "id", ids.iter().map(|id| [id.as_str()]));
        sql.build_query_as().fetch_all(conn).await
    })?;
    let read = rows.into_iter().map(EventRow::event).filter_map(|event| {
        event
            .inspect_err(|error| tracing::warn!(%error, "an event that does not read is left out"))
            .ok()
    });
    Ok(read.map(Arc::new).collect())
}

impl EventRow {
    /// The event; an error names the column that does not read.
    pub(super) fn event(self) -> Result<Event, StoreError> {
        let corrupt = |column: &str| StoreError::corrupt("events", format!("{column} of {}", self.id));
        Ok(Event {
            provider: self.provider.parse().map_err(|_| corrupt("provider"))?,
            amount: money(self.amount, self.currency.as_deref()).map_err(|()| corrupt("currency"))?,
            orders: match &self.orders {
                Some(orders) => serde_json::from_str(orders).map_err(|_| corrupt("orders"))?,
                None => Vec::new(),
            },
            fingerprint: Fingerprint::from_slice(&self.fingerprint).ok_or_else(|| corrupt("fingerprint"))?,
            remote_addr: match &self.remote_addr {
                Some(addr) => Some(addr.parse().map_err(|_| corrupt("remote_addr"))?),
                None => None,
            },
            id: EventId::from_text(self.id),
            key: EventKey::from_text(self.event_key),
            account: self.account,
            merchant: self.merchant,
            kind: self.r#type,
            provider_event_type: self.provider_event_type,
            subject: self.subject,
            order_id: self.order_id,
            trade_id: self.trade_id,
            refund_id: self.refund_id,
            occurred_at: self.occurred_at,
            received_at: self.received_at,
            headers: self.headers,
            body: Bytes::from(self.body),
            content: self.content.map(Bytes::from),
        })
    }
}

/// The two columns of an amount: both or none.
pub(super) fn money(minor: Option<i64>, currency: Option<&str>) -> Result<Option<Money>, ()> {
    match (minor, currency) {
        (Some(minor), Some(currency)) => {
            let currency = Currency::new(currency).map_err(drop)?;
            Ok(Some(Money::new(minor, currency)))
        }
        (None, None) => Ok(None),
        _ => Err(()),
    }
}
