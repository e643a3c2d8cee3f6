//! What the claimed rows are about.
//!
//! Claims must not be forgotten because the database stumbled, so a read is tried again, and if it fails for
//! good the rows are given back. An event that does not read is told apart: it holds up nobody.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sqlx::{FromRow, QueryBuilder};
use tokio::time::Instant;

use super::claim::{ClaimedRow, Scope};
use super::{Claimed, Content, EventName, Message, id_list, over_ids};
use crate::event::{Event, EventId, EventKey, Replay, replayed};
use crate::store::rows::push_keys;
use crate::store::{Store, StoreError, Unreadable, on_pool};
use crate::time::Timestamp;

/// How often a read is tried again while the database does not answer.
const RETRIES: u32 = 2;
/// The first pause before that; longer each time.
const PAUSE: Duration = Duration::from_millis(100);
/// When rows that were given back are due again.
const REST: Duration = Duration::from_secs(1);

const MESSAGES: (&str, &str) = over_ids!(
    "select id, routing_key, body, created_at from messages where id ",
    ""
);
const NAMES: &str = "select id, event_key, type, occurred_at from events where ";

#[derive(FromRow)]
struct MessageRow {
    id: String,
    routing_key: String,
    body: Vec<u8>,
    created_at: Timestamp,
}

#[derive(FromRow)]
struct NameRow {
    id: String,
    event_key: String,
    r#type: String,
    occurred_at: Timestamp,
}

/// What the rows name, by id.
#[derive(Default)]
struct Named {
    events: HashMap<EventId, Result<Arc<Event>, Unreadable>>,
    names: HashMap<EventId, EventName>,
    messages: HashMap<String, Message>,
}

impl Store {
    /// Reads what `rows` name, or gives them back.
    pub(super) async fn read_claimed(
        &self,
        rows: Vec<ClaimedRow>,
        scope: Scope,
        process: &str,
        claimed_until: Instant,
    ) -> Result<Vec<Claimed>, StoreError> {
        match self.read_patiently(&rows, scope, claimed_until).await {
            Ok(claimed) => Ok(claimed),
            Err(error) => {
                let ids: Vec<String> = rows.into_iter().map(|row| row.id).collect();
                if let Err(second) = self.release(&ids, process, (REST, REST)).await {
                    tracing::debug!(error = %second, "claims not given back; they run out by themselves");
                }
                Err(error)
            }
        }
    }

    async fn read_patiently(
        &self,
        rows: &[ClaimedRow],
        scope: Scope,
        claimed_until: Instant,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut tries = 0;
        loop {
            match self.named_by(rows, scope).await {
                Ok(named) => {
                    return Ok(rows
                        .iter()
                        .map(|row| claimed(row, &named, claimed_until))
                        .collect());
                }
                Err(error) if !error.is_transient() || tries >= RETRIES => return Err(error),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(PAUSE.saturating_mul(tries)).await;
        }
    }

    async fn named_by(&self, rows: &[ClaimedRow], scope: Scope) -> Result<Named, StoreError> {
        let ids: BTreeSet<&str> = rows.iter().filter_map(|row| row.event_id.as_deref()).collect();
        let ids: Vec<EventId> = ids.into_iter().map(EventId::from_text).collect();
        let mut named = Named::default();
        if scope == Scope::AgainByName {
            named.names = self.event_names(&ids).await?;
        } else {
            let events = self.events_by_id(&ids).await?.into_iter().map(|read| {
                let id = read.as_ref().map_or_else(|odd| &odd.id, |event| &event.id);
                (id.clone(), read)
            });
            named.events = events.collect();
        }
        let messages = rows.iter().filter_map(|row| row.message_id.as_deref());
        named.messages = self.messages_by_id(messages).await?;
        Ok(named)
    }

    async fn event_names(&self, ids: &[EventId]) -> Result<HashMap<EventId, EventName>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows: Vec<NameRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(NAMES);
            push_keys(&mut sql, "id", ids.iter().map(|id| [id.as_str()]));
            sql.build_query_as().fetch_all(pool).await
        })?;
        let names = rows.into_iter().map(|row| {
            let name = EventName {
                key: EventKey::from_text(row.event_key),
                kind: row.r#type,
                occurred_at: row.occurred_at,
            };
            (EventId::from_text(row.id), name)
        });
        Ok(names.collect())
    }

    async fn messages_by_id<'a>(
        &self,
        ids: impl Iterator<Item = &'a str>,
    ) -> Result<HashMap<String, Message>, StoreError> {
        let ids: BTreeSet<&str> = ids.collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let sql = self.pick(MESSAGES.0, MESSAGES.1);
        let list = id_list(ids);
        let rows: Vec<MessageRow> =
            on_pool!(self, |pool| sqlx::query_as(sql).bind(&list).fetch_all(pool).await)?;
        let messages = rows.into_iter().map(|row| {
            let message = Message {
                id: row.id.clone(),
                routing_key: row.routing_key,
                at: row.created_at,
                body: row.body.into(),
            };
            (row.id, message)
        });
        Ok(messages.collect())
    }
}

fn claimed(row: &ClaimedRow, named: &Named, claimed_until: Instant) -> Claimed {
    let replay = row
        .replay_id
        .clone()
        .zip(row.replay_reason.clone())
        .map(|(id, reason)| Replay { id, reason });
    let event_id = row.event_id.as_deref().map(EventId::from_text);
    let event = event_id.as_ref().and_then(|id| named.events.get(id));
    let name = event_id.as_ref().and_then(|id| named.names.get(id));
    let message = row.message_id.as_ref().and_then(|id| named.messages.get(id));
    let content = match (event, name, message) {
        (Some(Ok(event)), ..) => Content::Event(Arc::clone(event), replay),
        (Some(Err(unreadable)), ..) => Content::Unreadable(unreadable.clone()),
        (None, Some(name), _) => Content::Name(name.clone()),
        (None, None, Some(message)) => again(message.clone(), replay.as_ref()),
        (None, None, None) => Content::Missing,
    };
    Claimed {
        row: row.id.clone(),
        content,
        queue: row.queue.clone(),
        claimed_until,
    }
}

/// A message as it is sent: with `data.replay`, if it is sent again.
fn again(message: Message, replay: Option<&Replay>) -> Content {
    let Some(replay) = replay else {
        return Content::Message(message);
    };
    match replayed(&message.body, replay) {
        Some(body) => Content::Message(Message {
            body: body.into(),
            ..message
        }),
        None => Content::Unsendable("the stored message is not a CloudEvent".to_owned()),
    }
}
