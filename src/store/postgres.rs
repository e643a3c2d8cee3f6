//! How payhook connects to Postgres.
//!
//! Two settings are not left to the server: a commit that was answered is durable (I1), whatever the role's
//! default, and a statement ends. A connection that has idled is asked whether it still lives before it is
//! trusted with a notification: after a restart of the server every pooled connection is dead. And one that takes no
//! writes is not taken: after a failover the old address may lead to a standby for a while.
//!
//! A server that lost its power, or a firewall that forgot a connection, ends nothing: the socket stays open and says
//! nothing any more. So nobody waits for an answer longer than a statement may take ([`heard`]), and the server ends a
//! transaction whose client it has not heard of for as long: its locks would keep the next one out.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool, Row as _};

use super::{Plans, StoreOptions};

/// Shorter than this a connection is believed to be alive.
pub(super) const IDLE: Duration = Duration::from_millis(500);

/// How long one that has idled has to say that it lives: what a silent network has dropped says nothing.
const PING: Duration = Duration::from_millis(250);

/// The longest that a statement may take, unless its pool says otherwise.
pub(super) const STATEMENT: Duration = Duration::from_secs(30);

/// Who has said nothing for so long says nothing any more.
const SILENCE: Duration = STATEMENT.saturating_add(Duration::from_secs(5));

/// The only encoding of a database that payhook takes.
pub(super) const ENCODING: &str = "UTF8";

/// What libpq asks of a server for `target_session_attrs=read-write`.
const READS_ONLY: &str = "select current_setting('transaction_read_only') = 'on'";

/// Nothing but nested loops over indexes in their order; and no compiling, which would cost more than any of them.
const LOOKUPS: &str = "select set_config(setting, 'off', false) from unnest(array['enable_seqscan', \
    'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']) as setting";
const GENERIC: &str = "select set_config('plan_cache_mode', 'force_generic_plan', false)";

/// What a session begins with.
#[derive(Debug)]
struct Session {
    connect: PgConnectOptions,
    setup: String,
}

impl Session {
    /// Sets a new connection up, in one round trip: on a slow network several would be all the time that there is. An
    /// error: it is not to be used.
    async fn begin(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        let answers = conn.fetch_all(self.setup.as_str()).await?;
        let Some(reads_only) = answers.last() else {
            return Err(sqlx::Error::RowNotFound);
        };
        if reads_only.try_get(0)? {
            // The pool tries again at once, and each time is a login.
            tokio::time::sleep(IDLE).await;
            return Err(std::io::Error::other("the server takes no writes").into());
        }
        Ok(())
    }

    /// Puts a new connection in the place of `conn`, which says nothing any more. Dropped, that is closed at once; a pool
    /// closes in a way that over TLS waits for the server to say something (sqlx 0.8 and 0.9), and keeps the place meanwhile.
    async fn renew(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        let mut new = PgConnection::connect_with(&self.connect).await?;
        self.begin(&mut new).await?;
        *conn = new;
        Ok(())
    }

    /// [`Self::renew`], as soon as there is a server, unless `conn` speaks again before.
    async fn renew_in_time(&self, conn: &mut PgConnection) {
        while !matches!(tokio::time::timeout(SILENCE, self.renew(conn)).await, Ok(Ok(()))) {
            tokio::time::sleep(IDLE).await;
            if ping(conn).await.is_ok() {
                return;
            }
        }
    }

    /// Whether `conn`, which comes back, may be given out again.
    async fn take_back(&self, conn: &mut PgConnection) -> bool {
        match done(conn).await {
            Ok(()) => true,
            Err(error) if is_silence(&error) => {
                self.renew_in_time(conn).await;
                true
            }
            Err(_) => false,
        }
    }
}

/// A pool that has not connected yet.
pub(super) fn pool(connect: PgConnectOptions, options: &StoreOptions) -> PgPool {
    let session = Arc::new(Session {
        connect: connect.clone(),
        setup: setup(options),
    });
    let (when_taken, when_given_back) = (Arc::clone(&session), Arc::clone(&session));
    PgPoolOptions::new()
        .max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        // Connections are kept however long they idle: a role may have no more to spare later, and a pool that closes one
        // waits, over TLS, until a server says something that may have gone long ago (sqlx 0.8 and 0.9).
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .after_connect(move |conn, _| {
            let session = Arc::clone(&session);
            Box::pin(async move { session.begin(conn).await })
        })
        .before_acquire(move |conn, meta| {
            let session = Arc::clone(&when_taken);
            Box::pin(async move {
                if meta.idle_for <= IDLE {
                    return Ok(true);
                }
                match ping(conn).await {
                    Err(error) if is_silence(&error) => session.renew(conn).await.map(|()| true),
                    asked => Ok(asked.is_ok()),
                }
            })
        })
        .after_release(move |conn, _| {
            let session = Arc::clone(&when_given_back);
            Box::pin(async move { Ok(session.take_back(conn).await) })
        })
        .connect_lazy_with(connect)
}

/// Returns the statements that a session begins with; the last one tells whether it takes no writes.
fn setup(options: &StoreOptions) -> String {
    let plans: &[&str] = match options.plans {
        Plans::Any => &[],
        Plans::Lookups => &[LOOKUPS, GENERIC],
    };
    let session = format!(
        "select set_config('statement_timeout', '{}ms', false), \
         set_config('idle_in_transaction_session_timeout', '{}ms', false), \
         case when current_setting('synchronous_commit') in ('off', 'local', 'remote_write') \
              then set_config('synchronous_commit', 'on', false) end",
        options.statement_timeout.as_millis(),
        SILENCE.as_millis(),
    );
    [session.as_str()]
        .iter()
        .chain(plans)
        .chain(&[READS_ONLY])
        .copied()
        .collect::<Vec<_>>()
        .join("; ")
}

/// Waits until the server has done with what was asked over a connection that comes back. An abandoned statement may
/// have ended in an error that nobody has read yet, which is first.
async fn done(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    match heard(conn.ping()).await {
        Err(sqlx::Error::Database(_)) => heard(conn.ping()).await,
        answer => answer,
    }
}

/// Whether nothing was heard: anything else is heard from the socket, which is closed then.
pub(super) fn is_silence(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == ErrorKind::TimedOut)
}

/// Whether the session takes no writes: a standby, or a role or a server set so.
pub(super) async fn reads_only(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(READS_ONLY).fetch_one(conn).await
}

/// Waits for the server's answer, but not for ever.
pub(crate) async fn heard<T>(answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    // Connecting alone is a future of many kilobytes: not within each of its callers'.
    let heard = tokio::time::timeout(SILENCE, Box::pin(answer)).await;
    heard.unwrap_or_else(|_| Err(timed_out()))
}

/// Asks a connection that has idled whether it lives.
pub(super) async fn ping(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let answer = tokio::time::timeout(PING, conn.ping()).await;
    answer.unwrap_or_else(|_| Err(timed_out()))
}

fn timed_out() -> sqlx::Error {
    std::io::Error::from(ErrorKind::TimedOut).into()
}
