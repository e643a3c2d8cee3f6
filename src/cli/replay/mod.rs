//! `payhook replay`: sends stored events or order messages again, and follows what it has begun.
//!
//! The daemon does the work and this command only watches: it may be ended at any moment, and the daemon may be
//! killed and started again.

mod follow;
mod plan;

use std::process::ExitCode;

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::follow::{Progress, follow};
use super::Globals;
use super::client::{Client, Connection};
use super::failure::Misuse;
use super::filters::{Origin, members};
use super::listing::{Paging, Query, or_dash, show_page};
use super::output::Table;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own on the command line"
)]
pub(super) struct Args {
    /// The event to send again; without one, all that the filter finds
    event: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Everything; instead of a filter
    #[arg(long)]
    all: bool,
    /// To this declared queue alone [default: to everybody, the workers and the feed included]
    #[arg(long, value_name = "QUEUE")]
    to: Option<String>,
    /// What to send again [default: what the queue is bound to, else events]
    #[arg(long, value_enum)]
    what: Option<What>,
    /// At most so many in a second
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u32>,
    /// Only show what would be sent, what that would change, and what would be refused
    #[arg(long)]
    dry_run: bool,
    /// Why, for the audit and for whoever gets it again
    #[arg(long)]
    reason: Option<String>,
    /// Begin it and do not wait for its end
    #[arg(long)]
    detach: bool,
    /// Follow a replay that was begun before
    #[arg(long, value_name = "ID", conflicts_with_all = ["event", "all", "cancel", "list", "dry_run"])]
    watch: Option<String>,
    /// End a replay; what has not been sent is not sent
    #[arg(long, value_name = "ID", conflicts_with_all = ["event", "all", "list", "dry_run"])]
    cancel: Option<String>,
    /// List replays, newest first
    #[arg(long, conflicts_with_all = ["event", "all", "dry_run"])]
    list: bool,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
struct Filter {
    #[command(flatten)]
    origin: Origin,
    /// Only of this type, such as payment.succeeded; of order messages, such as order.paid
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only about this order
    #[arg(long, value_name = "ID")]
    order: Option<String>,
    /// Only about this trade
    #[arg(long, value_name = "ID")]
    trade: Option<String>,
    /// Only events that ended so; none: not yet
    #[arg(long)]
    outcome: Option<String>,
    /// Only what arrived then or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what arrived before (RFC 3339)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Events, as the providers sent them
    Events,
    /// Order and attention messages
    Orders,
}

/// Runs it.
pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let mut out = globals.output();
    if let Some(id) = &args.watch {
        let client = args.connection.open(globals)?;
        return follow(&client, id, &mut out).await;
    }
    if let Some(id) = &args.cancel {
        let body = json!({ "reason": args.reason.unwrap_or_default() });
        let client = args.connection.open(globals)?;
        let answer = client.post(&["replays", id, "cancel"], &body).await?;
        follow::show(&mut out, &answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        let client = args.connection.open(globals)?;
        let answer = client.get(&["replays"], Query::new(&args.paging).pairs()).await?;
        show_page(&mut out, &answer, "no replays", table)?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer = ask(&args, globals).await?;
    if args.dry_run {
        plan::show(&mut out, &answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let begun: Progress = Deserialize::deserialize(&answer)?;
    if args.detach {
        follow::show(&mut out, &answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    follow(&args.connection.open(globals)?, &begun.id, &mut out).await
}

async fn ask(args: &Args, globals: &Globals) -> anyhow::Result<Value> {
    let filter = args.filter.members()?;
    match (&args.event, filter.is_empty(), args.all) {
        (None, true, false) => {
            return Err(Misuse::usage(
                "say what to send again: an event's id, a filter, or --all for everything",
            )
            .into());
        }
        (Some(_), false, _) | (Some(_), _, true) => {
            return Err(Misuse::usage("an event needs no filter").into());
        }
        (None, false, true) => return Err(Misuse::usage("--all and a filter contradict each other").into()),
        _ => {}
    }
    let mut body = args.how();
    let client: Client = args.connection.open(globals)?;
    if let Some(id) = &args.event {
        return client.post(&["events", id, "replay"], &Value::Object(body)).await;
    }
    body.insert("filter".to_owned(), Value::Object(filter));
    client.post(&["replays"], &Value::Object(body)).await
}

impl Args {
    fn how(&self) -> Map<String, Value> {
        let mut body = Map::new();
        let what = self.what.map(|what| match what {
            What::Events => "events",
            What::Orders => "orders",
        });
        let members = [
            ("reason", self.reason.as_deref().map(Value::from)),
            ("to", self.to.as_deref().map(Value::from)),
            ("what", what.map(Value::from)),
            ("rate", self.rate.map(Value::from)),
            ("dry_run", self.dry_run.then_some(Value::Bool(true))),
        ];
        for (name, value) in members {
            body.extend(value.map(|value| (name.to_owned(), value)));
        }
        body
    }
}

impl Filter {
    fn members(&self) -> Result<Map<String, Value>, Misuse> {
        let (provider, account) = self.origin.parts()?;
        Ok(members([
            ("provider", provider),
            ("account", account),
            ("type", self.kind.as_deref()),
            ("order_id", self.order.as_deref()),
            ("trade_id", self.trade.as_deref()),
            ("outcome", self.outcome.as_deref()),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref()),
        ]))
    }
}

fn table(replays: &[Progress]) -> Table {
    let mut table = Table::new([
        "begun",
        "state",
        "what",
        "to",
        "published",
        "refused",
        "reason",
        "by",
        "id",
    ]);
    for replay in replays {
        table.row([
            &replay.created_at,
            &replay.state,
            &replay.what,
            or_dash(replay.to.as_deref()),
            &replay.published_of(),
            &replay.refused.to_string(),
            &replay.reason,
            &replay.actor,
            &replay.id,
        ]);
    }
    table
}
