//! An operator re-sends what is stored: one more row each, beside the event's own if that is still there.
//!
//! The row carries what the message's `data.replay` says, so that it is published like any other. An event that
//! goes to everybody goes to the workers too, and its row stays until it was applied once more. A message, or an
//! event for one queue alone, is no business of theirs: its row is done when the broker has it.

use super::{id_list, over_ids};
use crate::event::{EventId, Replay};
use crate::store::{StoreError, Tx, on_tx};

macro_rules! enqueue {
    ($kind:literal, $table:literal, $about:literal) => {
        over_ids!(
            concat!(
                "insert into outbox (id, kind, ",
                $about,
                ", created_at, due_at, replay_id, replay_reason, queue) select t.id || '#' || $2, '",
                $kind,
                "', t.id, $4, $4, $2, $3, $5 from ",
                $table,
                " t where t.id "
            ),
            " on conflict (id) do nothing"
        )
    };
}
const REPLAY_EVENTS: (&str, &str) = enqueue!("replay", "events", "event_id");
const RESEND_EVENTS: (&str, &str) = enqueue!("resend", "events", "event_id");
const RESEND_MESSAGES: (&str, &str) = enqueue!("resend", "messages", "message_id");

/// Asks for `events` to be published and applied again. Gives how many rows were new: an unknown event gives
/// none, and the same replay asked for twice is one.
pub async fn enqueue_replays(tx: &mut Tx, events: &[EventId], replay: &Replay) -> Result<u64, StoreError> {
    let ids = id_list(events.iter().map(EventId::as_str));
    enqueue(tx, REPLAY_EVENTS, &ids, replay, None).await
}

/// Asks for `events` to be sent to `queue` and nobody else.
pub async fn resend_events(
    tx: &mut Tx,
    events: &[EventId],
    replay: &Replay,
    queue: &str,
) -> Result<u64, StoreError> {
    let ids = id_list(events.iter().map(EventId::as_str));
    enqueue(tx, RESEND_EVENTS, &ids, replay, Some(queue)).await
}

/// Asks for order or attention messages to be sent again: to `queue` alone, or to everybody.
pub async fn resend_messages(
    tx: &mut Tx,
    messages: &[&str],
    replay: &Replay,
    queue: Option<&str>,
) -> Result<u64, StoreError> {
    let ids = id_list(messages.iter().copied());
    enqueue(tx, RESEND_MESSAGES, &ids, replay, queue).await
}

async fn enqueue(
    tx: &mut Tx,
    (postgres, sqlite): (&'static str, &'static str),
    ids: &str,
    replay: &Replay,
    queue: Option<&str>,
) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    let sql = tx.pick(postgres, sqlite);
    let done = on_tx!(&mut *tx, |conn| sqlx::query(sql)
        .bind(ids)
        .bind(&replay.id)
        .bind(&replay.reason)
        .bind(now)
        .bind(queue)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(done)
}
