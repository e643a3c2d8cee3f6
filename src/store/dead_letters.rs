//! What was given up: an event that could not be applied, or a message that names no event we know.
//!
//! A dead letter is kept until somebody redrives it: the event is due again, at once and with its attempts
//! forgotten. A message without an event has nothing to redrive; what it held is kept, cut to
//! [`MESSAGE_KEPT`], for whoever wants to know where it came from.

use sqlx::{Database, Encode, FromRow, QueryBuilder, Type};

use crate::event::{AttentionCode, EventId, EventKey, new_id, text};
use crate::store::attention::{self, Resolution};
use crate::store::event_list::{EventFilter, narrow};
use crate::store::outbox::Burial;
use crate::store::{Store, StoreError, Tx, on_pool, on_tx};
use crate::time::Timestamp;

/// How much of an unknown message is kept, in bytes.
pub const MESSAGE_KEPT: usize = 64 * 1024;

const INSERT: &str = "insert into dead_letters \
     (id, event_id, event_key, merchant, error, attempts, message, created_at) \
     values ($1, $2, $3, $4, $5, $6, $7, $8)";

const GET: &str = "select id, event_id, event_key, merchant, error, attempts, created_at, redriven_at \
     from dead_letters where id = $1";

const LIST: &str = "select id, event_id, event_key, merchant, error, attempts, created_at, redriven_at \
     from dead_letters where (merchant = $1 or merchant is null) and id < $2 and (redriven_at is null or $3) \
     order by id desc limit $4";

const REDRIVE: &str = "update dead_letters set redriven_at = $2 where id = $1 and redriven_at is null \
     returning event_id";

/// An event that was given up twice is redriven from either.
const REDRIVE_OTHERS: &str =
    "update dead_letters set redriven_at = $2 where event_id = $1 and redriven_at is null";

/// To the workers only: everybody else has had the message.
const ENQUEUE: &str = "insert into outbox (id, kind, event_id, created_at, due_at, published_at) \
     values ($1, 'event', $1, $2, $2, $2) on conflict (id) do update \
     set due_at = excluded.due_at, attempts = 0, claimed_by = null";

/// It is not finished any more.
const FORGET_DEAD: &str = "delete from event_outcomes where event_id = $1 and outcome = 'dead'";

const OPEN: &str = "select l.id from dead_letters l join events e on e.id = l.event_id \
     left join event_outcomes o on o.event_id = e.id where l.redriven_at is null and l.merchant = ";

const OPEN_ITEMS: &str = "select merchant, source from attention where code = 'dead_letter' and state = 'open' \
     and event_id in (";
const CLOSE: &str = "update dead_letters set redriven_at = ";

/// A dead letter, without the message it may hold.
#[derive(Clone, Debug, FromRow)]
pub struct DeadLetter {
    /// Its id.
    pub id: String,
    /// The event, if it is known.
    pub event_id: Option<String>,
    /// The event's key, or what the message called itself.
    pub event_key: Option<String>,
    /// The event's merchant; `None` for a message that names no known event.
    pub merchant: Option<String>,
    /// Why, in words.
    pub error: String,
    /// How often it was tried.
    pub attempts: i32,
    /// When it was given up, microseconds since 1970.
    pub created_at: i64,
    /// When it was redriven.
    pub redriven_at: Option<i64>,
}

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

impl Store {
    /// Keeps a message that names no event we know, and tells the operator that there are such.
    pub async fn bury_unknown(&self, named: &str, error: &str, message: &[u8]) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let now = tx.now().await?;
        let named = text::storable(text::cut(named, 255));
        let kept = message.get(..MESSAGE_KEPT).unwrap_or(message);
        on_tx!(&mut tx, |conn| sqlx::query(INSERT)
            .bind(new_id(now))
            .bind(None::<&str>)
            .bind(named.as_ref())
            .bind(None::<&str>)
            .bind(error)
            .bind(0_i32)
            .bind(Some(kept))
            .bind(now.micros())
            .execute(conn)
            .await
            .map(drop))?;
        let explanation = format!("messages in payhook's queue that payhook did not write: {error}");
        let alarm = super::outbox::Alarm::new(AttentionCode::DeadLetter, "unknown_message", explanation);
        super::outbox::tell(&mut tx, &alarm, now).await?;
        tx.commit().await
    }

    /// One dead letter.
    pub async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetter>, StoreError> {
        let found = on_pool!(self, |pool| sqlx::query_as(GET)
            .bind(id)
            .fetch_optional(pool)
            .await)?;
        Ok(found)
    }

    /// A merchant's dead letters (and those that are nobody's) before `before`, newest first. `redriven`: also
    /// those that were redriven.
    pub async fn dead_letters(
        &self,
        merchant: &str,
        before: Option<&str>,
        redriven: bool,
        limit: i64,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let before = before.unwrap_or("~");
        let found = on_pool!(self, |pool| sqlx::query_as(LIST)
            .bind(merchant)
            .bind(before)
            .bind(redriven)
            .bind(limit)
            .fetch_all(pool)
            .await)?;
        Ok(found)
    }
}

/// Which dead letters to redrive. Absent parts do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// Whose events, and which; times are not of the events.
    pub events: EventFilter,
    /// Given up at this moment or later.
    pub since: Option<Timestamp>,
    /// Given up before this moment.
    pub until: Option<Timestamp>,
}

impl Store {
    /// The ids of open dead letters that match and name an event: those after `after` and up to `last`, the
    /// oldest first.
    pub async fn open_dead_letters(
        &self,
        filter: &LetterFilter,
        (after, last): (&str, &str),
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        let found = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(OPEN);
            sql.push_bind(&filter.events.merchant);
            narrow(&mut sql, &filter.events);
            for (condition, at) in [
                (" and l.created_at >= ", filter.since),
                (" and l.created_at < ", filter.until),
            ] {
                if let Some(at) = at {
                    sql.push(condition).push_bind(at.micros());
                }
            }
            sql.push(" and l.id > ").push_bind(after);
            sql.push(" and l.id <= ").push_bind(last);
            sql.push(" order by l.id limit ").push_bind(limit);
            sql.build_query_scalar().fetch_all(pool).await
        })?;
        Ok(found)
    }
}

/// Records that an event of `merchant` is given up; the rest of a burial is [`super::outbox::bury`]'s.
pub(super) async fn insert_event(
    tx: &mut Tx,
    (event, key): (&EventId, &EventKey),
    merchant: &str,
    burial: &Burial,
    now: Timestamp,
) -> Result<(), StoreError> {
    on_tx!(tx, |conn| sqlx::query(INSERT)
        .bind(new_id(now))
        .bind(Some(event.as_str()))
        .bind(key.as_str())
        .bind(Some(merchant))
        .bind(&burial.error)
        .bind(i32::try_from(burial.attempts).unwrap_or(i32::MAX))
        .bind(None::<&[u8]>)
        .bind(now.micros())
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}

/// Makes a dead letter's event due again, in the caller's transaction.
pub async fn redrive(tx: &mut Tx, id: &str) -> Result<Redriven, StoreError> {
    let now = tx.now().await?.micros();
    let found: Option<Option<String>> = on_tx!(&mut *tx, |conn| sqlx::query_scalar(REDRIVE)
        .bind(id)
        .bind(now)
        .fetch_optional(conn)
        .await)?;
    let event = match found {
        None => return Ok(Redriven::NotOpen),
        Some(None) => return Ok(Redriven::NoEvent),
        Some(Some(event)) => event,
    };
    on_tx!(&mut *tx, |conn| sqlx::query(REDRIVE_OTHERS)
        .bind(&event)
        .bind(now)
        .execute(conn)
        .await
        .map(drop))?;
    on_tx!(&mut *tx, |conn| sqlx::query(FORGET_DEAD)
        .bind(&event)
        .execute(conn)
        .await
        .map(drop))?;
    on_tx!(tx, |conn| sqlx::query(ENQUEUE)
        .bind(&event)
        .bind(now)
        .execute(conn)
        .await
        .map(drop))?;
    Ok(Redriven::Due)
}

/// Notes that `events` were applied: whoever had to look at one because it was given up need not any more, and its
/// dead letter is settled, by whatever path it came again.
pub async fn succeeded(tx: &mut Tx, events: &[EventId]) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    let items: Vec<(String, String)> = on_tx!(&mut *tx, |conn| {
        let mut sql = QueryBuilder::new(OPEN_ITEMS);
        push_ids(&mut sql, events);
        sql.build_query_as().fetch_all(conn).await
    })?;
    let now = tx.now().await?;
    let resolution = Resolution {
        action: "resolved_itself".to_owned(),
        reason: "the event was applied after all".to_owned(),
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
    on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(CLOSE);
        sql.push_bind(now.micros());
        sql.push(" where redriven_at is null and event_id in (");
        push_ids(&mut sql, events);
        sql.build().execute(conn).await.map(drop)
    })?;
    Ok(())
}

fn push_ids<'a, DB>(sql: &mut QueryBuilder<DB>, ids: &'a [EventId])
where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
{
    let mut list = sql.separated(", ");
    for id in ids {
        list.push_bind(id.as_str());
    }
    sql.push(")");
}
