//! An event has been applied: in that very transaction its rows go, unless their publish is still owed.
//!
//! A worker may be done before the relay has noted the broker's confirm. Such a row stays: the confirm finds
//! that it was applied and deletes it, and if the confirm never comes the event is published again. So no event
//! leaves the outbox without a confirm, whoever is faster.

use super::{id_list, over_ids};
use crate::event::EventId;
use crate::store::{StoreError, Tx, on_tx};

/// The event's own row and its replays, locked by id: the order in which a confirm takes its locks, too. Rows
/// that come in later are not touched, so that no lock is taken out of order.
const LOCK_POSTGRES: &str = "select id from outbox where id = any (array( \
       select id from outbox where kind = 'event' and id = any (array(select json_array_elements_text($1::json))) \
       union select id from outbox where replay_id is not null and kind = 'replay' \
         and event_id = any (array(select json_array_elements_text($1::json))))) \
     order by id for update";
const ROWS_SQLITE: &str = "select id from outbox where kind = 'event' and id in (select value from json_each($1)) \
     union select id from outbox where replay_id is not null and kind = 'replay' \
       and event_id in (select value from json_each($1))";

const DELETE: (&str, &str) = over_ids!(
    "delete from outbox where (published_at is not null or $2) and id ",
    ""
);

/// A replay whose confirm is still owed. The outcome does not tell: a mere repetition leaves it as it was.
const APPLIED: (&str, &str) = over_ids!(
    "update outbox set applied_at = $2 where kind = 'replay' and applied_at is null and id ",
    ""
);

/// The rows of `events`, locked.
pub(super) async fn lock_rows_of(tx: &mut Tx, events: &[EventId]) -> Result<Vec<String>, StoreError> {
    let about = id_list(events.iter().map(EventId::as_str));
    let sql = tx.pick(LOCK_POSTGRES, ROWS_SQLITE);
    Ok(on_tx!(tx, |conn| sqlx::query_scalar(sql)
        .bind(&about)
        .fetch_all(conn)
        .await)?)
}

/// Removes the rows of `events`, whose outcomes this transaction has written. `embedded`: no publish is owed,
/// since there is no broker.
pub async fn finish_applied(tx: &mut Tx, events: &[EventId], embedded: bool) -> Result<(), StoreError> {
    let rows = lock_rows_of(tx, events).await?;
    let ids = id_list(rows.iter().map(String::as_str));
    let sql = tx.pick(DELETE.0, DELETE.1);
    let deleted = on_tx!(&mut *tx, |conn| sqlx::query(sql)
        .bind(&ids)
        .bind(embedded)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    if usize::try_from(deleted).ok() == Some(rows.len()) {
        return Ok(());
    }
    let now = tx.now().await?;
    let sql = tx.pick(APPLIED.0, APPLIED.1);
    on_tx!(tx, |conn| sqlx::query(sql)
        .bind(&ids)
        .bind(now.micros())
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}
