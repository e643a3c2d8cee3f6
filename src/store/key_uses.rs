//! When each key last verified something, for closing a rotation.
//!
//! By the key's fingerprint: `#1` may be another secret after the next reload. An ingress writes now and then what
//! it has noted; nothing waits for it.

use sqlx::{FromRow, PgPool, SqlitePool};

use super::{Store, StoreError, on_tx};
use crate::event::ProviderName;
use crate::time::Timestamp;

// The latest of several daemons stands.
const SAVE: &str = "insert into key_uses (provider, account, fingerprint, verified_at) values ($1, $2, $3, $4) \
     on conflict (provider, account, fingerprint) do update set verified_at = excluded.verified_at \
     where key_uses.verified_at < excluded.verified_at";
const ALL: &str = "select provider, account, fingerprint, verified_at from key_uses";

/// When a key last verified a notification.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyUse {
    /// Of which provider.
    pub provider: ProviderName,
    /// Of which account.
    pub account: String,
    /// Which key, as [`KeyInfo`](crate::provider::KeyInfo) calls it.
    pub fingerprint: String,
    /// When what it verified arrived.
    pub verified_at: Timestamp,
}

#[derive(FromRow)]
struct Row {
    provider: String,
    account: String,
    fingerprint: String,
    verified_at: Timestamp,
}

impl Store {
    /// Keeps the latest of what is known and what is told.
    pub async fn save_key_uses(&self, mut uses: Vec<KeyUse>) -> Result<(), StoreError> {
        // In one order, or two daemons could wait for each other.
        uses.sort();
        let mut tx = self.begin().await?;
        for used in &uses {
            on_tx!(&mut tx, |conn| sqlx::query(SAVE)
                .bind(used.provider.as_str())
                .bind(&used.account)
                .bind(&used.fingerprint)
                .bind(used.verified_at)
                .execute(conn)
                .await
                .map(drop))?;
        }
        tx.commit().await
    }
}

pub(super) async fn of_postgres(pool: &PgPool) -> Result<Vec<KeyUse>, StoreError> {
    Ok(read(sqlx::query_as(ALL).fetch_all(pool).await?))
}

pub(super) async fn of_sqlite(pool: &SqlitePool) -> Result<Vec<KeyUse>, StoreError> {
    Ok(read(sqlx::query_as(ALL).fetch_all(pool).await?))
}

/// Of a provider that this binary does not know, nothing can be shown.
fn read(rows: Vec<Row>) -> Vec<KeyUse> {
    rows.into_iter()
        .filter_map(|row| {
            Some(KeyUse {
                provider: row.provider.parse().ok()?,
                account: row.account,
                fingerprint: row.fingerprint,
                verified_at: row.verified_at,
            })
        })
        .collect()
}
