//! `payhook dead list|show`: events that could not be applied, and messages that named none.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::Value;

use super::Globals;
use super::client::Connection;
use super::listing::{Paging, Query, or_dash, show_page};
use super::output::{Output, Table};

/// Arguments of `dead`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List dead letters, newest first
    List {
        /// Redriven ones too
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one dead letter
    Show {
        /// Its id
        id: String,
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
            paging,
            connection,
        } => {
            let query = Query::new(&paging).with("state", all.then_some("all"));
            let answer = connection
                .open(globals)?
                .get(&["dead-letters"], query.pairs())
                .await?;
            show_page(&mut out, &answer, "no dead letters", table)?;
        }
        What::Show { id, connection } => {
            let answer = connection.open(globals)?.get(&["dead-letters", &id], &[]).await?;
            show(&mut out, &answer)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Deserialize)]
struct Letter {
    id: String,
    event_id: Option<String>,
    event_key: Option<String>,
    error: String,
    attempts: i64,
    created_at: String,
    redriven_at: Option<String>,
}

fn table(letters: &[Letter]) -> Table {
    let mut table = Table::new(["given up", "event", "key", "attempts", "error", "redriven", "id"]);
    for letter in letters {
        table.row([
            &letter.created_at,
            or_dash(letter.event_id.as_deref()),
            or_dash(letter.event_key.as_deref()),
            &letter.attempts.to_string(),
            &letter.error,
            or_dash(letter.redriven_at.as_deref()),
            &letter.id,
        ]);
    }
    table
}

fn show(out: &mut Output, answer: &Value) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.value(answer)?);
    }
    let letter: Letter = Deserialize::deserialize(answer)?;
    let mut facts = Table::new(["dead letter", ""]);
    facts.row(["id", letter.id.as_str()]);
    for (name, value) in [
        ("event", or_dash(letter.event_id.as_deref())),
        ("key", or_dash(letter.event_key.as_deref())),
        ("error", &letter.error),
        ("attempts", &letter.attempts.to_string()),
        ("given up", &letter.created_at),
        ("redriven", or_dash(letter.redriven_at.as_deref())),
    ] {
        facts.row([name, value]);
    }
    Ok(out.table(&facts)?)
}
