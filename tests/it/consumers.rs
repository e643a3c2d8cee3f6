//! The consumer examples of `deploy/consumers`, as a reader would start them: Python and Node, against the real
//! RabbitMQ, with versions that overtake each other, duplicates, replays, a message that is none, and a connection
//! that is cut. Whatever comes first, what was paid ships exactly once.
//!
//! Their packages are installed into `target/consumers` once. Java and Go are there as text.

mod process;
mod queue;

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection, SqliteConnection};

use self::process::{Consumer, installed};
use self::queue::{Proxy, Queue};
use super::support::store::FreshStore;

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/consumers")
        .join(path)
}

/// A message of an order's stream, as payhook writes it.
fn order(id: &str, version: u64, status: &str, replay: Option<&str>) -> Value {
    let replay = replay.map_or(Value::Null, |replay| json!({ "id": replay, "reason": "a test" }));
    json!({
        "specversion": "1.0", "id": format!("default/{id}/{version}"), "source": "/orders/default",
        "type": format!("order.{status}"), "subject": id,
        "time": "2026-11-29T04:05:06Z", "datacontenttype": "application/json",
        "data": { "merchant": "default", "order_id": id, "status": status, "version": version, "replay": replay },
    })
}

fn paid(id: &str) -> Value {
    order(id, 1, "paid", None)
}

fn event(id: &str) -> Value {
    json!({
        "specversion": "1.0", "id": id, "source": "/notify/alipay/shop-cn", "type": "payment.succeeded",
        "time": "2026-11-29T04:05:06Z", "datacontenttype": "application/json",
        "data": { "merchant": "default", "order_id": "ORDER-1", "replay": null, "content": null },
    })
}

/// What is sent to somebody who ships, and what has to become of it.
fn shipping() -> Vec<(Value, &'static str)> {
    vec![
        // Written in the same instant as `order.paid`, and here first: the order ships all the same, once.
        (order("ORDER-1", 2, "finished", None), "ignored"),
        (paid("ORDER-1"), "handled"),
        (paid("ORDER-1"), "duplicate"),
        (order("ORDER-1", 2, "finished", None), "ignored"),
        // An operator sends it again: nothing ships again.
        (order("ORDER-1", 1, "paid", Some("r1")), "duplicate"),
        (order("ORDER-1", 1, "paid", Some("r2")), "duplicate"),
        // The replay overtakes the original.
        (order("ORDER-2", 1, "paid", Some("r1")), "handled"),
        (paid("ORDER-2"), "duplicate"),
        // The same in the right order, with a later version and an event.
        (paid("ORDER-3"), "handled"),
        (order("ORDER-3", 2, "partially_refunded", None), "ignored"),
        (event("e1"), "ignored"),
        // Not one of payhook's messages: a consumer must not stop at it.
        (json!({ "id": "x" }), "refused"),
        (json!("text"), "refused"),
        (paid("ORDER-4"), "handled"),
    ]
}

/// What is sent to somebody who keeps a copy of the orders' state.
fn mirroring() -> Vec<(Value, &'static str)> {
    vec![
        (order("ORDER-1", 1, "processing", None), "handled"),
        (order("ORDER-1", 3, "finished", None), "handled"),
        (order("ORDER-1", 2, "paid", None), "stale"),
        (order("ORDER-1", 3, "finished", Some("r1")), "handled"),
        (order("ORDER-1", 1, "processing", Some("r1")), "stale"),
        (event("e1"), "ignored"),
        (json!({ "id": "x" }), "refused"),
    ]
}

/// Starts an example: for which work, at which broker, on which queue.
type Start<'a> = dyn Fn(&str, &str, &str) -> Consumer + 'a;

/// Plays both stories to an example.
async fn play(start: &Start<'_>) {
    let queue = Queue::declare().await;
    let played = AssertUnwindSafe(async {
        ships(&queue, start).await;
        mirrors(&queue, start).await;
    })
    .catch_unwind()
    .await;
    queue.delete().await;
    if let Err(panic) = played {
        std::panic::resume_unwind(panic);
    }
}

/// Sends a story and hears what became of each message.
async fn tell(queue: &Queue, consumer: &mut Consumer, story: &[(Value, &str)]) {
    for (message, _) in story {
        queue.publish(message).await;
    }
    for (message, expected) in story {
        let (id, verdict) = consumer.next();
        assert_eq!(verdict, *expected, "{message}\n{}", consumer.errors());
        let known = (*expected != "refused").then(|| message["id"].as_str().unwrap().to_owned());
        assert_eq!(id, known, "{message}");
    }
}

/// The story, with the connection cut and the consumer started again at its end.
async fn ships(queue: &Queue, start: &Start<'_>) {
    let proxy = Proxy::start();
    let mut consumer = start("ship", &proxy.url(), queue.name());
    tell(queue, &mut consumer, &shipping()).await;
    assert_eq!(
        queue.dead_letters(2).await,
        2,
        "what is no message is kept for a human"
    );

    // Acknowledgements that were under way may be lost with the connection: those messages come again.
    proxy.cut();
    queue.publish(&paid("ORDER-4")).await;
    queue.publish(&paid("ORDER-5")).await;
    let after_cut = consumer.until("default/ORDER-5/1");
    assert_eq!(after_cut.last().unwrap().1, "handled", "{after_cut:?}");
    let before = after_cut.iter().take(after_cut.len() - 1);
    assert!(
        before
            .clone()
            .all(|(_, verdict)| ["duplicate", "ignored", "refused"].contains(&verdict.as_str())),
        "{after_cut:?}"
    );
    assert!(
        before
            .clone()
            .any(|(id, _)| id.as_deref() == Some("default/ORDER-4/1")),
        "{after_cut:?}"
    );
    consumer.stop();

    // What it knew, it knows after a restart.
    let mut again = start("ship", &proxy.url(), queue.name());
    queue.publish(&paid("ORDER-1")).await;
    queue.publish(&paid("ORDER-6")).await;
    let after_restart = again.until("default/ORDER-6/1");
    assert_eq!(after_restart.last().unwrap().1, "handled", "{after_restart:?}");
    assert!(
        after_restart.contains(&(Some("default/ORDER-1/1".to_owned()), "duplicate".to_owned())),
        "{after_restart:?}"
    );
    again.stop();
}

async fn mirrors(queue: &Queue, start: &Start<'_>) {
    let proxy = Proxy::start();
    let mut consumer = start("mirror", &proxy.url(), queue.name());
    tell(queue, &mut consumer, &mirroring()).await;
    consumer.stop();
}

/// What both stories leave behind, one line each.
const LEFT: &str = "select 'shipped ' || order_id as line from shipments where merchant = 'default' \
    union all select order_id || ' ' || status || ' ' || version from mirrored_orders order by line";

const EXPECTED: [&str; 7] = [
    "ORDER-1 finished 3",
    "shipped ORDER-1",
    "shipped ORDER-2",
    "shipped ORDER-3",
    "shipped ORDER-4",
    "shipped ORDER-5",
    "shipped ORDER-6",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_python_example_counts_each_message_once() {
    let python = installed("python", &["requirements.txt"], |folder| {
        let venv = folder.join("venv");
        vec![
            command("python3", &["-m", "venv"], &[&venv]),
            command(
                venv.join("bin/pip").to_str().unwrap(),
                &[
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--retries",
                    "10",
                    "--timeout",
                    "60",
                    "-r",
                ],
                &[&example("python/requirements.txt")],
            ),
        ]
    })
    .join("venv/bin/python");
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("consumer.db");
    play(&|work, amqp_url, queue| {
        let mut command = Command::new(&python);
        command
            .arg(example("python/consumer.py"))
            .env("DATABASE", &database)
            .env("WORK", work);
        Consumer::start(command, amqp_url, queue)
    })
    .await;
    let mut db = SqliteConnection::connect(database.to_str().unwrap())
        .await
        .unwrap();
    let left: Vec<String> = sqlx::query_scalar(LEFT).fetch_all(&mut db).await.unwrap();
    assert_eq!(left, EXPECTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_example_counts_each_message_once() {
    let folder = installed("node", &["package.json", "package-lock.json"], |folder| {
        let mut install = command("npm", &["ci", "--no-audit", "--no-fund", "--silent"], &[]);
        install.args(["--fetch-retries", "5"]).current_dir(folder);
        vec![install]
    });
    // A module is looked for beside the file that imports it.
    let script = tempfile::Builder::new().suffix(".mjs").tempfile_in(&folder);
    let script = script.unwrap();
    fs::copy(example("node/consumer.mjs"), script.path()).unwrap();
    FreshStore::with_postgres(|fresh| async move {
        play(&|work, amqp_url, queue| {
            let mut command = Command::new("node");
            command
                .arg(script.path())
                .env("DATABASE_URL", &fresh.url)
                .env("WORK", work);
            Consumer::start(command, amqp_url, queue)
        })
        .await;
        let mut db = PgConnection::connect(&fresh.url).await.unwrap();
        let left: Vec<String> = sqlx::query_scalar(LEFT).fetch_all(&mut db).await.unwrap();
        assert_eq!(left, EXPECTED);
    })
    .await;
}

fn command(program: &str, words: &[&str], paths: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.args(words).args(paths);
    command
}
