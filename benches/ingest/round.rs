//! One round: a program with an empty database, a load, the figures, and then the proof that nothing acked was
//! lost: the program is killed with -9 in the middle of the load, and what it stored is counted.

use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::db::Db;
use crate::generator::{Generator, Plan};
use crate::hosts::Hosts;
use crate::load::{Phase, per_second};
use crate::machine::{self, Used};
use crate::notification::Sender;
use crate::pool::{Kind, Loaded, Pools};
use crate::subject::{Programs, Running, Subject};

/// Fewer flushes of the log in a second than this, and the commits were not real.
const LEAST_SYNCS: f64 = 50.0;
/// How long the load goes on, uncounted, before the kill.
const TAIL: Duration = Duration::from_millis(300);

/// What is to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) subject: Subject,
    pub(crate) senders: Vec<Sender>,
    pub(crate) kind: Kind,
    pub(crate) connections: usize,
    pub(crate) rate: Option<u32>,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    /// No program will answer more in a second.
    pub(crate) most: Option<usize>,
}

/// Cores that each part used.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Cores {
    pub(crate) program: f64,
    pub(crate) postgres: f64,
    pub(crate) rabbitmq: f64,
    pub(crate) generator: f64,
    /// Everything else on the machine: the kernel's own threads, and whoever disturbs.
    pub(crate) other: f64,
}

/// How it was.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) subject: &'static str,
    pub(crate) senders: String,
    pub(crate) kind: String,
    pub(crate) connections: usize,
    pub(crate) rate: Option<u32>,
    pub(crate) phase: Phase,
    pub(crate) per_second: f64,
    pub(crate) cores: Cores,
    /// MiB, at its highest.
    pub(crate) memory: f64,
    /// Of Postgres's log, in a second; on SQLite, what the disk completed.
    pub(crate) syncs: f64,
    /// 8 KiB writes with a flush each, one after the other, just before.
    pub(crate) disk: f64,
    /// Milliseconds from the program's start to its first answer.
    pub(crate) first_answer: f64,
    /// All acks of the round, and the rows that were there after the kill.
    pub(crate) acked: u64,
    pub(crate) rows: [i64; 2],
    /// Why this round does not count.
    pub(crate) void: Option<String>,
}

/// Where a round takes place.
pub(crate) struct Place<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) hosts: &'a mut Hosts,
    pub(crate) pools: &'a mut Pools,
}

/// The CPU that each part has used.
pub(crate) struct Sample {
    program: Used,
    generator: Used,
    hosts: crate::hosts::HostsUsed,
    busy: f64,
}

impl Sample {
    pub(crate) fn take(hosts: &Hosts, program: u32, generator: u32) -> Self {
        Self {
            program: Used::of(program),
            generator: Used::of(generator),
            hosts: hosts.used(),
            busy: machine::busy(),
        }
    }

    pub(crate) fn cores_until(&self, later: &Self, seconds: f64) -> Cores {
        let program = later.program.cores_since(&self.program, seconds);
        let generator = later.generator.cores_since(&self.generator, seconds);
        let postgres = later.hosts.postgres.cores_since(&self.hosts.postgres, seconds);
        let rabbitmq = later.hosts.rabbitmq.cores_since(&self.hosts.rabbitmq, seconds);
        let all = (later.busy - self.busy) / seconds.max(1e-9);
        Cores {
            program,
            postgres,
            rabbitmq,
            generator,
            other: (all - program - generator - postgres - rabbitmq).max(0.0),
        }
    }
}

/// Measures `cell`.
pub(crate) fn run(place: &mut Place<'_>, cell: &Cell) -> anyhow::Result<Outcome> {
    let pool = place.pools.get(&cell.senders, cell.kind, pool_size(cell))?;
    // A forged first request would not be answered with an ack.
    let opening = place.pools.get(&cell.senders, Kind::Fresh, 1)?;
    let loaded = Loaded::read_first(&opening.file)?;
    let database = place.programs.database(cell.subject, place.hosts)?;
    place.hosts.checkpoint()?;
    machine::quiet();
    let disk = machine::flushes_a_second(place.hosts.folder())?;
    let mut running = place
        .programs
        .start(cell.subject, &database, loaded.0, &loaded.1)?;
    let plan = Plan {
        target: running.target,
        pool: &pool,
        paths: &cell.subject.paths(),
        connections: cell.connections,
        rate: cell.rate,
        skip: usize::from(cell.kind == Kind::Fresh),
        wrap: cell.kind != Kind::Fresh || !cell.subject.stores(),
        prime: cell.kind == Kind::Duplicate,
    };
    let mut generator = Generator::start(&plan)?;
    let before = (place.hosts.wal_syncs()?, machine::flushes());
    generator.go()?;
    thread::sleep(cell.warm_up);
    let warm = generator.phase()?;
    let began = Sample::take(place.hosts, running.pid(), generator.pid());
    thread::sleep(cell.measured);
    let ended = Sample::take(place.hosts, running.pid(), generator.pid());
    let phase = generator.phase()?;
    let memory = machine::peak_memory(running.pid());
    let cores = began.cores_until(&ended, phase.seconds);
    thread::sleep(TAIL);
    running.kill();
    let flushes = machine::flushes().saturating_sub(before.1);
    let tail = generator.stop()?;
    let seconds = warm.seconds + phase.seconds + tail.seconds;
    let first = u64::from(cell.subject.stores());
    let acked = warm.acks + phase.acks + tail.acks + first;
    let (rows, syncs) = counted(place.hosts, &running, before.0, flushes, seconds)?;
    let outcome = Outcome {
        subject: cell.subject.as_str(),
        senders: names(&cell.senders),
        kind: format!("{:?}", cell.kind).to_lowercase(),
        connections: cell.connections,
        rate: cell.rate,
        per_second: phase.rate(),
        void: void(cell, &[&warm, &phase, &tail], acked, rows, syncs, pool.count),
        phase,
        cores,
        memory,
        syncs,
        disk,
        first_answer: running.first_answer.as_secs_f64() * 1000.0,
        acked,
        rows,
    };
    drop(running);
    if cell.subject.stores() && !cell.subject.is_sqlite() {
        place.hosts.drop_database(&database)?;
    }
    Ok(outcome)
}

/// What the database holds after the kill, and how often the log was flushed.
fn counted(
    hosts: &Hosts,
    running: &Running,
    syncs_before: u64,
    flushes: u64,
    seconds: f64,
) -> anyhow::Result<([i64; 2], f64)> {
    let subject = running.subject;
    if !subject.stores() {
        return Ok(([0, 0], 0.0));
    }
    let db = Db::new(&running.database)?;
    // Statistics of a connection are there at the latest when it is gone.
    let gone = "select count(*) from pg_stat_activity where datname = current_database() \
                and pid <> pg_backend_pid() and backend_type = 'client backend'";
    if !subject.is_sqlite() {
        for _ in 0..500 {
            if db.number(gone)? == 0 {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    let [events, outbox] = subject.counts();
    let rows = [db.number(events)?, db.number(outbox)?];
    let syncs = if subject.is_sqlite() {
        flushes
    } else {
        hosts.wal_syncs()?.saturating_sub(syncs_before)
    };
    Ok((rows, per_second(syncs, seconds)))
}

/// Why a round does not count, if it does not.
fn void(
    cell: &Cell,
    phases: &[&Phase],
    acked: u64,
    rows: [i64; 2],
    syncs: f64,
    pool: usize,
) -> Option<String> {
    let (stores, fresh) = (cell.subject.stores(), cell.kind == Kind::Fresh);
    let wanted = match cell.kind {
        Kind::Fresh => acked,
        Kind::Duplicate => u64::try_from(pool).unwrap_or_default(),
        Kind::Forged => 1,
    };
    let [warm, phase, _] = phases else {
        return None;
    };
    let fewest = rows.into_iter().min().and_then(|rows| u64::try_from(rows).ok());
    if stores && fewest < Some(wanted) {
        return Some(format!("LOST: {wanted} acked, {rows:?} rows"));
    }
    if stores && fresh && cell.rate.is_none() && syncs < LEAST_SYNCS {
        return Some(format!("only {syncs:.0} flushes of the log in a second"));
    }
    if warm.exhausted || phase.exhausted {
        return Some("the pool came to its end".to_owned());
    }
    if phase.broken > 0 || warm.broken > 0 {
        return Some(format!("{} connections broke", warm.broken + phase.broken));
    }
    if phase.other > 0 {
        return Some(format!("{} answers were neither ack nor refusal", phase.other));
    }
    let wrong = if cell.kind == Kind::Forged {
        phase.acks
    } else {
        phase.refused
    };
    (wrong > 0).then(|| format!("{wrong} answers were not what such a request gets"))
}

/// More requests than the cell can send.
fn pool_size(cell: &Cell) -> usize {
    let fastest = match (cell.subject, cell.senders.as_slice()) {
        (Subject::Nothing, _) => 2_000,
        (Subject::Fastapi, _) => 6_000,
        (Subject::Express, _) => 10_000,
        (Subject::Payhook | Subject::Sqlite, [Sender::Stripe]) => 45_000,
        (Subject::Payhook | Subject::Sqlite, _) => 30_000,
    };
    let fastest = cell.most.map_or(fastest, |most| most.min(fastest));
    let rate = cell
        .rate
        .map_or(fastest, |rate| usize::try_from(rate).unwrap_or(fastest));
    let seconds = (cell.warm_up + cell.measured + Duration::from_secs(1)).as_secs();
    match cell.kind {
        Kind::Fresh => rate * usize::try_from(seconds).unwrap_or(1) + cell.connections,
        Kind::Duplicate | Kind::Forged => 20_000,
    }
}

pub(crate) fn names(senders: &[Sender]) -> String {
    let names: Vec<&str> = senders.iter().map(|sender| sender.as_str()).collect();
    names.join("+")
}
