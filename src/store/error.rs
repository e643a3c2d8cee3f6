//! What a caller of the store can act on: wait and come again, or blame the data.

use sqlx::migrate::MigrateError;

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, is overloaded or asked us to retry: nothing is wrong with the data.
    #[error("store unavailable")]
    Unavailable(#[source] sqlx::Error),
    /// The database refuses this very row or statement; trying again changes nothing.
    #[error("store refuses the data")]
    Refused(#[source] sqlx::Error),
    /// A stored row does not read as what it should be.
    #[error("corrupt row in {table}: {what}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// Which value of which row, without payload.
        what: String,
    },
    /// The database keeps text in this encoding, which has no place for most of what payers write.
    #[error(
        "the database's encoding is {0}, payhook needs UTF8: create one with `createdb -E UTF8 -T template0 NAME`"
    )]
    Encoding(String),
    /// The schema has migrations that are not this binary's.
    #[error(
        "the database's schema was made by another build of payhook and cannot be migrated: \
         use that build, or name a new database"
    )]
    OtherBuild,
    /// The schema could not be brought up to date.
    #[error("migration failed")]
    Migration(#[source] MigrateError),
}

impl StoreError {
    /// A stored value that does not read as what it should be.
    pub fn corrupt(table: &'static str, what: impl Into<String>) -> Self {
        Self::Corrupt {
            table,
            what: what.into(),
        }
    }

    /// The database did not answer within the caller's time; whether it did the work is not known.
    pub fn timed_out() -> Self {
        Self::Unavailable(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
    }

    /// Whether the same call may succeed later with the same data.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl From<MigrateError> for StoreError {
    /// A database that is away is away also for a migration; anything else is about the schema.
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(cause) if !matches!(cause, sqlx::Error::Database(_)) => Self::from(cause),
            MigrateError::VersionMismatch(_) | MigrateError::VersionMissing(_) => Self::OtherBuild,
            other => Self::Migration(other),
        }
    }
}

impl From<sqlx::Error> for StoreError {
    /// Data faults are what the database says about the values: SQLSTATE classes 21, 22 and 23 on Postgres,
    /// constraint, mismatch and too-big on SQLite. Everything else may pass by itself.
    fn from(error: sqlx::Error) -> Self {
        let data_fault = match &error {
            sqlx::Error::Database(db) => db.code().is_some_and(|code| {
                let code = code.as_ref();
                code.len() == 5
                    && (code.starts_with("21") || code.starts_with("22") || code.starts_with("23"))
                    || is_sqlite_data_fault(code)
            }),
            sqlx::Error::Encode(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => true,
            _ => false,
        };
        if data_fault {
            Self::Refused(error)
        } else {
            Self::Unavailable(error)
        }
    }
}

/// SQLite's primary result codes 18 (too big), 19 (constraint), 20 (mismatch) in any extended form.
fn is_sqlite_data_fault(code: &str) -> bool {
    code.len() < 5
        && code
            .parse::<u32>()
            .is_ok_and(|code| matches!(code & 0xff, 18..=20))
}
