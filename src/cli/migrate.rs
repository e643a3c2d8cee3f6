//! `payhook migrate`: brings the schema up to date by hand; with `[store] migrate = false` the only way.
//!
//! Runs under the database's own lock, so that two of them, or one and a daemon that starts, do it once. A
//! SQLite file has one owner at a time: while a daemon has it, it is left alone. Afterwards the feed is told
//! where it goes on, which is why a restored database is migrated before it is served.

use std::process::ExitCode;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::Globals;
use super::output::Table;
use crate::store::{DaemonLock, Store, StoreOptions};

/// Arguments of `migrate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Migrated {
    /// Which kind of database.
    store: &'static str,
    /// The version before; `null` in a database that had none of payhook's tables.
    before: Option<i64>,
    /// The version now.
    after: Option<i64>,
}

/// Migrates and prints from where to where.
pub(super) async fn run(_args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let config = globals.load()?.store;
    let file = config.sqlite_file.as_deref();
    let _lock = file.map(DaemonLock::take).transpose()?;
    let options = StoreOptions {
        max_connections: config.max_connections,
        acquire_timeout: config.acquire_timeout,
        ..StoreOptions::default()
    };
    let store = Store::open(config.url.expose_secret(), &options).await?;
    let before = store.schema().await.context("cannot read the schema")?;
    store.migrate().await?;
    let after = store.schema().await.context("cannot read the schema")?;
    store.close().await;
    let migrated = Migrated {
        store: if config.is_postgres() {
            "postgres"
        } else {
            "sqlite"
        },
        before: before.applied,
        after: after.applied,
    };
    globals.output().show(&migrated, |migrated| {
        let version = |version: Option<i64>| version.map_or_else(|| "none".to_owned(), |v| v.to_string());
        let mut table = Table::new(["store", "before", "after"]);
        table.row([
            migrated.store,
            &version(migrated.before),
            &version(migrated.after),
        ]);
        table
    })?;
    Ok(ExitCode::SUCCESS)
}
