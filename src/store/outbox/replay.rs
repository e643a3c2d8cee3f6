//! An operator re-sends stored events: one more row each, beside the event's own if that is still there.
//!
//! The row carries what the message's `data.replay` says, so that it is published like any other. It stays
//! until the event has an outcome decided after the replay was asked for.

use super::{id_list, over_ids};
use crate::event::{EventId, Replay};
use crate::store::{StoreError, Tx, on_tx};

const ENQUEUE: (&str, &str) = over_ids!(
    "insert into outbox (id, kind, event_id, created_at, due_at, replay_id, replay_reason) \
     select events.id || '#' || $2, 'replay', events.id, $4, $4, $2, $3 from events where events.id in ",
    " on conflict (id) do nothing"
);

/// Asks for `events` to be published and applied again. Gives how many rows were new: an unknown event gives
/// none, and the same replay asked for twice is one.
pub async fn enqueue_replays(tx: &mut Tx, events: &[EventId], replay: &Replay) -> Result<u64, StoreError> {
    let now = tx.now().await?.micros();
    let ids = id_list(events.iter().map(EventId::as_str));
    let sql = tx.pick(ENQUEUE.0, ENQUEUE.1);
    let done = on_tx!(&mut *tx, |conn| sqlx::query(sql)
        .bind(&ids)
        .bind(&replay.id)
        .bind(&replay.reason)
        .bind(now)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(done)
}
