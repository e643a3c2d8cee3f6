//! An event has been applied: in that very transaction its row goes, unless its publish is still owed.
//!
//! A worker may be done before the relay has noted the broker's confirm. Such a row stays: the confirm finds
//! the outcome and deletes it, and if the confirm never comes the event is published again. So no event leaves
//! the outbox without a confirm, whoever is faster.

use super::confirm::lock_rows;
use super::{id_list, over_ids};
use crate::event::EventId;
use crate::store::{StoreError, Tx, on_tx};

const DELETE_EVENTS: (&str, &str) = over_ids!(
    "delete from outbox where kind = 'event' and (published_at is not null or $2) and id in ",
    ""
);

const DELETE_REPLAYS: (&str, &str) = over_ids!(
    "delete from outbox where kind = 'replay' and (published_at is not null or $2) and event_id in ",
    ""
);

/// Removes the rows of `events`, whose outcomes this transaction has written. `embedded`: no publish is owed,
/// since there is no broker.
pub async fn finish_applied(tx: &mut Tx, events: &[EventId], embedded: bool) -> Result<(), StoreError> {
    let ids = id_list(events.iter().map(EventId::as_str));
    lock_rows(tx, &ids).await?;
    for (postgres, sqlite) in [DELETE_EVENTS, DELETE_REPLAYS] {
        let sql = tx.pick(postgres, sqlite);
        on_tx!(&mut *tx, |conn| sqlx::query(sql)
            .bind(&ids)
            .bind(embedded)
            .execute(conn)
            .await
            .map(drop))?;
    }
    Ok(())
}
