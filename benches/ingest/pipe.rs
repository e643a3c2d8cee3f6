//! Through the pipe: notifications at a fixed rate on Postgres and RabbitMQ, with everything on this machine,
//! from the ack to the applied order; with or without the broker going away in between.
//!
//! End to end is told by Postgres itself: the time between the commit that the ack waited for and the commit
//! that moved the order (`track_commit_timestamp`).

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use payhook::time::Clock;
use serde::Serialize;

use crate::consume::Consumer;
use crate::db::Db;
use crate::generator::{Generator, Plan};
use crate::hosts::{Hosts, Link};
use crate::load::Phase;
use crate::notification::Sender;
use crate::pool::{Kind, Loaded, Pools};
use crate::report::millis;
use crate::round::{Cores, Sample};
use crate::servers::PrivateRabbitmq;
use crate::subject::{Programs, Running, Setup, Subject};
use crate::{keys, machine};

/// A consumer's queue at the broker: whoever ships.
const QUEUE: &str = "fulfilment";
const QUEUES: &str = r#"queues = [{ name = "fulfilment", exchange = "orders", bind = ["order.paid"] }]"#;

/// Older than this, and the outbox is not keeping up, in milliseconds.
const OLD: i64 = 1000;

const OLDEST: &str = "select coalesce((extract(epoch from clock_timestamp() - min(created_at)) * 1000)::bigint, 0) \
    from outbox where published_at is null";
const WAITING: &str = "select count(*) from outbox where published_at is null";
const UNFINISHED: &str = "select count(*) from outbox where kind <> 'message'";
const END_TO_END: &str = "select coalesce(round((percentile_cont(share) within group (order by took) * 1000)::numeric, 1), -1)::text \
    from (select extract(epoch from pg_xact_commit_timestamp(o.xmin) - pg_xact_commit_timestamp(e.xmin)) as took \
          from events e join event_outcomes o on o.event_id = e.id \
          where e.received_at between 'FROM' and 'TO') as each_event, \
    unnest(array[0.5, 0.9, 0.99, 0.999, 1]) as share group by share order by share";

/// What is measured, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Notifications a second; each is tried with servers of its own.
    #[arg(long, value_delimiter = ',', default_value = "5000")]
    rate: Vec<u32>,
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Kill the broker after the measured time, for so many seconds, and see the backlog drain.
    #[arg(long, default_value_t = 0)]
    outage: u64,
    /// No RabbitMQ: the workers take from the outbox.
    #[arg(long)]
    embedded: bool,
    /// Between two looks at the outbox, in seconds.
    #[arg(long, default_value_t = 1)]
    every: u64,
    #[command(flatten)]
    link: Link,
    /// Write all of it here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The outbox at one moment.
#[derive(Clone, Debug, Serialize)]
struct Look {
    second: u64,
    part: &'static str,
    /// Of the oldest row that has not been published, in milliseconds.
    oldest: i64,
    /// Rows that have not been published.
    waiting: i64,
    /// Events without an outcome.
    unfinished: i64,
    ack: Phase,
}

/// One part of a run: the usual, the outage, the drain.
#[derive(Clone, Debug, Serialize)]
struct Part {
    name: &'static str,
    seconds: f64,
    per_second: f64,
    /// Milliseconds; the median of the seconds' percentiles, and the worst of them.
    p50: f64,
    p99: f64,
    worst_p99: f64,
    refused: u64,
    other: u64,
    cores: Cores,
    memory: f64,
    oldest_first: i64,
    oldest_last: i64,
    most_waiting: i64,
}

/// How a rate went.
#[derive(Clone, Debug, Serialize)]
struct Run {
    rate: u32,
    parts: Vec<Part>,
    looks: Vec<Look>,
    /// p50, p90, p99, p99.9 and the longest, in milliseconds, of the events of the first part.
    end_to_end: Vec<String>,
    acked: u64,
    events: i64,
    outcomes: i64,
    consumed: u64,
}

/// A run while it goes on.
struct Course<'a> {
    hosts: &'a mut Hosts,
    running: &'a Running,
    generator: &'a mut Generator,
    db: &'a Db,
    every: Duration,
    began: Instant,
    looks: Vec<Look>,
}

impl Course<'_> {
    /// Looks at the outbox until `over`, and sums up.
    fn part(
        &mut self,
        name: &'static str,
        mut over: impl FnMut(&Look, Duration) -> bool,
    ) -> anyhow::Result<Part> {
        let began = Instant::now();
        let from = self.looks.len();
        let before = Sample::take(self.hosts, self.running.pid(), self.generator.pid());
        loop {
            thread::sleep(self.every);
            let look = Look {
                second: self.began.elapsed().as_secs(),
                part: name,
                oldest: self.db.number(OLDEST)?,
                waiting: self.db.number(WAITING)?,
                unfinished: self.db.number(UNFINISHED)?,
                ack: self.generator.phase()?,
            };
            eprintln!(
                "{:>4} s {name:<8} {:>6.0}/s  ack p50 {:>6.2} p99 {:>7.2} ms  oldest {:>7} ms  waiting {:>7}  unfinished {:>7}",
                look.second,
                look.ack.rate(),
                millis(look.ack.p50),
                millis(look.ack.p99),
                look.oldest,
                look.waiting,
                look.unfinished,
            );
            anyhow::ensure!(!look.ack.exhausted, "the pool came to its end");
            let done = over(&look, began.elapsed());
            self.looks.push(look);
            if done {
                break;
            }
        }
        let after = Sample::take(self.hosts, self.running.pid(), self.generator.pid());
        let seconds = began.elapsed().as_secs_f64();
        let looks = self.looks.get(from..).unwrap_or_default();
        let middle = |of: &dyn Fn(&Phase) -> u64| {
            crate::report::spread(looks.iter().map(|look| millis(of(&look.ack))))
        };
        let sum = |of: &dyn Fn(&Phase) -> u64| looks.iter().map(|look| of(&look.ack)).sum::<u64>();
        Ok(Part {
            name,
            seconds,
            per_second: crate::load::per_second(sum(&|ack| ack.acks), seconds),
            p50: middle(&|ack| ack.p50).median,
            p99: middle(&|ack| ack.p99).median,
            worst_p99: middle(&|ack| ack.p99).most,
            refused: sum(&|ack| ack.refused),
            other: sum(&|ack| ack.other),
            cores: before.cores_until(&after, seconds),
            memory: machine::peak_memory(self.running.pid()),
            oldest_first: looks.first().map_or(0, |look| look.oldest),
            oldest_last: looks.last().map_or(0, |look| look.oldest),
            most_waiting: looks.iter().map(|look| look.waiting).max().unwrap_or_default(),
        })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut runs = Vec::new();
    println!(
        "{}, {}, {}",
        Clock::system().now(),
        machine::describe(),
        args.link.describe()
    );
    for rate in &args.rate {
        let run = one(args, *rate)?;
        print(&run);
        runs.push(run);
    }
    if let Some(path) = &args.json {
        fs::write(path, serde_json::to_string_pretty(&runs)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn one(args: &Args, rate: u32) -> anyhow::Result<Run> {
    let scratch = keys::scratch()?;
    let mut hosts = Hosts::start(&["track_commit_timestamp=on"], !args.embedded, args.link)?;
    let broker = hosts
        .rabbitmq
        .as_ref()
        .map_or_else(|| "embedded".to_owned(), PrivateRabbitmq::url);
    let setup = Setup {
        roles: String::new(),
        broker: broker.clone(),
        broker_more: if args.embedded {
            String::new()
        } else {
            QUEUES.to_owned()
        },
        ..Setup::default()
    };
    let programs = Programs::prepare(&scratch, &[], setup)?;
    let mut pools = Pools::new(scratch.join("pools"), &programs.keys)?;
    // Twice the outage again for the drain, and what it takes to start all of it and the broker again.
    let seconds = args.seconds + args.outage * 3 + 120;
    let count = usize::try_from(u64::from(rate) * seconds)?;
    let pool = pools.get(&[Sender::Stripe], Kind::Fresh, count)?;
    let (sender, first) = Loaded::read_first(&pool.file)?;
    let database = programs.database(Subject::Payhook, &mut hosts)?;
    machine::quiet();
    let running = programs.start(Subject::Payhook, &database, sender, &first)?;
    let consumer = (!args.embedded)
        .then(|| Consumer::start(&broker, QUEUE))
        .transpose()?;
    let mut generator = Generator::start(&Plan {
        target: running.target,
        pool: &pool,
        paths: &Subject::Payhook.paths(),
        connections: args.connections,
        rate: Some(rate),
        skip: 1,
        wrap: false,
        prime: false,
    })?;
    let db = Db::new(&database)?;
    generator.go()?;
    thread::sleep(Duration::from_secs(3));
    let warm = generator.phase()?;
    let clock = Clock::system();
    let from = clock.now();
    let mut course = Course {
        hosts: &mut hosts,
        running: &running,
        generator: &mut generator,
        db: &db,
        every: Duration::from_secs(args.every.max(1)),
        began: Instant::now(),
        looks: Vec::new(),
    };
    let usual = Duration::from_secs(args.seconds);
    let mut parts = vec![course.part("usual", |_, passed| passed >= usual)?];
    let to = clock.now();
    if args.outage > 0 {
        parts.extend(outage(&mut course, rate, Duration::from_secs(args.outage))?);
    }
    let looks = course.looks;
    let of_looks = looks.iter().map(|look| look.ack.acks).sum::<u64>();
    let acked = 1 + warm.acks + of_looks + generator.stop()?.acks;
    let until = Instant::now() + Duration::from_mins(2);
    while db.number(UNFINISHED)? > 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(250));
    }
    let window = END_TO_END
        .replace("FROM", &from.to_string())
        .replace("TO", &to.to_string());
    let run = Run {
        rate,
        parts,
        looks,
        end_to_end: db.texts(&window)?,
        acked,
        events: db.number("select count(*) from events")?,
        outcomes: db.number("select count(*) from event_outcomes")?,
        consumed: consumer.map(Consumer::stop).transpose()?.unwrap_or_default(),
    };
    drop(running);
    Ok(run)
}

fn outage(course: &mut Course<'_>, rate: u32, lasts: Duration) -> anyhow::Result<Vec<Part>> {
    let node = |hosts: &mut Hosts| hosts.rabbitmq.take().context("an outage needs RabbitMQ");
    let mut broker = node(course.hosts)?;
    broker.kill();
    let away = course.part("outage", |_, passed| passed >= lasts);
    broker.restart();
    course.hosts.rabbitmq = Some(broker);
    // Until nothing is old and what the workers have not done is a second's worth; twice as long as the outage at most.
    let is_drained = |look: &Look| look.oldest < OLD && look.unfinished < i64::from(rate);
    let drained = course.part("drain", |look, passed| is_drained(look) || passed > lasts * 2)?;
    let after = course.part("after", |_, passed| passed >= Duration::from_secs(15))?;
    Ok(vec![away?, drained, after])
}

fn print(run: &Run) {
    println!();
    println!("{} notifications a second", run.rate);
    println!(
        "part     seconds  acks/s     ms: p50    p99  worst s   cores: daemon   pg   mq  gen other   MiB  oldest ms first  last  most waiting"
    );
    for p in &run.parts {
        let c = &p.cores;
        println!(
            "{:<8} {:>7.0} {:>7.0}    {:>7.2} {:>6.2}  {:>7.2}          {:>5.2} {:>4.2} {:>4.2} {:>4.2} {:>5.2} {:>5.0}            {:>5} {:>5}  {:>12}",
            p.name,
            p.seconds,
            p.per_second,
            p.p50,
            p.p99,
            p.worst_p99,
            c.program,
            c.postgres,
            c.rabbitmq,
            c.generator,
            c.other,
            p.memory,
            p.oldest_first,
            p.oldest_last,
            p.most_waiting,
        );
    }
    println!(
        "ack to order applied, ms: p50, p90, p99, p99.9, longest: {}",
        run.end_to_end.join(", ")
    );
    println!(
        "{} acked, {} events, {} outcomes, {} order.paid consumed{}",
        run.acked,
        run.events,
        run.outcomes,
        run.consumed,
        if u64::try_from(run.events).is_ok_and(|events| events >= run.acked) {
            ""
        } else {
            "  LOST"
        }
    );
}
