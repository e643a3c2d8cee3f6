//! Reading one page of a stream.
//!
//! First the keys and sizes, to cut the page where its bodies would be too much for one answer, then what
//! they name; all in one read-only snapshot.

use std::collections::HashMap;

use sqlx::{FromRow, QueryBuilder};

use super::cursor::Place;
use super::{Begin, Cursor, FeedContent, FeedItem, FeedRead, Stream};
use crate::event::{EventId, Replay};
use crate::store::event_row::events_seen_by;
use crate::store::rows::push_keys;
use crate::store::{Store, StoreError, Tx, on_tx};

/// Bodies of one page, unless a single one is longer.
const PAGE_BYTES: i64 = 4 * 1024 * 1024;

// `tip`: no row at or above it can be read yet. `turn`: the last replay written, where that is known.
const STATE_POSTGRES: &str = "select now.epoch, now.mark as back,
        now.base + pg_snapshot_xmin(pg_current_snapshot())::text::bigint as tip, cast(null as bigint) as turn,
        (select floor from feed_epochs where stream = $1 and epoch > $2 order by epoch limit 1) as floor,
        (select position from feed_horizons where stream = $1) as purged
   from (select * from feed_epochs where stream = $1 order by epoch desc limit 1) as now";
const STATE_SQLITE: &str = "select now.epoch, now.mark as back,
        coalesce((select seq from sqlite_sequence
                   where name = case $1 when 'events' then 'events' else 'messages' end), 0) + 1 as tip,
        coalesce((select seq from sqlite_sequence where name = 'replays_sent'), 0) as turn,
        (select floor from feed_epochs where stream = $1 and epoch > $2 order by epoch limit 1) as floor,
        (select position from feed_horizons where stream = $1) as purged
   from (select * from feed_epochs where stream = $1 order by epoch desc limit 1) as now";

/// $1 merchant; rows above ($2, $3), replays above ($4, $5), both below $6; at most $7.
macro_rules! keys {
    ($table:literal, $bytes:literal, $of:literal) => {
        concat!(
            "select * from (select position, cast(null as bigint) as turn, id, cast(",
            $bytes,
            " as bigint) as bytes, cast(null as text) as replay_id, cast(null as text) as reason from ",
            $table,
            " where merchant = $1 and position >= $2 and (position, id) > ($2, $3) and position < $6 ",
            "order by position, id limit $7) as first_sent union all ",
            "select * from (select r.position, r.turn, t.id, cast(",
            $bytes,
            " as bigint) as bytes, r.replay_id, r.reason from replays_sent r join ",
            $table,
            " t on t.id = r.",
            $of,
            " where r.merchant = $1 and r.position >= $4 and (r.position, r.turn) > ($4, $5) and r.position < $6 ",
            "order by r.position, r.turn limit $7) as sent_again order by position, turn nulls first, id limit $7"
        )
    };
}
const EVENT_KEYS: &str = keys!("events", "length(coalesce(content, body))", "event_id");
const MESSAGE_KEYS: &str = keys!("messages", "length(body)", "message_id");
const MESSAGES: &str = "select id, body from messages where ";

#[derive(FromRow)]
struct State {
    epoch: i64,
    back: i64,
    tip: i64,
    turn: Option<i64>,
    floor: Option<i64>,
    purged: i64,
}

#[derive(FromRow)]
struct KeyRow {
    position: i64,
    turn: Option<i64>,
    id: String,
    bytes: i64,
    replay_id: Option<String>,
    reason: Option<String>,
}

impl Store {
    /// Up to `limit` items of `stream` that are this merchant's.
    pub async fn feed(
        &self,
        stream: Stream,
        merchant: &str,
        begin: &Begin,
        limit: u16,
    ) -> Result<FeedRead, StoreError> {
        let mut tx = self.begin_reading().await?;
        let state = read_state(&mut tx, stream, begin).await?;
        let cursor = |place| Cursor {
            stream,
            epoch: state.epoch,
            purged: state.purged,
            place,
        };
        let place = match begin {
            Begin::Oldest => Place::START,
            Begin::End => state.end(),
            Begin::After(cursor) => match state.go_on(cursor) {
                Some(place) => place,
                None => return Ok(FeedRead::Expired),
            },
        };
        let mut keys = read_keys(&mut tx, stream, merchant, &place, state.tip, limit).await?;
        let full = keys.len() >= usize::from(limit);
        let cut = within(&keys, PAGE_BYTES);
        let whole = cut == keys.len() && !full;
        keys.truncate(cut);
        let next = match keys.last() {
            Some(last) if !whole => last.place(),
            // A floor may lie beyond what can be read just now: a cursor never goes back by itself.
            _ => state.end().or_later(place),
        };
        let items = read_items(&mut tx, stream, keys).await?;
        tx.commit().await?;
        Ok(FeedRead::Page {
            items,
            next: cursor(next),
        })
    }
}

impl State {
    /// After everything that can be read.
    fn end(&self) -> Place {
        match self.turn {
            // A replay may still come in at the last position.
            Some(turn) => Place {
                position: self.tip.saturating_sub(1),
                id: String::new(),
                turn: Some(turn),
            },
            None => Place {
                position: self.tip,
                ..Place::START
            },
        }
    }

    /// Where the holder of `cursor` goes on; `None` when it may have missed something for good.
    fn go_on(&self, cursor: &Cursor) -> Option<Place> {
        let mut place = cursor.place.clone();
        if let Some(floor) = self.floor.filter(|floor| place.is_beyond(*floor)) {
            place = Place::after_rows(floor);
        } else if place.position > self.tip && place.is_beyond(self.back) {
            // From a history that is gone, though nobody has noticed yet.
            place = Place::after_rows(self.back);
        }
        let overtaken = place.position < self.purged || place.position == self.purged && place.turn.is_none();
        let since = self.purged > cursor.purged;
        (!(since && overtaken)).then_some(place)
    }
}

impl KeyRow {
    fn place(&self) -> Place {
        Place {
            position: self.position,
            id: if self.turn.is_some() {
                String::new()
            } else {
                self.id.clone()
            },
            turn: self.turn,
        }
    }

    fn replay(&self) -> Option<Replay> {
        Some(Replay {
            id: self.replay_id.clone()?,
            reason: self.reason.clone()?,
        })
    }
}

async fn read_state(tx: &mut Tx, stream: Stream, begin: &Begin) -> Result<State, StoreError> {
    let epoch = match begin {
        Begin::After(cursor) => cursor.epoch,
        Begin::Oldest | Begin::End => i64::MAX,
    };
    let sql = tx.pick(STATE_POSTGRES, STATE_SQLITE);
    Ok(on_tx!(tx, |conn| sqlx::query_as(sql)
        .bind(stream.as_str())
        .bind(epoch)
        .fetch_one(conn)
        .await)?)
}

async fn read_keys(
    tx: &mut Tx,
    stream: Stream,
    merchant: &str,
    place: &Place,
    tip: i64,
    limit: u16,
) -> Result<Vec<KeyRow>, StoreError> {
    let sql = match stream {
        Stream::Events => EVENT_KEYS,
        Stream::Orders => MESSAGE_KEYS,
    };
    let (rows, replays) = (place.rows_above(), place.replays_above());
    Ok(on_tx!(tx, |conn| sqlx::query_as(sql)
        .bind(merchant)
        .bind(rows.0)
        .bind(rows.1)
        .bind(replays.0)
        .bind(replays.1)
        .bind(tip)
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await)?)
}

/// How many of `keys` have their bodies within `most` bytes; at least one.
fn within(keys: &[KeyRow], most: i64) -> usize {
    let mut bytes = 0_i64;
    let fit = keys.iter().take_while(|key| {
        bytes = bytes.saturating_add(key.bytes);
        bytes <= most
    });
    fit.count().max(1).min(keys.len())
}

async fn read_items(tx: &mut Tx, stream: Stream, keys: Vec<KeyRow>) -> Result<Vec<FeedItem>, StoreError> {
    let mut ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let contents = read_contents(tx, stream, &ids).await?;
    // Read in the same snapshot: what a key names is there, unless it does not read. One such row must not keep a
    // reader from all that is behind it.
    let items = keys.iter().filter_map(|key| {
        Some(FeedItem {
            what: contents.get(&key.id).cloned()?,
            replay: key.replay(),
        })
    });
    Ok(items.collect())
}

async fn read_contents(
    tx: &mut Tx,
    stream: Stream,
    ids: &[&str],
) -> Result<HashMap<String, FeedContent>, StoreError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    if stream == Stream::Events {
        let ids: Vec<EventId> = ids.iter().map(|id| EventId::from_text(*id)).collect();
        let events = events_seen_by(tx, &ids).await?;
        let by_id = events
            .into_iter()
            .map(|event| (event.id.to_string(), FeedContent::Event(event)));
        return Ok(by_id.collect());
    }
    let rows: Vec<(String, Vec<u8>)> = on_tx!(tx, |conn| {
        let mut sql = QueryBuilder::new(MESSAGES);
        push_keys(&mut sql, "id", ids.iter().map(|id| [*id]));
        sql.build_query_as().fetch_all(conn).await
    })?;
    Ok(rows
        .into_iter()
        .map(|(id, body)| (id, FeedContent::Message(body)))
        .collect())
}
