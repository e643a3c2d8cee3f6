//! Ending a replay before its end: what nobody has taken to the broker yet is taken back.

use crate::store::outbox::{id_list, over_ids};
use crate::store::{StoreError, Tx, heard, on_tx};

const LOCK: &str =
    "select sent from replays where id = $1 and merchant = $2 and state = 'running' for update";
/// What is claimed may be at the broker at this moment: that goes its way.
const UNSENT: (&str, &str) = (
    "select id from outbox where replay_id = $1 and published_at is null and (claimed_by is null or due_at <= $2) \
     order by id for update",
    "select id from outbox where replay_id = $1 and published_at is null and (claimed_by is null or due_at <= $2)",
);
const TAKE_BACK: (&str, &str) = over_ids!("delete from outbox where id ", "");
const CANCEL: &str = "update replays set state = 'cancelled', ended_at = $3, updated_at = $3, sent = sent - $4 \
     where id = $1 and merchant = $2 and state = 'running'";

/// Ends the merchant's running replay `id` in the caller's transaction, and takes back what nobody has
/// taken to the broker yet; gives how many that were. `None`: there is none that runs.
pub async fn cancel(tx: &mut Tx, merchant: &str, id: &str) -> Result<Option<u64>, StoreError> {
    let now = tx.now().await?;
    if let Tx::Postgres(pg) = &mut *tx {
        // First: no page may come in between.
        heard(sqlx::query(LOCK).bind(id).bind(merchant).execute(&mut **pg)).await?;
    }
    let sql = tx.pick(UNSENT.0, UNSENT.1);
    let unsent: Vec<String> = on_tx!(&mut *tx, |conn| sqlx::query_scalar(sql)
        .bind(id)
        .bind(now)
        .fetch_all(conn)
        .await)?;
    let ended = on_tx!(&mut *tx, |conn| sqlx::query(CANCEL)
        .bind(id)
        .bind(merchant)
        .bind(now)
        .bind(i64::try_from(unsent.len()).unwrap_or(i64::MAX))
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    if ended != 1 {
        return Ok(None);
    }
    let sql = tx.pick(TAKE_BACK.0, TAKE_BACK.1);
    let taken = on_tx!(tx, |conn| sqlx::query(sql)
        .bind(id_list(unsent.iter().map(String::as_str)))
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(Some(taken))
}
