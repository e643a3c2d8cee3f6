//! Replays as an operator sees them.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::types::Json;
use sqlx::{FromRow, QueryBuilder};

use super::{ReplayFilter, What};
use crate::store::{Store, StoreError, Tx, on_pool, on_tx};
use crate::time::Timestamp;

const SELECT: &str = "select r.id, r.actor, r.reason, r.what, r.queue, r.filter, r.per_second, r.total, r.sent, \
     r.refused, r.refusals, r.state, r.waits, r.created_at, r.updated_at, r.ended_at, \
     (select count(*) from outbox x where x.replay_id = r.id and x.published_at is null and not x.unpublishable) \
     as unpublished from replays r where r.merchant = ";

/// Why some were not sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct RefusedBecause {
    /// In words.
    pub reason: String,
    /// How many.
    pub count: i64,
}

/// A replay as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Replay)]
pub struct ReplayView {
    /// What `data.replay.id` says.
    pub id: String,
    /// `running`, `done` or `cancelled`.
    pub state: String,
    /// What is sent again.
    pub what: What,
    /// The only queue it goes to; absent: to everybody.
    pub to: Option<String>,
    /// Which of them.
    pub filter: ReplayFilter,
    /// Why.
    pub reason: String,
    /// The name of the token it was asked for with.
    pub actor: String,
    /// At most so many in a second.
    pub rate: i32,
    /// How many match; absent until they were counted.
    pub total: Option<i64>,
    /// How many were handed over to be sent.
    pub sent: i64,
    /// Of these: how many the broker has confirmed (with the embedded one: were applied again).
    pub published: i64,
    /// How many are not sent.
    pub refused: i64,
    /// Why not.
    pub refusals: Vec<RefusedBecause>,
    /// Why it rests, while no process could go on with it so far.
    pub waiting: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it last moved.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

#[derive(FromRow)]
struct Row {
    id: String,
    actor: String,
    reason: String,
    what: String,
    queue: Option<String>,
    filter: Json<ReplayFilter>,
    per_second: i32,
    total: Option<i64>,
    sent: i64,
    refused: i64,
    refusals: Json<BTreeMap<String, i64>>,
    state: String,
    waits: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    ended_at: Option<Timestamp>,
    unpublished: i64,
}

impl Store {
    /// A merchant's replays before `before`, newest first.
    pub async fn replays(
        &self,
        merchant: &str,
        before: Option<&str>,
        limit: i64,
    ) -> Result<Vec<ReplayView>, StoreError> {
        let rows: Vec<Row> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            sql.push_bind(merchant);
            if let Some(before) = before {
                sql.push(" and r.id < ").push_bind(before);
            }
            sql.push(" order by r.id desc limit ").push_bind(limit);
            sql.build_query_as().fetch_all(pool).await
        })?;
        rows.into_iter().map(Row::view).collect()
    }

    /// One of them.
    pub async fn replay(&self, merchant: &str, id: &str) -> Result<Option<ReplayView>, StoreError> {
        let row: Option<Row> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(SELECT);
            sql.push_bind(merchant);
            sql.push(" and r.id = ").push_bind(id);
            sql.build_query_as().fetch_optional(pool).await
        })?;
        row.map(Row::view).transpose()
    }
}

/// One of them as the transaction sees it.
pub async fn seen_by(tx: &mut Tx, merchant: &str, id: &str) -> Result<Option<ReplayView>, StoreError> {
    let row: Option<Row> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        sql.push_bind(merchant);
        sql.push(" and r.id = ").push_bind(id);
        sql.build_query_as().fetch_optional(conn).await
    })?;
    row.map(Row::view).transpose()
}

impl Row {
    fn view(self) -> Result<ReplayView, StoreError> {
        let corrupt = |column: &str| StoreError::corrupt("replays", format!("{column} of {}", self.id));
        let refusals = self
            .refusals
            .0
            .into_iter()
            .map(|(reason, count)| RefusedBecause { reason, count });
        Ok(ReplayView {
            what: What::from_text(&self.what).ok_or_else(|| corrupt("what"))?,
            filter: self.filter.0,
            id: self.id,
            waiting: self.waits.filter(|_| self.state == "running"),
            state: self.state,
            to: self.queue,
            reason: self.reason,
            actor: self.actor,
            rate: self.per_second,
            total: self.total,
            sent: self.sent,
            published: self.sent.saturating_sub(self.unpublished),
            refused: self.refused,
            refusals: refusals.collect(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            ended_at: self.ended_at,
        })
    }
}
