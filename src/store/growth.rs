//! Tables that have outgrown what Postgres knows of them.
//!
//! Its statistics are those of the last analyze, and autovacuum comes by once a minute. Until then a table that was
//! empty a moment ago has no distinct values at all: an index that begins with the merchant looks as good as the one
//! that finds a single order, and every look-up reads all of that merchant's.

use super::{Store, StoreError, heard};

/// What a batch looks up.
const TABLES: [&str; 10] = [
    "attention",
    "event_orders",
    "event_outcomes",
    "events",
    "facts",
    "ledger_entries",
    "messages",
    "order_history",
    "orders",
    "trades",
];

/// More than four times what it had, and not just its first pages: some two hundred orders. Until the first analyze each
/// look-up may read all there is, so that this is what it costs at most.
const OUTGROWN: &str = "select relname::text, pages from (select relname, relpages, \
       pg_relation_size(oid) / current_setting('block_size')::bigint as pages from pg_class \
       where relkind = 'r' and relnamespace = current_schema()::regnamespace and relname = any ($1)) as each_table \
     where pages > 4 + 4 * relpages order by relname";

/// A table and how large it is, in pages.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Outgrown {
    /// Its name.
    #[sqlx(rename = "relname")]
    pub table: String,
    /// Its pages now.
    pub pages: i64,
}

impl Store {
    /// The tables that have outgrown their statistics. None on SQLite, which has no need of them here.
    pub async fn outgrown(&self) -> Result<Vec<Outgrown>, StoreError> {
        match self {
            Self::Postgres(pool) => {
                let outgrown = sqlx::query_as(OUTGROWN).bind(TABLES.as_slice()).fetch_all(pool);
                Ok(heard(outgrown).await?)
            }
            Self::Sqlite(_) => Ok(Vec::new()),
        }
    }

    /// Has Postgres look at `table` again; not if somebody is at it already. Without a right to it nothing happens.
    pub async fn analyze(&self, table: &Outgrown) -> Result<(), StoreError> {
        if let Some(known) = TABLES.iter().find(|known| **known == table.table)
            && let Self::Postgres(pool) = self
        {
            let sql = format!("analyze (skip_locked) {known}");
            heard(sqlx::query(&sql).execute(pool)).await?;
        }
        Ok(())
    }
}
