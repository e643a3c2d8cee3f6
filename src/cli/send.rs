//! `payhook send`: signs a sample with its throw-away key for the present moment and posts it to a daemon.
//!
//! The daemon must have the sample accounts (`provider-samples/payhook.toml`), as `demo` has; any other refuses
//! it, as it should.

use std::process::ExitCode;

use super::Globals;
use super::client::reachable;
use super::failure::Misuse;
use super::output::Table;
use super::post::Post;
use crate::event::ProviderName;
use crate::samples::{self, Sample};
use crate::time::Clock;

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which sample, such as stripe/01-paid; none: list them
    sample: Option<String>,
    /// The public listener [default: notify_addr of the configuration]
    #[arg(long, value_name = "URL")]
    to: Option<String>,
}

/// Runs it.
pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let mut out = globals.output();
    let Some(name) = args.sample else {
        let all: Vec<_> = samples::all()?
            .into_iter()
            .map(|sample| (label(&sample), sample.expected.title))
            .collect();
        out.show(&all, |all| {
            let mut table = Table::new(["sample", "what it tells"]);
            for (label, title) in all {
                table.row([label, title]);
            }
            table
        })?;
        return Ok(ExitCode::SUCCESS);
    };
    let sample = find(&name)?;
    let server = match args.to {
        Some(server) => server,
        None => format!("http://{}", reachable(globals.load()?.server.notify_addr)),
    };
    let notification = sample.sent_now(Clock::system().now())?;
    let answered = Post::to(&server)?.send(&notification).await?;
    out.show(&answered, |answered| {
        let mut table = Table::new(["sample", "status", "content type", "body"]);
        let content_type = answered.content_type.as_deref().unwrap_or("-");
        table.row([
            &label(&sample),
            &answered.status.to_string(),
            content_type,
            &answered.body,
        ]);
        table
    })?;
    if answered.status == 404 && !out.is_json() {
        out.line(&format!(
            "{} is no account there: samples go to those of provider-samples/payhook.toml",
            notification.path
        ))?;
    }
    Ok(if answered.status == sample.expected.ack.status {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// How a sample is named on the command line.
pub(super) fn label(sample: &Sample) -> String {
    format!("{}/{}", sample.provider, sample.case)
}

fn find(name: &str) -> anyhow::Result<Sample> {
    let unknown = || Misuse::usage(format!("no sample {name}: `payhook send` lists them"));
    let (provider, case) = name.split_once('/').ok_or_else(unknown)?;
    let provider: ProviderName = provider.parse().map_err(|_| unknown())?;
    // A case may be named without its number.
    let found = samples::all()?.into_iter().find(|sample| {
        let bare = sample.case.split_once('-').map_or("", |(_, bare)| bare);
        sample.provider == provider && (sample.case == case || bare == case)
    });
    Ok(found.ok_or_else(unknown)?)
}
