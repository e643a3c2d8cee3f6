//! `GET /v1/feed`: events or order messages in one lasting order, for consumers without a broker.
//!
//! A reader that has caught up may wait: the request is answered when something comes, when its time is over,
//! or when the process drains. While it waits it holds no connection: it looks again several times a second,
//! which also sees what other daemons wrote. The answer always has a cursor to go on with.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use utoipa::openapi::schema::Object;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::auth::Reader;
use super::openapi::{CursorExpired, one_of};
use super::page::{Params, Span};
use super::problem::{Code, Problem};
use crate::event::{CloudEvent, replayed};
use crate::store::StoreError;
use crate::store::feed::{Begin, Cursor, FeedContent, FeedItem, FeedRead, Stream};
use crate::time::Timestamp;

/// Where it is.
pub(super) const PATH: &str = "/v1/feed";
/// The longest wait that may be asked for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How soon a waiting reader looks again.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    #[param(schema_with = streams)]
    stream: Option<String>,
    /// `next_cursor` of the answer before; absent: from the oldest that is kept; `end`: what is yet to come.
    after: Option<String>,
    /// 1 to 500; 50 if it is absent.
    limit: Option<u32>,
    /// Seconds to wait when there is nothing.
    #[param(maximum = 30)]
    wait: Option<u64>,
}

fn streams() -> Object {
    one_of(
        "`events` if it is absent.",
        [Stream::Events, Stream::Orders].map(Stream::as_str),
    )
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FeedPage {
    #[schema(value_type = Vec<FeedMessage>)]
    items: Vec<Box<RawValue>>,
    /// What to go on with.
    next_cursor: String,
}

/// A CloudEvents 1.0 object, as a queue would get it. Items are passed on as they are stored; this describes them.
#[expect(dead_code, reason = "only its description is used")]
#[derive(ToSchema)]
struct FeedMessage {
    specversion: String,
    /// The event key, or the message's own id.
    id: String,
    source: String,
    /// payhook's type of an event, or the message's routing key.
    #[schema(rename = "type")]
    kind: String,
    /// Absent if it is about no order.
    #[schema(required = false, nullable = false)]
    subject: Option<String>,
    time: Timestamp,
    datacontenttype: String,
    /// Of an event: its ids, `amount`, `replay`, and the provider's `content` for a token with the scope `raw`. Of a
    /// message: the order or the item.
    data: serde_json::Map<String, serde_json::Value>,
}

/// One page, at once or when there is one. `after=end` begins with what is yet to come.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "read_feed",
    tag = "feed",
    params(Query),
    responses((status = 200, description = "What came after the cursor.", body = FeedPage), CursorExpired)
)]
pub(super) async fn read(
    State(state): State<ApiState>,
    reader: Reader,
    Params(query): Params<Query>,
) -> Result<Json<FeedPage>, Problem> {
    let stream: Stream = query
        .stream
        .as_deref()
        .unwrap_or("events")
        .parse()
        .map_err(|error| Problem::validation(format!("`stream`: {error}")))?;
    let limit = Span::read(PATH, query.limit, None)?.limit;
    let wait = Duration::from_secs(query.wait.unwrap_or(0));
    if wait > LONGEST_WAIT {
        return Err(Problem::validation("`wait` must be from 0 to 30 seconds"));
    }
    let mut begin = begin(stream, query.after.as_deref())?;
    let until = Instant::now() + wait;
    loop {
        let (items, next) = match state.store.feed(stream, &reader.merchant, &begin, limit).await? {
            FeedRead::Page { items, next } => (items, next),
            FeedRead::Expired => return Err(expired()),
        };
        let left = until.saturating_duration_since(Instant::now());
        if !items.is_empty() || left.is_zero() || state.health.is_draining() {
            return Ok(Json(FeedPage {
                items: items
                    .iter()
                    .map(|item| body(item, reader.raw))
                    .collect::<Result<_, _>>()?,
                next_cursor: next.to_string(),
            }));
        }
        begin = Begin::After(next);
        tokio::time::sleep(left.min(LOOK_EVERY)).await;
    }
}

fn begin(stream: Stream, after: Option<&str>) -> Result<Begin, Problem> {
    match after {
        None => Ok(Begin::Oldest),
        Some("end") => Ok(Begin::End),
        Some(text) => text
            .parse::<Cursor>()
            .ok()
            .filter(|cursor| cursor.stream() == stream)
            .map(Begin::After)
            .ok_or_else(|| Problem::validation("`after` is not a cursor of this stream")),
    }
}

fn expired() -> Problem {
    Problem::new(
        StatusCode::GONE,
        Code::CursorExpired,
        "events after this cursor were removed by age; begin anew without `after`",
    )
}

/// The CloudEvent, as a queue would get it.
fn body(item: &FeedItem, raw: bool) -> Result<Box<RawValue>, StoreError> {
    let corrupt = || StoreError::corrupt("messages", "a body that is no CloudEvent");
    match &item.what {
        FeedContent::Event(event) => {
            let event = CloudEvent::new(event, item.replay.as_ref(), raw);
            to_raw_value(&event).map_err(|_| corrupt())
        }
        FeedContent::Message(body) => {
            let body = match &item.replay {
                Some(replay) => replayed(body, replay).ok_or_else(corrupt)?,
                None => body.clone(),
            };
            serde_json::from_slice(&body).map_err(|_| corrupt())
        }
    }
}
