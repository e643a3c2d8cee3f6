//! `payhook demo`: the whole daemon with no services and no files, and every sample played to it.
//!
//! It listens on loopback only, keeps everything in a folder that goes when it ends, plays the samples over
//! real HTTP, prints what each was answered and what each order became and why, and goes on serving so that
//! one can look around.

use std::collections::HashSet;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::Globals;
use super::client::Client;
use super::listing::money;
use super::output::{Output, Table};
use super::post::Post;
use super::send::label;
use crate::app::{App, Role};
use crate::config::{Config, local_tokens, program};
use crate::provider::Registry;
use crate::samples;
use crate::telemetry::logs;
use crate::time::Clock;

/// Where it listens if these are free; else anywhere.
const PORTS: [u16; 2] = [8080, 8081];

/// How long the samples may take to move their orders.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// End after playing instead of serving on
    #[arg(long)]
    once: bool,
}

/// Runs it.
pub(super) async fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new()
        .prefix("payhook-demo-")
        .tempdir()
        .context("cannot make a folder")?;
    let file = configure(folder.path())?;
    let (config, registry) = Config::load_with(Some(&file), Registry::build)?;
    logs::init(&config.log)?;
    let token = local_tokens(&config)?
        .into_iter()
        .next()
        .context("no token")?
        .secret;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;

    let app = App::start(config, registry, &Role::ALL, Clock::system()).await?;
    let notify = format!("http://{}", app.notify_addr().context("no ingress")?);
    let admin = format!("http://{}", app.admin_addr());
    let client = Client::new(&admin, token.expose_secret().to_owned().into())?;
    let mut out = globals.output();
    out.line(&format!(
        "payhook takes notifications at {notify}/notify/{{provider}}/demo and keeps them in {}",
        folder.path().display()
    ))?;
    play(&mut out, &notify).await?;
    settle(&app).await?;
    let shown = tell(&mut out, &client).await?;
    if !args.once {
        invite(&mut out, &file, shown.as_deref())?;
        out.line("Serving on. Ctrl-C ends it, and removes the folder.")?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
    app.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// The sample accounts and keys, with a configuration that listens on loopback.
fn configure(folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    samples::unpack(folder).context("cannot write the sample keys")?;
    let file = folder.join("payhook.toml");
    let accounts = std::fs::read_to_string(&file)?;
    let [notify, admin] = PORTS.map(|port| {
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            port
        } else {
            free()
        }
    });
    let text = format!(
        // A demo on a laptop that stalls is no provider that hangs up.
        "[server]\nnotify_addr = \"127.0.0.1:{notify}\"\nadmin_addr = \"127.0.0.1:{admin}\"\nack_deadline = \"10s\"\n\n\
         [log]\nfilter = \"off\"\n\n{accounts}"
    );
    std::fs::write(&file, text)?;
    Ok(file)
}

/// A port that is free now.
fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_or(0, |addr| addr.port())
}

/// Posts every sample in the order of its story.
async fn play(out: &mut Output, notify: &str) -> anyhow::Result<()> {
    let post = Post::to(notify)?;
    let clock = Clock::system();
    let mut table = Table::new(["sent", "what it tells", "answer", "body"]);
    let mut surprises = 0_usize;
    let mut seen = HashSet::new();
    for sample in samples::all()? {
        let answered = post.send(&sample.sent_now(clock.now())?).await?;
        let expected = &sample.expected.ack;
        let exact = answered.status == expected.status && answered.body == expected.body;
        surprises = surprises.saturating_add(usize::from(!exact));
        let repeated = sample
            .expected
            .event_key
            .as_ref()
            .is_some_and(|key| !seen.insert(key.clone()));
        let accepted = if repeated { "duplicate" } else { "accepted" };
        let verdict = sample.expected.reason.as_deref().unwrap_or(accepted);
        let answer = format!("{} {verdict}", answered.status);
        let body = if answered.body.is_empty() {
            "(empty)"
        } else {
            &answered.body
        };
        table.row([&label(&sample), &sample.expected.title, &answer, body]);
    }
    out.table(&table)?;
    ensure!(
        surprises == 0,
        "{surprises} samples were not answered as their provider expects"
    );
    Ok(())
}

/// Until every event has an outcome.
async fn settle(app: &App) -> anyhow::Result<()> {
    let until = Instant::now().checked_add(PATIENCE).context("no clock")?;
    loop {
        let gauges = app.store().gauges().await?;
        if gauges.unfinished == 0 && gauges.unpublished == 0 {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "{} events were not applied in time",
            gauges.unfinished
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What each order became and why, and what needs a human; the id of an order worth a look.
async fn tell(out: &mut Output, client: &Client) -> anyhow::Result<Option<String>> {
    let listed = client.get(&["orders"], &[("limit", "500".to_owned())]).await?;
    let mut orders = Vec::new();
    for order in items(&listed) {
        orders.push(client.get(&["orders", text(order, "order_id")], &[]).await?);
    }
    orders.sort_by(|a, b| text(a, "order_id").cmp(text(b, "order_id")));
    let mut table = Table::new(["order", "became", "paid", "refunded", "because"]);
    for order in &orders {
        let currency = order.get("currency").and_then(Value::as_str);
        let total = |key: &str| money(order.get(key).and_then(Value::as_i64), currency);
        let (paid, refunded) = (total("paid"), total("refunded"));
        let mut cells = [text(order, "order_id"), text(order, "status"), &paid, &refunded];
        // One line for each step; what stands for all of them stands in the first.
        for entry in array(order, "history") {
            let [id, status, paid, refunded] = cells;
            table.row([id, status, paid, refunded, &step(entry)]);
            cells = [""; 4];
        }
    }
    out.table(&table)?;
    let attention = client.get(&["attention"], &[]).await?;
    let mut table = Table::new(["needs a human", "order", "why"]);
    for item in items(&attention) {
        let order = item.get("order_id").and_then(Value::as_str).unwrap_or("-");
        table.row([text(item, "code"), order, text(item, "explanation")]);
    }
    if !table.is_empty() {
        out.table(&table)?;
    }
    let busiest = orders.iter().max_by_key(|order| array(order, "history").len());
    Ok(busiest.map(|order| text(order, "order_id").to_owned()))
}

/// One line of an order's history.
fn step(entry: &Value) -> String {
    format!("{}: {}", text(entry, "outcome"), text(entry, "reason"))
}

/// Commands that work as printed, from any folder.
fn invite(out: &mut Output, file: &Path, order: Option<&str>) -> anyhow::Result<()> {
    let program = program();
    let (program, file) = (program.display(), file.display());
    out.line("")?;
    out.line("Look around:")?;
    if let Some(order) = order {
        out.line(&format!("  {program} orders show {order} --config {file}"))?;
    }
    out.line(&format!("  {program} events list --config {file}"))?;
    out.line(&format!("  {program} attention list --config {file}"))?;
    out.line(&format!("  {program} send stripe/01-paid --config {file}"))?;
    Ok(())
}

fn items(page: &Value) -> &[Value] {
    array(page, "items")
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("-")
}
