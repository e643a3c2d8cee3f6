//! The benchmark that anyone can run: `cargo bench --bench ingest`. See `benches/README.md` for what each figure
//! means.
//!
//! One binary with several parts. Without a subcommand it measures ingest: payhook beside what people use
//! instead, in interleaved rounds on servers of its own. `pipe` and `flood` follow events to the orders, `scale` fills the
//! database first. `load` and `nothing` are the load generator and the server that does nothing; they run as
//! processes of their own, so that their CPU can be told from the rest.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark's results and progress are its output"
)]
#![expect(
    clippy::float_arithmetic,
    reason = "rates, ratios and percentiles are for people to read"
)]

mod answer;
mod consume;
mod db;
mod flood;
mod generator;
mod hosts;
mod ingest;
mod keys;
mod limits;
mod load;
mod machine;
mod nothing;
mod notification;
mod peers;
mod pipe;
mod pool;
mod report;
mod round;
mod scale;
mod subject;

#[path = "../../tests/it/support/servers.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the tests' own servers; a benchmark without a server has nothing to measure"
)]
mod servers;

use std::process::ExitCode;

use clap::Parser;

/// payhook's benchmark.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    ingest: ingest::Args,
    /// Given by `cargo bench`; means nothing.
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Through the pipe: from the ack to the applied order, at a fixed rate.
    Pipe(pipe::Args),
    /// Through the pipe as fast as it goes, beside programs that do the same.
    Flood(flood::Args),
    /// With a database that is full already.
    Scale(scale::Args),
    /// The load generator: sends a pool of requests and reports on stdout; told by lines on stdin.
    #[command(hide = true)]
    Load(load::Args),
    /// A server that reads requests and does nothing.
    #[command(hide = true)]
    Nothing(nothing::Args),
    /// A consumer of order messages.
    #[command(hide = true)]
    Consume(consume::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    if !matches!(
        cli.part,
        Some(Part::Load(_) | Part::Nothing(_) | Part::Consume(_))
    ) {
        machine::end_with_everything()?;
    }
    match cli.part {
        None => ingest::run(&cli.ingest),
        Some(Part::Pipe(args)) => pipe::run(&args),
        Some(Part::Flood(args)) => flood::run(&args),
        Some(Part::Scale(args)) => scale::run(&args),
        Some(Part::Consume(args)) => consume::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Part::Load(args)) => load::run(args).map(|()| ExitCode::SUCCESS),
        Some(Part::Nothing(args)) => nothing::run(&args).map(|()| ExitCode::SUCCESS),
    }
}
