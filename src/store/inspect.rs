//! A look at a database from outside: is it there, how far is its schema, does it keep what it commits.
//!
//! Creates and changes nothing, unlike [`Store::open`](super::Store::open): a SQLite file that does not exist
//! is not made, and one that does is opened for reading only. The caller bounds the time.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use super::accounts::AccountKey;
use super::key_uses::KeyUse;
use super::schema::Schema;
use super::{StoreError, StoreOptions, accounts, key_uses, postgres, schema, sqlite};
use crate::time::Timestamp;

// `reset_val` is what the server, database and role say; payhook's own sessions raise `synchronous_commit`.
const SETTINGS: &str = "select name, reset_val from pg_settings
     where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'server_version', 'server_encoding')
     union all
     select 'connection limit of the server', (current_setting('max_connections')::integer - case when rolsuper then 0
         else current_setting('superuser_reserved_connections')::integer
             + coalesce(current_setting('reserved_connections', true), '0')::integer end)::text
     from pg_roles where rolname = session_user
     union all
     select 'connection limit of the role', rolconnlimit::text from pg_roles
     where rolname = session_user and rolconnlimit >= 0 and not rolsuper
     union all
     select 'connection limit of the database', datconnlimit::text from pg_database
     where datname = current_database() and datconnlimit >= 0
       and not (select rolsuper from pg_roles where rolname = session_user)
     order by name";

/// What a look at the database showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// It answers.
    There {
        /// Its schema.
        schema: Schema,
        /// What the server, or the file and payhook's own connection to it, is set to: (name, value).
        settings: Vec<(String, String)>,
        /// When each key last verified something; `None` while the schema is too old to know.
        key_uses: Option<Vec<KeyUse>>,
        /// When it first knew each account; `None` likewise.
        accounts: Option<BTreeMap<AccountKey, Timestamp>>,
    },
    /// A SQLite file that the first start will make.
    NotYet,
    /// A SQLite file that the first start cannot make: its folder is missing.
    NoFolder(PathBuf),
    /// The file is there, and cannot be opened for writing.
    Unwritable(ErrorKind),
}

/// Looks at the database named by `url`.
pub async fn inspect(url: &str, options: &StoreOptions) -> Result<Inspection, StoreError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let pool = postgres::pool(url.parse()?, options);
        let settings = sqlx::query_as(SETTINGS).fetch_all(&pool).await?;
        let schema = schema::of_postgres(&pool).await?;
        let key_uses = if schema.is_current() {
            Some(key_uses::of_postgres(&pool).await?)
        } else {
            None
        };
        let accounts = if schema.is_current() {
            Some(accounts::of_postgres(&pool).await?)
        } else {
            None
        };
        pool.close().await;
        return Ok(Inspection::There {
            schema,
            settings,
            key_uses,
            accounts,
        });
    }
    let connect = sqlite(url)?;
    let file = connect.get_filename().to_owned();
    if let Some(why) = unusable(&file) {
        return Ok(why);
    }
    let journal = journal(&file).unwrap_or("unreadable");
    let pool = reading(connect, &file, options).await?;
    let synchronous: i64 = sqlx::query_scalar("pragma synchronous").fetch_one(&pool).await?;
    let settings = vec![
        ("journal_mode".to_owned(), journal.to_owned()),
        ("synchronous".to_owned(), synchronous.to_string()),
    ];
    let schema = schema::of_sqlite(&pool).await?;
    let key_uses = if schema.is_current() {
        Some(key_uses::of_sqlite(&pool).await?)
    } else {
        None
    };
    let accounts = if schema.is_current() {
        Some(accounts::of_sqlite(&pool).await?)
    } else {
        None
    };
    pool.close().await;
    Ok(Inspection::There {
        schema,
        settings,
        key_uses,
        accounts,
    })
}

/// Why the file cannot be looked at, if so. Opened here without a lock and closed again before SQLite has it:
/// closing a file lets go of every lock that the process has on it.
fn unusable(file: &Path) -> Option<Inspection> {
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => return Some(Inspection::Unwritable(ErrorKind::IsADirectory)),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            return Some(match folder {
                Some(folder) if !folder.is_dir() => Inspection::NoFolder(folder.to_owned()),
                _ => Inspection::NotYet,
            });
        }
        Err(error) => return Some(Inspection::Unwritable(error.kind())),
    }
    let opened = OpenOptions::new().read(true).write(true).open(file);
    opened.err().map(|error| Inspection::Unwritable(error.kind()))
}

/// A connection that can only read. Without a write-ahead log beside it nobody has the file open, and then
/// SQLite is told that the file stands still, or even a reader would make a log.
async fn reading(
    connect: SqliteConnectOptions,
    file: &Path,
    options: &StoreOptions,
) -> Result<SqlitePool, StoreError> {
    let mut log = file.to_owned().into_os_string();
    log.push("-wal");
    let at_rest = !Path::new(&log).exists();
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(options.acquire_timeout)
        .connect_with(connect.read_only(true).immutable(at_rest))
        .await?;
    Ok(pool)
}

/// What the file's header says of its journal: a connection to a file that stands still would not tell.
fn journal(file: &Path) -> io::Result<&'static str> {
    let mut header = [0; 20];
    File::open(file)?.read_exact(&mut header)?;
    // Bytes 18 and 19, the versions for writing and for reading, are 2 for a write-ahead log.
    Ok(if header.ends_with(&[2, 2]) {
        "wal"
    } else {
        "rollback"
    })
}
