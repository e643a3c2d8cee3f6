//! Watching the feed: how far long writes hold it back, and whether its epoch still stands.
//!
//! A write that stays open anywhere in the Postgres cluster, in whatever database, keeps everything committed
//! after it began out of the feed. Nothing is lost by that, but readers wait, so it is measured.

use std::time::Duration;

use super::epoch::cluster;
use crate::store::{Store, StoreError, heard};
use crate::time::Timestamp;

/// How often the mark is moved on while all is well.
const MARK_EVERY: Duration = Duration::from_mins(1);

const SNAPSHOT: &str =
    "select pg_snapshot_xmin(now.snapshot)::text::bigint, pg_snapshot_xmax(now.snapshot)::text::bigint
    from (select pg_current_snapshot() as snapshot) as now";

/// Driven by its owner, every few seconds.
#[derive(Debug, Default)]
pub struct FeedWatch {
    cluster: String,
    marked_at: Option<Timestamp>,
    oldest: i64,
    since: Option<Timestamp>,
}

impl FeedWatch {
    /// One look. Gives for how long the oldest write has held the feed back, as far as this watch saw it.
    pub async fn step(&mut self, store: &Store, now: Timestamp) -> Result<Duration, StoreError> {
        // The one writer numbers what it writes: nothing is ever held back, and nothing is restored under it.
        let Store::Postgres(pool) = store else {
            return Ok(Duration::ZERO);
        };
        let cluster = cluster(pool).await?;
        let fresh = self
            .marked_at
            .is_some_and(|at| now.micros_since(at) < crate::time::micros(MARK_EVERY));
        if !fresh || cluster != self.cluster {
            store.renew_feed_epoch().await?;
            self.marked_at = Some(now);
            self.cluster = cluster;
        }
        let (oldest, next): (i64, i64) = heard(sqlx::query_as(SNAPSHOT).fetch_one(pool)).await?;
        if oldest == next || oldest != self.oldest || self.since.is_none() {
            self.oldest = oldest;
            self.since = Some(now);
        }
        let held = self.since.map_or(0, |since| now.micros_since(since));
        Ok(Duration::from_micros(u64::try_from(held).unwrap_or_default()))
    }
}
