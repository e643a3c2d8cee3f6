//! Which queues were at the broker, and when they were last seen there.
//!
//! The broker forgets a deleted queue; this table does not. A queue that is missing although it was seen is
//! one that has lost what it held, and the span since then is what an operator may want to replay.

use crate::event::AttentionCode;
use crate::store::attention::{self, NewAttention};
use crate::store::{Store, StoreError, on_pool, on_tx};
use crate::time::Timestamp;

const SEEN: &str = "insert into broker_queues (name, seen_at) values ($1, $2) \
     on conflict (name) do update set seen_at = excluded.seen_at";
const LAST_SEEN: &str = "select seen_at from broker_queues where name = $1";

/// What is remembered of a queue that is not at the broker now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSeen {
    /// It was there then: what it held is gone.
    Until(Timestamp),
    /// It is new.
    Never,
}

/// Until when a queue's messages may be lost that is missing `now`: it is declared after this is told, maybe by
/// another daemon when this one has died, and until then others go on publishing. At least a minute ahead, and the
/// same for all who look within one minute.
fn end_of_span(now: Timestamp) -> Timestamp {
    const MINUTE: i64 = 60_000_000;
    let minute = now.micros().div_euclid(MINUTE).saturating_add(2);
    Timestamp::from_micros(minute.saturating_mul(MINUTE))
}

impl Store {
    /// Notes that `queues` are at the broker now.
    pub async fn queues_seen<'a>(&self, queues: impl IntoIterator<Item = &'a str>) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        for queue in queues {
            on_tx!(&mut tx, |conn| sqlx::query(SEEN)
                .bind(queue)
                .bind(now)
                .execute(conn)
                .await
                .map(drop))?;
        }
        tx.commit().await
    }

    /// When `queue`, which is missing, was last seen.
    pub async fn queue_last_seen(&self, queue: &str) -> Result<QueueSeen, StoreError> {
        let seen: Option<Timestamp> = on_pool!(self, |pool| sqlx::query_scalar(LAST_SEEN)
            .bind(queue)
            .fetch_optional(pool)
            .await)?;
        Ok(seen.map_or(QueueSeen::Never, QueueSeen::Until))
    }

    /// Tells each of `merchants` that `queue` had vanished and is there again, empty. Two daemons that find it
    /// missing in the same minute tell it once; who finds it still missing later tells of the longer span.
    pub async fn tell_queue_missing(
        &self,
        queue: &str,
        since: Timestamp,
        merchants: &[String],
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let until = end_of_span(now);
        let source = format!("{queue}@{since}..{until}");
        for merchant in merchants {
            let explanation = format!(
                "queue {queue} had vanished from the broker and was declared again, empty: what it held, and what \
                 was published between {since} and {until}, may not have reached its consumer; replay that span if \
                 it matters"
            );
            let item = NewAttention::new(merchant, AttentionCode::QueueMissing, &source, &explanation);
            attention::raise(&mut tx, &item, now).await?;
        }
        tx.commit().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_ends_a_minute_ahead_and_alike_within_a_minute() {
        let end = |micros| end_of_span(Timestamp::from_micros(micros)).micros();
        assert_eq!(end(0), 120_000_000);
        assert_eq!(end(59_999_999), 120_000_000);
        assert_eq!(end(60_000_000), 180_000_000);
    }
}
