//! The databases that are measured, asked from outside.

use anyhow::Context as _;
use sqlx::{Connection as _, Executor as _, PgConnection, SqliteConnection};
use tokio::runtime::Runtime;

/// A database by its URL; connects anew for each question, so that nothing is held while others are measured.
pub(crate) struct Db {
    url: String,
    runtime: Runtime,
}

impl Db {
    pub(crate) fn new(url: &str) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Self {
            url: url.to_owned(),
            runtime,
        })
    }

    /// The one number that `sql` gives.
    pub(crate) fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let asked = async {
            if self.url.starts_with("sqlite:") {
                let mut conn = SqliteConnection::connect(&self.url).await?;
                let number = sqlx::query_scalar::<_, Option<i64>>(sql)
                    .fetch_one(&mut conn)
                    .await?;
                conn.close().await?;
                return anyhow::Ok(number);
            }
            let mut conn = PgConnection::connect(&self.url).await?;
            let number = sqlx::query_scalar::<_, Option<i64>>(sql)
                .fetch_one(&mut conn)
                .await?;
            conn.close().await?;
            anyhow::Ok(number)
        };
        let number = self.runtime.block_on(asked).with_context(|| sql.to_owned())?;
        Ok(number.unwrap_or_default())
    }

    /// The rows of texts that `sql` gives; Postgres only.
    pub(crate) fn texts(&self, sql: &str) -> anyhow::Result<Vec<String>> {
        let asked = async {
            let mut conn = PgConnection::connect(&self.url).await?;
            let texts = sqlx::query_scalar::<_, String>(sql).fetch_all(&mut conn).await?;
            conn.close().await?;
            anyhow::Ok(texts)
        };
        self.runtime.block_on(asked).with_context(|| sql.to_owned())
    }

    /// Runs `sql`, which may be several statements; Postgres only.
    pub(crate) fn run(&self, sql: &str) -> anyhow::Result<()> {
        let run = async {
            let mut conn = PgConnection::connect(&self.url).await?;
            conn.execute(sqlx::raw_sql(sql)).await?;
            conn.close().await?;
            anyhow::Ok(())
        };
        let shown = || sql.chars().take(200).collect::<String>();
        self.runtime.block_on(run).with_context(shown)
    }
}
