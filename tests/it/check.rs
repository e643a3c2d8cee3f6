//! `payhook check` and `payhook migrate` by the real binary: what is good, what is bad, and that looking at
//! something leaves it as it was.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use serde_json::Value;
use sqlx::Connection as _;
use tempfile::TempDir;

use crate::support::daemon::{Daemon, Setup};
use crate::support::rabbit::{Rabbit, Running};
use crate::support::servers::{PrivateRabbitmq, free_port};
use crate::support::store::FreshStore;

/// Far beyond the deadline of a look, and what a busy machine needs to start a process.
const PATIENCE: Duration = Duration::from_secs(20);

struct Ran {
    code: i32,
    report: Value,
    text: String,
}

/// Runs the binary on this configuration in a folder of its own.
fn run(folder: &Path, args: &[&str]) -> Ran {
    let began = Instant::now();
    let out = Command::new(env!("CARGO_BIN_EXE_payhook"))
        .args(args)
        .args(["--json", "--config", "payhook.toml"])
        .current_dir(folder)
        .env_remove("PAYHOOK_CONFIG")
        .output()
        .unwrap();
    assert!(began.elapsed() < PATIENCE, "it took {:?}", began.elapsed());
    let stdout = String::from_utf8(out.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    Ran {
        code: out.status.code().unwrap_or(-1),
        report: serde_json::from_str(&stdout).unwrap_or(Value::Null),
        text: format!("{stdout}{stderr}"),
    }
}

fn folder(config: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("payhook.toml"), config).unwrap();
    dir
}

fn check(config: &str) -> Ran {
    run(folder(config).path(), &["check"])
}

impl Ran {
    /// The finding about `what`: (level, message).
    fn finding(&self, what: &str) -> (&str, &str) {
        let found = self.report["findings"].as_array().into_iter().flatten();
        let one = found.into_iter().find(|found| found["what"] == what);
        let one = one.unwrap_or_else(|| panic!("nothing about {what}: {}", self.text));
        (one["level"].as_str().unwrap(), one["message"].as_str().unwrap())
    }
}

/// Every file below and what it holds.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn a_sqlite_file_is_looked_at_before_and_after_it_is_made_and_stays_as_it_is() {
    let dir = folder("[store]\nmigrate = false\n");
    let before = run(dir.path(), &["check"]);
    assert_eq!(before.code, 1, "{}", before.text);
    assert_eq!(before.finding("store").0, "problem");
    assert_eq!(contents(dir.path()).len(), 1, "check made something");

    let migrated = run(dir.path(), &["migrate"]);
    assert_eq!(migrated.code, 0, "{}", migrated.text);
    assert_eq!(migrated.report["store"], "sqlite");
    assert_eq!(migrated.report["before"], Value::Null);
    let version = migrated.report["after"].as_i64().unwrap();
    assert!(version >= 1);
    let again = run(dir.path(), &["migrate"]);
    assert_eq!((again.code, &again.report["before"]), (0, &version.into()));
    assert_eq!(again.report["after"], version);

    let there = contents(dir.path());
    let after = run(dir.path(), &["check"]);
    assert_eq!(after.code, 0, "{}", after.text);
    assert_eq!(after.report["ok"], true);
    for what in ["store", "store schema", "store journal_mode", "store synchronous"] {
        assert_eq!(after.finding(what).0, "ok", "{}", after.text);
    }
    let names = |files: &[(String, Vec<u8>)]| {
        files
            .iter()
            .map(|(name, bytes)| (name.clone(), bytes.len()))
            .collect::<Vec<_>>()
    };
    let now = contents(dir.path());
    assert!(
        now == there,
        "check changed something: {:?} {:?}",
        names(&there),
        names(&now)
    );
}

#[test]
fn a_file_that_cannot_be_the_store_is_a_problem() {
    let dir = folder("[store]\nurl = \"sqlite:nowhere/payhook.db\"\n");
    let ran = run(dir.path(), &["check"]);
    assert_eq!((ran.code, ran.finding("store").0), (1, "problem"), "{}", ran.text);
    assert!(!dir.path().join("nowhere").exists());

    let dir = folder("");
    fs::write(
        dir.path().join("payhook.db"),
        "not a database, whatever its name says",
    )
    .unwrap();
    let ran = run(dir.path(), &["check"]);
    assert_eq!((ran.code, ran.finding("store").0), (1, "problem"), "{}", ran.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_daemons_file_is_checked_and_not_migrated() {
    let mut daemon = Daemon::new(&Setup::default());
    daemon.start().await;
    let (code, said, _) = daemon.run(&["check", "--json"]);
    assert_eq!(code, 0, "{said}");
    let (code, _, said) = daemon.run(&["migrate"]);
    assert_eq!(code, 1);
    assert!(said.contains("another payhook daemon"), "{said}");
    let (status, _) = daemon.get("/v1/events").await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_does_not_migrate_serves_what_was_migrated_by_hand() {
    let mut daemon = Daemon::new(&Setup::default());
    daemon.env("PAYHOOK__STORE__MIGRATE", "false");
    let (code, _, said) = daemon.run(&["migrate"]);
    assert_eq!(code, 0, "{said}");
    let before = epochs(&daemon).await;
    daemon.start().await;
    let begun = epochs(&daemon).await - before;
    assert_eq!(begun, 2, "each start begins an epoch of both streams");
}

/// How many epochs of the feed its database knows.
async fn epochs(daemon: &Daemon) -> i64 {
    let url = format!("sqlite:{}", daemon.folder().join("payhook.db").display());
    let mut conn = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let count = sqlx::query_scalar("select count(*) from feed_epochs");
    count.fetch_one(&mut conn).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_is_judged_by_its_schema_and_its_settings() {
    FreshStore::with_postgres(|fresh| async move {
        let emptied = fresh
            .by_hand("drop schema public cascade; create schema public")
            .await;
        emptied.unwrap();
        let config = format!("[store]\nurl = \"{}\"\nmigrate = false\n", fresh.url);
        let before = check(&config);
        assert_eq!(before.code, 1, "{}", before.text);
        assert_eq!(before.finding("store").0, "ok");
        let (level, message) = before.finding("store schema");
        assert_eq!(level, "problem");
        assert!(message.contains("payhook migrate"), "{message}");
        for what in ["store fsync", "store full_page_writes"] {
            assert_eq!(before.finding(what).0, "ok", "{}", before.text);
        }

        let dir = folder(&config);
        let migrated = run(dir.path(), &["migrate"]);
        assert_eq!(migrated.code, 0, "{}", migrated.text);
        assert_eq!(migrated.report["store"], "postgres");
        assert_eq!(check(&config).code, 0);
    })
    .await;
}

#[test]
fn services_that_are_away_are_problems_and_never_hang() {
    let config = |store: u16, broker: u16| {
        format!(
            "[store]\nurl = \"postgres://payhook:hidden-word@127.0.0.1:{store}/payhook\"\n\
             [broker]\nurl = \"amqp://guest:hidden-word@127.0.0.1:{broker}/%2f\"\n"
        )
    };
    // Nobody listens; then somebody who never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|addr| (silent, addr.port())).unwrap();
    for (store, broker) in [(free_port(), free_port()), (silent.1, silent.1)] {
        let ran = check(&config(store, broker));
        assert_eq!((ran.code, &ran.report["ok"]), (1, &false.into()), "{}", ran.text);
        assert_eq!(ran.finding("store").0, "problem");
        assert_eq!(ran.finding("broker").0, "problem");
        assert!(!ran.text.contains("hidden-word"), "{}", ran.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_other_arguments_is_reported_and_nothing_is_declared() {
    Rabbit::with(|rabbit| async move {
        let queue = rabbit.name("q");
        let config = format!(
            "[broker]\nurl = \"{}\"\nprefix = \"{}\"\n\
             queues = [{{ name = \"{queue}\", exchange = \"orders\", bind = [\"order.paid\"] }}]\n",
            rabbit.url, rabbit.prefix
        );
        let clean = check(&config);
        assert_eq!(clean.code, 0, "{}", clean.text);
        let (level, message) = clean.finding(&format!("queue {queue}"));
        assert_eq!(level, "ok");
        assert!(message.contains("not there yet"), "{message}");
        assert_eq!(rabbit.ready(&queue).await, None, "check declared a queue");

        let channel = rabbit.channel().await;
        let options = QueueDeclareOptions::durable();
        let declared = channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
        declared.await.unwrap();
        let other = check(&config);
        assert_eq!(other.code, 1, "{}", other.text);
        let (level, message) = other.finding(&format!("queue {queue}"));
        assert_eq!(level, "problem");
        assert!(
            message.contains("x-queue-type") || message.contains("inequivalent"),
            "{message}"
        );
        assert_eq!(other.finding("broker").0, "ok");
        rabbit
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_says_what_the_policies_on_our_queues_will_do() {
    let node = PrivateRabbitmq::start();
    node.ctl(&["await_startup"]);
    let rabbit = Rabbit::at(&node.url()).await;
    let mut options = rabbit.options();
    options.config.queues = vec![rabbit.order_queue("order.paid")];
    FreshStore::with_sqlite(|fresh| async move {
        drop(Running::connected(&options, &fresh.store, "one").await);
    })
    .await;
    let (prefix, queue) = (&rabbit.prefix, rabbit.name("q"));
    let config = |management: &str| {
        format!(
            "[broker]\nurl = \"{}\"\nmanagement_url = \"{management}\"\nprefix = \"{prefix}\"\n\
             queues = [{{ name = \"{queue}\", exchange = \"orders\", bind = [\"order.paid\"] }}]\n",
            rabbit.url
        )
    };
    let management = node.management_url();
    let none = check(&config(&management));
    assert_eq!(none.code, 0, "{}", none.text);
    assert!(!none.text.contains("polic"), "{}", none.text);

    let apply = rabbit.name("apply");
    let set = |name: &str, queue: &str, definition: &str| {
        let pattern = format!("^{}$", queue.replace('.', "\\."));
        node.ctl(&["set_policy", name, &pattern, definition, "--apply-to", "queues"]);
    };
    set("short", &apply, r#"{"max-length":1,"message-ttl":5000}"#);
    set("aging", &rabbit.name("q.dead"), r#"{"message-ttl":9000}"#);
    let mut seen = check(&config(&management));
    let deadline = Instant::now() + PATIENCE;
    while !(seen.text.contains("max-length 1") && seen.text.contains("9000")) {
        assert!(Instant::now() < deadline, "{}", seen.text);
        seen = check(&config(&management));
    }
    assert_eq!(seen.code, 1, "{}", seen.text);
    let (level, message) = seen.finding(&format!("policy on {apply}"));
    assert_eq!(level, "warning");
    assert!(
        message.contains("short: ") && message.contains("sends again"),
        "{message}"
    );
    assert!(message.contains("message-ttl 5000"), "{message}");
    let (level, message) = seen.finding(&format!("policy on {queue}.dead"));
    assert_eq!(level, "problem");
    assert!(message.contains("aging") && message.contains("lost"), "{message}");

    let silent = format!("http://127.0.0.1:{}", free_port());
    let unseen = check(&config(&silent));
    let (level, message) = unseen.finding("policies");
    assert_eq!(level, "warning");
    assert!(message.contains("management_url"), "{message}");
    assert!(!unseen.text.contains("guest:guest"), "{}", unseen.text);
}

#[test]
fn a_configuration_that_cannot_be_used_is_a_two() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &["check"]).code, 2, "a file that is not there");
    let unknown = check("colour = 1\n[store]\nurl = \"mysql:x\"\n");
    assert_eq!(unknown.code, 2);
    assert_eq!(unknown.finding("colour").0, "problem");
    assert_eq!(unknown.finding("store.url").0, "problem");
    let keyless = check(
        "[[accounts]]\nprovider = \"alipay\"\nname = \"shop-cn\"\napp_id = \"2021000000000000\"\n\
         public_key_file = \"missing.pem\"\n",
    );
    assert_eq!(keyless.code, 2, "{}", keyless.text);
    assert!(keyless.text.contains("public_key_file"), "{}", keyless.text);
    let garbled = folder("");
    fs::write(garbled.path().join("payhook.toml"), [0xff, 0xfe, 0x00]).unwrap();
    assert_eq!(run(garbled.path(), &["check"]).code, 2);
}
