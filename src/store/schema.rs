//! How far the schema has come: the migrations that were applied, next to those that this binary has.
//!
//! What stands in the database decides; a migration that began and failed, or was applied with another text,
//! keeps every daemon from migrating and is told apart from one that is merely missing.

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
    /// A migration that failed half-way, or whose text is not this binary's.
    pub broken: Option<i64>,
}

impl Schema {
    /// Whether a migration of ours was applied.
    pub fn has(&self, version: i64) -> bool {
        self.applied.is_some() && version <= self.known && !self.missing.contains(&version)
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
    let altered = ours
        .iter()
        .find(|ours| of(ours.version).is_some_and(|row| row.checksum != *ours.checksum))
        .map(|ours| ours.version);
    let failed = applied.iter().find(|row| !row.success).map(|row| row.version);
    Schema {
        applied: applied.iter().map(|row| row.version).max(),
        known: versions.clone().max().unwrap_or_default(),
        missing: versions.filter(|version| of(*version).is_none()).collect(),
        broken: failed.or(altered),
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
        failed[1].success = false;
        assert_eq!(
            compare(&SQLITE_MIGRATIONS, &failed).broken,
            Some(failed[1].version)
        );
        let mut altered = applied();
        altered[0].checksum = vec![0];
        assert_eq!(
            compare(&SQLITE_MIGRATIONS, &altered).broken,
            Some(altered[0].version)
        );
    }
}
