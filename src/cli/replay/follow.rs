//! Watches a replay to its end: a bar where there is a terminal, else a line now and then.
//!
//! All of it on stderr; stdout gets the end. A daemon that does not answer is asked again: it may be starting.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::client::Client;
use crate::cli::output::{Output, Table};
use crate::event::text::printable;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// Between two lines where there is no bar.
const LINE: Duration = Duration::from_secs(2);
/// How long the daemon may not answer.
const PATIENCE: Duration = Duration::from_mins(5);

const STYLE: &str = "{elapsed_precise} [{bar:40}] {pos}/{len} {per_sec} {msg}";

/// A replay as the API shows it.
#[derive(Debug, Deserialize)]
pub(super) struct Progress {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) what: String,
    pub(super) to: Option<String>,
    pub(super) reason: String,
    pub(super) actor: String,
    total: Option<u64>,
    published: u64,
    pub(super) refused: u64,
    refusals: Vec<Refusal>,
    waiting: Option<String>,
    pub(super) created_at: String,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    reason: String,
    count: u64,
}

impl Progress {
    fn is_running(&self) -> bool {
        self.state == "running"
    }

    /// `120/10000`.
    pub(super) fn published_of(&self) -> String {
        match self.total {
            Some(total) => format!("{}/{total}", self.published),
            None => format!("{}/?", self.published),
        }
    }

    fn line(&self) -> String {
        let refused = if self.refused > 0 {
            format!(", {} refused", self.refused)
        } else {
            String::new()
        };
        let waiting = match &self.waiting {
            Some(why) => format!(", waiting: {}", printable(why)),
            None => String::new(),
        };
        let nothing = if self.total == Some(0) {
            ", nothing matches the filter"
        } else {
            ""
        };
        format!(
            "replay {}: {} published{refused}{waiting}{nothing}",
            self.id,
            self.published_of()
        )
    }
}

/// How it is shown on the way.
struct Shown {
    bar: Option<ProgressBar>,
    said: Option<(String, Instant)>,
}

impl Shown {
    fn new() -> anyhow::Result<Self> {
        let bar = if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template(STYLE)?.progress_chars("=> ");
            Some(ProgressBar::no_length().with_style(style))
        } else {
            None
        };
        Ok(Self { bar, said: None })
    }

    fn moved(&mut self, progress: &Progress) {
        let Some(bar) = &self.bar else {
            let line = progress.line();
            let due = self
                .said
                .as_ref()
                .is_none_or(|(said, at)| *said != line && at.elapsed() >= LINE);
            if due {
                say(&line);
                self.said = Some((line, Instant::now()));
            }
            return;
        };
        if let Some(total) = progress.total {
            bar.set_length(total);
        }
        bar.set_position(progress.published.saturating_add(progress.refused));
        bar.set_message(match &progress.waiting {
            Some(why) => format!("(waiting: {})", printable(why)),
            None => String::new(),
        });
    }

    fn waits(&mut self, why: &anyhow::Error) {
        let words = printable(&why.to_string()).into_owned();
        match &self.bar {
            Some(bar) => bar.set_message(format!("({words})")),
            None if self.said.as_ref().is_none_or(|(said, _)| *said != words) => {
                say(&words);
                self.said = Some((words, Instant::now()));
            }
            None => {}
        }
    }

    fn ends(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

/// Follows the replay `id` until it has ended or somebody presses ctrl-C.
pub(super) async fn follow(client: &Client, id: &str, out: &mut Output) -> anyhow::Result<ExitCode> {
    let mut shown = Shown::new()?;
    let mut answered = Instant::now();
    loop {
        match client.get(&["replays", id], &[]).await {
            Ok(answer) => {
                answered = Instant::now();
                let progress: Progress = Deserialize::deserialize(&answer)?;
                shown.moved(&progress);
                if !progress.is_running() {
                    shown.ends();
                    show(out, &answer)?;
                    let done = progress.state == "done";
                    return Ok(if done {
                        ExitCode::SUCCESS
                    } else {
                        ExitCode::FAILURE
                    });
                }
            }
            Err(error) if passes(&error) && answered.elapsed() < PATIENCE => shown.waits(&error),
            Err(error) => {
                shown.ends();
                return Err(error);
            }
        }
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => {
                pressed?;
                shown.ends();
                say(&goes_on(id));
                return Ok(ExitCode::FAILURE);
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Whether the daemon, not the question, is the trouble.
fn passes(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<reqwest::Error>)
        || error.to_string().starts_with("unavailable:")
}

fn goes_on(id: &str) -> String {
    format!(
        "\nthe replay goes on in the daemon:\n  payhook replay --watch {id}    to follow it\n  payhook replay --cancel {id}   to end it"
    )
}

fn say(text: &str) {
    // A stderr that is closed changes nothing about the replay.
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// How it stands, in the end.
pub(super) fn show(out: &mut Output, answer: &Value) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.value(answer)?);
    }
    let progress: Progress = Deserialize::deserialize(answer)?;
    out.line(&format!("{}, {}", progress.line(), progress.state))?;
    if !progress.refusals.is_empty() {
        let mut table = Table::new(["refused", "why"]);
        for refusal in &progress.refusals {
            table.row([&refusal.count.to_string(), &refusal.reason]);
        }
        out.table(&table)?;
    }
    if progress.is_running() {
        out.line(&format!("follow it: payhook replay --watch {}", progress.id))?;
    }
    Ok(())
}
