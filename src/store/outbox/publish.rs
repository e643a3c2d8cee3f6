//! The result of publishing a row: confirmed, not confirmed, or refused by the broker.
//!
//! A confirmed message is done; a confirmed event waits for its outcome. Rows are locked in the order of their ids
//! before anything is decided. `finish_applied` does the same, so that the second of relay and worker sees what the
//! first did, and no row stays behind that neither will delete.

use std::time::Duration;

use super::{id_list, over_ids};
use crate::event::{AttentionCode, Event, EventId, text};
use crate::store::attention::{self, NewAttention};
use crate::store::{Store, StoreError, Tx, heard, on_tx};
use crate::time::micros;

/// Only where there are row locks.
const LOCK_ROWS: &str = "select id from outbox where id = any \
     (array(select json_array_elements_text($1::json))) order by id for update";

macro_rules! mark_published {
    ($micros:literal, $ids:literal) => {
        concat!(
            "update outbox set published_at = $2, publishes = publishes + 1, claimed_by = null, due_at = \
             case when claimed_by is null then due_at \
                  else $2 + $3 * (1 << case when publishes < 8 then publishes else 8 end)",
            $micros,
            " end where kind in ('event', 'replay') and id ",
            $ids
        )
    };
}
const MARK_PUBLISHED: (&str, &str) = (
    mark_published!(
        " * interval '1 microsecond'",
        "= any (array(select json_array_elements_text($1::json)))"
    ),
    mark_published!("", "in (select value from json_each($1))"),
);

// Not `exists`: beside an `or` Postgres may read all outcomes once instead of looking each up.
const DELETE_DONE: (&str, &str) = over_ids!(
    "delete from outbox where (kind in ('message', 'resend') or applied_at is not null \
     or kind = 'event' and (select true from event_outcomes o where o.event_id = outbox.event_id)) and id ",
    ""
);

// Rows that somebody is at are passed over: they are about to be sent, or have ended.
const ARE_DUE: (&str, &str) = (
    "update outbox set due_at = $1 where id = any (array(select id from outbox where published_at is not null \
     and claimed_by is null and attempts = 0 and due_at > $1 limit $2 for update skip locked))",
    "update outbox set due_at = $1 where id in (select id from outbox where published_at is not null \
     and claimed_by is null and attempts = 0 and due_at > $1 limit $2)",
);

/// Rows in one statement of [`Store::unfinished_are_due`].
const AT_ONCE: u64 = 10_000;

const OUTLIVED: (&str, &str) = over_ids!("select id from outbox where created_at <= $2 and id ", "");

/// Due after a quarter of a row's age, within bounds.
const RELEASE: (&str, &str) = (
    "update outbox set claimed_by = null, due_at = $2 + greatest(least(($2 - created_at) / 4, \
     $5 * interval '1 microsecond'), $4 * interval '1 microsecond') \
     where claimed_by = $3 and id = any (array(select json_array_elements_text($1::json)))",
    "update outbox set claimed_by = null, due_at = $2 + max(min(($2 - created_at) / 4, $5), $4) \
     where claimed_by = $3 and id in (select value from json_each($1))",
);

const MARK_UNPUBLISHABLE: &str = "update outbox set unpublishable = true, claimed_by = null, last_error = $2, \
     due_at = $3, published_at = case when kind = 'message' then published_at else $3 end where id = $1";
const END_RESEND: &str = "delete from outbox where id = $1 and kind = 'resend'";
const END_ROW: &str = "delete from outbox where id = $1";

/// The merchant and the event of a row.
const ABOUT: &str = "select coalesce(e.merchant, m.merchant, r.merchant, 'default') as merchant, o.event_id \
     from outbox o left join events e on e.id = o.event_id left join messages m on m.id = o.message_id \
     left join replays r on r.id = o.replay_id where o.id = $1";

impl Store {
    /// Notes that the broker has taken the messages of these rows, and gives how many are gone: messages, and
    /// events whose outcome was there before the confirm. An event that has no outcome after `reapply_after`,
    /// doubled with each publish (eight times at most), is due again; a failed application in the meantime has
    /// set its own time, which stays.
    pub async fn confirm_published(
        &self,
        rows: &[String],
        reapply_after: Duration,
    ) -> Result<u64, StoreError> {
        if rows.is_empty() {
            return Ok(0);
        }
        let ids = id_list(rows.iter().map(String::as_str));
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        lock_rows(&mut tx, &ids).await?;
        let sql = tx.pick(DELETE_DONE.0, DELETE_DONE.1);
        let done = on_tx!(&mut tx, |conn| sqlx::query(sql)
            .bind(&ids)
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        if usize::try_from(done).ok() != Some(rows.len()) {
            let sql = tx.pick(MARK_PUBLISHED.0, MARK_PUBLISHED.1);
            on_tx!(&mut tx, |conn| sqlx::query(sql)
                .bind(&ids)
                .bind(now)
                .bind(micros(reapply_after))
                .execute(conn)
                .await
                .map(drop))?;
        }
        tx.commit().await?;
        Ok(done)
    }

    /// Makes every event due that was published and has no outcome, as if its `reapply_after` were over: the
    /// queue that held them is gone. One that failed keeps its own time. Gives how many there were.
    pub async fn unfinished_are_due(&self) -> Result<u64, StoreError> {
        let sql = self.pick(ARE_DUE.0, ARE_DUE.1);
        let mut all = 0;
        loop {
            let mut tx = self.begin().await?;
            let now = tx.now().await?;
            let made = on_tx!(&mut tx, |conn| sqlx::query(sql)
                .bind(now)
                .bind(i64::try_from(AT_ONCE).unwrap_or(i64::MAX))
                .execute(conn)
                .await
                .map(|done| done.rows_affected()))?;
            tx.commit().await?;
            all += made;
            if made < AT_ONCE {
                return Ok(all);
            }
        }
    }

    /// Gives back rows that `process` claimed and could not send, due again after a quarter of their age: after `least`
    /// and `most` at the bounds. What one queue does not take all the others get each time.
    pub async fn release(
        &self,
        rows: &[String],
        process: &str,
        (least, most): (Duration, Duration),
    ) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let ids = id_list(rows.iter().map(String::as_str));
        let mut tx = self.begin().await?;
        release(&mut tx, &ids, process, (least, most)).await?;
        tx.commit().await
    }

    /// Gives back rows that `process` cannot send and another may, and gives those of them that are older than
    /// `patience`: nobody has sent them, and nobody is going to.
    pub async fn leave_to_others(
        &self,
        rows: &[String],
        process: &str,
        delay: Duration,
        patience: Duration,
    ) -> Result<Vec<String>, StoreError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let ids = id_list(rows.iter().map(String::as_str));
        let mut tx = self.begin().await?;
        let since = tx.now().await?.minus(patience);
        release(&mut tx, &ids, process, (delay, delay)).await?;
        let sql = tx.pick(OUTLIVED.0, OUTLIVED.1);
        let outlived = on_tx!(&mut tx, |conn| sqlx::query_scalar(sql)
            .bind(&ids)
            .bind(since)
            .fetch_all(conn)
            .await)?;
        tx.commit().await?;
        Ok(outlived)
    }

    /// Records that the broker refuses `row`'s message. An event goes to the workers all the same, by name; a message
    /// waits for an operator; a resend ends. `event` is the row's event, if it was read.
    pub async fn mark_unpublishable(
        &self,
        row: &str,
        event: Option<&Event>,
        reason: &str,
    ) -> Result<(), StoreError> {
        let reason = text::cut(reason, 1000);
        let mut tx = self.begin().await?;
        let explanation = format!("the broker does not take this message: {reason}");
        let item = unpublishable(&mut tx, row, event, &explanation).await?;
        let now = tx.now().await?;
        let resend = on_tx!(&mut tx, |conn| sqlx::query(END_RESEND)
            .bind(row)
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        if resend == 0 {
            on_tx!(&mut tx, |conn| sqlx::query(MARK_UNPUBLISHABLE)
                .bind(row)
                .bind(reason)
                .bind(now)
                .execute(conn)
                .await
                .map(drop))?;
        }
        attention::raise(&mut tx, &item, now).await?;
        tx.commit().await
    }

    /// Ends a row whose event or message is not in the store: there is nothing to send.
    pub async fn end_missing(&self, row: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let explanation = "its event or message is not in the store, so there was nothing to send";
        let item = unpublishable(&mut tx, row, None, explanation).await?;
        on_tx!(&mut tx, |conn| sqlx::query(END_ROW)
            .bind(row)
            .execute(conn)
            .await
            .map(drop))?;
        let now = tx.now().await?;
        attention::raise(&mut tx, &item, now).await?;
        tx.commit().await
    }
}

/// Returns the attention item about a row that cannot be published. It is for the owner of the event or message, or,
/// if neither is stored, of the replay.
async fn unpublishable(
    tx: &mut Tx,
    row: &str,
    event: Option<&Event>,
    explanation: &str,
) -> Result<NewAttention, StoreError> {
    if let Some(event) = event {
        return Ok(NewAttention::about(
            event,
            AttentionCode::Unpublishable,
            row,
            explanation,
        ));
    }
    let found: Option<(String, Option<String>)> = on_tx!(tx, |conn| sqlx::query_as(ABOUT)
        .bind(row)
        .fetch_optional(conn)
        .await)?;
    let (merchant, event_id) = found.unwrap_or_else(|| ("default".to_owned(), None));
    Ok(NewAttention {
        event_id: event_id.map(EventId::from_text),
        ..NewAttention::new(&merchant, AttentionCode::Unpublishable, row, explanation)
    })
}

async fn release(
    tx: &mut Tx,
    ids: &str,
    process: &str,
    (least, most): (Duration, Duration),
) -> Result<(), StoreError> {
    let now = tx.now().await?;
    let sql = tx.pick(RELEASE.0, RELEASE.1);
    on_tx!(tx, |conn| sqlx::query(sql)
        .bind(ids)
        .bind(now)
        .bind(process)
        .bind(micros(least))
        .bind(micros(most))
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}

/// Takes the row locks in the order of ids, where the database has row locks.
async fn lock_rows(tx: &mut Tx, ids: &str) -> Result<(), StoreError> {
    if let Tx::Postgres(tx) = tx {
        heard(sqlx::query(LOCK_ROWS).bind(ids).execute(&mut **tx)).await?;
    }
    Ok(())
}
