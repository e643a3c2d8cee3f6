//! What was given up: an event that could not be applied, or a message that names no event we know.
//!
//! A dead letter is kept until somebody redrives it ([`redrive`]) or its event is applied after all
//! ([`succeeded`]). A message without an event has nothing to redrive: it is closed with the attention item that tells
//! of such messages ([`close_unknown`]). What it held is kept, cut to [`MESSAGE_KEPT`].

use std::collections::BTreeSet;

use sqlx::{Database, Encode, FromRow, QueryBuilder, Type};

pub use super::redrive::{Redriven, redrive, redrive_all, succeeded};

use crate::event::{AttentionCode, EventId, EventKey, new_id, text};
use crate::store::attention::{self, NewAttention};
use crate::store::event_list::{EventFilter, narrow};
use crate::store::outbox::Burial;
use crate::store::{Store, StoreError, Tx, on_pool, on_tx};
use crate::time::Timestamp;

/// How much of an unknown message is kept, in bytes.
pub const MESSAGE_KEPT: usize = 64 * 1024;

const INSERT: &str = "insert into dead_letters \
     (id, event_id, event_key, merchant, error, attempts, message, created_at) \
     values ($1, $2, $3, $4, $5, $6, $7, $8)";

/// Of each merchant at most one is open.
const UNKNOWN_ITEMS: (&str, &str) = (
    "select source, state from attention where merchant = $1 and code = 'dead_letter' \
     and source like 'unknown_message%' order by source for share",
    "select source, state from attention where merchant = $1 and code = 'dead_letter' \
     and source like 'unknown_message%'",
);

const CLOSE_UNKNOWN: (&str, &str) = (
    "update dead_letters set redriven_at = $1 where id = any (array(select id from dead_letters \
     where redriven_at is null and event_id is null order by id for update))",
    "update dead_letters set redriven_at = $1 where redriven_at is null and event_id is null",
);

/// What the sources of the items about unknown messages begin with.
const UNKNOWN_MESSAGE: &str = "unknown_message";

const GET: &str = "select id, event_id, event_key, merchant, error, attempts, created_at, redriven_at \
     from dead_letters where id = $1";

const LIST: &str = "select id, event_id, event_key, merchant, error, attempts, created_at, redriven_at \
     from dead_letters where (merchant = $1 or merchant is null) and id < $2 and (redriven_at is null or $3) \
     order by id desc limit $4";

const OPEN: &str = " from dead_letters l join events e on e.id = l.event_id \
     left join event_outcomes o on o.event_id = e.id where l.redriven_at is null and l.merchant = ";

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
    /// When it was given up.
    pub created_at: Timestamp,
    /// When it was redriven, or the item about a message without an event was resolved.
    pub redriven_at: Option<Timestamp>,
}

impl Store {
    /// Keeps a message that names no event we know, and tells each of `merchants` that there are such, once until
    /// the item is resolved.
    pub async fn bury_unknown(
        &self,
        merchants: &BTreeSet<String>,
        named: &str,
        error: &str,
        message: &[u8],
    ) -> Result<(), StoreError> {
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
            .bind(now)
            .execute(conn)
            .await
            .map(drop))?;
        let explanation = format!("messages in payhook's queue that payhook did not write: {error}");
        for merchant in merchants {
            // The lock on an open item makes its resolution wait, which then closes this letter too.
            let sql = tx.pick(UNKNOWN_ITEMS.0, UNKNOWN_ITEMS.1);
            let items: Vec<(String, String)> = on_tx!(&mut tx, |conn| sqlx::query_as(sql)
                .bind(merchant)
                .fetch_all(conn)
                .await)?;
            if items.iter().any(|(_, state)| state == "open") {
                continue;
            }
            let source = match items.len() {
                0 => UNKNOWN_MESSAGE.to_owned(),
                resolved => format!("{UNKNOWN_MESSAGE}/{resolved}"),
            };
            let item = NewAttention::new(merchant, AttentionCode::DeadLetter, &source, &explanation);
            attention::raise(&mut tx, &item, now).await?;
        }
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
            let mut sql = QueryBuilder::new("select l.id");
            filter.open(&mut sql);
            sql.push(" and l.id > ").push_bind(after);
            sql.push(" and l.id <= ").push_bind(last);
            sql.push(" order by l.id limit ").push_bind(limit);
            sql.build_query_scalar().fetch_all(pool).await
        })?;
        Ok(found)
    }

    /// How many events have one after `after` and up to `last`.
    pub async fn count_open_dead_letters(
        &self,
        filter: &LetterFilter,
        (after, last): (&str, &str),
    ) -> Result<i64, StoreError> {
        let found = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new("select count(distinct l.event_id)");
            filter.open(&mut sql);
            sql.push(" and l.id > ").push_bind(after);
            sql.push(" and l.id <= ").push_bind(last);
            sql.build_query_scalar().fetch_one(pool).await
        })?;
        Ok(found)
    }
}

impl LetterFilter {
    /// Adds what is searched, and the conditions.
    fn open<'a, DB>(&'a self, sql: &mut QueryBuilder<'a, DB>)
    where
        DB: Database,
        &'a str: Encode<'a, DB> + Type<DB>,
        String: Encode<'a, DB> + Type<DB>,
        i64: Encode<'a, DB> + Type<DB>,
        Timestamp: Encode<'a, DB> + Type<DB>,
    {
        sql.push(OPEN).push_bind(self.events.merchant.as_str());
        narrow(sql, &self.events);
        for (condition, at) in [
            (" and l.created_at >= ", self.since),
            (" and l.created_at < ", self.until),
        ] {
            if let Some(at) = at {
                sql.push(condition).push_bind(at);
            }
        }
    }
}

/// Closes every message that names no event, if `source` is that of an item about such messages, whose resolution the
/// caller has written in this transaction.
pub async fn close_unknown(tx: &mut Tx, source: &str, now: Timestamp) -> Result<(), StoreError> {
    if !source.starts_with(UNKNOWN_MESSAGE) {
        return Ok(());
    }
    let sql = tx.pick(CLOSE_UNKNOWN.0, CLOSE_UNKNOWN.1);
    on_tx!(tx, |conn| sqlx::query(sql)
        .bind(now)
        .execute(conn)
        .await
        .map(drop))?;
    Ok(())
}

/// Records that an event of `merchant` is given up, and gives the dead letter's id; the rest of a burial is
/// the outbox's.
pub(super) async fn insert_event(
    tx: &mut Tx,
    (event, key): (&EventId, &EventKey),
    merchant: &str,
    burial: &Burial,
    now: Timestamp,
) -> Result<String, StoreError> {
    let id = new_id(now);
    on_tx!(tx, |conn| sqlx::query(INSERT)
        .bind(&id)
        .bind(Some(event.as_str()))
        .bind(key.as_str())
        .bind(Some(merchant))
        .bind(&burial.error)
        .bind(i32::try_from(burial.attempts).unwrap_or(i32::MAX))
        .bind(None::<&[u8]>)
        .bind(now)
        .execute(conn)
        .await
        .map(drop))?;
    Ok(id)
}
