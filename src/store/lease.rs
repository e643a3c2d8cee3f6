//! A Postgres connection that is closed, not returned, unless its work came to an end.
//!
//! A pool takes back a connection whose statement was abandoned and then waits for the server to finish with
//! it. On a path with a deadline that would let one hanging server occupy every slot; so whoever may be
//! abandoned works on a lease, and an abandoned lease closes its socket.

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

/// One connection, for statements that a caller may abandon.
#[derive(Debug)]
pub(super) struct Lease(Option<PoolConnection<Postgres>>);

impl Lease {
    /// Waits for a connection, as long as the pool allows.
    pub(super) async fn take(pool: &PgPool) -> Result<Self, sqlx::Error> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    /// The connection.
    pub(super) fn conn(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        self.0.as_deref_mut().ok_or(sqlx::Error::PoolClosed)
    }

    /// Gives the connection back if the server has answered, with whatever answer.
    pub(super) fn end<T>(self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        if matches!(answer, Ok(_) | Err(sqlx::Error::Database(_))) {
            self.give_back();
        }
        answer
    }

    /// Gives the connection back to its pool: no statement is under way on it.
    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(conn) = self.0.take() {
            drop(conn.detach());
        }
    }
}
