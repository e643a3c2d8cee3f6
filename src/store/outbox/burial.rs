//! An event is given up: outcome, rows, dead letter and attention item end or begin in one transaction.
//!
//! What it did before, by an earlier application, stands, and so does that outcome. Every burial is a dead letter
//! and an item of its own: an event that was redriven and fails again is told of again.

use super::finish_applied;
use super::tell::{Alarm, tell};
use crate::event::{AttentionCode, Event, EventId, EventKey};
use crate::store::{StoreError, Tx, Unreadable, dead_letters, heard, on_tx};
use crate::time::Timestamp;

/// What goes to one queue waits for nothing else.
const END_RESEND: &str = "delete from outbox where id = $1 and kind = 'resend'";

const BURY_OUTCOME: &str = "insert into event_outcomes (event_id, outcome, reason, decided_at) \
     values ($1, 'dead', $2, $3) on conflict (event_id) do nothing";

/// Only where there are row locks: a redrive that is at it takes the outcome back before there is another letter.
const LOCK_OUTCOME: &str = "select event_id from event_outcomes where event_id = $1 for update";

/// How often a burial begins again because a redrive took the outcome back in the same moment.
pub(super) const TRIES: u32 = 8;

/// Why an event is given up.
#[derive(Clone, Debug)]
pub struct Burial {
    /// The last error, in words.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// The event that is given up, as far as it reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doomed<'a> {
    pub(super) id: &'a EventId,
    key: &'a EventKey,
    merchant: &'a str,
    event: Option<&'a Event>,
}

impl<'a> Doomed<'a> {
    pub(super) fn of(event: &'a Event) -> Self {
        Self {
            id: &event.id,
            key: &event.key,
            merchant: &event.merchant,
            event: Some(event),
        }
    }

    pub(super) fn unread(event: &'a Unreadable, merchant: &'a str) -> Self {
        Self {
            id: &event.id,
            key: &event.key,
            merchant,
            event: None,
        }
    }

    fn alarm<'b>(&'b self, code: AttentionCode, source: &'b str, explanation: String) -> Alarm<'b> {
        Alarm::new(code, source, explanation)
            .about(self.event)
            .merchant(self.merchant)
            .event(self.id)
    }
}

/// The outcome of what is given up, unless an earlier application has one that stands. `true`: it is new. On Postgres
/// it waits for a worker that is writing the event's outcome, so that `true` means: no worker has ended it.
pub(super) async fn end_as_dead(
    tx: &mut Tx,
    id: &EventId,
    error: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    for _ in 0..TRIES {
        let written = on_tx!(&mut *tx, |conn| sqlx::query(BURY_OUTCOME)
            .bind(id.as_str())
            .bind(error)
            .bind(now.micros())
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        let Tx::Postgres(pg) = tx else {
            return Ok(written == 1);
        };
        let locked = heard(
            sqlx::query(LOCK_OUTCOME)
                .bind(id.as_str())
                .fetch_optional(&mut **pg),
        )
        .await?;
        // A redrive that held it has taken it back meanwhile: then ours is not there yet.
        if locked.is_some() {
            return Ok(written == 1);
        }
    }
    Err(StoreError::timed_out())
}

/// What follows its outcome: its rows, its dead letter and what a human is told. `embedded`: no publish is owed.
pub(super) async fn lay_to_rest(
    tx: &mut Tx,
    about: &Doomed<'_>,
    burial: &Burial,
    embedded: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    finish_applied(tx, std::slice::from_ref(about.id), embedded).await?;
    let letter = dead_letters::insert_event(tx, (about.id, about.key), about.merchant, burial, now).await?;
    let explanation = format!("given up after {} attempts: {}", burial.attempts, burial.error);
    tell(
        tx,
        &about.alarm(AttentionCode::DeadLetter, &letter, explanation),
        now,
    )
    .await
}

/// Ends what was to go to one queue and cannot be read; the event's own rows are another matter.
pub(super) async fn end_resend(
    tx: &mut Tx,
    row: &str,
    about: &Doomed<'_>,
    error: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    on_tx!(&mut *tx, |conn| sqlx::query(END_RESEND)
        .bind(row)
        .execute(conn)
        .await
        .map(drop))?;
    tell(
        tx,
        &about.alarm(AttentionCode::Unpublishable, row, error.to_owned()),
        now,
    )
    .await
}
