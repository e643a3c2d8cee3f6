//! Transactions, each on a connection that is closed unless it ended cleanly.
//!
//! ```text
//! acquire ─▶ begin ─▶ statements ─▶ commit | rollback ─ok─▶ back to the pool
//!    failed or dropped on any of these ways ─▶ closed, and rolled back by that
//! ```
//!
//! `begin`, `commit` and `rollback` are plain statements here, not sqlx's: it counts the depth of transactions in the
//! process, and that count is wrong as soon as the database ends a transaction by itself (SQLite does on a full disk,
//! an I/O error, no memory) or a `begin` is abandoned before its answer. Such a connection would refuse every
//! transaction to come, or tell of a commit that is none.
//!
//! For the same reason a transaction takes no statement after one that failed, and does not commit: SQLite may have
//! rolled it back, so that the next statement would commit by itself, and Postgres answers a commit of a failed
//! transaction with a rollback and no error.

use std::fmt;
use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Executor, Pool, Postgres, Sqlite};

use super::time::db_now;
use super::{Store, StoreError, heard};
use crate::time::Timestamp;

/// A transaction on either database. Dropped without [`Tx::commit`] or [`Tx::rollback`] it closes its connection, which
/// rolls it back.
#[derive(Debug)]
pub enum Tx {
    /// On Postgres.
    Postgres(OpenTransaction<Postgres>),
    /// On SQLite; one that writes has the write lock from its beginning.
    Sqlite(OpenTransaction<Sqlite>),
}

/// A connection with a transaction open.
pub struct OpenTransaction<DB: Database> {
    conn: Option<PoolConnection<DB>>,
    /// A statement has failed.
    failed: bool,
}

impl<DB: Database> OpenTransaction<DB>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    /// Begins one with the statement `begin`.
    pub(super) async fn begin(pool: &Pool<DB>, begin: &'static str) -> Result<Self, sqlx::Error> {
        let mut open = Self {
            conn: Some(pool.acquire().await?),
            failed: false,
        };
        open.execute(begin).await?;
        Ok(open)
    }

    /// Ends it with the statement `end`; only then does the pool get the connection back.
    pub(super) async fn end(mut self, end: &'static str) -> Result<(), sqlx::Error> {
        self.execute(end).await?;
        drop(self.conn.take());
        Ok(())
    }

    /// Returns the connection for one more statement.
    pub(super) fn usable(&mut self) -> Result<&mut DB::Connection, sqlx::Error> {
        if self.failed {
            return Err(after_failure());
        }
        Ok(&mut **self)
    }

    /// Passes `answer` on, and takes no more statements if it is a failure. A row that is missing or does not read is
    /// none.
    pub(super) fn noting<T>(&mut self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.failed |= matches!(
            answer,
            Err(sqlx::Error::Database(_)
                | sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_))
        );
        answer
    }
}

impl<DB: Database> Deref for OpenTransaction<DB> {
    type Target = DB::Connection;

    #[expect(
        clippy::expect_used,
        reason = "`end` and `drop` take it, and nobody has it after them"
    )]
    fn deref(&self) -> &DB::Connection {
        self.conn
            .as_deref()
            .expect("an open transaction has a connection")
    }
}

impl<DB: Database> DerefMut for OpenTransaction<DB> {
    #[expect(
        clippy::expect_used,
        reason = "`end` and `drop` take it, and nobody has it after them"
    )]
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.conn
            .as_deref_mut()
            .expect("an open transaction has a connection")
    }
}

impl<DB: Database> Drop for OpenTransaction<DB> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            drop(conn.detach());
        }
    }
}

impl<DB: Database> fmt::Debug for OpenTransaction<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenTransaction")
    }
}

fn after_failure() -> sqlx::Error {
    sqlx::Error::Protocol("a statement of this transaction has failed".to_owned())
}

impl Store {
    /// Begins a write transaction.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        Ok(match self {
            Self::Postgres(pool) => Tx::Postgres(heard(OpenTransaction::begin(pool, "begin")).await?),
            Self::Sqlite(pools) => {
                Tx::Sqlite(OpenTransaction::begin(pools.writing()?, "begin immediate").await?)
            }
        })
    }

    /// Begins a transaction that only reads: all its statements see one state.
    pub async fn begin_reading(&self) -> Result<Tx, StoreError> {
        const ONE_STATE: &str = "begin isolation level repeatable read, read only";
        Ok(match self {
            Self::Postgres(pool) => Tx::Postgres(heard(OpenTransaction::begin(pool, ONE_STATE)).await?),
            Self::Sqlite(pools) => Tx::Sqlite(OpenTransaction::begin(&pools.reader, "begin").await?),
        })
    }
}

impl Tx {
    /// Makes everything durable. An error leaves the outcome unknown.
    pub async fn commit(self) -> Result<(), StoreError> {
        match &self {
            Self::Postgres(tx) if tx.failed => Err(after_failure().into()),
            Self::Sqlite(tx) if tx.failed => Err(after_failure().into()),
            _ => self.end("commit").await,
        }
    }

    /// Takes everything back, and keeps the connection for the next one.
    pub async fn rollback(self) -> Result<(), StoreError> {
        self.end("rollback").await
    }

    async fn end(self, end: &'static str) -> Result<(), StoreError> {
        match self {
            Self::Postgres(tx) => heard(tx.end(end)).await?,
            Self::Sqlite(tx) => tx.end(end).await?,
        }
        Ok(())
    }

    /// The database's clock. Whatever compares `due_at` must compare with this: the machines that share a
    /// database need not agree on the time.
    pub async fn now(&mut self) -> Result<Timestamp, StoreError> {
        let sql = self.pick(
            concat!("select ", db_now!(postgres)),
            concat!("select ", db_now!(sqlite)),
        );
        Ok(super::on_tx!(self, |conn| sqlx::query_scalar(sql)
            .fetch_one(conn)
            .await)?)
    }

    /// The text for this database, where one text cannot serve both.
    pub(crate) fn pick<T>(&self, postgres: T, sqlite: T) -> T {
        match self {
            Self::Postgres(_) => postgres,
            Self::Sqlite(_) => sqlite,
        }
    }
}
