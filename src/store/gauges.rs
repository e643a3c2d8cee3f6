//! What can be counted in the store at any moment: what waits, what has no end yet, what needs a human.
//!
//! Read every few seconds for the metrics; each query stays on an index or on a table that is small when all
//! is well.

use super::{Store, StoreError, on_pool};
use crate::time::Timestamp;

const OUTBOX: &str = "select count(case when published_at is null then 1 end),
       min(case when published_at is null then created_at end),
       count(case when kind = 'event' then 1 end),
       min(case when kind = 'event' then created_at end)
  from outbox";
const ATTENTION: &str = "select code, count(*) from attention where state = 'open' group by code";
const DEAD_LETTERS: &str = "select count(*) from dead_letters where redriven_at is null";
const REPLAYS: &str = "select count(*) from replays where state = 'running'";
// Only the newest events: an account that has been silent for longer is found by its absence.
const LAST_EVENTS: &str = "select provider, account, max(received_at)
  from (select provider, account, received_at from events order by id desc limit 10000) as newest
 group by provider, account";

/// What the store holds right now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Outbox rows without a confirmed publish.
    pub unpublished: i64,
    /// When the oldest of them was written.
    pub oldest_unpublished: Option<Timestamp>,
    /// Events without an outcome.
    pub unfinished: i64,
    /// When the oldest of them was written.
    pub oldest_unfinished: Option<Timestamp>,
    /// Open attention items by code; codes with none are absent.
    pub attention: Vec<(String, i64)>,
    /// Dead letters not yet redriven.
    pub dead_letters: i64,
    /// Replays that have not ended.
    pub replays: i64,
}

impl Store {
    /// Counts.
    pub async fn gauges(&self) -> Result<Gauges, StoreError> {
        Ok(on_pool!(self, |pool| {
            let outbox: (i64, Option<Timestamp>, i64, Option<Timestamp>) =
                sqlx::query_as(OUTBOX).fetch_one(pool).await?;
            let attention = sqlx::query_as(ATTENTION).fetch_all(pool).await?;
            let dead_letters: i64 = sqlx::query_scalar(DEAD_LETTERS).fetch_one(pool).await?;
            Ok(Gauges {
                unpublished: outbox.0,
                oldest_unpublished: outbox.1,
                unfinished: outbox.2,
                oldest_unfinished: outbox.3,
                attention,
                dead_letters,
                replays: sqlx::query_scalar(REPLAYS).fetch_one(pool).await?,
            })
        })?)
    }

    /// When each account's last event arrived, among the newest events: `(provider, account, at)`.
    pub async fn last_events(&self) -> Result<Vec<(String, String, Timestamp)>, StoreError> {
        Ok(on_pool!(self, |pool| sqlx::query_as(LAST_EVENTS)
            .fetch_all(pool)
            .await)?)
    }
}
