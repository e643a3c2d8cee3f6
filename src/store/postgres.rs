//! How payhook connects to Postgres.
//!
//! Two settings are not left to the server: a commit that was answered is durable (I1), whatever the role's
//! default, and a statement ends. A connection that has idled is asked whether it still lives before it is
//! trusted with a notification: after a restart of the server every pooled connection is dead.

use std::io::ErrorKind;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};

use super::{Plans, StoreOptions};

/// Shorter than this a connection is believed to be alive.
pub(super) const IDLE: Duration = Duration::from_millis(500);

/// How long one that has idled has to say that it lives: what a silent network has dropped says nothing.
const PING: Duration = Duration::from_millis(250);

const SESSION: &str = "select set_config('statement_timeout', $1, false), \
    case when current_setting('synchronous_commit') in ('off', 'local', 'remote_write') \
         then set_config('synchronous_commit', 'on', false) end";

/// Nothing but nested loops over indexes in their order; and no compiling, which would cost more than any of them.
const LOOKUPS: &str = "select set_config(setting, 'off', false) from unnest(array['enable_seqscan', \
    'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']) as setting";
const FRESH: &str = "select set_config('plan_cache_mode', 'force_custom_plan', false)";

/// A pool that has not connected yet.
pub(super) fn pool(connect: PgConnectOptions, options: &StoreOptions) -> PgPool {
    let statement_timeout = format!("{}ms", options.statement_timeout.as_millis());
    let plans: &[&'static str] = match options.plans {
        Plans::Any => &[],
        Plans::Lookups => &[LOOKUPS],
        Plans::FreshLookups => &[LOOKUPS, FRESH],
    };
    let mut pool = PgPoolOptions::new();
    if options.kept {
        pool = pool.idle_timeout(None).max_lifetime(None);
    }
    pool.max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move {
                if meta.idle_for > IDLE {
                    ping(conn).await?;
                }
                Ok(true)
            })
        })
        .after_connect(move |conn, _| {
            let statement_timeout = statement_timeout.clone();
            Box::pin(async move {
                sqlx::query(SESSION)
                    .bind(statement_timeout)
                    .execute(&mut *conn)
                    .await?;
                for &setting in plans {
                    sqlx::query(setting).execute(&mut *conn).await?;
                }
                Ok(())
            })
        })
        .connect_lazy_with(connect)
}

/// Asks a connection that has idled whether it lives.
pub(super) async fn ping(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let answer = tokio::time::timeout(PING, conn.ping()).await;
    answer.unwrap_or_else(|_| Err(std::io::Error::from(ErrorKind::TimedOut).into()))
}
