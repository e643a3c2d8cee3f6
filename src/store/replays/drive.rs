//! Moving a replay on: who may, how far it has come, the next page, its end.
//!
//! Every write is guarded by the lease and by the place it was read at, so a process that has lost its lease, or
//! overslept it, moves nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sqlx::FromRow;
use sqlx::types::Json;

use super::{COUNTED_AT_MOST, Candidate, Place, ReplayFilter, What};
use crate::event::text::storable;
use crate::event::{EventId, Replay};
use crate::store::audit::{self, Deed};
use crate::store::feed::{note_replayed_events, note_replayed_messages};
use crate::store::outbox::{enqueue_replays, id_list, resend_events, resend_messages};
use crate::store::time::db_now;
use crate::store::{Store, StoreError, Tx, on_pool, on_tx};
use crate::time::Timestamp;

/// How long a process may drive a replay without saying so again.
pub const LEASE: Duration = Duration::from_secs(15);

const ANY_RUNNING: &str = "select exists (select 1 from replays where state = 'running')";

const LEASE_SOME: (&str, &str) = (
    "update replays set leased_by = $1, leased_until = $3 where id in (select id from replays \
     where state = 'running' and (leased_until is null or leased_until <= $2 or leased_by = $1) \
     and id not in (select json_array_elements_text($4::json)) order by id limit 16 \
     for update skip locked) returning id",
    "update replays set leased_by = $1, leased_until = $3 where id in (select id from replays \
     where state = 'running' and (leased_until is null or leased_until <= $2 or leased_by = $1) \
     and id not in (select value from json_each($4)) order by id limit 16) returning id",
);
const LEAVE: &str = "update replays set leased_by = null, leased_until = null, waits = $3, \
     waits_since = coalesce(waits_since, $4) where id = $1 and leased_by = $2 and state = 'running'";
const GIVE_UP: &str =
    "update replays set leased_by = null, leased_until = null where leased_by = $1 and state = 'running'";

macro_rules! held {
    ($waited:expr) => {
        concat!(
            "select id, merchant, actor, reason, what, queue, filter, per_second, at_position, at_id, end_position, \
             end_id, total, walked_at, sent, refusals, ",
            $waited,
            " as waited from replays where id = $1 and state = 'running' and leased_by = $2"
        )
    };
}
const HELD: (&str, &str) = (
    held!("(extract(epoch from clock_timestamp() - waits_since) * 1000000)::bigint"),
    held!(concat!(db_now!(sqlite), " - waits_since")),
);

const COUNTED: &str = "update replays set total = $3 where id = $1 and leased_by = $2 and state = 'running'";

const MOVE: &str = "update replays set at_position = $3, at_id = $4, sent = sent + $5, refused = refused + $6, \
     refusals = $7, walked_at = $8, updated_at = $9, leased_until = $10, waits = null, waits_since = null \
     where id = $1 and leased_by = $2 and state = 'running' and at_id = $11 and walked_at is null";

const FINISH: &str = "update replays set state = 'done', ended_at = $3, updated_at = $3 \
     where id = $1 and leased_by = $2 and state = 'running' and walked_at is not null";

const OUTSTANDING: &str = "select count(*) as rows, \
     count(case when published_at is null and not unpublishable then 1 end) as unpublished \
     from (select published_at, unpublishable from outbox where replay_id = $1 limit $2) as waiting";

/// A running replay that this process drives.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its id.
    pub id: String,
    /// Whose events or messages.
    pub merchant: String,
    /// Who asked.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// What it sends again.
    pub what: What,
    /// To this queue alone.
    pub queue: Option<String>,
    /// Which of them.
    pub filter: ReplayFilter,
    /// At most so many in a second.
    pub per_second: u32,
    /// How far it has come.
    pub at: Place,
    /// Where it ends.
    pub end: Place,
    /// How many match, once they were counted.
    pub total: Option<i64>,
    /// Everything was handed to the outbox.
    pub walked: bool,
    /// How many were.
    pub sent: i64,
    /// How many were refused, and why.
    pub refusals: BTreeMap<String, i64>,
    /// How long nobody has been able to go on from here.
    pub waited: Option<Duration>,
}

#[derive(FromRow)]
struct HeldRow {
    id: String,
    merchant: String,
    actor: String,
    reason: String,
    what: String,
    queue: Option<String>,
    filter: Json<ReplayFilter>,
    per_second: i32,
    at_position: i64,
    at_id: String,
    end_position: i64,
    end_id: String,
    total: Option<i64>,
    walked_at: Option<Timestamp>,
    sent: i64,
    refusals: Json<BTreeMap<String, i64>>,
    waited: Option<i64>,
}

/// What of a replay is in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRow)]
pub struct Outstanding {
    /// Not confirmed, or not applied again; counted up to the limit.
    pub rows: i64,
    /// Of these: not confirmed.
    pub unpublished: i64,
}

/// A page, judged.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// To be sent.
    pub send: Vec<Candidate>,
    /// Not to be sent, by reason.
    pub refused: BTreeMap<String, i64>,
    /// The last one of the page.
    pub upto: Option<Place>,
    /// Nothing comes behind it.
    pub last: bool,
}

/// Whether a page was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many were.
    Sent(u64),
    /// It is not ours any more, or has ended.
    Lost,
}

impl Store {
    /// The running replays that `process` drives from now on, for [`LEASE`]: its own, and those nobody drives, but
    /// for `left`.
    pub async fn lease_replays<'a>(
        &self,
        process: &str,
        left: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<String>, StoreError> {
        let any: bool = on_pool!(self, |pool| sqlx::query_scalar(ANY_RUNNING).fetch_one(pool).await)?;
        if !any {
            return Ok(Vec::new());
        }
        let left = id_list(left);
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let sql = tx.pick(LEASE_SOME.0, LEASE_SOME.1);
        let leased = on_tx!(&mut tx, |conn| sqlx::query_scalar(sql)
            .bind(process)
            .bind(now)
            .bind(now.plus(LEASE))
            .bind(&left)
            .fetch_all(conn)
            .await)?;
        tx.commit().await?;
        Ok(leased)
    }

    /// Lets others drive what `process` drives, at once.
    pub async fn give_up_replays(&self, process: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        on_tx!(&mut tx, |conn| sqlx::query(GIVE_UP)
            .bind(process)
            .execute(conn)
            .await
            .map(drop))?;
        tx.commit().await
    }

    /// Lets others go on with `held`, which `process` cannot, and says why.
    pub async fn leave_replay(&self, held: &Held, process: &str, why: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        on_tx!(&mut tx, |conn| sqlx::query(LEAVE)
            .bind(&held.id)
            .bind(process)
            .bind(storable(why).as_ref())
            .bind(now)
            .execute(conn)
            .await
            .map(drop))?;
        tx.commit().await
    }

    /// A replay as it stands, while `process` drives it.
    pub async fn held_replay(&self, id: &str, process: &str) -> Result<Option<Held>, StoreError> {
        let sql = self.pick(HELD.0, HELD.1);
        let row: Option<HeldRow> = on_pool!(self, |pool| sqlx::query_as(sql)
            .bind(id)
            .bind(process)
            .fetch_optional(pool)
            .await)?;
        row.map(HeldRow::held).transpose()
    }

    /// Counts what `held` is about, and notes it, unless it is too much to count.
    pub async fn count_replay(&self, held: &Held, process: &str) -> Result<(), StoreError> {
        let counted = self
            .count_replayed(
                held.what,
                &held.merchant,
                &held.filter,
                Some(&held.end),
                COUNTED_AT_MOST,
            )
            .await?;
        if counted.at_least {
            return Ok(());
        }
        let total: i64 = counted.groups.iter().map(|group| group.found).sum();
        let mut tx = self.begin().await?;
        on_tx!(&mut tx, |conn| sqlx::query(COUNTED)
            .bind(&held.id)
            .bind(process)
            .bind(total)
            .execute(conn)
            .await
            .map(drop))?;
        tx.commit().await
    }

    /// What of the replay `id` is still in the outbox, counted up to `limit`.
    pub async fn outstanding(&self, id: &str, limit: i64) -> Result<Outstanding, StoreError> {
        Ok(on_pool!(self, |pool| sqlx::query_as(OUTSTANDING)
            .bind(id)
            .bind(limit)
            .fetch_one(pool)
            .await)?)
    }

    /// Hands a page over: outbox, feed, place and counts in one commit.
    pub async fn move_replay(&self, held: &Held, page: &Judged, process: &str) -> Result<Moved, StoreError> {
        let replay = Replay {
            id: held.id.clone(),
            reason: held.reason.clone(),
        };
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let sent = enqueue(&mut tx, held, page, &replay, now).await?;
        let mut refusals = held.refusals.clone();
        for (why, count) in &page.refused {
            let known = refusals.entry(why.clone()).or_default();
            *known = known.saturating_add(*count);
        }
        let refused: i64 = page.refused.values().sum();
        let at = page.upto.as_ref().unwrap_or(&held.at);
        let moved = on_tx!(&mut tx, |conn| sqlx::query(MOVE)
            .bind(&held.id)
            .bind(process)
            .bind(at.position)
            .bind(&at.id)
            .bind(i64::try_from(sent).unwrap_or(i64::MAX))
            .bind(refused)
            .bind(Json(&refusals))
            .bind(page.last.then_some(now))
            .bind(now)
            .bind(now.plus(LEASE))
            .bind(&held.at.id)
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        if moved != 1 {
            tx.rollback().await?;
            return Ok(Moved::Lost);
        }
        tx.commit().await?;
        Ok(Moved::Sent(sent))
    }

    /// Ends a replay of which everything is out. `false`: it is not ours any more.
    pub async fn finish_replay(&self, held: &Held, process: &str) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let ended = on_tx!(&mut tx, |conn| sqlx::query(FINISH)
            .bind(&held.id)
            .bind(process)
            .bind(now)
            .execute(conn)
            .await
            .map(|done| done.rows_affected()))?;
        if ended != 1 {
            tx.rollback().await?;
            return Ok(false);
        }
        let deed = Deed {
            merchant: &held.merchant,
            actor: &held.actor,
            action: "replay.end",
            reason: &held.reason,
            details: json!({ "replay": held.id, "sent": held.sent, "refused": held.refusals }),
        };
        audit::enter(&mut tx, &deed).await?;
        tx.commit().await?;
        Ok(true)
    }
}

async fn enqueue(
    tx: &mut Tx,
    held: &Held,
    page: &Judged,
    replay: &Replay,
    now: Timestamp,
) -> Result<u64, StoreError> {
    if page.send.is_empty() {
        return Ok(0);
    }
    // Everybody includes the readers of the feed.
    match (held.what, &held.queue) {
        (What::Events, queue) => {
            let ids: Vec<EventId> = page.send.iter().map(|one| EventId::from_text(&*one.id)).collect();
            if let Some(queue) = queue {
                return resend_events(tx, &ids, replay, queue).await;
            }
            note_replayed_events(tx, &ids, replay, now).await?;
            enqueue_replays(tx, &ids, replay).await
        }
        (What::Orders, queue) => {
            let ids: Vec<&str> = page.send.iter().map(|one| one.id.as_str()).collect();
            if queue.is_none() {
                note_replayed_messages(tx, &ids, replay, now).await?;
            }
            resend_messages(tx, &ids, replay, queue.as_deref()).await
        }
    }
}

impl HeldRow {
    fn held(self) -> Result<Held, StoreError> {
        let corrupt = |column: &str| StoreError::corrupt("replays", format!("{column} of {}", self.id));
        Ok(Held {
            what: What::from_text(&self.what).ok_or_else(|| corrupt("what"))?,
            filter: self.filter.0,
            refusals: self.refusals.0,
            per_second: u32::try_from(self.per_second).map_err(|_| corrupt("per_second"))?,
            id: self.id,
            merchant: self.merchant,
            actor: self.actor,
            reason: self.reason,
            queue: self.queue,
            at: Place {
                position: self.at_position,
                id: self.at_id,
            },
            end: Place {
                position: self.end_position,
                id: self.end_id,
            },
            total: self.total,
            walked: self.walked_at.is_some(),
            sent: self.sent,
            waited: self
                .waited
                .map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or_default())),
        })
    }
}
