//! `payhook attention list`: what needs a human, with the ways out.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;

use super::Globals;
use super::client::Connection;
use super::listing::{Paging, Query, or_dash, show_page};
use super::output::Table;

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
}

/// Runs it.
pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let What::List {
        all,
        order,
        paging,
        connection,
    } = args.what;
    let query = Query::new(&paging)
        .with("state", all.then_some("all"))
        .with("order_id", order.as_deref());
    let answer = connection
        .open(globals)?
        .get(&["attention"], query.pairs())
        .await?;
    show_page(&mut globals.output(), &answer, "nothing needs a human", table)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Deserialize)]
struct Item {
    id: String,
    code: String,
    order_id: Option<String>,
    event_id: Option<String>,
    state: String,
    explanation: String,
    actions: Vec<String>,
    created_at: String,
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
            &item.explanation,
            &item.actions.join(", "),
            or_dash(item.event_id.as_deref()),
            &item.id,
        ]);
    }
    table
}
