//! `payhook check`: judges a configuration and what it points at, before a provider does.
//!
//! Each part is a function that returns findings and changes nothing: `settings` and `keys` look at the
//! configuration, `store` and `broker` at the services that it names, side by side and never longer than
//! [`DEADLINE`]. A problem is what would stop the start or lose
//! something; a warning is what an operator should know. Exit 2: the configuration is unusable, 1: something
//! else is a problem, 0: neither.

mod broker;
mod keys;
mod policies;
mod settings;
mod store;

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use super::Globals;
use super::failure::{DONE, FAILED, MISUSED};
use super::output::{Output, Table};
use crate::time::Clock;

/// How long a service may take to answer everything.
const DEADLINE: Duration = Duration::from_secs(5);

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// How bad it is.
    pub(super) level: Level,
    /// A key path, an account, a queue, a server.
    pub(super) what: String,
    /// In words.
    pub(super) message: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Works, and an operator should know.
    Warning,
    /// Stops the start, or loses something.
    Problem,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    pub(super) fn ok(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            what: what.into(),
            message: message.into(),
        }
    }

    pub(super) fn warning(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            what: what.into(),
            message: message.into(),
        }
    }

    pub(super) fn problem(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            level: Level::Problem,
            what: what.into(),
            message: message.into(),
        }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Whether there is no problem.
    ok: bool,
    /// Where the configuration was read from.
    source: String,
    findings: &'a [Finding],
}

/// Looks at everything and prints what was found.
pub(super) async fn run(_args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let code = judge(globals, &mut globals.output()).await?;
    Ok(ExitCode::from(code))
}

async fn judge(globals: &Globals, out: &mut Output) -> std::io::Result<u8> {
    let (config, registry) = match globals.load_accounts() {
        Ok(loaded) => loaded,
        Err(errors) => {
            let problems = errors.problems.into_iter();
            let findings: Vec<_> = problems
                .map(|found| Finding::problem(found.path, found.message))
                .collect();
            print(out, &errors.origin, &findings)?;
            return Ok(MISUSED);
        }
    };
    let mut findings = settings::findings(&config);
    let ((of_store, known), of_broker) = tokio::join!(
        store::findings(&config.store, DEADLINE),
        broker::findings(&config.broker, DEADLINE),
    );
    findings.extend(keys::findings(&registry, &known, Clock::system().now()));
    findings.extend(of_store);
    findings.extend(of_broker);
    let ok = print(out, &config.source.to_string(), &findings)?;
    Ok(if ok { DONE } else { FAILED })
}

/// Prints and says whether there is no problem.
fn print(out: &mut Output, source: &str, findings: &[Finding]) -> std::io::Result<bool> {
    let ok = findings.iter().all(|finding| finding.level < Level::Problem);
    let report = Report {
        ok,
        source: source.to_owned(),
        findings,
    };
    out.show(&report, |report| {
        let mut table = Table::new(["level", "what", "finding"]);
        table.row(["ok", "read from", report.source.as_str()]);
        for finding in report.findings {
            table.row([finding.level.as_str(), &finding.what, &finding.message]);
        }
        table
    })?;
    Ok(ok)
}

#[cfg(test)]
mod tests {
    use super::super::output::Captured;
    use super::*;

    async fn judged(text: &str) -> (u8, serde_json::Value) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("payhook.toml");
        std::fs::write(&path, text).unwrap();
        let (mut out, captured) = Captured::output(true);
        let globals = Globals {
            config: Some(path),
            json: true,
        };
        let code = judge(&globals, &mut out).await.unwrap();
        (code, serde_json::from_str(&captured.text()).unwrap())
    }

    #[tokio::test]
    async fn the_example_as_written_is_usable() {
        let (code, report) = judged(crate::config::EXAMPLE).await;
        assert_eq!((code, &report["ok"]), (DONE, &true.into()), "{report}");
    }

    #[tokio::test]
    async fn every_problem_is_a_finding() {
        let (code, report) = judged("colour = 1\nstore.url = \"mysql:x\"").await;
        assert_eq!((code, &report["ok"]), (MISUSED, &false.into()));
        let what: Vec<_> = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| &found["what"])
            .collect();
        assert_eq!(what, ["colour", "store.url"]);
    }
}
