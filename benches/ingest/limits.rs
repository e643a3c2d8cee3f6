//! The limit of the database: the same rows, in batches, by its own tool, with nobody verifying or answering.
//!
//! payhook fills a database; `psql` writes its rows into another one with the same tables, in transactions of a
//! fixed number of rows: as `insert … values` in one statement with its outbox rows, and as two `copy`s.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use crate::db::Db;
use crate::generator::{Generator, Plan};
use crate::hosts::Hosts;
use crate::load::per_second;
use crate::notification::Sender;
use crate::pool::{Kind, Loaded, Pools};
use crate::report::{Spread, Summary, spread};
use crate::round::names;
use crate::subject::{Programs, Subject};

/// Rows that are written.
const ROWS: usize = 60_000;
/// Rows of a transaction: what 64 connections can gather at most, and the recorder's cap.
const BATCHES: [usize; 2] = [64, 256];
/// Beyond the columns that have defaults.
const COLUMNS: &str = "id, event_key, provider, account, merchant, type, provider_event_type, subject, order_id, \
    trade_id, refund_id, amount, currency, orders, occurred_at, received_at, fingerprint, headers, body, content, \
    remote_addr";

/// Rows in a second.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Raw {
    pub(crate) senders: String,
    pub(crate) how: &'static str,
    pub(crate) batch: usize,
    pub(crate) per_second: Spread,
    /// Cores of the server.
    pub(crate) postgres: f64,
}

pub(crate) fn measure(
    programs: &Programs,
    hosts: &mut Hosts,
    pools: &mut Pools,
    senders: &[Sender],
    rounds: usize,
) -> anyhow::Result<Vec<Raw>> {
    let source = fill(programs, hosts, pools, senders)?;
    let folder = hosts.folder().to_owned();
    let mut found = Vec::new();
    for batch in BATCHES {
        for (how, script) in [
            ("insert", insert_script(&source, batch)?),
            ("copy", copy_script(&source, batch)?),
        ] {
            let file = folder.join(format!("{how}-{batch}.sql"));
            fs::write(&file, script)?;
            let (mut rates, mut cores) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let target = programs.database(Subject::Payhook, hosts)?;
                hosts.checkpoint()?;
                let (began, before) = (Instant::now(), hosts.used().postgres);
                psql(&target, &file)?;
                let seconds = began.elapsed().as_secs_f64();
                cores.push(hosts.used().postgres.cores_since(&before, seconds));
                let rows = Db::new(&target)?.number("select count(*) from outbox")?;
                rates.push(per_second(u64::try_from(rows)?, seconds));
                hosts.drop_database(&target)?;
            }
            found.push(Raw {
                senders: names(senders),
                how,
                batch,
                per_second: spread(rates),
                postgres: spread(cores).median,
            });
            fs::remove_file(file)?;
        }
    }
    hosts.drop_database(&source)?;
    Ok(found)
}

pub(crate) fn print(raw: &[Raw], summaries: &[Summary]) {
    println!();
    for limit in raw {
        println!(
            "raw {:<6} of {} rows, {:>3} in a transaction: {:>7.0} rows/s (least {:.0}, most {:.0}), Postgres {:.2} cores",
            limit.how,
            limit.senders,
            limit.batch,
            limit.per_second.median,
            limit.per_second.least,
            limit.per_second.most,
            limit.postgres,
        );
        for ours in summaries
            .iter()
            .filter(|s| s.subject == "payhook" && s.senders == limit.senders)
        {
            if ours.kind == "fresh" && ours.rate.is_none() && ours.rounds > 0 {
                println!(
                    "    payhook at {} connections: {:.2} × that",
                    ours.connections,
                    ours.per_second.median / limit.per_second.median.max(1e-9)
                );
            }
        }
    }
}

/// A database with [`ROWS`] events or a few more, written by payhook.
fn fill(
    programs: &Programs,
    hosts: &mut Hosts,
    pools: &mut Pools,
    senders: &[Sender],
) -> anyhow::Result<String> {
    let pool = pools.get(senders, Kind::Fresh, ROWS)?;
    let (sender, first) = Loaded::read_first(&pool.file)?;
    let database = programs.database(Subject::Payhook, hosts)?;
    let running = programs.start(Subject::Payhook, &database, sender, &first)?;
    let mut generator = Generator::start(&Plan {
        target: running.target,
        pool: &pool,
        paths: &Subject::Payhook.paths(),
        connections: 64,
        rate: None,
        skip: 1,
        wrap: false,
        prime: false,
    })?;
    generator.go()?;
    let db = Db::new(&database)?;
    let until = Instant::now() + Duration::from_mins(2);
    let wanted = i64::try_from(ROWS)?;
    while db.number("select count(*) from events")? < wanted {
        anyhow::ensure!(
            Instant::now() < until,
            "payhook did not fill the database in time"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    generator.stop()?;
    drop(running);
    Ok(database)
}

/// `insert … values (…), (…)` with the outbox rows in the same statement.
fn insert_script(source: &str, batch: usize) -> anyhow::Result<String> {
    let placeholders = COLUMNS.split(", ").map(|_| "%L").collect::<Vec<_>>().join(",");
    let statements = Db::new(source)?.texts(&format!(
        "select 'with fresh as (insert into events ({COLUMNS}) values ' \
         || string_agg(format('({placeholders})', {COLUMNS}), ',' order by event_key) \
         || ' on conflict (event_key) do nothing returning id) insert into outbox \
             (id, kind, event_id, created_at, due_at) select id, ''event'', id, ''epoch'', ''epoch'' from fresh;' \
         from (select *, (row_number() over (order by id) - 1) / {batch} as batch \
               from (select * from events order by id limit {ROWS}) as chosen) as numbered \
         group by batch order by batch"
    ))?;
    Ok(statements.join("\n"))
}

/// Two `copy`s in one transaction.
fn copy_script(source: &str, batch: usize) -> anyhow::Result<String> {
    let rows = |what: &str| -> anyhow::Result<Vec<String>> {
        let out = Command::new("psql")
            .args(["-qX", source, "-c"])
            .arg(format!(
                "copy (select {what} from events order by id limit {ROWS}) to stdout"
            ))
            .output()
            .context("psql")?;
        anyhow::ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8(out.stdout)?
            .lines()
            .map(str::to_owned)
            .collect())
    };
    let (events, outbox) = (rows(COLUMNS)?, rows("id, 'event', id, 'epoch', 'epoch'")?);
    let mut script = String::new();
    for (events, outbox) in events.chunks(batch).zip(outbox.chunks(batch)) {
        writeln!(
            script,
            "begin;\ncopy events ({COLUMNS}) from stdin;\n{}\n\\.\n\
             copy outbox (id, kind, event_id, created_at, due_at) from stdin;\n{}\n\\.\ncommit;",
            events.join("\n"),
            outbox.join("\n")
        )?;
    }
    Ok(script)
}

fn psql(database: &str, file: &Path) -> anyhow::Result<()> {
    let out = Command::new("psql")
        .args(["-qX", "-v", "ON_ERROR_STOP=1", database, "-f"])
        .arg(file)
        .stdout(Stdio::null())
        .output()
        .context("psql")?;
    anyhow::ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}
