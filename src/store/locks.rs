//! Locks on trades and orders, for the rest of a transaction and whether or not their rows exist yet.
//!
//! Whoever links, parks or applies locks trades first and orders after them, so that no wake-up is lost and no two
//! transactions wait for each other. On Postgres these are advisory locks, so that a row is written once, as it stands
//! at the end, instead of inserted, locked and updated; on SQLite a write transaction is alone.

use sha2::{Digest as _, Sha256};

use super::orders::OrderKey;
use super::trades::TradeKey;
use super::{StoreError, Tx, heard};

/// In the order of the array: a volatile function is called row by row.
const LOCK: &str = "select count(pg_advisory_xact_lock(id)) from unnest($1::bigint[]) as id";

/// Locks `trades`.
pub async fn lock_trades(tx: &mut Tx, trades: &[&TradeKey]) -> Result<(), StoreError> {
    let ids = trades.iter().map(|key| lock_id("trade", &key.parts())).collect();
    lock(tx, ids).await
}

/// Locks `orders`, after their trades.
pub async fn lock_orders(tx: &mut Tx, orders: &[&OrderKey]) -> Result<(), StoreError> {
    let ids = orders.iter().map(|key| lock_id("order", &key.parts())).collect();
    lock(tx, ids).await
}

async fn lock(tx: &mut Tx, mut ids: Vec<i64>) -> Result<(), StoreError> {
    // One order for everybody, or two transactions could wait for each other.
    ids.sort_unstable();
    ids.dedup();
    if let (Tx::Postgres(pg), false) = (tx, ids.is_empty()) {
        heard(sqlx::query(LOCK).bind(ids).execute(&mut **pg)).await?;
    }
    Ok(())
}

/// The number that stands for a key, alike in every daemon. Two keys with one number wait for each other, no more.
fn lock_id(table: &str, key: &[&str]) -> i64 {
    let mut hash = Sha256::new();
    for part in [table].iter().chain(key) {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let first = digest.first_chunk().copied().unwrap_or_default();
    i64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ids_tell_tables_and_parts_apart() {
        let ids = [
            lock_id("trade", &["m", "ab", "c"]),
            lock_id("trade", &["m", "a", "bc"]),
            lock_id("order", &["m", "ab", "c"]),
        ];
        assert_eq!(lock_id("trade", &["m", "ab", "c"]), ids[0]);
        assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2]);
    }
}
