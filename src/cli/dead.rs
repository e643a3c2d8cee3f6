//! `payhook dead list|show|redrive`: events that could not be applied, messages that named none, and what goes to
//! the workers again.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Globals;
use super::client::{Client, Connection};
use super::failure::Misuse;
use super::filters::{Origin, members};
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
    /// Send the event of one, or of all that match, to the workers again
    Redrive(Box<Redrive>),
}

#[derive(Debug, clap::Args)]
struct Redrive {
    /// The dead letter; without one, all that the filter finds
    id: Option<String>,
    /// All of them; instead of a filter
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    origin: Origin,
    /// Only events of this type, such as payment.succeeded
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only events about this order
    #[arg(long, value_name = "ID")]
    order: Option<String>,
    /// Only what was given up then or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what was given up before (RFC 3339)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Why, for the audit
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    connection: Connection,
}

impl Redrive {
    fn filter(&self) -> Result<Map<String, Value>, Misuse> {
        let (provider, account) = self.origin.parts()?;
        Ok(members([
            ("provider", provider),
            ("account", account),
            ("type", self.kind.as_deref()),
            ("order_id", self.order.as_deref()),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref()),
        ]))
    }

    async fn run(&self, out: &mut Output, globals: &Globals) -> anyhow::Result<()> {
        let filter = self.filter()?;
        match (&self.id, filter.is_empty(), self.all) {
            (None, true, false) => {
                return Err(Misuse::usage("say which: a dead letter's id, a filter, or --all").into());
            }
            (Some(_), false, _) | (Some(_), _, true) | (None, false, true) => {
                return Err(Misuse::usage("an id, a filter and --all exclude each other").into());
            }
            _ => {}
        }
        let client = self.connection.open(globals)?;
        let Some(id) = &self.id else {
            return self.all(&client, filter, out).await;
        };
        let body = json!({ "reason": self.reason });
        let answer = client.post(&["dead-letters", id, "redrive"], &body).await?;
        show(out, &answer)
    }

    /// Asks until nothing is left: one call does a bounded part.
    async fn all(
        &self,
        client: &Client,
        mut filter: Map<String, Value>,
        out: &mut Output,
    ) -> anyhow::Result<()> {
        let mut all = 0_u64;
        loop {
            let body = json!({ "filter": filter, "reason": self.reason });
            let answer = client.post(&["dead-letters", "redrive"], &body).await;
            let answer = answer.with_context(|| format!("redriven {all} before this"))?;
            let tally: Tally = Deserialize::deserialize(&answer)?;
            all = all.saturating_add(tally.redriven);
            if tally.remaining == 0 || tally.until.is_none() {
                let tally = json!({ "redriven": all, "remaining": tally.remaining });
                return if out.is_json() {
                    Ok(out.value(&tally)?)
                } else {
                    Ok(out.line(&format!("redriven {all}"))?)
                };
            }
            filter.insert("until".to_owned(), json!(tally.until));
        }
    }
}

/// What one call did; a daemon of an earlier version does all at once.
#[derive(Debug, Deserialize)]
struct Tally {
    redriven: u64,
    #[serde(default)]
    remaining: u64,
    until: Option<String>,
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
        What::Redrive(redrive) => redrive.run(&mut out, globals).await?,
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
