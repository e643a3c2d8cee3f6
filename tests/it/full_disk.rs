//! A daemon on SQLite whose disk fills up and is freed again, and a store whose transactions fail at every step.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use payhook::store::orders::{self, OrderKey, OrderRow};
use payhook::store::{Store, StoreError, StoreOptions, Tx};
use payhook::time::{Clock, Timestamp};
use reqwest::Client;
use sqlx::Executor as _;
use tempfile::TempDir;

use crate::support::daemon::{Daemon, Setup};
use crate::support::events::{event, events};
use crate::support::proxy::{Network, Proxy};
use crate::support::rabbit::until;
use crate::support::store::{FreshStore, on_both_stores, patient};
use crate::support::traffic::{Signers, shuffled, stories};

/// A file system of its own that is soon full; unmounted at the end.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "payhook-test"])
            .arg(folder.path())
            .output()
            .unwrap();
        let why = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success(),
            "this test mounts a small file system and needs root: {why}"
        );
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the room that is left.
    fn fill(&self) -> PathBuf {
        let filler = self.path().join("filler");
        // It ends with the error that the disk is full.
        drop(fs::write(&filler, vec![0_u8; 64 << 20]));
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.path()).status());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_on_a_full_disk_takes_notifications_again_once_there_is_room() {
    let disk = SmallDisk::mount("12m");
    let url = format!("sqlite:{}", disk.path().join("payhook.db").display());
    let mut daemon = Daemon::new(&Setup {
        store: Some(&url),
        patient: false,
        ..Setup::default()
    });
    daemon.start().await;
    let (client, signers, clock) = (Client::new(), Signers::new(), Clock::system());
    let mut tellings = shuffled(&stories(7, 20_000, "FULL"), 0, 7).into_iter();
    let mut acked = 0;
    let mut filler = None;
    // What SQLite has already taken from the disk it still uses.
    loop {
        let telling = tellings.next().expect("the disk is full long before");
        let request = signers.sign(&telling, clock.now());
        match daemon.notify(&client, &request).await.expect("an answer").0 {
            200 => acked += 1,
            503 => break,
            other => panic!("answered {other}"),
        }
        if acked == 100 {
            filler = Some(disk.fill());
        }
    }
    until("readyz says no", async || daemon.get("/readyz").await.0 == 503).await;
    fs::remove_file(filler.expect("full by hand")).unwrap();
    let freed = Instant::now();
    let mut taken = 0;
    while taken < 10 {
        let telling = tellings.next().unwrap();
        let request = signers.sign(&telling, clock.now());
        match daemon.notify(&client, &request).await.expect("an answer").0 {
            200 => taken += 1,
            503 => assert!(
                freed.elapsed() < Duration::from_secs(2),
                "refused 2 s after there is room again"
            ),
            other => panic!("answered {other}"),
        }
    }
    until("readyz says yes", async || daemon.get("/readyz").await.0 == 200).await;
    let acked = acked + taken;
    until("all that was acked is applied", async || {
        let events = daemon.get("/v1/events?outcome=applied&limit=500").await.1;
        let mut applied = 0;
        let mut page = events;
        loop {
            applied += page["items"].as_array().map_or(0, Vec::len);
            let Some(cursor) = page["next_cursor"].as_str() else {
                break;
            };
            page = daemon
                .get(&format!("/v1/events?outcome=applied&limit=500&cursor={cursor}"))
                .await
                .1;
        }
        applied >= acked
    })
    .await;
}

on_both_stores! {
    async fn transaction_that_is_dropped_or_refused_leaves_its_connection_to_none(fresh) {
        let one = &fresh.store;
        let now = Timestamp::from_secs(1_796_000_000);
        fresh.by_hand("create table steps (id int primary key)").await.unwrap();
        for _ in 0..3 {
            let mut tx = one.begin().await.unwrap();
            execute(&mut tx, "insert into steps values (2)").await.unwrap();
            drop(tx);
            let mut tx = one.begin().await.unwrap();
            execute(&mut tx, "insert into steps values (3), (3)").await.unwrap_err();
            drop(tx);
            let mut tx = one.begin().await.unwrap();
            execute(&mut tx, "insert into steps values (4)").await.unwrap();
            tx.rollback().await.unwrap();
            one.probe(now).await.unwrap();
        }
        assert_eq!(fresh.number("select count(*) from steps").await, 0);
        assert_eq!(one.insert_fresh(&events(3), None).await.unwrap(), [true; 3]);
    }

    async fn transaction_takes_nothing_after_a_statement_that_failed(fresh) {
        let now = Timestamp::from_secs(1_796_000_000);
        let order = |id: &str, status: &str| {
            let key = OrderKey { merchant: "m".to_owned(), order_id: id.to_owned() };
            OrderRow { status: status.to_owned(), ..OrderRow::new(key, None) }
        };
        let mut tx = fresh.store.begin().await.unwrap();
        orders::insert(&mut tx, &[order("1", "pending")], now).await.unwrap();
        orders::insert(&mut tx, &[order("2", "paid")], now).await.unwrap_err();
        orders::insert(&mut tx, &[order("3", "pending")], now).await.unwrap_err();
        tx.commit().await.unwrap_err();
        assert_eq!(fresh.number("select count(*) from orders").await, 0);
        let mut tx = fresh.store.begin().await.unwrap();
        orders::insert(&mut tx, &[order("4", "pending")], now).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(fresh.number("select count(*) from orders").await, 1);
    }

    async fn transaction_abandoned_at_its_beginning_leaves_its_connection_to_none(fresh) {
        let one = fresh.store.dedicated(&StoreOptions { max_connections: 1, ..patient() });
        for _ in 0..20 {
            let began = tokio::time::timeout(Duration::from_micros(300), one.begin()).await;
            drop(began);
        }
        assert_eq!(one.insert_fresh(&events(3), None).await.unwrap(), [true; 3]);
        assert_eq!(fresh.number("select count(*) from events").await, 3);
    }
}

async fn execute(tx: &mut Tx, sql: &str) -> Result<(), sqlx::Error> {
    match tx {
        Tx::Postgres(conn) => conn.execute(sql).await.map(drop),
        Tx::Sqlite(conn) => conn.execute(sql).await.map(drop),
    }
}

/// SQLite ends the transaction by itself when its file may not grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_sqlite_ended_is_followed_by_one_that_works() {
    FreshStore::with_sqlite(|fresh| async move {
        for round in 0..3 {
            let mut tx = fresh.store.begin().await.unwrap();
            execute(&mut tx, "pragma max_page_count = 1").await.unwrap();
            tx.commit().await.unwrap();
            let large = Arc::new(event(&format!("large-{round}"), &vec![b'x'; 1 << 20]));
            let full = fresh.store.insert_fresh(&[large], None).await;
            assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");
            // The connection with the limit went with its transaction.
            let small = Arc::new(event(&format!("small-{round}"), b"content"));
            assert_eq!(fresh.store.insert_fresh(&[small], None).await.unwrap(), [true]);
        }
        assert_eq!(fresh.number("select count(*) from events").await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_connection_that_fails_at_any_step_is_replaced() {
    FreshStore::with_postgres(|fresh| async move {
        let proxy = Proxy::before(&fresh.url).await;
        let options = StoreOptions { max_connections: 1, ..patient() };
        let one = Store::open(&proxy.instead(&fresh.url), &options).await.unwrap();
        let recovers = async |step: &str| {
            proxy.set(Network::Open);
            let event = Arc::new(event(step, b"content"));
            assert_eq!(one.insert_fresh(&[event], None).await.unwrap(), [true], "{step}");
        };
        recovers("before").await;
        for end in ["commit", "rollback"] {
            let mut tx = one.begin().await.unwrap();
            tx.now().await.unwrap();
            proxy.set(Network::Cut);
            let ended = if end == "commit" { tx.commit().await } else { tx.rollback().await };
            assert!(matches!(ended, Err(StoreError::Unavailable(_))), "{end}: {ended:?}");
            recovers(end).await;
        }
        proxy.set(Network::Cut);
        one.begin().await.unwrap_err();
        recovers("begin").await;
        // The commit itself finds the fault.
        fresh.by_hand("create table late (id int primary key, other int references late (id) deferrable initially deferred)").await.unwrap();
        let mut tx = one.begin().await.unwrap();
        execute(&mut tx, "insert into late values (1, 2)").await.unwrap();
        tx.commit().await.unwrap_err();
        recovers("deferred").await;
        assert_eq!(fresh.number("select count(*) from late").await, 0);
    })
    .await;
}
