//! Refused notifications, whole and bounded: evidence for an operator, never a way to fill the disk.
//!
//! An account keeps at most [`ITEMS`] and [`BYTES`]. Senders are networks (a /24, or a /48 of IPv6). Half is for known
//! ones, where the account's events came from ([`super::known_senders`]): a flood of forgeries from however many
//! other networks leaves what a provider sends after a key change. Of the others one has at most a tenth. When an
//! account is full, the oldest of the largest sender goes first, of those that have more than their half together.

use std::collections::BTreeSet;

use sqlx::{FromRow, QueryBuilder};

use super::rows::Rows;
use super::{Store, StoreError, Tx, on_tx};
use crate::event::{ProviderName, new_id};
use crate::time::Timestamp;

/// Most items of one account.
pub const ITEMS: i64 = 10_000;

/// Most bytes of one account.
pub const BYTES: i64 = 64 * 1024 * 1024;

/// What one sender that is not known may have of either: one part in so many.
const SHARE: i64 = 10;

const INSERT: &str = "insert into quarantine (id, provider, account, merchant, reason, detail, path, headers, \
    body, received_at, remote_addr, sender, bytes) ";

const TRIM_SENDER: &str = "delete from quarantine where id in (
    select id from (
        select id, row_number() over (order by id desc) as items, sum(bytes) over (order by id desc) as total
          from quarantine where provider = $1 and account = $2 and sender = $3
           and sender not in (select network from known_senders where provider = $1 and account = $2)) as newest
     where items > $4 or (total > $5 and items > 1))";

const SENDERS: &str = "select sender, count(*) as items, cast(sum(bytes) as bigint) as bytes, \
    min(id) as oldest, \
    sender in (select network from known_senders where provider = $1 and account = $2) as known from quarantine where provider = $1 and account = $2 group by sender";

const DROP_OLDEST: &str = "delete from quarantine where id = (
    select min(id) from quarantine where provider = $1 and account = $2 and sender = $3) returning bytes";

/// A notification that was refused.
#[derive(Clone)]
pub struct Quarantined {
    /// Which provider's path it came to.
    pub provider: ProviderName,
    /// Which account's.
    pub account: String,
    /// Whose account that is.
    pub merchant: String,
    /// Which check, by name.
    pub reason: &'static str,
    /// In words.
    pub detail: String,
    /// The request's path.
    pub path: String,
    /// JSON array of `[name, value]`.
    pub headers: String,
    /// The body.
    pub body: bytes::Bytes,
    /// When it came.
    pub received_at: Timestamp,
    /// From where.
    pub remote_addr: Option<String>,
    /// The network it came from, for fair eviction.
    pub sender: String,
}

impl std::fmt::Debug for Quarantined {
    /// Without headers and body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quarantined")
            .field("provider", &self.provider)
            .field("account", &self.account)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

#[derive(FromRow)]
struct SenderRow {
    sender: String,
    items: i64,
    bytes: i64,
    oldest: String,
    known: bool,
}

impl Quarantined {
    /// What it counts towards the limits.
    pub fn bytes(&self) -> usize {
        self.body
            .len()
            .saturating_add(self.headers.len())
            .saturating_add(self.path.len())
    }
}

impl Store {
    /// Keeps `batch` and lets go of what is then too much.
    pub async fn quarantine(&self, batch: &[Quarantined]) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        let named: Vec<(String, &Quarantined)> = batch
            .iter()
            .map(|item| (new_id(item.received_at), item))
            .collect();
        let rows = Rows::of(&named)
            .text(|(id, _)| id.as_str())
            .text(|(_, item)| item.provider.as_str())
            .text(|(_, item)| item.account.as_str())
            .text(|(_, item)| item.merchant.as_str())
            .text(|(_, item)| item.reason)
            .text(|(_, item)| item.detail.as_str())
            .text(|(_, item)| item.path.as_str())
            .json(|(_, item)| item.headers.as_str())
            .blob(|(_, item)| &item.body[..])
            .time(|(_, item)| item.received_at)
            .text(|(_, item)| item.remote_addr.as_deref())
            .text(|(_, item)| item.sender.as_str())
            .int(|(_, item)| i64::try_from(item.bytes()).unwrap_or(i64::MAX));
        on_tx!(&mut tx, |conn| {
            let mut sql = QueryBuilder::new(INSERT);
            rows.push_to(&mut sql);
            sql.build().execute(conn).await.map(drop)
        })?;
        let senders: BTreeSet<_> = batch
            .iter()
            .map(|item| (item.provider, item.account.as_str(), item.sender.as_str()))
            .collect();
        let accounts: BTreeSet<_> = senders
            .iter()
            .map(|(provider, account, _)| (*provider, *account))
            .collect();
        for (provider, account, sender) in senders {
            trim_sender(&mut tx, provider, account, sender).await?;
        }
        for (provider, account) in accounts {
            trim_account(&mut tx, provider, account).await?;
        }
        tx.commit().await
    }
}

async fn trim_sender(
    tx: &mut Tx,
    provider: ProviderName,
    account: &str,
    sender: &str,
) -> Result<(), StoreError> {
    on_tx!(&mut *tx, |conn| sqlx::query(TRIM_SENDER)
        .bind(provider.as_str())
        .bind(account)
        .bind(sender)
        .bind(ITEMS.div_euclid(SHARE))
        .bind(BYTES.div_euclid(SHARE))
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}

async fn trim_account(tx: &mut Tx, provider: ProviderName, account: &str) -> Result<(), StoreError> {
    let mut senders: Vec<SenderRow> = on_tx!(&mut *tx, |conn| sqlx::query_as(SENDERS)
        .bind(provider.as_str())
        .bind(account)
        .fetch_all(conn)
        .await)?;
    while let Some(sender) = largest(&mut senders) {
        let gone: Option<i32> = on_tx!(&mut *tx, |conn| sqlx::query_scalar(DROP_OLDEST)
            .bind(provider.as_str())
            .bind(account)
            .bind(&sender.sender)
            .fetch_optional(conn)
            .await)?;
        let Some(bytes) = gone else {
            break;
        };
        sender.items = sender.items.saturating_sub(1);
        sender.bytes = sender.bytes.saturating_sub(i64::from(bytes));
    }
    Ok(())
}

/// Returns the sender whose oldest item goes, if the account has too much.
fn largest(senders: &mut [SenderRow]) -> Option<&mut SenderRow> {
    if let Some(known) = over_limit(senders, BYTES, |row| row.bytes) {
        return largest_by(senders, known, |row| row.bytes);
    }
    let known = over_limit(senders, ITEMS, |row| row.items)?;
    largest_by(senders, known, |row| row.items)
}

/// Returns whether it is the known senders that have to give something up; `None`: nobody has.
fn over_limit(senders: &[SenderRow], limit: i64, size: fn(&SenderRow) -> i64) -> Option<bool> {
    let all: i64 = senders.iter().map(size).sum();
    let others: i64 = senders.iter().filter(|row| !row.known).map(size).sum();
    (all > limit).then_some(others <= limit.div_euclid(2))
}

/// Of equals, the one with the oldest item.
fn largest_by(senders: &mut [SenderRow], known: bool, size: fn(&SenderRow) -> i64) -> Option<&mut SenderRow> {
    let those = senders.iter_mut().filter(|row| row.known == known);
    those.max_by(|one, other| {
        let larger = size(one).cmp(&size(other));
        larger.then_with(|| other.oldest.cmp(&one.oldest))
    })
}
