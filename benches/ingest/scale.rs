//! With years in the table: fills a database with events and orders, and then measures what must not notice:
//! ingest, application, look-ups by every documented filter, and ingest while a million old events are purged.
//!
//! The rows are written by Postgres itself (`generate_series`), as payhook would have left them: each event with
//! its outcome and its order, three orders for ten events. Every part is measured on the full database and on an
//! empty one in turn.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use payhook::time::Clock;
use serde::Serialize;

use crate::db::Db;
use crate::generator::{Generator, Plan};
use crate::hosts::{Hosts, Link};
use crate::load::{Phase, per_second};
use crate::notification::Sender;
use crate::pool::{Kind, Loaded, Pools};
use crate::report::{Spread, millis, spread};
use crate::subject::{Programs, Running, Setup, Subject, once};
use crate::{keys, machine};

/// Events that one statement of the filling writes.
const CHUNK: u64 = 250_000;
/// Not filled further than this, in bytes of free disk.
const LEAST_FREE: u64 = 20 << 30;

const FILL: &str = include_str!("fill.sql");

/// What is measured, and for how much.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Events that are there already; three orders for ten of them.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Look-ups by each filter.
    #[arg(long, default_value_t = 300)]
    lookups: u64,
    /// Events that are past their age; a tenth of all if not given.
    #[arg(long)]
    old: Option<u64>,
    #[command(flatten)]
    link: Link,
    /// Write all of it here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A filter and how long it took, in milliseconds.
#[derive(Clone, Debug, Serialize)]
struct Lookup {
    filter: &'static str,
    p50: f64,
    p99: f64,
    longest: f64,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
struct Found {
    events: i64,
    orders: i64,
    gigabytes: f64,
    ingest_empty: Spread,
    ingest_full: Spread,
    apply_empty: Spread,
    apply_full: Spread,
    lookups: Vec<Lookup>,
    ingest_before_purge: f64,
    ingest_while_purging: f64,
    purged_a_second: f64,
}

/// A database that is measured, full or empty.
struct Bench<'a> {
    programs: &'a mut Programs,
    hosts: &'a mut Hosts,
    pools: &'a mut Pools,
    seconds: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scratch = keys::scratch()?;
    // Filling writes more than a day's log in minutes; the checkpoints it would force are not what is measured.
    let mut hosts = Hosts::start(&[], false, args.link)?;
    let mut programs = Programs::prepare(&scratch, &[], Setup::default())?;
    let mut pools = Pools::new(scratch.join("pools"), &programs.keys)?;
    println!("{}, {}", Clock::system().now(), machine::describe());
    let full = programs.database(Subject::Payhook, &mut hosts)?;
    let old = args.old.unwrap_or(args.events / 10);
    fill(&full, args.events, old, hosts.folder())?;
    let db = Db::new(&full)?;
    let mut found = Found {
        events: db.number("select count(*) from events")?,
        orders: db.number("select count(*) from orders")?,
        gigabytes: per_second(
            u64::try_from(db.number("select pg_database_size(current_database()) / 1000000")?)?,
            1000.0,
        ),
        ..Found::default()
    };
    println!(
        "{} events, {} orders, {:.1} GB",
        found.events, found.orders, found.gigabytes
    );
    let mut bench = Bench {
        programs: &mut programs,
        hosts: &mut hosts,
        pools: &mut pools,
        seconds: Duration::from_secs(args.seconds),
    };
    let (mut ingest, mut apply) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 1..=args.rounds {
        let empty = bench.programs.database(Subject::Payhook, bench.hosts)?;
        for (which, database) in [&empty, &full].into_iter().enumerate() {
            let rate = bench.ingest(database)?;
            let applied = bench.apply(database)?;
            eprintln!(
                "round {round}: {}: ingest {rate:.0}/s, applied {applied:.0}/s",
                if which == 0 { "empty" } else { "full " }
            );
            if let (Some(rates), Some(applies)) = (ingest.get_mut(which), apply.get_mut(which)) {
                rates.push(rate);
                applies.push(applied);
            }
        }
        bench.hosts.drop_database(&empty)?;
    }
    let ([ingest_empty, ingest_full], [apply_empty, apply_full]) = (ingest, apply);
    found.ingest_empty = spread(ingest_empty);
    found.ingest_full = spread(ingest_full);
    found.apply_empty = spread(apply_empty);
    found.apply_full = spread(apply_full);
    found.lookups = bench.lookups(&full, args.lookups)?;
    bench.purge(&full, &mut found)?;
    print(&found);
    if let Some(path) = &args.json {
        fs::write(path, serde_json::to_string_pretty(&found)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(found: &Found) {
    let ratio = |full: Spread, empty: Spread| full.median / empty.median.max(1e-9);
    println!(
        "ingest: {:.0}/s full, {:.0}/s empty: {:.2} ×",
        found.ingest_full.median,
        found.ingest_empty.median,
        ratio(found.ingest_full, found.ingest_empty)
    );
    println!(
        "apply:  {:.0}/s full, {:.0}/s empty: {:.2} ×",
        found.apply_full.median,
        found.apply_empty.median,
        ratio(found.apply_full, found.apply_empty)
    );
    for lookup in &found.lookups {
        println!(
            "{:<44} p50 {:>8.2}  p99 {:>8.2}  longest {:>8.2} ms",
            lookup.filter, lookup.p50, lookup.p99, lookup.longest
        );
    }
    println!(
        "ingest while old events are purged: {:.0}/s, before: {:.0}/s: {:.2} ×; {:.0} events purged a second",
        found.ingest_while_purging,
        found.ingest_before_purge,
        found.ingest_while_purging / found.ingest_before_purge.max(1e-9),
        found.purged_a_second
    );
}

/// Writes the rows, in statements that each commit, while there is room on the disk.
fn fill(database: &str, events: u64, old: u64, folder: &std::path::Path) -> anyhow::Result<()> {
    let db = Db::new(database)?;
    let (began, now) = (Instant::now(), Clock::system().now().secs());
    let mut from = 0;
    while from < events {
        if free(folder)? < LEAST_FREE {
            println!("stopped at {from} events: less than 20 GB of the disk are free");
            break;
        }
        let to = events.min(from + CHUNK);
        let sql = FILL
            .replace(":from", &from.to_string())
            .replace(":to", &to.to_string())
            .replace(":old", &old.to_string())
            .replace(":all", &events.to_string())
            .replace(":now", &now.to_string());
        db.run(&sql)?;
        eprintln!("filled {to} events after {:.0} s", began.elapsed().as_secs_f64());
        from = to;
    }
    db.run("vacuum (analyze)")
}

/// Bytes that are free where `folder` lies.
fn free(folder: &std::path::Path) -> anyhow::Result<u64> {
    let out = Command::new("df")
        .args(["--output=avail", "-B1"])
        .arg(folder)
        .output()?;
    let text = String::from_utf8(out.stdout)?;
    let last = text.lines().last().context("df says nothing")?;
    Ok(last.trim().parse()?)
}

impl Bench<'_> {
    fn ingress(&mut self, database: &str) -> anyhow::Result<Running> {
        self.programs.setup = Setup::default();
        let pool = self.pools.get(&[Sender::Stripe], Kind::Fresh, 1)?;
        let (sender, first) = Loaded::read_first(&pool.file)?;
        self.programs.start(Subject::Payhook, database, sender, &first)
    }

    /// A process with another role.
    fn beside(&mut self, database: &str, role: &str, more: &str) -> anyhow::Result<Running> {
        self.programs.setup = Setup {
            roles: role.to_owned(),
            more: more.to_owned(),
            ..Setup::default()
        };
        self.programs.start_beside(Subject::Payhook, database)
    }

    fn load(&mut self, running: &Running, wanted: u64) -> anyhow::Result<Generator> {
        let count = usize::try_from(wanted)?;
        let pool = self.pools.renew(&[Sender::Stripe], Kind::Fresh, count)?;
        let mut generator = Generator::start(&Plan {
            target: running.target,
            pool: &pool,
            paths: &Subject::Payhook.paths(),
            connections: 64,
            rate: None,
            skip: 0,
            wrap: false,
            prime: false,
        })?;
        generator.go()?;
        thread::sleep(Duration::from_secs(2));
        generator.phase()?;
        Ok(generator)
    }

    /// Acks a second at 64 connections.
    fn ingest(&mut self, database: &str) -> anyhow::Result<f64> {
        self.hosts.checkpoint()?;
        machine::quiet();
        let running = self.ingress(database)?;
        let wanted = (self.seconds.as_secs() + 3) * 45_000;
        let mut generator = self.load(&running, wanted)?;
        thread::sleep(self.seconds);
        let phase = generator.phase()?;
        anyhow::ensure!(!phase.exhausted, "the pool came to its end");
        generator.stop()?;
        Ok(phase.rate())
    }

    /// Events applied a second, from what [`Self::ingest`] left behind: nothing else goes on meanwhile.
    fn apply(&mut self, database: &str) -> anyhow::Result<f64> {
        const LEFT: &str = "select count(*) from outbox where kind = 'event'";
        self.hosts.checkpoint()?;
        let db = Db::new(database)?;
        let running = self.beside(database, "worker", "")?;
        thread::sleep(Duration::from_secs(2));
        let (began, before) = (Instant::now(), db.number(LEFT)?);
        thread::sleep(self.seconds);
        let (seconds, after) = (began.elapsed().as_secs_f64(), db.number(LEFT)?);
        drop(running);
        let applied = u64::try_from(before - after).unwrap_or_default();
        // What is left would be in the next round's way.
        let running = self.beside(database, "worker", "")?;
        let until = Instant::now() + Duration::from_mins(10);
        while db.number(LEFT)? > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(500));
        }
        drop(running);
        Ok(per_second(applied, seconds))
    }

    /// Each documented filter on values spread over the whole table.
    fn lookups(&mut self, database: &str, count: u64) -> anyhow::Result<Vec<Lookup>> {
        let db = Db::new(database)?;
        let all = db.number("select count(*) from events where account = 'filled'")?;
        let spread_over = u64::try_from(all)?.max(1);
        let started = Clock::system().now().minus(Duration::from_hours(25 * 24));
        let running = self.beside(database, "api", "")?;
        let paths: [(&'static str, &dyn Fn(u64) -> String); 16] = [
            ("events, newest first", &|_| "/v1/events".to_owned()),
            ("events?provider", &|_| "/v1/events?provider=alipay".to_owned()),
            ("events?provider, none", &|_| {
                "/v1/events?provider=antom".to_owned()
            }),
            ("events?account", &|_| "/v1/events?account=filled".to_owned()),
            ("events?account, none", &|_| {
                "/v1/events?account=nobody".to_owned()
            }),
            ("events?type", &|_| "/v1/events?type=refund.succeeded".to_owned()),
            ("events?type, none", &|_| {
                "/v1/events?type=dispute.opened".to_owned()
            }),
            ("events?order_id", &|n| {
                format!("/v1/events?order_id=filled-{}", n * 3 / 10)
            }),
            ("events?trade_id", &|n| {
                format!("/v1/events?trade_id=pi_filled_{}", n * 3 / 10)
            }),
            ("events?event_key", &|n| {
                format!("/v1/events?event_key=webhook:stripe:filled:{n}")
            }),
            ("events?outcome", &|_| "/v1/events?outcome=stale".to_owned()),
            ("events?outcome, none left", &|_| {
                "/v1/events?outcome=none".to_owned()
            }),
            ("events?since&until", &|n| {
                // Within the days that the filling spreads the younger events over.
                let at = started.plus(Duration::from_secs(n % (24 * 86_400)));
                format!("/v1/events?since={at}&until={}", at.plus(Duration::from_mins(1)))
            }),
            ("orders", &|_| "/v1/orders".to_owned()),
            ("orders?state", &|_| "/v1/orders?state=refunded".to_owned()),
            ("orders/{id}", &|n| format!("/v1/orders/filled-{}", n * 3 / 10)),
        ];
        let mut found = Vec::new();
        for (filter, path) in paths {
            let mut took = Vec::new();
            for n in 0..count {
                // Far apart, so that each touches other pages.
                let value = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) % spread_over;
                let request = format!(
                    "GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token-of-the-benchmark-only\r\n\
                     Connection: close\r\n\r\n",
                    path(value)
                );
                let began = Instant::now();
                let answer = once(running.admin, request.as_bytes())?;
                took.push(u64::try_from(began.elapsed().as_micros())?);
                anyhow::ensure!(answer.starts_with("HTTP/1.1 200"), "{}: {answer}", path(value));
            }
            took.sort_unstable();
            let at = |share: usize| took.get((took.len() * share / 100).min(took.len().saturating_sub(1)));
            let shown = |share| millis(at(share).copied().unwrap_or_default());
            found.push(Lookup {
                filter,
                p50: shown(50),
                p99: shown(99),
                longest: shown(100),
            });
        }
        Ok(found)
    }

    /// Ingest alone, and then beside the retention of what is past its age.
    fn purge(&mut self, database: &str, found: &mut Found) -> anyhow::Result<()> {
        let db = Db::new(database)?;
        let running = self.ingress(database)?;
        let wanted = (self.seconds.as_secs() * 2 + 25) * 45_000;
        let mut generator = self.load(&running, wanted)?;
        // A second process with the role that purges: it applies what comes in, too, before as well as meanwhile.
        let worker = self.beside(database, "worker", "[retention]\nevents = \"3650d\"\n")?;
        thread::sleep(Duration::from_secs(2));
        generator.phase()?;
        thread::sleep(self.seconds);
        let before: Phase = generator.phase()?;
        drop(worker);
        // Now with an age that only the old events are past.
        let purger = self.beside(database, "worker", "[retention]\nevents = \"30d\"\n")?;
        thread::sleep(Duration::from_secs(2));
        generator.phase()?;
        let left = "select n_tup_del from pg_stat_user_tables where relname = 'events'";
        let (began, gone) = (Instant::now(), db.number(left)?);
        thread::sleep(self.seconds);
        let during = generator.phase()?;
        let purged = u64::try_from(db.number(left)? - gone).unwrap_or_default();
        found.purged_a_second = per_second(purged, began.elapsed().as_secs_f64());
        found.ingest_before_purge = before.rate();
        found.ingest_while_purging = during.rate();
        anyhow::ensure!(!during.exhausted, "the pool came to its end");
        generator.stop()?;
        drop(purger);
        Ok(())
    }
}
