//! `payhook serve`: the daemon, until SIGTERM or SIGINT. SIGHUP reads the accounts and
//! their keys again, and so does a change of their files ([`Watch`]).

use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::Globals;
use super::watch::{Seen, Watch};
use crate::app::{App, Role};
use crate::telemetry::logs;
use crate::time::Clock;

/// What `serve` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Run only these parts of the daemon [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    role: Vec<Role>,
}

pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let (config, registry) = globals.load_accounts()?;
    logs::init(&config.log)?;
    let roles = if args.role.is_empty() {
        Role::ALL.to_vec()
    } else {
        args.role
    };
    if config.accounts.is_empty() {
        tracing::warn!("no accounts: `payhook init` writes a configuration to add yours to");
    }
    let source = config.source.to_string();
    // Before anything is taken: a signal from now on drains.
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?;
    let mut watch = Watch::new(globals.clone(), Seen::of(&config));
    let app = App::start(config, registry, &roles, Clock::system()).await?;
    tracing::info!(
        configuration = source,
        notify_addr = app.notify_addr().map(tracing::field::display),
        admin_addr = %app.admin_addr(),
        ?roles,
        "payhook is up"
    );
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hang_up.recv() => watch.look_now(&app).await,
            () = watch.due() => watch.look(&app).await,
        }
    }
    tracing::info!("draining; a second signal ends at once");
    tokio::select! {
        ended = app.shutdown() => {
            if !ended {
                return Ok(ExitCode::FAILURE);
            }
            tracing::info!("ended");
            Ok(ExitCode::SUCCESS)
        }
        _ = terminate.recv() => Ok(ExitCode::FAILURE),
        _ = interrupt.recv() => Ok(ExitCode::FAILURE),
    }
}
