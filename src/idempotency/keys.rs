//! The keys' table: claim, complete, release, reconcile, purge.
//!
//! All times are the database's, so that several processes agree on whose lease ran out. Every change after
//! the first insert is guarded by the attempt that owns the claim and looks at the rows affected: an attempt
//! that lost its lease cannot complete, and its transaction rolls back with it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::{PgConnection, PgPool, Row, SqliteConnection, SqlitePool};
use tokio_util::task::TaskTracker;

use super::key::Key;
use super::pace::Pace;

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

/// Runs one statement on whichever database.
macro_rules! on {
    ($kind:ident, $handle:expr, |$conn:ident| $body:expr) => {
        match $handle {
            $kind::Postgres($conn) => $body,
            $kind::Sqlite($conn) => $body,
        }
    };
}

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an attempt may run before another may take its claim over.
    pub lease: Duration,
    /// How long a stored answer is kept.
    pub expiry: Duration,
    /// Largest stored answer, headers and body, in bytes.
    pub max_answer: usize,
    /// New keys a second for one caller, and how many at once.
    pub pace: (u32, u32),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: Duration::from_mins(1),
            expiry: Duration::from_hours(7 * 24),
            max_answer: 256 * 1024,
            pace: (50, 200),
        }
    }
}

/// Whose key, for which call.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The caller's merchant: two merchants never share a key.
    pub merchant: String,
    /// The request's method.
    pub method: String,
    /// The request's path as sent.
    pub path: String,
    /// The key.
    pub key: Key,
}

impl Scope {
    /// SHA-256 over its parts, in hex: the row's primary key.
    fn id(&self) -> String {
        let mut hash = Sha256::new();
        for part in [&self.merchant, &self.method, &self.path, self.key.as_str()] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hex::encode(hash.finalize())
    }
}

/// Whether a call does something that the database's transaction does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Everything is in the transaction: an unfinished claim did nothing.
    None,
    /// Something outside may have happened: an unfinished claim has an unknown outcome.
    Outside,
}

impl Effect {
    fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Outside => "outside",
        }
    }
}

/// An answer, as kept and replayed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// HTTP status.
    pub status: u16,
    /// Headers in order, without those that belong to the connection.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What a claim found.
#[derive(Debug)]
pub enum Claim {
    /// This attempt goes first.
    Won(Guard),
    /// The call has ended; this is its answer.
    Finished(Stored),
    /// Another attempt runs; come again after this.
    Running(Duration),
    /// The key was used for another payload.
    Reused,
    /// An attempt with an outside effect died half-way; reconciliation will tell.
    OutcomePending,
    /// The caller makes keys too fast; come again after this.
    TooFast(Duration),
}

/// The right to complete or release one claim.
#[derive(Clone, Debug)]
pub struct Guard {
    id: String,
    owner: String,
}

/// A claim whose outcome is not known.
#[derive(Clone, Debug)]
pub struct Unsettled {
    /// Whose call.
    pub merchant: String,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// What identifies the payload.
    pub fingerprint: Vec<u8>,
    /// What logs may show of the key.
    pub key_hash: String,
}

/// What reconciliation found out about an [`Unsettled`] claim.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// The effect is there, and this is the answer.
    Happened(Stored),
    /// The effect is not there and cannot come any more: the key is free again.
    Nothing,
    /// Still not known.
    Unknown,
}

/// How the table stands, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Age of the oldest running claim, microseconds.
    pub oldest_running: i64,
    /// Claims with an outside effect whose lease ran out.
    pub unknown_outcomes: i64,
}

/// Why the table did not do it.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The database did not answer.
    #[error("the idempotency store is unavailable")]
    Store(#[from] sqlx::Error),
    /// The claim belongs to another attempt by now: roll back.
    #[error("the claim was taken over")]
    Lost,
    /// The answer is larger than may be stored: roll back.
    #[error("the answer is too large to be stored")]
    TooLarge,
    /// A stored row does not read as what it should be.
    #[error("corrupt row in idempotency_keys: {0}")]
    Corrupt(&'static str),
}

/// The keys of one service.
#[derive(Clone, Debug)]
pub struct Keys {
    pool: Pool,
    options: Options,
    pace: std::sync::Arc<Pace>,
    pub(super) tasks: TaskTracker,
}

const POSTGRES_NOW: &str = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";
const SQLITE_NOW: &str = "cast(unixepoch('subsec') * 1000000 as integer)";

/// A statement for either database, `now()` standing for its clock.
macro_rules! sql {
    ($name:ident, $text:literal) => {
        static $name: std::sync::LazyLock<[String; 2]> = std::sync::LazyLock::new(|| {
            [
                $text.replace("now()", POSTGRES_NOW),
                $text.replace("now()", SQLITE_NOW),
            ]
        });
    };
}

sql!(
    INSERT,
    "insert into idempotency_keys
        (id, key_hash, merchant, method, path, fingerprint, effect, state, owner, lease_until, created_at, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, 'running', $8, now() + $9, now(), now() + $10)
     on conflict do nothing"
);
// What may be taken over: an answer that has expired, or a claim that wrote nothing and whose lease ran out.
sql!(
    TAKE_OVER,
    "update idempotency_keys
        set key_hash = $2, merchant = $3, method = $4, path = $5, fingerprint = $6, effect = $7, state = 'running',
            owner = $8, lease_until = now() + $9, created_at = now(), expires_at = now() + $10,
            status = null, headers = null, body = null
      where id = $1
        and (state = 'finished' and expires_at <= now()
             or state = 'running' and effect = 'none' and lease_until <= now() and fingerprint = $6)"
);
sql!(
    READ,
    "select fingerprint, effect, state, lease_until - now() as left_us, expires_at <= now() as expired,
            status, headers, body
       from idempotency_keys where id = $1"
);
sql!(
    COMPLETE,
    "update idempotency_keys set state = 'finished', status = $3, headers = $4, body = $5, expires_at = now() + $6
      where id = $1 and owner = $2 and state = 'running'"
);
sql!(
    RELEASE,
    "delete from idempotency_keys where id = $1 and owner = $2 and state = 'running'"
);
sql!(
    UNSETTLED,
    "select id, owner, merchant, method, path, fingerprint, key_hash from idempotency_keys
      where state = 'running' and effect = 'outside' and lease_until <= now() order by created_at limit $1"
);
sql!(
    PURGE,
    "delete from idempotency_keys where id in
        (select id from idempotency_keys
          where expires_at <= now() and (state = 'finished' or effect = 'none' and lease_until <= now()) limit $1)"
);
sql!(
    STANDING,
    "select cast(coalesce(max(now() - created_at), 0) as bigint) as oldest,
            cast(coalesce(sum(case when effect = 'outside' and lease_until <= now() then 1 else 0 end), 0) as bigint)
                as unknown
       from idempotency_keys where state = 'running'"
);

impl Keys {
    /// The keys in `pool`. `tasks` outlives the requests: an attempt whose caller hangs up still ends.
    pub fn new(pool: Pool, options: Options, tasks: TaskTracker) -> Self {
        let pace = std::sync::Arc::new(Pace::new(options.pace.0, options.pace.1));
        Self {
            pool,
            options,
            pace,
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
            let affected = on!(Pool, &self.pool, |pool| sqlx::query(self.text(statement))
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
                .await?
                .rows_affected());
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

    /// What stands under the id; `None` when it may be claimed.
    async fn look(&self, id: &str, fingerprint: &[u8; 32]) -> Result<Option<Claim>, KeysError> {
        let row = on!(Pool, &self.pool, |pool| sqlx::query(self.text(&READ))
            .bind(id)
            .fetch_optional(pool)
            .await?
            .map(|row| read_row(&row))
            .transpose()?);
        let Some(row) = row else { return Ok(None) };
        Ok(match row {
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
                let left = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
                Some(Claim::Running(
                    left.clamp(Duration::from_secs(1), Duration::from_secs(5)),
                ))
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
        let affected = on!(Connection, connection, |conn| sqlx::query(self.text(&COMPLETE))
            .bind(&guard.id)
            .bind(&guard.owner)
            .bind(i32::from(answer.status))
            .bind(&headers)
            .bind(&answer.body)
            .bind(micros(self.options.expiry))
            .execute(conn)
            .await?
            .rows_affected());
        if affected == 1 {
            Ok(())
        } else {
            Err(KeysError::Lost)
        }
    }

    /// Gives the key back: nothing has happened, the next attempt starts anew.
    pub async fn release(&self, guard: &Guard) -> Result<(), KeysError> {
        on!(Pool, &self.pool, |pool| sqlx::query(self.text(&RELEASE))
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
        let rows = on!(Pool, &self.pool, |pool| sqlx::query(self.text(&UNSETTLED))
            .bind(limit)
            .fetch_all(pool)
            .await?
            .iter()
            .map(unsettled_row)
            .collect::<Result<Vec<_>, _>>()?);
        let mut settled = 0_u64;
        for (guard, unsettled) in rows {
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
        Ok(on!(Pool, &self.pool, |pool| sqlx::query(self.text(&PURGE))
            .bind(limit)
            .execute(pool)
            .await?
            .rows_affected()))
    }

    /// How the table stands.
    pub async fn standing(&self) -> Result<Standing, KeysError> {
        on!(Pool, &self.pool, |pool| {
            let row = sqlx::query(self.text(&STANDING)).fetch_one(pool).await?;
            Ok(Standing {
                oldest_running: row.try_get("oldest")?,
                unknown_outcomes: row.try_get("unknown")?,
            })
        })
    }
}

/// One row as read.
struct Known {
    fingerprint: Vec<u8>,
    finished: bool,
    outside: bool,
    expired: bool,
    left_us: i64,
    stored: Option<Stored>,
}

fn read_row<'r, R>(row: &'r R) -> Result<Known, KeysError>
where
    R: Row,
    &'static str: sqlx::ColumnIndex<R>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Vec<u8>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    bool: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    i32: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let finished = row.try_get::<String, _>("state")? == "finished";
    let stored = match row.try_get::<Option<i32>, _>("status")? {
        Some(status) if finished => {
            let headers: Option<String> = row.try_get("headers")?;
            Some(Stored {
                status: u16::try_from(status).map_err(|_| KeysError::Corrupt("status"))?,
                headers: serde_json::from_str(headers.as_deref().unwrap_or("[]"))
                    .map_err(|_| KeysError::Corrupt("headers"))?,
                body: row.try_get::<Option<Vec<u8>>, _>("body")?.unwrap_or_default(),
            })
        }
        _ => None,
    };
    Ok(Known {
        fingerprint: row.try_get("fingerprint")?,
        finished,
        outside: row.try_get::<String, _>("effect")? == "outside",
        expired: row.try_get("expired")?,
        left_us: row.try_get("left_us")?,
        stored,
    })
}

fn unsettled_row<'r, R>(row: &'r R) -> Result<(Guard, Unsettled), KeysError>
where
    R: Row,
    &'static str: sqlx::ColumnIndex<R>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Vec<u8>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let guard = Guard {
        id: row.try_get("id")?,
        owner: row.try_get("owner")?,
    };
    let unsettled = Unsettled {
        merchant: row.try_get("merchant")?,
        method: row.try_get("method")?,
        path: row.try_get("path")?,
        fingerprint: row.try_get("fingerprint")?,
        key_hash: row.try_get("key_hash")?,
    };
    Ok((guard, unsettled))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
