//! How far the schema has come: the migrations that were applied, next to those that this binary has.
//!
//! The database decides. A migration that failed half-way, or was applied with another text, keeps every daemon from
//! migrating; one that is merely missing does not.

use sqlx::migrate::Migrator;
use sqlx::{FromRow, PgPool, SqlitePool};

use super::{POSTGRES_MIGRATIONS, SQLITE_MIGRATIONS, Store, StoreError};

const THERE_POSTGRES: &str = "select to_regclass('_sqlx_migrations') is not null";
const THERE_SQLITE: &str =
    "select exists (select 1 from sqlite_master where type = 'table' and name = '_sqlx_migrations')";
const APPLIED: &str = "select version, success, checksum from _sqlx_migrations order by version";

/// The schema as it is, and as this binary wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The latest migration that was applied; `None` in a database that has none of ours.
    pub applied: Option<i64>,
    /// The latest that this binary has.
    pub known: i64,
    /// Migrations of ours that are not applied.
    pub missing: Vec<i64>,
    /// A migration that failed half-way.
    pub broken: Option<i64>,
    /// A migration was applied with another text than this binary's: another build of payhook made the schema.
    pub is_foreign: bool,
}

impl Schema {
    /// Whether the tables are this binary's.
    pub fn is_current(&self) -> bool {
        self.applied.is_some() && self.missing.is_empty() && self.broken.is_none() && !self.is_foreign
    }
}

#[derive(FromRow)]
struct Applied {
    version: i64,
    success: bool,
    checksum: Vec<u8>,
}

impl Store {
    /// Looks at the schema and changes nothing.
    pub async fn schema(&self) -> Result<Schema, StoreError> {
        match self {
            Self::Postgres(pool) => of_postgres(pool).await,
            Self::Sqlite(pools) => of_sqlite(&pools.reader).await,
        }
    }
}

pub(super) async fn of_postgres(pool: &PgPool) -> Result<Schema, StoreError> {
    let there: bool = sqlx::query_scalar(THERE_POSTGRES).fetch_one(pool).await?;
    let applied = if there {
        sqlx::query_as(APPLIED).fetch_all(pool).await?
    } else {
        Vec::new()
    };
    Ok(compare(&POSTGRES_MIGRATIONS, &applied))
}

pub(super) async fn of_sqlite(pool: &SqlitePool) -> Result<Schema, StoreError> {
    let there: bool = sqlx::query_scalar(THERE_SQLITE).fetch_one(pool).await?;
    let applied = if there {
        sqlx::query_as(APPLIED).fetch_all(pool).await?
    } else {
        Vec::new()
    };
    Ok(compare(&SQLITE_MIGRATIONS, &applied))
}

fn compare(ours: &Migrator, applied: &[Applied]) -> Schema {
    let of = |version: i64| applied.iter().find(|row| row.version == version);
    let versions = ours.iter().map(|migration| migration.version);
    let is_foreign = ours
        .iter()
        .any(|ours| of(ours.version).is_some_and(|row| row.success && row.checksum != *ours.checksum));
    let broken = applied.iter().find(|row| !row.success).map(|row| row.version);
    Schema {
        applied: applied.iter().map(|row| row.version).max(),
        known: versions.clone().max().unwrap_or_default(),
        missing: versions.filter(|version| of(*version).is_none()).collect(),
        broken,
        is_foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied() -> Vec<Applied> {
        SQLITE_MIGRATIONS
            .iter()
            .map(|ours| Applied {
                version: ours.version,
                success: true,
                checksum: ours.checksum.to_vec(),
            })
            .collect()
    }

    #[test]
    fn what_is_missing_newer_or_broken_is_told_apart() {
        let whole = compare(&SQLITE_MIGRATIONS, &applied());
        assert_eq!((whole.applied, &whole.missing), (Some(whole.known), &Vec::new()));
        assert_eq!(whole.broken, None);

        assert_eq!(compare(&SQLITE_MIGRATIONS, &[]).applied, None);
        let mut older = applied();
        older.pop();
        assert_eq!(compare(&SQLITE_MIGRATIONS, &older).missing, [whole.known]);

        let mut newer = applied();
        newer.push(Applied {
            version: whole.known + 1,
            success: true,
            checksum: Vec::new(),
        });
        assert_eq!(compare(&SQLITE_MIGRATIONS, &newer).applied, Some(whole.known + 1));

        let mut failed = applied();
        failed[0].success = false;
        assert_eq!(
            compare(&SQLITE_MIGRATIONS, &failed).broken,
            Some(failed[0].version)
        );
        let mut altered = applied();
        altered[0].checksum = vec![0];
        assert!(compare(&SQLITE_MIGRATIONS, &altered).is_foreign && whole.is_current());
    }
}
