//! Times as the databases keep them: `timestamptz` on Postgres, microseconds since 1970 UTC on SQLite.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::sqlite::{SqliteArgumentValue, SqliteTypeInfo, SqliteValueRef};
use sqlx::{Decode, Encode, Postgres, Sqlite, Type};

use crate::time::Timestamp;

/// The database's clock, in both dialects: `(postgres, sqlite)`. Statements that compare `due_at` or a lease use it:
/// the machines that share a database need not agree on the time.
macro_rules! db_now {
    (postgres) => {
        "clock_timestamp()"
    };
    (sqlite) => {
        "cast(unixepoch('subsec') * 1000000 as integer)"
    };
}
pub(crate) use db_now;

/// Microseconds from 1970 to 2000, where Postgres begins to count.
const EPOCH_2000: i64 = 946_684_800_000_000;
const TIMESTAMPTZ: Oid = Oid(1184);
const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);

impl Type<Postgres> for Timestamp {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl PgHasArrayType for Timestamp {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ_ARRAY)
    }
}

impl Encode<'_, Postgres> for Timestamp {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let since_2000 = self
            .micros()
            .checked_sub(EPOCH_2000)
            .ok_or("a time that Postgres cannot keep")?;
        buffer.extend(since_2000.to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Timestamp {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Err("a time as text".into());
        }
        let since_2000 = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(Self::from_micros(since_2000.saturating_add(EPOCH_2000)))
    }
}

impl Type<Sqlite> for Timestamp {
    fn type_info() -> SqliteTypeInfo {
        <i64 as Type<Sqlite>>::type_info()
    }

    fn compatible(ty: &SqliteTypeInfo) -> bool {
        <i64 as Type<Sqlite>>::compatible(ty)
    }
}

impl Encode<'_, Sqlite> for Timestamp {
    fn encode_by_ref(&self, arguments: &mut Vec<SqliteArgumentValue<'_>>) -> Result<IsNull, BoxDynError> {
        Encode::<Sqlite>::encode_by_ref(&self.micros(), arguments)
    }
}

impl Decode<'_, Sqlite> for Timestamp {
    fn decode(value: SqliteValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self::from_micros(<i64 as Decode<Sqlite>>::decode(value)?))
    }
}
