//! Many rows in one statement: arrays on Postgres, a list of values on SQLite.
//!
//! To Postgres every number of rows is then the same text, which is read and prepared once. As lists of values a
//! worker's batches were hundreds of texts with thousands of parameters each, hardly ever found prepared: at the rate
//! where they began to fall behind, arrays had an order applied after 0.2 s and lists after 1.1 - 1.8. SQLite reads in
//! microseconds, and has no arrays.
//!
//! In both the columns are called `column1`, `column2`, and so on.

use sqlx::{Database, Postgres, QueryBuilder, Sqlite};

use crate::time::Timestamp;

/// Rows made of a slice, column by column: `Rows::of(&entries).text(|e| e.source.as_str()).int(|e| e.amount)`.
#[derive(Debug)]
pub(super) struct Rows<'r, T> {
    of: &'r [T],
    columns: Vec<Column<'r>>,
}

/// One column's values.
#[derive(Debug)]
pub(super) enum Column<'r> {
    Text(Vec<Option<&'r str>>),
    Int(Vec<Option<i64>>),
    Time(Vec<Option<Timestamp>>),
    /// JSON, as text.
    Json(Vec<Option<&'r str>>),
    Bool(Vec<bool>),
    Blob(Vec<&'r [u8]>),
    /// The same in every row.
    Each(Option<Timestamp>),
}

impl<'r, T> Rows<'r, T> {
    /// One for each of `of`, which must not be empty; no columns yet.
    pub(super) fn of(of: &'r [T]) -> Self {
        Self {
            of,
            columns: Vec::new(),
        }
    }

    /// A text, or none.
    pub(super) fn text<V: Into<Option<&'r str>>>(self, value: impl Fn(&'r T) -> V) -> Self {
        let column = self.of.iter().map(|row| value(row).into()).collect();
        self.and(Column::Text(column))
    }

    /// An integer, or none.
    pub(super) fn int<V: Into<Option<i64>>>(self, value: impl Fn(&'r T) -> V) -> Self {
        let column = self.of.iter().map(|row| value(row).into()).collect();
        self.and(Column::Int(column))
    }

    /// Yes or no.
    pub(super) fn bool(self, value: impl Fn(&'r T) -> bool) -> Self {
        let column = self.of.iter().map(value).collect();
        self.and(Column::Bool(column))
    }

    /// Bytes.
    pub(super) fn blob(self, value: impl Fn(&'r T) -> &'r [u8]) -> Self {
        let column = self.of.iter().map(value).collect();
        self.and(Column::Blob(column))
    }

    /// A time, or none.
    pub(super) fn time<V: Into<Option<Timestamp>>>(self, value: impl Fn(&'r T) -> V) -> Self {
        let column = self.of.iter().map(|row| value(row).into()).collect();
        self.and(Column::Time(column))
    }

    /// JSON that people read, or none.
    pub(super) fn json<V: Into<Option<&'r str>>>(self, value: impl Fn(&'r T) -> V) -> Self {
        let column = self.of.iter().map(|row| value(row).into()).collect();
        self.and(Column::Json(column))
    }

    /// A time, or none, that all rows share.
    pub(super) fn each(self, value: impl Into<Option<Timestamp>>) -> Self {
        self.and(Column::Each(value.into()))
    }

    fn and(mut self, column: Column<'r>) -> Self {
        self.columns.push(column);
        self
    }

    /// Appends the rows as something to insert or, in parentheses, to select from.
    pub(super) fn push_to<DB: ManyRows>(self, sql: &mut QueryBuilder<'r, DB>) {
        DB::push_columns(sql, self.columns, self.of.len());
    }
}

/// A database that takes many rows at once.
pub(super) trait ManyRows: Database {
    /// Appends `rows` rows, given as columns.
    fn push_columns<'r>(sql: &mut QueryBuilder<'r, Self>, columns: Vec<Column<'r>>, rows: usize);

    /// Appends a condition: `columns` are one of `keys`, which must not be empty.
    fn push_keys<'k, const N: usize>(
        sql: &mut QueryBuilder<'k, Self>,
        columns: &str,
        keys: impl IntoIterator<Item = [&'k str; N]>,
    );
}

impl ManyRows for Postgres {
    fn push_columns<'r>(sql: &mut QueryBuilder<'r, Self>, columns: Vec<Column<'r>>, _rows: usize) {
        let mut names = Vec::with_capacity(columns.len());
        for (column, number) in std::iter::zip(&columns, 1..) {
            sql.push(if number == 1 { "select " } else { ", " });
            if let Column::Each(value) = column {
                sql.push_bind(*value).push("::timestamptz as column").push(number);
            } else {
                let name = format!("column{number}");
                sql.push(&name);
                names.push(name);
            }
        }
        sql.push(" from unnest(");
        let mut between = "";
        for column in columns {
            if !matches!(column, Column::Each(_)) {
                sql.push(std::mem::replace(&mut between, ", "));
            }
            match column {
                Column::Text(values) => sql.push_bind(values).push("::text[]"),
                Column::Int(values) => sql.push_bind(values).push("::bigint[]"),
                Column::Time(values) => sql.push_bind(values).push("::timestamptz[]"),
                Column::Json(values) => sql.push_bind(values).push("::text[]::jsonb[]"),
                Column::Bool(values) => sql.push_bind(values).push("::boolean[]"),
                Column::Blob(values) => sql.push_bind(values).push("::bytea[]"),
                Column::Each(_) => continue,
            };
        }
        sql.push(") as listed (").push(names.join(", ")).push(")");
    }

    fn push_keys<'k, const N: usize>(
        sql: &mut QueryBuilder<'k, Self>,
        columns: &str,
        keys: impl IntoIterator<Item = [&'k str; N]>,
    ) {
        if N == 1 {
            let keys: Vec<&str> = keys.into_iter().flatten().collect();
            sql.push(columns).push(" = any (").push_bind(keys).push(")");
        } else {
            push_key_rows(sql, columns, keys);
        }
    }
}

impl ManyRows for Sqlite {
    fn push_columns<'r>(sql: &mut QueryBuilder<'r, Self>, columns: Vec<Column<'r>>, rows: usize) {
        for row in 0..rows {
            sql.push(if row == 0 { "values (" } else { ", (" });
            for (at, column) in columns.iter().enumerate() {
                if at > 0 {
                    sql.push(", ");
                }
                match column {
                    Column::Text(values) | Column::Json(values) => {
                        sql.push_bind(values.get(row).copied().flatten())
                    }
                    Column::Int(values) => sql.push_bind(values.get(row).copied().flatten()),
                    Column::Time(values) => sql.push_bind(values.get(row).copied().flatten()),
                    Column::Bool(values) => sql.push_bind(values.get(row).copied()),
                    Column::Blob(values) => sql.push_bind(values.get(row).copied()),
                    Column::Each(value) => sql.push_bind(*value),
                };
            }
            sql.push(")");
        }
    }

    fn push_keys<'k, const N: usize>(
        sql: &mut QueryBuilder<'k, Self>,
        columns: &str,
        keys: impl IntoIterator<Item = [&'k str; N]>,
    ) {
        push_key_rows(sql, columns, keys);
    }
}

fn push_key_rows<'k, DB: ManyRows, const N: usize>(
    sql: &mut QueryBuilder<'k, DB>,
    columns: &str,
    keys: impl IntoIterator<Item = [&'k str; N]>,
) {
    let keys: Vec<[&str; N]> = keys.into_iter().collect();
    let key_columns = (0..N).map(|at| Column::Text(keys.iter().map(|key| key.get(at).copied()).collect()));
    sql.push("(").push(columns).push(") in (");
    DB::push_columns(sql, key_columns.collect(), keys.len());
    sql.push(")");
}

/// [`ManyRows::push_keys`], for whichever database `sql` is.
pub(super) fn push_keys<'k, DB: ManyRows, const N: usize>(
    sql: &mut QueryBuilder<'k, DB>,
    columns: &str,
    keys: impl IntoIterator<Item = [&'k str; N]>,
) {
    DB::push_keys(sql, columns, keys);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [(&str, Option<i64>); 2] = [("a", Some(1)), ("b", None)];

    fn text<DB: ManyRows>(rows: Rows<'_, (&str, Option<i64>)>) -> String {
        let mut sql = QueryBuilder::<DB>::new("");
        rows.push_to(&mut sql);
        sql.into_sql()
    }

    #[test]
    fn to_postgres_any_number_of_rows_is_one_text() {
        let rows = |of| {
            Rows::of(of)
                .each(Timestamp::from_micros(7))
                .text(|row: &(&'static str, _)| row.0)
                .int(|row| row.1)
        };
        let expected = "select $1::timestamptz as column1, column2, column3 \
             from unnest($2::text[], $3::bigint[]) as listed (column2, column3)";
        assert_eq!(text::<Postgres>(rows(&TWO)), expected);
        assert_eq!(text::<Postgres>(rows(&TWO[..1])), expected);
        assert_eq!(text::<Sqlite>(rows(&TWO)), "values (?, ?, ?), (?, ?, ?)");
    }

    #[test]
    fn keys_of_one_column_are_an_array_and_of_several_are_rows() {
        let mut sql = QueryBuilder::<Postgres>::new("");
        push_keys(&mut sql, "id", [["a"], ["b"]]);
        sql.push(" and ");
        push_keys(&mut sql, "merchant, order_id", [["a", "b"]]);
        assert_eq!(
            sql.into_sql(),
            "id = any ($1) and (merchant, order_id) in (select column1, column2 \
             from unnest($2::text[], $3::text[]) as listed (column1, column2))"
        );
    }
}
