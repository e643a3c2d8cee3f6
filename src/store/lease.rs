//! A Postgres connection that is closed, not returned, unless its work came to an end.
//!
//! A pool takes back a connection whose statement was abandoned and then waits for the server to finish with
//! it. On a path with a deadline that would let one hanging server occupy every slot; so whoever may be
//! abandoned works on a lease, and an abandoned lease closes its socket.
//!
//! A pool also asks of each connection that comes back whether it still lives: round trips in which nobody has it. Who
//! runs statement after statement keeps his lease, and asks only after a rest.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};
use tokio::time::Instant;

use super::postgres::{IDLE, is_silence, ping};

/// So many statements are abandoned one after the other before there are pauses.
const FREE: u32 = 8;
/// The longest pause is two to the power of this, in seconds.
const LONGEST: u32 = 3;

/// SQLSTATE `read_only_sql_transaction`.
const READ_ONLY: &str = "25006";

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

    /// Gives the connection back if the server has answered, with whatever answer but that it takes no writes.
    pub(super) fn end<T>(self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        let answered = match &answer {
            Ok(_) => true,
            Err(sqlx::Error::Database(error)) => error.code().is_none_or(|code| code != READ_ONLY),
            Err(_) => false,
        };
        if answered {
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
///
/// A backend that waits for a standby or a disk does not notice that its client has gone, so each abandoned statement may
/// leave one behind. Those would soon be all that the server has: who abandons one after the other waits in between,
/// until one has done what it is there for ([`Self::did`]).
#[derive(Debug, Default)]
pub(super) struct KeptLease {
    kept: Option<(Lease, Instant)>,
    /// A lease is out; at the next taking: it was abandoned.
    out: bool,
    /// How many were abandoned since one did what it is there for.
    abandoned: u32,
    pause_until: Option<Instant>,
}

impl KeptLease {
    /// The lease of the last statement, if it still lives, else one from `pool`. It is kept again when it is handed to
    /// [`Self::end`], and closed when it is not.
    pub(super) async fn take(&mut self, pool: &PgPool) -> Result<Lease, sqlx::Error> {
        if std::mem::take(&mut self.out) {
            self.abandoned = self.abandoned.saturating_add(1);
            self.pause_until = Instant::now().checked_add(pause(self.abandoned));
        }
        if let Some(until) = self.pause_until {
            tokio::time::sleep_until(until).await;
            self.pause_until = None;
        }
        let alive = match self.kept.take() {
            Some((mut lease, since)) => {
                (since.elapsed() < IDLE || ping(lease.conn()?).await.is_ok()).then_some(lease)
            }
            None => None,
        };
        let lease = match alive {
            Some(lease) => lease,
            None => Lease::take(pool).await?,
        };
        self.out = true;
        Ok(lease)
    }

    /// Keeps `lease` if its statement was done; else the pool judges it, if the server has answered. One that has not is
    /// one that was abandoned.
    pub(super) fn end<T>(&mut self, lease: Lease, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.out = matches!(&answer, Err(error) if is_silence(error));
        if answer.is_ok() {
            self.kept = Some((lease, Instant::now()));
            return answer;
        }
        lease.end(answer)
    }

    /// The server does what is asked of it: there is no more waiting. That it answers alone says little, since a
    /// statement that writes nothing has no commit to wait for.
    pub(super) fn did(&mut self) {
        self.abandoned = 0;
    }

    /// Gives the connection back.
    pub(super) fn give_back(&mut self) {
        if let Some((lease, _)) = self.kept.take() {
            lease.give_back();
        }
    }
}

/// How long to wait after so many.
fn pause(abandoned: u32) -> Duration {
    let over = abandoned.checked_sub(FREE);
    over.map_or(Duration::ZERO, |over| Duration::from_secs(1 << over.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_abandons_one_after_the_other_pauses_in_between() {
        let pauses: Vec<u64> = (1..=13).map(|abandoned| pause(abandoned).as_secs()).collect();
        assert_eq!(pauses, [0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 8, 8]);
    }
}
