//! A row that cannot be published: what the broker refuses, and what is about nothing that is stored.
//!
//! Whoever owns the event or message is told; where neither is there, whoever asked for the replay.

use super::tell::{Alarm, tell};
use super::{id_list, over_ids};
use crate::event::{AttentionCode, Event, EventId, text};
use crate::store::{Store, StoreError, Tx, on_tx};

const MARK_UNPUBLISHABLE: (&str, &str) = over_ids!(
    "update outbox set unpublishable = true, claimed_by = null, last_error = $2, due_at = $3, \
     published_at = case when kind = 'message' then published_at else $3 end where kind <> 'resend' and id ",
    ""
);

/// What goes to one queue, or is a message again, waits for nothing else.
const END_RESEND: &str = "delete from outbox where id = $1 and kind = 'resend'";
const END_ROW: &str = "delete from outbox where id = $1";

/// Who is concerned by a row, and the event it is about.
const CONCERNED: &str = "select coalesce(e.merchant, m.merchant, r.merchant) as merchant, o.event_id \
     from outbox o left join events e on e.id = o.event_id left join messages m on m.id = o.message_id \
     left join replays r on r.id = o.replay_id where o.id = $1";

impl Store {
    /// Notes that the broker will not take `row`'s message. An event goes to the workers all the same, under
    /// its name alone; a message stays for a human; what was only sent again is done. `about` is the row's event,
    /// where it was read.
    pub async fn mark_unpublishable(
        &self,
        row: &str,
        about: Option<&Event>,
        reason: &str,
    ) -> Result<(), StoreError> {
        let reason = text::cut(reason, 1000);
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let (merchant, event) = concerned(&mut tx, row).await?;
        let sql = tx.pick(MARK_UNPUBLISHABLE.0, MARK_UNPUBLISHABLE.1);
        on_tx!(&mut tx, |conn| sqlx::query(sql)
            .bind(id_list([row]))
            .bind(reason)
            .bind(now.micros())
            .execute(conn)
            .await
            .map(drop))?;
        on_tx!(&mut tx, |conn| sqlx::query(END_RESEND)
            .bind(row)
            .execute(conn)
            .await
            .map(drop))?;
        let explanation = format!("the broker does not take this message: {reason}");
        let alarm = Alarm::new(AttentionCode::Unpublishable, row, explanation)
            .concerning(merchant.as_deref(), event.as_ref())
            .about(about);
        tell(&mut tx, &alarm, now).await?;
        tx.commit().await
    }

    /// Ends a row whose event or message is not in the store: there is nothing to send, now or later.
    pub async fn end_missing(&self, row: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let (merchant, event) = concerned(&mut tx, row).await?;
        on_tx!(&mut tx, |conn| sqlx::query(END_ROW)
            .bind(row)
            .execute(conn)
            .await
            .map(drop))?;
        let explanation = "its event or message is not in the store, so there was nothing to send".to_owned();
        let alarm = Alarm::new(AttentionCode::Unpublishable, row, explanation)
            .concerning(merchant.as_deref(), event.as_ref());
        tell(&mut tx, &alarm, now).await?;
        tx.commit().await
    }
}

async fn concerned(tx: &mut Tx, row: &str) -> Result<(Option<String>, Option<EventId>), StoreError> {
    let found: Option<(Option<String>, Option<String>)> = on_tx!(tx, |conn| sqlx::query_as(CONCERNED)
        .bind(row)
        .fetch_optional(conn)
        .await)?;
    let (merchant, event) = found.unwrap_or_default();
    Ok((merchant, event.map(EventId::from_text)))
}
