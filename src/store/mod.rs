//! Where everything is kept: Postgres or one SQLite file, behind one set of functions.
//!
//! An enum of pools and a statement-level macro, rather than a trait, generics or an ORM: one SQL text serves
//! both databases, and each difference goes through [`Store::pick`], so that a grep lists them all; but for lists of
//! rows and keys, which `rows` writes for each. The store knows rows and constraints; rules live in `orders`. A
//! unique constraint is the only arbiter of "the same thing" (I2): nothing looks first and inserts later.
//!
//! On SQLite all writes go through one connection, so that writers queue in the process instead of failing
//! with "database is locked"; readers have their own pool (WAL).

pub mod accounts;
pub mod attention;
pub mod attention_group;
pub mod audit;
mod bisect;
mod broker_queues;
mod daemon_lock;
pub mod dead_letters;
mod error;
mod event_kinds;
mod event_list;
mod event_row;
pub mod events;
pub mod facts;
pub mod feed;
pub mod gauges;
mod growth;
pub mod history;
mod in_place;
mod inspect;
pub mod key_uses;
pub mod known_senders;
mod lease;
pub mod ledger;
pub mod locks;
pub mod messages;
mod order_list;
pub mod orders;
pub mod outbox;
pub mod parked;
mod postgres;
mod probe;
pub mod quarantine;
mod quarantine_list;
mod redrive;
mod repeats;
pub mod replays;
pub mod retention;
mod rows;
mod schema;
mod time;
pub mod timeline;
pub mod trades;
mod tx;
pub mod view;

use std::fmt;
use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, SqlitePool};

pub use bisect::Bisection;
pub use broker_queues::QueueSeen;
pub use daemon_lock::{DaemonLock, DaemonLockError};
pub use error::StoreError;
pub use event_list::{EventFilter, EventView, UNFINISHED};
pub use event_row::{RawNotification, Unreadable};
pub use events::{Recorded, Writer};
pub use inspect::{Inspection, inspect};
pub use order_list::OrderFilter;
pub use quarantine_list::{Kept, QuarantineFilter, QuarantineView};
pub use repeats::{Delivery, Repeat};
pub use schema::Schema;
pub use tx::{OpenTransaction, Tx};

use self::in_place::InPlace;

static POSTGRES_MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");
static SQLITE_MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// What Postgres may do for a statement. Its statistics are those of the last analyze: a daemon that begins with an
/// empty database would otherwise read whole tables for each batch until the next one, and for longer with plans that
/// it has kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plans {
    /// As it likes.
    #[default]
    Any,
    /// Every statement looks rows up by their keys: nothing else is planned, however small a table looks. A plan is kept
    /// until its tables are analyzed, whatever the parameters.
    Lookups,
}

/// How to reach the database.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Most connections (Postgres) or readers (SQLite).
    pub max_connections: u32,
    /// How long a caller waits for a connection before it hears [`StoreError::Unavailable`].
    pub acquire_timeout: Duration,
    /// When Postgres gives a statement up, so that one that hangs does not hold its connection for ever.
    pub statement_timeout: Duration,
    /// How Postgres plans the statements of these connections.
    pub plans: Plans,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            max_connections: 16,
            acquire_timeout: Duration::from_secs(1),
            statement_timeout: postgres::STATEMENT,
            plans: Plans::Any,
        }
    }
}

/// A handle to the database; clones share the pools.
#[derive(Clone)]
pub enum Store {
    /// A Postgres server.
    Postgres(PgPool),
    /// One SQLite file.
    Sqlite(SqlitePools),
}

/// SQLite's two pools.
#[derive(Clone, Debug)]
pub struct SqlitePools {
    /// One connection; every write goes through it.
    pub(crate) writer: SqlitePool,
    /// Readers.
    pub(crate) reader: SqlitePool,
    file: InPlace,
}

impl SqlitePools {
    /// Returns the pool that writes, if the file stands where it was opened: what is written elsewhere is lost.
    pub(crate) fn writing(&self) -> Result<&SqlitePool, sqlx::Error> {
        self.file.check()?;
        Ok(&self.writer)
    }
}

/// Runs a read on whichever pool, and does not wait for ever: `on_pool!(store, |pool| sqlx::query(SQL).fetch_all(pool).await)`.
macro_rules! on_pool {
    ($store:expr, |$pool:ident| $body:expr) => {
        match $store {
            $crate::store::Store::Postgres($pool) => $crate::store::heard(async { $body }).await,
            $crate::store::Store::Sqlite(pools) => {
                let $pool = &pools.reader;
                $body
            }
        }
    };
}
pub(crate) use on_pool;

/// Runs one statement inside a [`Tx`], and does not wait for ever: `on_tx!(tx, |conn| sqlx::query(SQL).execute(conn).await)`.
macro_rules! on_tx {
    ($tx:expr, |$conn:ident| $body:expr) => {
        match $tx {
            $crate::store::Tx::Postgres(tx) => {
                let answer = match tx.usable() {
                    Ok($conn) => $crate::store::heard(async { $body }).await,
                    Err(error) => Err(error),
                };
                tx.noting(answer)
            }
            $crate::store::Tx::Sqlite(tx) => {
                let answer = match tx.usable() {
                    Ok($conn) => async { $body }.await,
                    Err(error) => Err(error),
                };
                tx.noting(answer)
            }
        }
    };
}
pub(crate) use on_tx;
pub(crate) use postgres::heard;

/// Makes the file, if it is missing, with mode 0600: it holds what payers did. SQLite gives the files beside it the same
/// mode. What goes wrong here is said by the opening that follows.
fn keep_private(file: &Path) {
    let name = file.to_string_lossy();
    if name.starts_with(":memory:") || name.starts_with("file:") {
        return;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(options.open(file));
}

impl Store {
    /// Opens the database named by `url` (`postgres://…` or `sqlite:path`) without connecting yet on Postgres,
    /// so that a daemon starts while its database is down. A SQLite file is created when missing.
    pub async fn open(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(postgres::pool(url.parse()?, options)));
        }
        let connect = sqlite(url)?;
        keep_private(connect.get_filename());
        let connect = connect.journal_mode(SqliteJournalMode::Wal);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(options.acquire_timeout)
            .connect_with(connect.clone())
            .await?;
        let file = InPlace::of(connect.get_filename());
        let reader = SqlitePoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            .connect_lazy_with(connect);
        Ok(Self::Sqlite(SqlitePools { writer, reader, file }))
    }

    /// A store on the same database whose connections nobody else takes: a page of the API or a long replay can
    /// then not keep a notification waiting. On SQLite there is one writer in any case.
    #[must_use]
    pub fn dedicated(&self, options: &StoreOptions) -> Self {
        match self {
            Self::Postgres(pool) => {
                let connect = pool.connect_options().as_ref().clone();
                Self::Postgres(postgres::pool(connect, options))
            }
            Self::Sqlite(_) => self.clone(),
        }
    }

    /// Brings the schema up to date, under the database's own lock: daemons that start together do it once. Then
    /// judges whether the feed goes on where it was ([`feed`]).
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(pool) => {
                // An index over many rows may take longer than any statement of daily work.
                let unhurried = postgres::pool(
                    pool.connect_options().as_ref().clone(),
                    &StoreOptions {
                        max_connections: 1,
                        statement_timeout: Duration::ZERO,
                        acquire_timeout: self.acquire_timeout(),
                        ..StoreOptions::default()
                    },
                );
                let encoding: String =
                    heard(sqlx::query_scalar("show server_encoding").fetch_one(&unhurried)).await?;
                if encoding != postgres::ENCODING {
                    return Err(StoreError::Encoding(encoding));
                }
                let migrated = POSTGRES_MIGRATIONS.run(&unhurried).await;
                unhurried.close().await;
                migrated?;
            }
            Self::Sqlite(pools) => {
                let mut conn = pools.writer.acquire().await?;
                if let Err(error) = SQLITE_MIGRATIONS.run_direct(&mut *conn).await {
                    // Whether a transaction is open is not known.
                    drop(conn.detach());
                    return Err(error.into());
                }
            }
        }
        self.renew_feed_epoch().await
    }

    /// How long a caller waits for a connection.
    pub fn acquire_timeout(&self) -> Duration {
        match self {
            Self::Postgres(pool) => pool.options().get_acquire_timeout(),
            Self::Sqlite(pools) => pools.reader.options().get_acquire_timeout(),
        }
    }

    /// Makes all connections that the pool may have, so that nobody else has them.
    pub async fn connect(&self) -> Result<(), StoreError> {
        if let Self::Postgres(pool) = self {
            let mut made = Vec::new();
            for _ in 0..pool.options().get_max_connections() {
                made.push(pool.acquire().await?);
            }
            drop(made);
        }
        Ok(())
    }

    /// The text for this database, where one text cannot serve both.
    pub(crate) fn pick<T>(&self, postgres: T, sqlite: T) -> T {
        match self {
            Self::Postgres(_) => postgres,
            Self::Sqlite(_) => sqlite,
        }
    }

    /// Whether other processes may have it open, too.
    pub fn is_shared(&self) -> bool {
        self.pick(true, false)
    }

    /// Lets go of every connection; whoever is still at work hears [`StoreError::Unavailable`].
    pub async fn close(&self) {
        match self {
            Self::Postgres(pool) => pool.close().await,
            Self::Sqlite(pools) => {
                pools.reader.close().await;
                pools.writer.close().await;
            }
        }
    }

    /// Whether the database answers a read.
    pub async fn ping(&self) -> Result<(), StoreError> {
        on_pool!(self, |pool| sqlx::query("select 1").execute(pool).await.map(drop))?;
        Ok(())
    }
}

/// How every connection to a SQLite file is set, whoever opens it.
fn sqlite(url: &str) -> Result<SqliteConnectOptions, StoreError> {
    Ok(url
        .parse::<SqliteConnectOptions>()?
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5))
        .pragma("recursive_triggers", "on"))
}

impl fmt::Debug for Store {
    /// Without the URL: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pick("Store::Postgres", "Store::Sqlite"))
    }
}
