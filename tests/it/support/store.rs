//! A fresh database for one test: a Postgres database of its own, or a SQLite file in a folder of its own.
//!
//! `on_both_stores!` runs a test on either. A test that needs Postgres fails where there is none.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use payhook::store::{Store, StoreOptions, Tx};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _, SqliteConnection};
use tempfile::TempDir;

use super::services::database_url;

/// A machine that stalls is no database that does; tests of one that does say how long they wait.
pub(crate) fn patient() -> StoreOptions {
    StoreOptions {
        acquire_timeout: Duration::from_mins(1),
        ..StoreOptions::default()
    }
}

/// Hand-written SQL says `micros(N)` for a time, `span(N)` for a duration and `as_micros(X)` for either as a number, on
/// both databases: SQLite keeps the numbers as they are. A small number in an insert needs no `micros`. payhook's own
/// statements bind times, or bigints, which Postgres takes for none.
const MICROS: &str = "
    create function micros(n bigint) returns timestamptz immutable language sql as
        $$ select 'epoch'::timestamptz + (n / 3600000000) * interval '1 hour' + n % 3600000000 * interval '1 microsecond' $$;
    create function span(n bigint) returns interval immutable language sql as $$ select n * interval '1 microsecond' $$;
    create function as_micros(at timestamptz) returns bigint immutable language sql as
        $$ select (extract(epoch from at) * 1000000)::bigint $$;
    create function as_micros(took interval) returns bigint immutable language sql as
        $$ select (extract(epoch from took) * 1000000)::bigint $$;
    create function of_integer(n integer) returns timestamptz immutable language sql as $$ select micros(n) $$;
    create cast (integer as timestamptz) with function of_integer(integer) as assignment;";

/// `sql` for SQLite.
fn numbers(sql: &str) -> String {
    sql.replace("as_micros(", "(")
        .replace("micros(", "(")
        .replace("span(", "(")
}

/// A migrated store that nobody else uses.
pub(crate) struct FreshStore {
    /// The store under test.
    pub(crate) store: Store,
    /// What `[store] url` would say.
    pub(crate) url: String,
    /// Holds the SQLite file; removed at the end.
    folder: Arc<TempDir>,
}

impl FreshStore {
    /// An empty, migrated Postgres database; [`FreshStore::with_postgres`] drops it again.
    async fn postgres(name: &str) -> Self {
        let mut admin = admin().await;
        admin
            .execute(format!("create database {name}").as_str())
            .await
            .unwrap();
        Self::open(sibling(name), tempfile::tempdir().unwrap()).await
    }

    /// An empty, migrated SQLite file.
    async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("payhook.db").display());
        Self::open(url, folder).await
    }

    async fn open(url: String, folder: TempDir) -> Self {
        let store = Store::open(&url, &patient()).await.unwrap();
        store.migrate().await.unwrap();
        let fresh = Self {
            store,
            url,
            folder: Arc::new(folder),
        };
        if fresh.is_postgres() {
            fresh.by_hand(MICROS).await.unwrap();
        }
        fresh
    }

    /// Runs `test` on Postgres and drops the database afterwards, also when the test fails.
    pub(crate) async fn with_postgres<F: Future<Output = ()>>(test: impl FnOnce(Self) -> F) {
        let name = format!("payhook_test_{:016x}", rand::random::<u64>());
        let fresh = Self::postgres(&name).await;
        let ended = AssertUnwindSafe(test(fresh)).catch_unwind().await;
        let drop = format!("drop database {name} with (force)");
        admin().await.execute(drop.as_str()).await.unwrap();
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    }

    /// Runs `test` on SQLite.
    pub(crate) async fn with_sqlite<F: Future<Output = ()>>(test: impl FnOnce(Self) -> F) {
        let fresh = Self::sqlite().await;
        // An async block that uses one field takes only that one with it; the file stays all the same.
        let folder = Arc::clone(&fresh.folder);
        test(fresh).await;
        drop(folder);
    }

    /// Whether this is Postgres, where a text must differ.
    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.store, Store::Postgres(_))
    }

    /// A plain connection to the Postgres database.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// Runs hand-written SQL the way a human with a shell would: on a plain connection of its own, without any
    /// of the daemon's settings. Gives the rows affected.
    pub(crate) async fn by_hand(&self, sql: &str) -> Result<u64, sqlx::Error> {
        if self.is_postgres() {
            let mut conn = PgConnection::connect(&self.url).await?;
            Ok(conn.execute(sql).await?.rows_affected())
        } else {
            let mut conn = SqliteConnection::connect_with(&plain(&self.url)).await?;
            Ok(conn.execute(numbers(sql).as_str()).await?.rows_affected())
        }
    }

    /// Locks on Postgres, as `lock table` would: `orders in exclusive mode`; until the transaction is dropped. On SQLite
    /// it has the one write lock.
    pub(crate) async fn lock(&self, table_and_mode: &str) -> Tx {
        let mut tx = self.store.begin().await.unwrap();
        if let Tx::Postgres(conn) = &mut tx {
            let sql = format!("lock table {table_and_mode}");
            (&mut **conn).execute(sql.as_str()).await.unwrap();
        }
        tx
    }

    /// The first column of every row, which must be text: `select x::text …` or `select cast(x as text) …`.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        if self.is_postgres() {
            let mut conn = PgConnection::connect(&self.url).await.unwrap();
            let rows = conn.fetch_all(sql).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        } else {
            let mut conn = SqliteConnection::connect_with(&plain(&self.url)).await.unwrap();
            let rows = conn.fetch_all(numbers(sql).as_str()).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        }
    }

    /// The one number that `sql` selects, such as a `count(*)`.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        if self.is_postgres() {
            let mut conn = PgConnection::connect(&self.url).await.unwrap();
            conn.fetch_one(sql).await.unwrap().get(0)
        } else {
            let mut conn = SqliteConnection::connect_with(&plain(&self.url)).await.unwrap();
            conn.fetch_one(numbers(sql).as_str()).await.unwrap().get(0)
        }
    }
}

/// Runs each test once on Postgres and once on SQLite; the body gets a [`FreshStore`].
///
/// `on_both_stores! { async fn an_event_is_kept_once(fresh) { … } }`
macro_rules! on_both_stores {
    ($($(#[$meta:meta])* async fn $name:ident($fresh:ident) $body:block)*) => {
        $(
            $(#[$meta])*
            async fn $name($fresh: $crate::support::store::FreshStore) $body

            mod $name {
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn postgres() {
                    $crate::support::store::FreshStore::with_postgres(super::$name).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn sqlite() {
                    $crate::support::store::FreshStore::with_sqlite(super::$name).await;
                }
            }
        )*
    };
}
pub(crate) use on_both_stores;

/// The same server, another database.
fn sibling(name: &str) -> String {
    let server = database_url();
    let (base, _) = server.rsplit_once('/').unwrap();
    format!("{base}/{name}")
}

async fn admin() -> PgConnection {
    PgConnection::connect(&database_url())
        .await
        .expect("this test needs Postgres: see tests/run")
}

/// SQLite as its shell opens it: no recursive triggers.
fn plain(url: &str) -> SqliteConnectOptions {
    url.parse::<SqliteConnectOptions>()
        .unwrap()
        .busy_timeout(Duration::from_mins(1))
}
