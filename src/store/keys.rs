//! Lists of keys in a statement: `(a, b) in (values ($1, $2), …)`, one text for both databases.

use sqlx::{Database, Encode, QueryBuilder, Type};

/// Appends `(columns) in (values …)`. `keys` must not be empty.
pub(super) fn push_keys<'k, DB, const N: usize>(
    sql: &mut QueryBuilder<DB>,
    columns: &str,
    keys: impl IntoIterator<Item = [&'k str; N]>,
) where
    DB: Database,
    &'k str: Encode<'k, DB> + Type<DB>,
{
    sql.push("(").push(columns).push(") in (");
    sql.push_values(keys, |mut row, key| {
        for part in key {
            row.push_bind(part);
        }
    });
    sql.push(")");
}
