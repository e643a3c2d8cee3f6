//! The whole pipe, flooded: notifications as fast as the program acks them for some seconds, then nothing more
//! until the last order is applied and its `order.paid` published. The rate is what was sent over the time until
//! then; payhook beside programs that do the same with one message and one transaction each.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum as _;
use futures_util::FutureExt as _;
use lapin::options::{QueueDeclareOptions, QueuePurgeOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties};
use payhook::time::Clock;
use serde::Serialize;

use crate::consume::Consumer;
use crate::db::Db;
use crate::generator::{Generator, Plan};
use crate::hosts::{Hosts, Link};
use crate::notification::Sender;
use crate::pool::{Kind, Loaded, Pools};
use crate::report::{Spread, spread};
use crate::subject::{Programs, Setup, Subject};
use crate::{keys, machine};

/// Where paid orders arrive.
const QUEUE: &str = "fulfilment";
const QUEUES: &str = r#"queues = [{ name = "fulfilment", exchange = "orders", bind = ["order.paid"] }]"#;

/// How long the last order may take after the last ack.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(10);

/// What is measured, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The programs.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "payhook,fastapi,express"
    )]
    subjects: Vec<Subject>,
    /// How long notifications are sent.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// No program will ack more in a second: fewer requests are signed.
    #[arg(long, default_value_t = 30_000)]
    most: usize,
    #[command(flatten)]
    link: Link,
    /// Write all of it here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One program in one round.
#[derive(Clone, Debug, Serialize)]
struct Flood {
    subject: &'static str,
    acked: u64,
    acks_a_second: f64,
    /// Seconds from the first notification to the last `order.paid`.
    seconds: f64,
    applied_a_second: f64,
    consumed: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scratch = keys::scratch()?;
    let mut hosts = Hosts::start(&[], true, args.link)?;
    let setup = Setup {
        roles: String::new(),
        broker_more: QUEUES.to_owned(),
        ..Setup::default()
    };
    let mut programs = Programs::prepare(&scratch, &args.subjects, setup)?;
    let mut pools = Pools::new(scratch.join("pools"), &programs.keys)?;
    println!(
        "{}, {}, {}",
        Clock::system().now(),
        machine::describe(),
        args.link.describe()
    );
    let mut floods = Vec::new();
    for round in 1..=args.rounds {
        for subject in &args.subjects {
            let flood = one(args, *subject, &mut hosts, &mut programs, &mut pools)?;
            eprintln!(
                "round {round}: {:<20} {:>7.0} acks/s, {:>6.0}/s applied and published ({} in {:.1} s, {} order.paid)",
                flood.subject,
                flood.acks_a_second,
                flood.applied_a_second,
                flood.acked,
                flood.seconds,
                flood.consumed
            );
            floods.push(flood);
        }
    }
    print(args, &floods);
    if let Some(path) = &args.json {
        fs::write(path, serde_json::to_string_pretty(&floods)?)?;
    }
    let lost = floods.iter().any(|flood| flood.consumed < flood.acked);
    Ok(if lost {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn one(
    args: &Args,
    subject: Subject,
    hosts: &mut Hosts,
    programs: &mut Programs,
    pools: &mut Pools,
) -> anyhow::Result<Flood> {
    let node = hosts.rabbitmq.as_ref().context("a pipe needs RabbitMQ")?;
    let host = format!("round{}", Clock::system().now().micros());
    node.ctl(&["add_vhost", &host]);
    node.ctl(&["set_permissions", "-p", &host, "guest", ".*", ".*", ".*"]);
    let broker = node.url().replace("%2f", &host);
    programs.setup.broker.clone_from(&broker);
    declare(
        &broker,
        if subject.is_payhook() {
            &[]
        } else {
            &["apply", QUEUE]
        },
    )?;
    let count = args.most * usize::try_from(args.seconds)?;
    let pool = pools.get(&[Sender::Stripe], Kind::Fresh, count)?;
    let (sender, first) = Loaded::read_first(&pool.file)?;
    let database = programs.database(subject, hosts)?;
    hosts.checkpoint()?;
    machine::quiet();
    let running = programs.start(subject, &database, sender, &first)?;
    let consumer = Consumer::start(&broker, QUEUE)?;
    let db = Db::new(&database)?;
    let unfinished = subject.unfinished();
    until_zero(&db, unfinished)?;
    let mut generator = Generator::start(&Plan {
        target: running.target,
        pool: &pool,
        paths: &subject.paths(),
        connections: args.connections,
        rate: None,
        skip: 1,
        wrap: false,
        prime: false,
    })?;
    let began = Instant::now();
    generator.go()?;
    thread::sleep(Duration::from_secs(args.seconds));
    let phase = generator.stop()?;
    anyhow::ensure!(!phase.exhausted, "the pool came to its end: give a larger --most");
    until_zero(&db, unfinished)?;
    let seconds = began.elapsed().as_secs_f64();
    // What is under way to the consumer arrives.
    thread::sleep(Duration::from_secs(1));
    let consumed = consumer.stop()?;
    drop(running);
    hosts.drop_database(&database)?;
    if let Some(node) = &hosts.rabbitmq {
        node.ctl(&["delete_vhost", &host]);
    }
    Ok(Flood {
        subject: subject.as_str(),
        acked: phase.acks + 1,
        acks_a_second: phase.rate(),
        seconds,
        applied_a_second: crate::load::per_second(phase.acks, seconds),
        consumed,
    })
}

/// Waits until `sql` counts nothing any more.
fn until_zero(db: &Db, sql: &str) -> anyhow::Result<()> {
    let until = Instant::now() + DRAIN_TIMEOUT;
    while db.number(sql)? > 0 {
        anyhow::ensure!(Instant::now() < until, "the workers do not come to an end");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Durable quorum queues, like payhook's own, for the programs that declare none.
fn declare(broker: &str, queues: &[&str]) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let declared = async {
        let connection = Connection::connect(broker, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        for queue in queues {
            let mut arguments = FieldTable::default();
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
            let options = QueueDeclareOptions {
                durable: true,
                ..QueueDeclareOptions::default()
            };
            channel.queue_declare((*queue).into(), options, arguments).await?;
            channel
                .queue_purge((*queue).into(), QueuePurgeOptions::default())
                .await?;
        }
        connection.close(200, "declared".into()).await
    };
    Ok(runtime.block_on(declared.boxed_local())?)
}

fn print(args: &Args, floods: &[Flood]) {
    let of = |subject: &Subject, what: &dyn Fn(&Flood) -> f64| -> Spread {
        let name = subject.as_str();
        spread(floods.iter().filter(|flood| flood.subject == name).map(what))
    };
    println!("\nsubject               acks/s    applied and published/s: least  median    most");
    for subject in &args.subjects {
        let (acks, applied) = (
            of(subject, &|f| f.acks_a_second),
            of(subject, &|f| f.applied_a_second),
        );
        println!(
            "{:<20} {:>7.0}  {:>29.0} {:>7.0} {:>7.0}",
            subject.as_str(),
            acks.median,
            applied.least,
            applied.median,
            applied.most
        );
    }
    let own = of(&Subject::Payhook, &|f| f.applied_a_second).median;
    for subject in args.subjects.iter().filter(|subject| !subject.is_payhook()) {
        let other = of(subject, &|f| f.applied_a_second).median;
        if other > 0.0 && own > 0.0 {
            let name = subject
                .to_possible_value()
                .map_or_else(String::new, |value| value.get_name().to_owned());
            println!("payhook through the pipe: {:.2} × {name}", own / other);
        }
    }
}
