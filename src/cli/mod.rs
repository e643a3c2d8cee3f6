//! The command line: one file per command, and what they share.
//!
//! A command is a variant of [`Command`] with its `Args`, and `pub(super) [async] fn run(args, &Globals) ->
//! anyhow::Result<ExitCode>` in a file of its own. Results go to stdout through [`output::Output`], logs and
//! errors to stderr. Exit codes: 0 done, 1 failed, 2 usage, configuration or unreadable file ([`failure`]).

mod attention;
mod check;
pub mod client;
mod dead;
mod demo;
mod events;
pub mod failure;
mod filters;
mod init;
mod listing;
mod migrate;
mod orders;
pub mod output;
mod post;
mod quarantine;
mod replay;
mod send;
mod serve;
mod tail;
mod verify;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};

use self::output::Output;
use crate::config::{Config, ConfigErrors};
use crate::provider::Registry;

/// Receives payment notifications and makes each of them count exactly once.
#[derive(Debug, Parser)]
#[command(name = "payhook", version, max_term_width = 100)]
pub struct CommandLine {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// Options that every command takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Globals {
    /// Configuration file [default: $PAYHOOK_CONFIG, else ./payhook.toml, else built-in defaults]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON instead of tables and text
    #[arg(long, global = true)]
    pub json: bool,
}

impl Globals {
    /// The configuration, without a judgement of the accounts' keys.
    pub fn load(&self) -> Result<Config, ConfigErrors> {
        Config::load(self.config.as_deref())
    }

    /// The configuration and its accounts, every problem of both at once.
    pub fn load_accounts(&self) -> Result<(Config, Registry), ConfigErrors> {
        Config::load_with(self.config.as_deref(), Registry::build)
    }

    /// Where results go.
    pub fn output(&self) -> Output {
        Output::stdout(self.json)
    }
}

/// The commands, in the order a newcomer needs them.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Serve(serve::Args),
    /// Run it with no services, play every sample to it, and say what happened
    Demo(demo::Args),
    /// Write the commented example configuration
    Init(init::Args),
    /// Judge the configuration, its keys, and what it points at
    Check(check::Args),
    /// Bring the database up to date, and do nothing else
    Migrate(migrate::Args),
    /// Judge a request from a file, step by step
    Verify(verify::Args),
    /// Sign a sample for now and post it to a running daemon
    Send(send::Args),
    /// What came, and what became of it
    Events(events::Args),
    /// How orders stand, and why
    Orders(orders::Args),
    /// Send stored events or order messages again
    Replay(Box<replay::Args>),
    /// What needs a human
    Attention(attention::Args),
    /// What could not be applied, and sending it to the workers again
    Dead(dead::Args),
    /// What was refused, why, and another judgement of it
    Quarantine(quarantine::Args),
}

/// Runs the command that was asked for.
pub fn run(command_line: CommandLine) -> anyhow::Result<ExitCode> {
    let CommandLine { globals, command } = command_line;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let ended = runtime.block_on(async {
        match command {
            Command::Serve(args) => serve::run(args, &globals).await,
            Command::Demo(args) => demo::run(args, &globals).await,
            Command::Send(args) => send::run(args, &globals).await,
            Command::Init(args) => init::run(args, &globals),
            Command::Check(args) => check::run(args, &globals).await,
            Command::Migrate(args) => migrate::run(args, &globals).await,
            Command::Verify(args) => verify::run(&args, &globals),
            Command::Events(args) => events::run(args, &globals).await,
            Command::Orders(args) => orders::run(args, &globals).await,
            Command::Replay(args) => replay::run(*args, &globals).await,
            Command::Attention(args) => attention::run(args, &globals).await,
            Command::Dead(args) => dead::run(args, &globals).await,
            Command::Quarantine(args) => quarantine::run(args, &globals).await,
        }
    });
    // Everything that must end has ended. A name server that does not answer must not hold up the exit.
    runtime.shutdown_background();
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_consistent() {
        use clap::CommandFactory as _;
        CommandLine::command().debug_assert();
    }

    #[test]
    fn global_options_stand_on_either_side_of_the_command() {
        for line in [
            ["payhook", "--config", "x.toml", "init"],
            ["payhook", "init", "--config", "x.toml"],
        ] {
            let parsed = CommandLine::try_parse_from(line).unwrap();
            assert_eq!(parsed.globals.config, Some(PathBuf::from("x.toml")));
        }
    }
}
