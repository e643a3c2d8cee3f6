//! A dead letter is settled: its event is due again, or was applied after all.
//!
//! An event that was given up twice is redriven from either letter: all its open ones are settled together, and so is
//! what a human was told of each. Several events are redriven in a fixed number of statements, whose locks are taken
//! in the one order that [`super::outbox`] states.

use std::collections::BTreeSet;

use super::attention::{self, Resolution};
use super::outbox::{id_list, over_ids};
use super::time::db_now;
use super::{StoreError, Tx, heard, on_tx};
use crate::event::{AttentionCode, EventId};
use crate::time::Timestamp;

const GET: &str = "select event_id, redriven_at from dead_letters where id = $1";

macro_rules! open_of_the_same_events {
    ($ids:literal, $lock:literal) => {
        concat!(
            "select id, event_id from dead_letters where redriven_at is null and event_id in \
             (select event_id from dead_letters where id in (",
            $ids,
            ")) order by id",
            $lock
        )
    };
}
const LETTERS: (&str, &str) = (
    open_of_the_same_events!("select json_array_elements_text($1::json)", " for update"),
    open_of_the_same_events!("select value from json_each($1)", ""),
);
const REDRIVE: (&str, &str) = over_ids!("update dead_letters set redriven_at = $2 where id ", "");

/// Only where there are row locks.
const LOCK_OUTCOMES: &str = "select event_id from event_outcomes where outcome = 'dead' \
     and event_id = any (array(select json_array_elements_text($1::json))) order by event_id for update";
/// They are not finished any more; unless one was given up again in this very moment, whose dead letter stays open.
const FORGET_DEAD: (&str, &str) = over_ids!(
    "delete from event_outcomes where outcome = 'dead' and not exists (select 1 from dead_letters l \
     where l.event_id = event_outcomes.event_id and l.redriven_at is null) and event_id ",
    ""
);

macro_rules! enqueue {
    ($ids:literal) => {
        concat!(
            "insert into outbox (id, kind, event_id, created_at, due_at, published_at) \
             select again.id, 'event', again.id, $2, $2, $2 from (",
            $ids,
            ") as again where true order by again.id on conflict (id) do update \
             set due_at = excluded.due_at, attempts = 0, claimed_by = null"
        )
    };
}
/// To the workers only: everybody else has had the message.
const ENQUEUE: (&str, &str) = (
    enqueue!("select json_array_elements_text($1::json) as id"),
    enqueue!("select value as id from json_each($1)"),
);

/// In the order in which they are closed.
const OPEN_ITEMS: (&str, &str) = over_ids!(
    "select merchant, source from attention where code = 'dead_letter' and state = 'open' and event_id ",
    " order by merchant, source"
);

/// A letter that is locked is being redriven; waiting for it would be against the order of locks.
const CLOSE: (&str, &str) = (
    concat!(
        "update dead_letters set redriven_at = ",
        db_now!(postgres),
        " where id = any (array(select id from dead_letters where redriven_at is null \
     and event_id = any (array(select json_array_elements_text($1::json))) for update skip locked)) returning event_id"
    ),
    concat!(
        "update dead_letters set redriven_at = ",
        db_now!(sqlite),
        " where redriven_at is null \
     and event_id in (select value from json_each($1)) returning event_id"
    ),
);

/// What asking for a redrive did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redriven {
    /// The event is due again.
    Due,
    /// There is no such dead letter, or it was redriven before.
    NotOpen,
    /// It names no event; there is nothing to apply.
    NoEvent,
}

/// Makes a dead letter's event due again, in the caller's transaction.
pub async fn redrive(tx: &mut Tx, id: &str) -> Result<Redriven, StoreError> {
    let letter: Option<(Option<String>, Option<Timestamp>)> = on_tx!(&mut *tx, |conn| sqlx::query_as(GET)
        .bind(id)
        .fetch_optional(conn)
        .await)?;
    match letter {
        None | Some((_, Some(_))) => Ok(Redriven::NotOpen),
        Some((None, None)) => Ok(Redriven::NoEvent),
        // Somebody else may be quicker.
        Some((Some(_), None)) if redrive_all(tx, &[id.to_owned()]).await? == 0 => Ok(Redriven::NotOpen),
        Some((Some(_), None)) => Ok(Redriven::Due),
    }
}

/// Makes the events of the dead letters `ids` due again, in the caller's transaction; how many events that were.
pub async fn redrive_all(tx: &mut Tx, ids: &[String]) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    let sql = tx.pick(LETTERS.0, LETTERS.1);
    let open: Vec<(String, String)> = on_tx!(&mut *tx, |conn| sqlx::query_as(sql)
        .bind(id_list(ids.iter().map(String::as_str)))
        .fetch_all(conn)
        .await)?;
    if open.is_empty() {
        return Ok(0);
    }
    let letters = id_list(open.iter().map(|(id, _)| id.as_str()));
    let about: BTreeSet<&str> = open.iter().map(|(_, event)| event.as_str()).collect();
    let events = id_list(about.iter().copied());
    write(tx, REDRIVE, &letters, now).await?;
    if let Tx::Postgres(pg) = &mut *tx {
        heard(sqlx::query(LOCK_OUTCOMES).bind(&events).execute(&mut **pg)).await?;
    }
    let sql = tx.pick(FORGET_DEAD.0, FORGET_DEAD.1);
    on_tx!(&mut *tx, |conn| sqlx::query(sql)
        .bind(&events)
        .execute(conn)
        .await
        .map(drop))?;
    write(tx, ENQUEUE, &events, now).await?;
    close_items(tx, &events, "the event was redriven", now).await?;
    Ok(u64::try_from(about.len()).unwrap_or(u64::MAX))
}

/// Closes the dead letters of `events`, which were applied after all, with their attention items.
pub async fn succeeded(tx: &mut Tx, events: &[EventId]) -> Result<(), StoreError> {
    let events = id_list(events.iter().map(EventId::as_str));
    let sql = tx.pick(CLOSE.0, CLOSE.1);
    let closed: Vec<String> = on_tx!(&mut *tx, |conn| sqlx::query_scalar(sql)
        .bind(&events)
        .fetch_all(conn)
        .await)?;
    if closed.is_empty() {
        return Ok(());
    }
    let now = tx.now().await?;
    let events = id_list(closed.iter().map(String::as_str));
    close_items(tx, &events, "the event was applied after all", now).await
}

/// Runs a statement over the ids of a JSON array, with the time.
async fn write(
    tx: &mut Tx,
    (postgres, sqlite): (&'static str, &'static str),
    ids: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let sql = tx.pick(postgres, sqlite);
    on_tx!(tx, |conn| sqlx::query(sql)
        .bind(ids)
        .bind(now)
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}

async fn close_items(tx: &mut Tx, events: &str, why: &str, now: Timestamp) -> Result<(), StoreError> {
    let sql = tx.pick(OPEN_ITEMS.0, OPEN_ITEMS.1);
    let items: Vec<(String, String)> = on_tx!(&mut *tx, |conn| sqlx::query_as(sql)
        .bind(events)
        .fetch_all(conn)
        .await)?;
    let resolution = Resolution {
        action: "resolved_itself".to_owned(),
        reason: why.to_owned(),
        resolved_by: "payhook".to_owned(),
        resolved_at: now,
    };
    for (merchant, source) in &items {
        let item = (
            merchant.as_str(),
            AttentionCode::DeadLetter.as_str(),
            source.as_str(),
        );
        attention::settle(tx, item, &resolution).await?;
    }
    Ok(())
}
