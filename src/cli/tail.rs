//! `payhook events tail`: the feed on a terminal or into a pipe, one line for each event, until it is stopped.
//!
//! Follows the cursor, so that nothing is left out, and comes again by itself while the server is away.

use std::io::Write as _;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use serde::Deserialize;
use serde_json::Value;

use super::Globals;
use super::client::{Client, Connection};
use super::failure::{MISUSED, code};
use super::listing::or_dash;
use super::output::Output;
use crate::event::Money;
use crate::event::text::printable;

/// How long the server may keep a request that finds nothing: less than the client's patience.
const WAIT: &str = "10";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Follow order and attention messages instead of events
    #[arg(long)]
    orders: bool,
    /// Begin with what is yet to come
    #[arg(long, conflicts_with = "after")]
    new: bool,
    /// Begin after this cursor of the feed
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// End when there is nothing more, instead of waiting
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Value>,
    next_cursor: String,
}

/// What a line shows; what cannot be read stays blank.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Item {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    time: String,
    subject: Option<String>,
    data: Data,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    amount: Value,
    replay: Option<Replay>,
}

#[derive(Debug, Deserialize)]
struct Replay {
    id: String,
}

pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<()> {
    let client = args.connection.open(globals)?;
    let after = if args.new {
        Some("end".to_owned())
    } else {
        args.after
    };
    let stream = if args.orders { "orders" } else { "events" };
    follow(&client, stream, after, args.once, &mut globals.output()).await
}

async fn follow(
    client: &Client,
    stream: &str,
    mut after: Option<String>,
    once: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    let mut heard = false;
    loop {
        let page = match read(client, stream, after.as_deref(), once).await {
            Ok(page) => page,
            // Before the first answer the address or the token may be wrong.
            Err(error) if !heard || once => return Err(error),
            Err(error) => again(client, stream, after.as_deref(), error).await?,
        };
        heard = true;
        for item in &page.items {
            if out.is_json() {
                out.value_line(item)?;
            } else {
                out.line(&line(item))?;
            }
        }
        if once && page.items.is_empty() {
            writeln!(
                std::io::stderr(),
                "to go on from here: --after {}",
                printable(&page.next_cursor)
            )?;
            return Ok(());
        }
        after = Some(page.next_cursor);
    }
}

/// Comes again for about ten minutes, unless the server says that this will not help.
async fn again(
    client: &Client,
    stream: &str,
    after: Option<&str>,
    mut error: anyhow::Error,
) -> anyhow::Result<Page> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(30))
        .with_max_times(25)
        .with_jitter()
        .build();
    for pause in pauses {
        if code(&error) == MISUSED || error.to_string().starts_with("cursor_expired") {
            break;
        }
        tokio::time::sleep(pause).await;
        match read(client, stream, after, false).await {
            Ok(page) => return Ok(page),
            Err(next) => error = next,
        }
    }
    Err(error)
}

async fn read(client: &Client, stream: &str, after: Option<&str>, once: bool) -> anyhow::Result<Page> {
    let mut query = vec![("stream", stream.to_owned())];
    if let Some(after) = after {
        query.push(("after", after.to_owned()));
    }
    if !once {
        query.push(("wait", WAIT.to_owned()));
    }
    Ok(serde_json::from_value(client.get(&["feed"], &query).await?)?)
}

/// When, what, about what, how much, under which id, and whether a replay sent it.
fn line(item: &Value) -> String {
    let item = Item::deserialize(item).unwrap_or_default();
    let amount = Money::deserialize(&item.data.amount)
        .ok()
        .map(|amount| amount.to_string());
    let mut line = format!(
        "{}  {}  {}  {}  {}",
        item.time,
        item.kind,
        or_dash(item.subject.as_deref()),
        or_dash(amount.as_deref()),
        item.id
    );
    if let Some(replay) = item.data.replay {
        line.push_str("  replay ");
        line.push_str(&replay.id);
    }
    line
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::cli::output::Captured;

    #[test]
    fn a_line_says_what_happened_and_under_which_id() {
        let item = serde_json::json!({"id": "webhook:stripe:shop:1", "type": "payment.succeeded",
            "time": "2026-11-29T04:05:06Z", "subject": "ORDER-1",
            "data": {"amount": {"minor": 8888, "currency": "CNY", "exponent": 2}, "replay": {"id": "r1", "reason": "x"}}});
        assert_eq!(
            line(&item),
            "2026-11-29T04:05:06Z  payment.succeeded  ORDER-1  88.88 CNY  webhook:stripe:shop:1  replay r1"
        );
    }

    /// Answers one after the other, whatever is asked; the last one for good.
    async fn server(answers: Vec<(u16, Value)>) -> (tokio::task::JoinSet<()>, Client) {
        let left = Arc::new(Mutex::new(VecDeque::from(answers)));
        let answer = move || {
            let mut left = left.lock().unwrap();
            let (status, body) = left.front().cloned().unwrap();
            if left.len() > 1 {
                left.pop_front();
            }
            let status = axum::http::StatusCode::from_u16(status).unwrap();
            std::future::ready((status, axum::Json(body)))
        };
        let app = axum::Router::new().route("/v1/feed", axum::routing::get(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
        (serving, Client::new(&url, "secret".into()).unwrap())
    }

    fn page(ids: &[&str]) -> (u16, Value) {
        let items: Vec<Value> = ids
            .iter()
            .map(|id| serde_json::json!({"id": id, "amount": 1.0, "data": {}}))
            .collect();
        (200, serde_json::json!({"items": items, "next_cursor": "c"}))
    }

    fn ids(captured: &Captured) -> Vec<String> {
        let text = captured.text();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    }

    #[tokio::test]
    async fn it_comes_again_after_an_outage_and_ends_when_that_cannot_help() {
        let gone = serde_json::json!({"code": "cursor_expired", "detail": "begin anew"});
        let away = serde_json::json!({"code": "unavailable", "detail": "come again"});
        let (_serving, client) = server(vec![
            page(&["1", "2"]),
            page(&[]),
            (503, away),
            page(&["3"]),
            (410, gone),
        ])
        .await;
        let (mut out, captured) = Captured::output(true);
        let error = follow(&client, "events", None, false, &mut out)
            .await
            .unwrap_err();
        assert!(error.to_string().starts_with("cursor_expired"), "{error:#}");
        assert_eq!(ids(&captured), ["1", "2", "3"]);
    }

    #[tokio::test]
    async fn once_ends_at_the_end_and_a_wrong_token_at_once() {
        let (_serving, client) = server(vec![page(&["1"]), page(&["2"]), page(&[])]).await;
        let (mut out, captured) = Captured::output(true);
        follow(&client, "events", None, true, &mut out).await.unwrap();
        assert_eq!(ids(&captured), ["1", "2"]);
        let nobody = serde_json::json!({"code": "unauthorized", "detail": "who?"});
        let (_serving, client) = server(vec![(401, nobody)]).await;
        assert!(follow(&client, "events", None, false, &mut out).await.is_err());
    }
}
