//! Whether the database takes a write, tried by making one.
//!
//! A rolled-back write would not notice a full disk, a stuck fsync or a synchronous standby that is gone, and
//! those are what an ack waits for. So the probe commits one row, always the same, the way an event is committed: over the
//! same kind of connection, on SQLite over the same one.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};

use super::postgres::reads_only;
use super::{Store, StoreError, Writer, heard, on_tx};
use crate::telemetry::causes;
use crate::time::Timestamp;

const PROBE: &str =
    "insert into write_probe (id, at) values (1, $1) on conflict (id) do update set at = excluded.at";

impl Writer {
    /// Commits a write of one row. One that is abandoned closes the connection.
    pub async fn probe(&mut self, now: Timestamp) -> Result<(), StoreError> {
        match &self.store {
            Store::Postgres(pool) => {
                let mut lease = self.lease.take(pool).await?;
                let answer = heard(sqlx::query(PROBE).bind(now).execute(lease.conn()?)).await;
                self.lease.end(lease, answer)?;
                self.lease.did();
            }
            Store::Sqlite(_) => {
                let mut tx = self.store.begin().await?;
                on_tx!(&mut tx, |conn| sqlx::query(PROBE)
                    .bind(now)
                    .execute(conn)
                    .await
                    .map(drop))?;
                tx.commit().await?;
            }
        }
        Ok(())
    }
}

impl Store {
    /// [`Writer::probe`], for who asks once.
    pub async fn probe(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut writer = self.writer();
        let probed = writer.probe(now).await;
        writer.rest();
        probed
    }

    /// Why Postgres gives no connection, in its own words or the network's. While it has none to spare a pool asks again
    /// and again, and all it says in the end is that time ran out. `None`: it gives one, or says nothing `within` this time.
    pub async fn refusal(&self, within: Duration) -> Option<String> {
        let Self::Postgres(pool) = self else {
            return None;
        };
        let options = pool.connect_options();
        let asked = async {
            let mut conn = PgConnection::connect_with(&options).await?;
            reads_only(&mut conn).await
        };
        match tokio::time::timeout(within, asked).await {
            Ok(Err(sqlx::Error::Database(error))) => Some(error.message().to_owned()),
            Ok(Err(error)) => Some(causes(&error)),
            Ok(Ok(true)) => Some("it takes no writes: a standby, or set to read only".to_owned()),
            _ => None,
        }
    }
}
