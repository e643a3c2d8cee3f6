//! The keys' table: claim, complete, release, reconcile, purge.
//!
//! All times are the database's, so that several processes agree on whose lease ran out. Every change after
//! the first insert is guarded by the attempt that owns the claim and looks at the rows affected: an attempt
//! that lost its lease cannot complete, and its transaction rolls back with it.

use std::time::Duration;

use sqlx::{PgConnection, PgPool, Row, SqliteConnection, SqlitePool};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::task::TaskTracker;

use super::claim::{
    Claim, Effect, Guard, KeysError, Options, Scope, Settlement, Standing, Stored, Unsettled,
};
use super::pace::Pace;
use super::rows::{
    COMPLETE, INSERT, Known, PURGE, READ, RELEASE, STANDING, TAKE_OVER, UNSETTLED, read_row, unsettled_row,
};

/// The database that holds the keys: the same that holds what the calls write.
#[derive(Clone, Debug)]
pub enum Pool {
    /// Postgres.
    Postgres(PgPool),
    /// SQLite; a pool of one connection, the one that writes.
    Sqlite(SqlitePool),
}

/// The connection of the caller's open transaction.
#[derive(Debug)]
pub enum Connection<'a> {
    /// Postgres.
    Postgres(&'a mut PgConnection),
    /// SQLite.
    Sqlite(&'a mut SqliteConnection),
}

/// Runs one statement on whichever database: `on!(keys, Pool, handle, |conn| sqlx::query(SQL).execute(conn).await)`.
macro_rules! on {
    ($keys:expr, $kind:ident, $handle:expr, |$conn:ident| $body:expr) => {
        match $handle {
            $kind::Postgres($conn) => tokio::time::timeout($keys.options.silence, async { $body })
                .await
                .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())),
            $kind::Sqlite($conn) => $body,
        }
    };
}

/// What a call holds while it is carried out; a long one holds a permit of each kind.
pub(super) type Turn<'a> = (Option<SemaphorePermit<'a>>, SemaphorePermit<'a>);

/// The keys of one service.
#[derive(Clone, Debug)]
pub struct Keys {
    pool: Pool,
    options: Options,
    pace: std::sync::Arc<Pace>,
    turns: std::sync::Arc<Semaphore>,
    long_turns: std::sync::Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
}

impl Keys {
    /// The keys in `pool`. `tasks` outlives the requests: an attempt whose caller hangs up still ends.
    pub fn new(pool: Pool, options: Options, tasks: TaskTracker) -> Self {
        let pace = std::sync::Arc::new(Pace::new(options.pace.0, options.pace.1));
        let turns = std::sync::Arc::new(Semaphore::new(options.at_once.max(1)));
        let long_turns = std::sync::Arc::new(Semaphore::new(options.long_at_once.max(1)));
        Self {
            pool,
            options,
            pace,
            turns,
            long_turns,
            tasks,
        }
    }

    fn text(&self, sql: &'static [String; 2]) -> &'static str {
        let [postgres, sqlite] = sql;
        match self.pool {
            Pool::Postgres(_) => postgres,
            Pool::Sqlite(_) => sqlite,
        }
    }

    /// Waits until one more call may use a connection; `None`: not in time.
    pub(super) async fn turn(&self, is_long: bool) -> Option<Turn<'_>> {
        let turn = async {
            let long = if is_long {
                Some(self.long_turns.acquire().await.ok()?)
            } else {
                None
            };
            Some((long, self.turns.acquire().await.ok()?))
        };
        tokio::time::timeout(self.options.turn_timeout, turn).await.ok()?
    }

    /// Claims the key for one attempt. A commit of its own: no racer waits on it, and none holds a connection
    /// while another works.
    pub async fn claim(
        &self,
        scope: &Scope,
        fingerprint: &[u8; 32],
        effect: Effect,
    ) -> Result<Claim, KeysError> {
        let id = scope.id();
        if let Some(known) = self.look(&id, fingerprint).await? {
            return Ok(known);
        }
        if let Err(wait) = self.pace.take(&scope.merchant, std::time::Instant::now()) {
            return Ok(Claim::TooFast(wait));
        }
        let guard = Guard {
            id,
            owner: hex::encode(rand::random::<[u8; 16]>()),
        };
        for statement in [&INSERT, &TAKE_OVER] {
            let affected = on!(self, Pool, &self.pool, |pool| sqlx::query(self.text(statement))
                .bind(&guard.id)
                .bind(scope.key.hash())
                .bind(&scope.merchant)
                .bind(&scope.method)
                .bind(&scope.path)
                .bind(fingerprint.as_slice())
                .bind(effect.as_str())
                .bind(&guard.owner)
                .bind(micros(self.options.lease))
                .bind(micros(self.options.expiry))
                .execute(pool)
                .await
                .map(|done| done.rows_affected()))?;
            if affected == 1 {
                return Ok(Claim::Won(guard));
            }
        }
        // Somebody else won between the two looks.
        Ok(self
            .look(&guard.id, fingerprint)
            .await?
            .unwrap_or(Claim::Running(Duration::from_secs(1))))
    }

    /// Whether the key was used for another payload: what a caller should hear even if this payload is no good.
    pub async fn is_reuse(&self, scope: &Scope, fingerprint: &[u8; 32]) -> Result<bool, KeysError> {
        let known = self.look(&scope.id(), fingerprint).await?;
        Ok(matches!(known, Some(Claim::Reused)))
    }

    /// What stands under the id; `None` when it may be claimed.
    async fn look(&self, id: &str, fingerprint: &[u8; 32]) -> Result<Option<Claim>, KeysError> {
        let row = on!(self, Pool, &self.pool, |pool| sqlx::query(self.text(&READ))
            .bind(id)
            .fetch_optional(pool)
            .await
            .map(|row| row.map(|row| read_row(&row))))?;
        let Some(row) = row else { return Ok(None) };
        Ok(match row? {
            Known {
                expired: true,
                finished: true,
                ..
            } => None,
            Known {
                fingerprint: other, ..
            } if other != fingerprint => Some(Claim::Reused),
            Known {
                stored: Some(stored), ..
            } => Some(Claim::Finished(stored)),
            Known { left_us, .. } if left_us > 0 => {
                // Nearly every call is over within a second; one that has died holds its lease to the end.
                let left = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
                let is_young = left + Duration::from_secs(5) > self.options.lease;
                Some(Claim::Running(Duration::from_secs(if is_young { 1 } else { 5 })))
            }
            Known { outside: true, .. } => Some(Claim::OutcomePending),
            Known { .. } => None,
        })
    }

    /// Stores the answer inside the caller's transaction: commit that, and both are there.
    /// [`KeysError::Lost`] and [`KeysError::TooLarge`] mean: roll back.
    pub async fn complete(
        &self,
        guard: &Guard,
        connection: Connection<'_>,
        answer: &Stored,
    ) -> Result<(), KeysError> {
        let headers = serde_json::to_string(&answer.headers).map_err(|_| KeysError::Corrupt("headers"))?;
        if headers.len().saturating_add(answer.body.len()) > self.options.max_answer {
            return Err(KeysError::TooLarge);
        }
        let affected = on!(self, Connection, connection, |conn| sqlx::query(
            self.text(&COMPLETE)
        )
        .bind(&guard.id)
        .bind(&guard.owner)
        .bind(i32::from(answer.status))
        .bind(&headers)
        .bind(&answer.body)
        .bind(micros(self.options.expiry))
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
        if affected == 1 {
            Ok(())
        } else {
            Err(KeysError::Lost)
        }
    }

    /// Gives the key back: nothing has happened, the next attempt starts anew.
    pub async fn release(&self, guard: &Guard) -> Result<(), KeysError> {
        on!(self, Pool, &self.pool, |pool| sqlx::query(self.text(&RELEASE))
            .bind(&guard.id)
            .bind(&guard.owner)
            .execute(pool)
            .await
            .map(drop))?;
        Ok(())
    }

    /// Asks `find_out` about up to `limit` claims with an unknown outcome and settles what it knows; returns
    /// how many were settled.
    pub async fn reconcile<F>(&self, limit: i64, mut find_out: F) -> Result<u64, KeysError>
    where
        F: AsyncFnMut(&Unsettled) -> Settlement,
    {
        let rows = on!(self, Pool, &self.pool, |pool| sqlx::query(self.text(&UNSETTLED))
            .bind(limit)
            .fetch_all(pool)
            .await
            .map(|rows| rows.iter().map(unsettled_row).collect::<Result<Vec<_>, _>>()))?;
        let mut settled = 0_u64;
        for (guard, unsettled) in rows? {
            match find_out(&unsettled).await {
                Settlement::Unknown => continue,
                Settlement::Nothing => self.release(&guard).await?,
                Settlement::Happened(answer) => {
                    let done = match &self.pool {
                        Pool::Postgres(pool) => {
                            let mut conn = pool.acquire().await?;
                            self.complete(&guard, Connection::Postgres(&mut conn), &answer)
                                .await
                        }
                        Pool::Sqlite(pool) => {
                            let mut conn = pool.acquire().await?;
                            self.complete(&guard, Connection::Sqlite(&mut conn), &answer)
                                .await
                        }
                    };
                    match done {
                        // The attempt itself came back meanwhile: its own answer stands.
                        Err(KeysError::Lost) => continue,
                        other => other?,
                    }
                }
            }
            settled = settled.saturating_add(1);
        }
        Ok(settled)
    }

    /// Removes up to `limit` expired rows; returns how many. A claim with an unknown outcome is never removed.
    pub async fn purge(&self, limit: i64) -> Result<u64, KeysError> {
        Ok(on!(self, Pool, &self.pool, |pool| sqlx::query(
            self.text(&PURGE)
        )
        .bind(limit)
        .execute(pool)
        .await
        .map(|done| done.rows_affected()))?)
    }

    /// How the table stands.
    pub async fn standing(&self) -> Result<Standing, KeysError> {
        Ok(on!(self, Pool, &self.pool, |pool| {
            let row = sqlx::query(self.text(&STANDING)).fetch_one(pool).await;
            row.and_then(|row| {
                Ok(Standing {
                    oldest_running: row.try_get("oldest")?,
                    unknown_outcomes: row.try_get("unknown")?,
                })
            })
        })?)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
