//! Ingest: everybody in turn under the same load, round after round, so that what disturbs the machine disturbs
//! them alike.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use payhook::time::Clock;
use serde_json::json;

use crate::hosts::{Hosts, Link};
use crate::notification::Sender;
use crate::pool::{Kind, Pools};
use crate::round::{self, Cell, Outcome, Place};
use crate::servers::PrivateRabbitmq;
use crate::subject::{Programs, Setup, Subject};
use crate::{keys, limits, machine, report};

/// Whose notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Traffic {
    Stripe,
    Alipay,
    Wechat,
    /// All three in turn.
    Mix,
}

impl Traffic {
    fn senders(self) -> Vec<Sender> {
        match self {
            Self::Stripe => vec![Sender::Stripe],
            Self::Alipay => vec![Sender::Alipay],
            Self::Wechat => vec![Sender::Wechat],
            Self::Mix => Sender::ALL.to_vec(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    Fastapi,
    Express,
    None,
}

/// What is measured, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose notifications.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stripe")]
    provider: Vec<Traffic>,
    /// Fresh ones, ones that were stored before, or forged ones.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fresh")]
    kind: Vec<Kind>,
    /// Keep-alive connections, each with one request at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    connections: Vec<usize>,
    /// Requests a second at fixed moments, beside the closed loop.
    #[arg(long, value_delimiter = ',')]
    rate: Vec<u32>,
    /// Only the fixed rates, not the closed loop.
    #[arg(long)]
    open_only: bool,
    /// How long each is measured.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// How long each is warmed up.
    #[arg(long, default_value_t = 2)]
    warm_up: u64,
    /// How often everything is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// No program will answer more in a second: fewer requests are signed. A slow machine signs RSA for minutes.
    #[arg(long)]
    most: Option<usize>,
    /// The programs to compare with.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fastapi,express")]
    peers: Vec<Peer>,
    /// Ways of running payhook, and the server that does nothing.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "payhook,nothing")]
    subjects: Vec<Subject>,
    /// What payhook runs; `all` for everything.
    #[arg(long, default_value = "ingress")]
    roles: String,
    /// `embedded`, or `rabbitmq` for a node of the benchmark's own.
    #[arg(long, default_value = "embedded")]
    broker: String,
    /// Measure the raw batch inserts of the same rows, too.
    #[arg(long)]
    limits: bool,
    #[command(flatten)]
    link: Link,
    /// Write all of it here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Args {
    fn subjects(&self) -> Vec<Subject> {
        let peers = self.peers.iter().filter_map(|peer| match peer {
            Peer::Fastapi => Some(Subject::Fastapi),
            Peer::Express => Some(Subject::Express),
            Peer::None => None,
        });
        self.subjects.iter().copied().chain(peers).collect()
    }

    /// One round of everything.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let closed = (!self.open_only).then_some(None);
        let rates: Vec<Option<u32>> = closed
            .into_iter()
            .chain(self.rate.iter().copied().map(Some))
            .collect();
        for traffic in &self.provider {
            for kind in &self.kind {
                for connections in &self.connections {
                    for rate in &rates {
                        for subject in self.subjects() {
                            // Only payhook says of itself what a duplicate or a forgery costs.
                            if *kind != Kind::Fresh && !subject.is_payhook() {
                                continue;
                            }
                            cells.push(Cell {
                                subject,
                                senders: traffic.senders(),
                                kind: *kind,
                                connections: *connections,
                                rate: *rate,
                                warm_up: Duration::from_secs(self.warm_up),
                                measured: Duration::from_secs(self.seconds),
                                most: self.most,
                            });
                        }
                    }
                }
            }
        }
        cells
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scratch = keys::scratch()?;
    let wants_rabbitmq = args.broker == "rabbitmq";
    let mut hosts = Hosts::start(&[], wants_rabbitmq, args.link)?;
    let setup = Setup {
        roles: args.roles.replace("all", ""),
        broker: hosts
            .rabbitmq
            .as_ref()
            .map_or_else(|| args.broker.clone(), PrivateRabbitmq::url),
        ..Setup::default()
    };
    let programs = Programs::prepare(&scratch, &args.subjects(), setup)?;
    let mut pools = Pools::new(scratch.join("pools"), &programs.keys)?;
    let machine = machine::describe();
    let at = Clock::system().now();
    println!("{at}, {machine}, {} {}", args.link.describe(), hosts.version()?);
    let mut outcomes: Vec<Outcome> = Vec::new();
    for number in 1..=args.rounds {
        for cell in args.cells() {
            let mut place = Place {
                programs: &programs,
                hosts: &mut hosts,
                pools: &mut pools,
            };
            let outcome = round::run(&mut place, &cell)?;
            say(number, &outcome);
            outcomes.push(outcome);
        }
    }
    let summaries = report::summaries(&outcomes);
    println!();
    report::print(&summaries);
    let mut raw = Vec::new();
    if args.limits {
        for traffic in &args.provider {
            raw.extend(limits::measure(
                &programs,
                &mut hosts,
                &mut pools,
                &traffic.senders(),
                args.rounds,
            )?);
        }
        limits::print(&raw, &summaries);
    }
    if let Some(path) = &args.json {
        let all = json!({
            "at": at, "machine": machine, "postgres": hosts.version()?, "seconds": args.seconds,
            "summaries": summaries, "raw": raw, "rounds": outcomes,
        });
        fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    let lost = outcomes.iter().any(|outcome| {
        let void = outcome.void.as_deref();
        void.is_some_and(|why| why.starts_with("LOST"))
    });
    Ok(if lost {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// A line while it goes on.
fn say(number: usize, outcome: &Outcome) {
    let void = outcome
        .void
        .as_ref()
        .map(|why| format!("  VOID: {why}"))
        .unwrap_or_default();
    eprintln!(
        "round {number}: {:<42} {:>4} conn  {:>7.0}/s  p50 {:>7.2}  p99 {:>7.2} ms  other {:.2} cores  {} acked, {:?} rows{void}",
        outcome.subject,
        outcome.connections,
        outcome.per_second,
        report::millis(outcome.phase.p50),
        report::millis(outcome.phase.p99),
        outcome.cores.other,
        outcome.acked,
        outcome.rows,
    );
}
