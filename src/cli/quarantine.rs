//! `payhook quarantine list|show|reverify`: what was refused, why, and another judgement of it by today's keys.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Globals;
use super::client::Connection;
use super::failure::Misuse;
use super::filters::Origin;
use super::listing::{Paging, Query, or_dash, show_page};
use super::output::{Output, Table};

/// Arguments of `quarantine`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List refused notifications, newest first (needs the scope raw)
    List(Box<List>),
    /// Judge one as it would be today, step by step (needs the scope raw)
    Show {
        /// Its id
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Judge them again with today's keys and the time they arrived; record what passes
    Reverify(Box<Reverify>),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    origin: Origin,
    /// Only those refused for this reason, such as `bad_signature`
    #[arg(long)]
    reason: Option<String>,
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
struct Reverify {
    /// Only those to this account, as in its notify path [default: every account]
    #[arg(long, value_name = "PROVIDER/NAME")]
    account: Option<String>,
    /// By how much our clock was slow when they arrived: `90s`, `2h`; `-2h` if it was fast
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = correction)]
    clock_correction: Option<i64>,
    /// Why, for the audit
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    connection: Connection,
}

/// Whole seconds, with their sign; a bare number is seconds.
fn correction(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let (sign, size) = match text.strip_prefix('-') {
        Some(size) => (-1, size),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let size = humantime::parse_duration(size).map_err(|error| error.to_string())?;
    i64::try_from(size.as_secs())
        .map(|seconds| seconds.saturating_mul(sign))
        .map_err(|_| "too long".to_owned())
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
                .with("reason", list.reason.as_deref())
                .with("since", list.since.as_deref())
                .with("until", list.until.as_deref());
            let client = list.connection.open(globals)?;
            let answer = client.get(&["quarantine"], query.pairs()).await?;
            show_page(&mut out, &answer, "nothing was refused", table)?;
        }
        What::Show { id, connection } => {
            let answer = connection.open(globals)?.get(&["quarantine", &id], &[]).await?;
            show(&mut out, &answer)?;
        }
        What::Reverify(wish) => {
            let body = wish.body()?;
            let client = wish.connection.open(globals)?;
            let answer = client.post(&["quarantine", "reverify"], &body).await?;
            if out.is_json() {
                out.value(&answer)?;
            } else {
                let count = |name| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
                out.line(&format!("verified {}", count("verified")))?;
                out.line(&format!("refused  {}", count("refused")))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Reverify {
    fn body(&self) -> Result<Value, Misuse> {
        let mut body = json!({
            "clock_correction": self.clock_correction.unwrap_or_default(),
            "reason": self.reason,
        });
        if let (Some(account), Some(members)) = (&self.account, body.as_object_mut()) {
            let (provider, name) = account
                .split_once('/')
                .ok_or_else(|| Misuse::usage("--account is PROVIDER/NAME"))?;
            members.insert("provider".to_owned(), provider.into());
            members.insert("account".to_owned(), name.into());
        }
        Ok(body)
    }
}

#[derive(Debug, Deserialize)]
struct Refused {
    id: String,
    provider: String,
    account: String,
    reason: String,
    detail: String,
    received_at: String,
    remote_addr: Option<String>,
    #[serde(default)]
    today: Option<Today>,
}

#[derive(Debug, Deserialize)]
struct Today {
    verdict: String,
    reason: Option<String>,
    detail: Option<String>,
    event_key: Option<String>,
    hint: Option<String>,
    steps: Vec<Step>,
    signed: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Step {
    check: String,
    ok: bool,
    found: String,
}

fn table(refused: &[Refused]) -> Table {
    let mut table = Table::new(["arrived", "account", "reason", "from", "id"]);
    for one in refused {
        table.row([
            &one.received_at,
            &format!("{}/{}", one.provider, one.account),
            &one.reason,
            or_dash(one.remote_addr.as_deref()),
            &one.id,
        ]);
    }
    table
}

fn show(out: &mut Output, answer: &Value) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.value(answer)?);
    }
    let refused: Refused = Deserialize::deserialize(answer)?;
    let mut facts = Table::new(["refused", ""]);
    facts.row(["id", refused.id.as_str()]);
    for (name, value) in [
        (
            "account",
            format!("{}/{}", refused.provider, refused.account).as_str(),
        ),
        ("arrived", &refused.received_at),
        ("from", or_dash(refused.remote_addr.as_deref())),
        ("reason then", &format!("{}: {}", refused.reason, refused.detail)),
    ] {
        facts.row([name, value]);
    }
    out.table(&facts)?;
    out.line("")?;
    let Some(today) = refused.today else {
        return Ok(out.line("today: its account is not configured any more")?);
    };
    let why = [Some(today.verdict), today.reason, today.detail];
    out.line(&format!(
        "today: {}",
        why.into_iter().flatten().collect::<Vec<_>>().join(": ")
    ))?;
    let mut steps = Table::new(["", "check", "found"]);
    for step in &today.steps {
        steps.row([if step.ok { "ok" } else { "FAILED" }, &step.check, &step.found]);
    }
    out.table(&steps)?;
    for (name, text) in [
        ("signed string:", today.signed),
        ("event key:", today.event_key),
        ("hint:", today.hint),
    ] {
        if let Some(text) = text {
            out.line("")?;
            out.line(name)?;
            out.line(&text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_has_a_sign_and_a_unit() {
        for (text, seconds) in [
            ("90", 90),
            ("-90", -90),
            ("2h", 7200),
            ("-1h 30m", -5400),
            ("+5s", 5),
        ] {
            assert_eq!(correction(text), Ok(seconds), "{text}");
        }
        assert!(correction("soon").is_err() && correction("--5s").is_err());
    }
}
