//! A Postgres connection that is closed, not returned, unless its work came to an end.
//!
//! A pool takes back a connection whose statement was abandoned and then waits for the server to finish with
//! it. On a path with a deadline that would let one hanging server occupy every slot; so whoever may be
//! abandoned works on a lease, and an abandoned lease closes its socket.
//!
//! A pool also asks of each connection that comes back whether it still lives: a round trip in which nobody has it. Who
//! runs statement after statement keeps his lease, and asks only after a rest.

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};
use tokio::time::Instant;

use super::postgres::{IDLE, ping};

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

/// A lease that is kept from one statement to the next.
#[derive(Debug, Default)]
pub(super) struct Kept(Option<(Lease, Instant)>);

impl Kept {
    /// The lease of the last statement, if it still lives, else one from `pool`. It is kept again when it is handed to
    /// [`Self::end`], and closed when it is not.
    pub(super) async fn take(&mut self, pool: &PgPool) -> Result<Lease, sqlx::Error> {
        if let Some((mut lease, since)) = self.0.take()
            && (since.elapsed() < IDLE || ping(lease.conn()?).await.is_ok())
        {
            return Ok(lease);
        }
        Lease::take(pool).await
    }

    /// Keeps `lease` if its statement was done; else the pool judges it, if the server has answered.
    pub(super) fn end<T>(&mut self, lease: Lease, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        if answer.is_ok() {
            self.0 = Some((lease, Instant::now()));
            return answer;
        }
        lease.end(answer)
    }

    /// Gives the connection back.
    pub(super) fn give_back(&mut self) {
        if let Some((lease, _)) = self.0.take() {
            lease.give_back();
        }
    }
}
