//! When the store first knew each account: written once, by the first daemon that serves it, and alike for all.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{FromRow, PgPool, QueryBuilder, SqlitePool};

use super::rows::{Rows, push_keys};
use super::{Store, StoreError, Tx, on_tx};
use crate::event::ProviderName;
use crate::time::Timestamp;

const INSERT: &str = "insert into accounts (provider, account, known_at) select * from (";
const SELECT: &str = "select provider, account, known_at from accounts";

/// How long before the store first knew an account a payment may be made that is shipped all the same, where the
/// account gives no `since`: its notification was under way, or the provider's clock is behind.
pub const UNDER_WAY: Duration = Duration::from_mins(5);

/// Provider and name of an account.
pub type AccountKey = (String, String);

#[derive(FromRow)]
struct Row {
    provider: String,
    account: String,
    known_at: Timestamp,
}

impl Row {
    fn known(self) -> (AccountKey, Timestamp) {
        ((self.provider, self.account), self.known_at)
    }
}

impl Store {
    /// Notes that `accounts` are known since `at`, unless an earlier moment is noted.
    pub async fn know_accounts(
        &self,
        accounts: impl IntoIterator<Item = (ProviderName, String)>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let named = accounts
            .into_iter()
            .map(|(provider, account)| ((provider.as_str().to_owned(), account), at))
            .collect();
        let mut tx = self.begin().await?;
        insert(&mut tx, &named).await?;
        tx.commit().await
    }
}

/// When each of `accounts` was first known; one that is new is known from the moment that is given with it.
pub async fn known_since(
    tx: &mut Tx,
    accounts: &BTreeMap<AccountKey, Timestamp>,
) -> Result<BTreeMap<AccountKey, Timestamp>, StoreError> {
    let mut known = select(tx, accounts).await?;
    if known.len() < accounts.len() {
        insert(tx, accounts).await?;
        known = select(tx, accounts).await?;
    }
    Ok(known)
}

async fn select(
    tx: &mut Tx,
    accounts: &BTreeMap<AccountKey, Timestamp>,
) -> Result<BTreeMap<AccountKey, Timestamp>, StoreError> {
    if accounts.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<Row> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(SELECT);
        sql.push(" where ");
        let keys = accounts
            .keys()
            .map(|(provider, account)| [provider.as_str(), account.as_str()]);
        push_keys(&mut sql, "provider, account", keys);
        sql.build_query_as().fetch_all(conn).await
    })?;
    Ok(rows.into_iter().map(Row::known).collect())
}

/// In the order of the keys, or two daemons could wait for each other.
async fn insert(tx: &mut Tx, accounts: &BTreeMap<AccountKey, Timestamp>) -> Result<(), StoreError> {
    if accounts.is_empty() {
        return Ok(());
    }
    let named: Vec<(&AccountKey, &Timestamp)> = accounts.iter().collect();
    let rows = Rows::of(&named)
        .text(|((provider, _), _)| provider.as_str())
        .text(|((_, account), _)| account.as_str())
        .time(|(_, at)| **at);
    on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT);
        rows.push_to(&mut sql);
        sql.push(") as named where true on conflict do nothing");
        sql.build().execute(conn).await.map(drop)
    })?;
    Ok(())
}

pub(super) async fn of_postgres(pool: &PgPool) -> Result<BTreeMap<AccountKey, Timestamp>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(SELECT).fetch_all(pool).await?;
    Ok(rows.into_iter().map(Row::known).collect())
}

pub(super) async fn of_sqlite(pool: &SqlitePool) -> Result<BTreeMap<AccountKey, Timestamp>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(SELECT).fetch_all(pool).await?;
    Ok(rows.into_iter().map(Row::known).collect())
}
