//! What a replay sends appears in the feed again, at a position of its own.
//!
//! Called by the replay in the transaction that puts the same things into the outbox: a reader of the feed and
//! a queue then see the same replays. Noting twice what a replay sent, as a resumed one may, notes it once.

use sqlx::QueryBuilder;

use crate::event::{EventId, Replay};
use crate::store::rows::push_keys;
use crate::store::{StoreError, Tx, on_tx};
use crate::time::Timestamp;

/// Notes that `replay` sent these events; gives how many were not noted before. An unknown event notes nothing.
/// At most a few hundred at once.
pub async fn note_replayed_events(
    tx: &mut Tx,
    events: &[EventId],
    replay: &Replay,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let ids: Vec<&str> = events.iter().map(EventId::as_str).collect();
    note(tx, ("event_id", "events"), &ids, replay, now).await
}

/// Notes that `replay` sent these order or attention messages; see [`note_replayed_events`].
pub async fn note_replayed_messages(
    tx: &mut Tx,
    messages: &[&str],
    replay: &Replay,
    now: Timestamp,
) -> Result<u64, StoreError> {
    note(tx, ("message_id", "messages"), messages, replay, now).await
}

async fn note(
    tx: &mut Tx,
    (column, table): (&'static str, &'static str),
    ids: &[&str],
    replay: &Replay,
    now: Timestamp,
) -> Result<u64, StoreError> {
    if ids.is_empty() {
        return Ok(0);
    }
    // Postgres has the position as the column's default. SQLite: that of the stream's last row.
    let (position, value) = tx.pick(
        ("", ""),
        (
            ", position",
            match table {
                "events" => ", coalesce((select seq from sqlite_sequence where name = 'events'), 0)",
                _ => ", coalesce((select seq from sqlite_sequence where name = 'messages'), 0)",
            },
        ),
    );
    let done = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new("insert into replays_sent (");
        sql.push(column);
        sql.push(", merchant, replay_id, reason, sent_at");
        sql.push(position).push(") select id, merchant, ");
        sql.push_bind(&replay.id).push(", ");
        sql.push_bind(&replay.reason).push(", ");
        sql.push_bind(now).push(value);
        sql.push(" from ").push(table).push(" where ");
        push_keys(&mut sql, "id", ids.iter().map(|id| [*id]));
        sql.push(" order by id on conflict do nothing");
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    Ok(done)
}
