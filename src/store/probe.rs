//! Whether the database takes a write, tried by making one.
//!
//! A rolled-back write would not notice a full disk, a stuck fsync or a synchronous standby that is gone, and
//! those are what an ack waits for. So the probe commits: one row, always the same.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};

use super::lease::Lease;
use super::{Store, StoreError};
use crate::time::Timestamp;

const PROBE: &str =
    "insert into write_probe (id, at) values (1, $1) on conflict (id) do update set at = excluded.at";

impl Store {
    /// Commits a write of one row; the caller bounds the time.
    pub async fn probe(&self, now: Timestamp) -> Result<(), StoreError> {
        match self {
            Self::Postgres(pool) => {
                let mut lease = Lease::take(pool).await?;
                let answer = sqlx::query(PROBE).bind(now.micros()).execute(lease.conn()?).await;
                lease.end(answer)?;
            }
            Self::Sqlite(pools) => {
                sqlx::query(PROBE)
                    .bind(now.micros())
                    .execute(&pools.writer)
                    .await?;
            }
        }
        Ok(())
    }

    /// Why Postgres gives no connection, in its own words. While it has none to spare a pool asks again and again,
    /// and all it says in the end is that time ran out. `None`: it gives one, or says nothing `within` this time.
    pub async fn refusal(&self, within: Duration) -> Option<String> {
        let Self::Postgres(pool) = self else {
            return None;
        };
        let options = pool.connect_options();
        match tokio::time::timeout(within, PgConnection::connect_with(&options)).await {
            Ok(Err(sqlx::Error::Database(error))) => Some(error.message().to_owned()),
            _ => None,
        }
    }
}
