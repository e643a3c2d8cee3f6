//! The networks that an account's events came from: a refused notification from one of them is more likely genuine.
//!
//! A sender proves its network by a notification that verified and was new; a forger can copy everything that a genuine
//! notification says, but cannot send it from there. An ingress writes what it has noted, and reads what others have.

use sqlx::FromRow;

use super::{Store, StoreError, on_pool, on_tx};
use crate::event::ProviderName;
use crate::time::Timestamp;

/// Most networks of one account; the one that was seen longest ago goes first.
const MOST: i64 = 64;

// The latest of several daemons stands.
const SAVE: &str = "insert into known_senders (provider, account, network, seen_at) values ($1, $2, $3, $4) \
     on conflict (provider, account, network) do update set seen_at = excluded.seen_at \
     where known_senders.seen_at < excluded.seen_at";
const TRIM: &str = "delete from known_senders where (provider, account, network) in (
    select provider, account, network from (
        select provider, account, network,
               row_number() over (partition by provider, account order by seen_at desc, network) as place
          from known_senders) as placed
     where place > $1)";
const ALL: &str = "select provider, account, network, seen_at from known_senders";

/// When an account's last new event came from a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownSender {
    /// Of which provider.
    pub provider: ProviderName,
    /// Of which account.
    pub account: String,
    /// The network, as `quarantine.sender` has it.
    pub network: String,
    /// When the event arrived.
    pub seen_at: Timestamp,
}

#[derive(FromRow)]
struct Row {
    provider: String,
    account: String,
    network: String,
    seen_at: Timestamp,
}

impl Store {
    /// Saves when each was seen last, and removes what is then too much.
    pub async fn save_known_senders(&self, mut senders: Vec<KnownSender>) -> Result<(), StoreError> {
        // In one order, or two daemons could wait for each other.
        senders.sort();
        let mut tx = self.begin().await?;
        for sender in &senders {
            on_tx!(&mut tx, |conn| sqlx::query(SAVE)
                .bind(sender.provider.as_str())
                .bind(&sender.account)
                .bind(&sender.network)
                .bind(sender.seen_at)
                .execute(conn)
                .await
                .map(drop))?;
        }
        on_tx!(&mut tx, |conn| sqlx::query(TRIM)
            .bind(MOST)
            .execute(conn)
            .await
            .map(drop))?;
        tx.commit().await
    }

    /// All of them; those of a provider that this binary does not know are left out.
    pub async fn known_senders(&self) -> Result<Vec<KnownSender>, StoreError> {
        let rows: Vec<Row> = on_pool!(self, |pool| sqlx::query_as(ALL).fetch_all(pool).await)?;
        let known = rows.into_iter().filter_map(|row| {
            Some(KnownSender {
                provider: row.provider.parse().ok()?,
                account: row.account,
                network: row.network,
                seen_at: row.seen_at,
            })
        });
        Ok(known.collect())
    }
}
