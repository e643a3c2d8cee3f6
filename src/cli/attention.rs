//! `payhook attention list|show|resolve`: what needs a human, with the ways out, and the way that was taken.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Globals;
use super::client::Connection;
use super::listing::{Paging, Query, or_dash, show_page};
use super::output::{Output, Table};

/// Arguments of `attention`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List what needs a human, newest first
    List {
        /// Resolved ones too
        #[arg(long)]
        all: bool,
        /// Only about this order
        #[arg(long, value_name = "ID")]
        order: Option<String>,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one item: what it is about, and how it was resolved
    Show {
        /// Its id
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Take one of an item's ways out
    Resolve {
        /// Its id
        id: String,
        /// One of its ways out, such as `accept_payment`
        action: String,
        /// Why, for the audit
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Runs it.
pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let mut out = globals.output();
    match args.what {
        What::List {
            all,
            order,
            paging,
            connection,
        } => {
            let query = Query::new(&paging)
                .with("state", all.then_some("all"))
                .with("order_id", order.as_deref());
            let client = connection.open(globals)?;
            let answer = client.get(&["attention"], query.pairs()).await?;
            show_page(&mut out, &answer, "nothing needs a human", table)?;
        }
        What::Show { id, connection } => {
            let answer = connection.open(globals)?.get(&["attention", &id], &[]).await?;
            show(&mut out, &answer)?;
        }
        What::Resolve {
            id,
            action,
            reason,
            connection,
        } => {
            let body = json!({ "action": action, "reason": reason });
            let client = connection.open(globals)?;
            let answer = client.post(&["attention", &id, "resolve"], &body).await?;
            show(&mut out, &answer)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One item for people.
fn show(out: &mut Output, answer: &Value) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.value(answer)?);
    }
    let item: Item = Deserialize::deserialize(answer)?;
    out.line(&format!(
        "{} {}, since {}",
        item.code, item.state, item.created_at
    ))?;
    out.line(&item.explained())?;
    for (name, text) in [("order", &item.order_id), ("event", &item.event_id)] {
        if let Some(text) = text {
            out.line(&format!("{name}: {text}"))?;
        }
    }
    match item.resolution {
        Some(by) => out.line(&format!(
            "{} by {} at {}: {}",
            by.action, by.resolved_by, by.resolved_at, by.reason
        ))?,
        None => out.line(&format!("ways out: {}", item.actions.join(", ")))?,
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Item {
    id: String,
    code: String,
    order_id: Option<String>,
    event_id: Option<String>,
    state: String,
    explanation: String,
    /// Absent in the answer of an older daemon.
    #[serde(default)]
    count: i64,
    actions: Vec<String>,
    created_at: String,
    resolution: Option<Resolution>,
}

#[derive(Debug, Deserialize)]
struct Resolution {
    action: String,
    reason: String,
    resolved_by: String,
    resolved_at: String,
}

impl Item {
    /// The explanation, with how many events the item stands for.
    fn explained(&self) -> String {
        match self.count {
            0 | 1 => self.explanation.clone(),
            count => format!("{count} events: {}", self.explanation),
        }
    }
}

fn table(items: &[Item]) -> Table {
    let mut table = Table::new([
        "since", "code", "state", "order", "what", "ways out", "event", "id",
    ]);
    for item in items {
        table.row([
            &item.created_at,
            &item.code,
            &item.state,
            or_dash(item.order_id.as_deref()),
            &item.explained(),
            &item.actions.join(", "),
            or_dash(item.event_id.as_deref()),
            &item.id,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::Captured;

    #[test]
    fn an_item_shows_its_ways_out_or_the_one_that_was_taken() {
        let mut item = json!({"id": "a1", "code": "amount_mismatch", "order_id": "O-1", "event_id": null, "state": "open",
            "explanation": "paid 88.00 CNY\u{1b}[2J", "actions": ["accept_payment", "dismiss"],
            "created_at": "2026-11-29T04:05:07Z", "resolution": null});
        let text = |item: &Value| {
            let (mut out, captured) = Captured::output(false);
            show(&mut out, item).unwrap();
            captured.text()
        };
        let open = text(&item);
        assert!(
            open.contains("order: O-1\nways out: accept_payment, dismiss\n"),
            "{open}"
        );
        assert!(!open.contains('\u{1b}'), "{open}");
        item["resolution"] = json!({"action": "dismiss", "reason": "agreed", "resolved_by": "ops",
            "resolved_at": "2026-11-29T05:00:00Z"});
        let closed = text(&item);
        assert!(
            closed.ends_with("dismiss by ops at 2026-11-29T05:00:00Z: agreed\n"),
            "{closed}"
        );
    }
}
