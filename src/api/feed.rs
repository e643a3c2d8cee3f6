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

use super::ApiState;
use super::auth::Reader;
use super::page::{Params, Span};
use super::problem::{Code, Problem};
use crate::event::{CloudEvent, replayed};
use crate::store::StoreError;
use crate::store::feed::{Begin, Cursor, FeedContent, FeedItem, FeedRead, Stream};

/// Where it is.
pub(super) const PATH: &str = "/v1/feed";
/// The longest wait that may be asked for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How soon a waiting reader looks again.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    stream: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
    wait: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct FeedPage {
    items: Vec<Box<RawValue>>,
    next_cursor: String,
}

/// One page, at once or when there is one. `after=end` begins with what is yet to come.
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
