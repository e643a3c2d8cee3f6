//! `payhook events list|show|raw|tail`: what came, what became of it, the exact bytes, and what comes.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::Value;

use super::Globals;
use super::client::Connection;
use super::filters::Origin;
use super::listing::{Paging, Query, or_dash, show_page};
use super::output::{Output, Table};
use super::tail;
use crate::event::Money;

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List events, newest first
    List(Box<List>),
    /// Show one event and everything that happened to it
    Show(One),
    /// Write the exact bytes that came to stdout (needs the scope raw)
    Raw(One),
    /// Follow the feed: one line for each event, from the oldest kept
    Tail(tail::Args),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    origin: Origin,
    /// Only of this type, such as payment.succeeded
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only about this order, by what it carried or by its trade
    #[arg(long, value_name = "ID")]
    order: Option<String>,
    /// Only about this trade
    #[arg(long, value_name = "ID")]
    trade: Option<String>,
    /// Only the one under this event key
    #[arg(long, value_name = "KEY")]
    event_key: Option<String>,
    /// Only those that ended so; none: not yet
    #[arg(long)]
    outcome: Option<String>,
    /// Only those that arrived then or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only those that arrived before (RFC 3339)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
struct One {
    /// The event's id
    id: String,
    #[command(flatten)]
    connection: Connection,
}

/// Runs it.
pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let mut out = globals.output();
    match args.what {
        What::List(list) => {
            let (provider, account) = list.origin.parts()?;
            let query = Query::new(&list.paging)
                .with("provider", provider)
                .with("account", account)
                .with("type", list.kind.as_deref())
                .with("order_id", list.order.as_deref())
                .with("trade_id", list.trade.as_deref())
                .with("event_key", list.event_key.as_deref())
                .with("outcome", list.outcome.as_deref())
                .with("since", list.since.as_deref())
                .with("until", list.until.as_deref());
            let client = list.connection.open(globals)?;
            let answer = client.get(&["events"], query.pairs()).await?;
            show_page(&mut out, &answer, "no events", table)?;
        }
        What::Show(one) => {
            let client = one.connection.open(globals)?;
            show(&mut out, &client.get(&["events", &one.id], &[]).await?)?;
        }
        What::Raw(one) => {
            let client = one.connection.open(globals)?;
            out.bytes(&client.bytes(&["events", &one.id, "raw"]).await?)?;
        }
        What::Tail(args) => tail::run(args, globals).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What the tables show of an event.
#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    event_key: String,
    provider: String,
    account: String,
    #[serde(rename = "type")]
    kind: String,
    provider_event_type: String,
    order_id: Option<String>,
    trade_id: Option<String>,
    refund_id: Option<String>,
    amount: Option<Money>,
    occurred_at: String,
    received_at: String,
    outcome: Option<String>,
    outcome_reason: Option<String>,
    duplicates: i64,
    #[serde(default)]
    timeline: Vec<Moment>,
}

/// One thing that happened; what else it holds depends on what it is.
#[derive(Debug, Deserialize)]
struct Moment {
    at: String,
    what: String,
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
}

impl Moment {
    /// `outcome=applied reason=…`, in the order of the API's documentation.
    fn told(&self) -> String {
        let text = |name: &str| self.more.get(name).and_then(Value::as_str);
        if let (Some(before), Some(after)) = (text("before"), text("after")) {
            let order = or_dash(text("order_id"));
            let by = text("fact").filter(|fact| !fact.is_empty());
            let by = by.map_or_else(String::new, |fact| format!(" by {fact}"));
            let (outcome, reason) = (or_dash(text("outcome")), or_dash(text("reason")));
            return format!("{order}: {before} -> {after}{by}, {outcome}: {reason}");
        }
        let parts = self.more.iter().filter_map(|(name, value)| match value {
            Value::Null => None,
            Value::String(text) => Some(format!("{name} {text}")),
            other => Some(format!("{name} {other}")),
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

fn table(events: &[Row]) -> Table {
    let mut table = Table::new([
        "received", "type", "provider", "account", "order", "amount", "outcome", "again", "id",
    ]);
    for event in events {
        table.row([
            &event.received_at,
            &event.kind,
            &event.provider,
            &event.account,
            or_dash(event.order_id.as_deref()),
            &amount(event),
            event.outcome.as_deref().unwrap_or("(not yet)"),
            &event.duplicates.to_string(),
            &event.id,
        ]);
    }
    table
}

fn amount(event: &Row) -> String {
    event
        .amount
        .map_or_else(|| "-".to_owned(), |amount| amount.to_string())
}

/// One event for people: what it is, then its timeline.
fn show(out: &mut Output, answer: &Value) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.value(answer)?);
    }
    let event: Row = Deserialize::deserialize(answer)?;
    let ended = match (&event.outcome, &event.outcome_reason) {
        (Some(outcome), Some(reason)) => format!("{outcome}: {reason}"),
        _ => "not yet".to_owned(),
    };
    let mut facts = Table::new(["event", ""]);
    facts.row(["id", event.id.as_str()]);
    for (name, value) in [
        ("key", event.event_key.as_str()),
        ("type", &format!("{} ({})", event.kind, event.provider_event_type)),
        ("from", &format!("{} {}", event.provider, event.account)),
        ("order", or_dash(event.order_id.as_deref())),
        ("trade", or_dash(event.trade_id.as_deref())),
        ("refund", or_dash(event.refund_id.as_deref())),
        ("amount", &amount(&event)),
        ("occurred", &event.occurred_at),
        ("received", &event.received_at),
        ("came again", &format!("{} times", event.duplicates)),
        ("outcome", &ended),
    ] {
        facts.row([name, value]);
    }
    out.table(&facts)?;
    out.line("")?;
    let mut timeline = Table::new(["at", "what", "more"]);
    for moment in &event.timeline {
        timeline.row([&moment.at, &moment.what, &moment.told()]);
    }
    Ok(out.table(&timeline)?)
}
