//! The consumer examples of `deploy/consumers`, as a reader would start them: Python and Node, against the real
//! RabbitMQ, with duplicates, replays, stale versions, a message that is none, and a connection that is cut.
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

fn replayed(replay: Option<&str>) -> Value {
    replay.map_or(Value::Null, |id| json!({ "id": id, "reason": "a test" }))
}

fn event(id: &str, replay: Option<&str>) -> Value {
    json!({
        "specversion": "1.0", "id": id, "source": "/notify/alipay/shop-cn", "type": "payment.succeeded",
        "time": "2026-11-29T04:05:06Z", "datacontenttype": "application/json",
        "data": { "merchant": "default", "order_id": "ORDER-1", "replay": replayed(replay), "content": null },
    })
}

fn order(version: u64, status: &str, replay: Option<&str>) -> Value {
    json!({
        "specversion": "1.0", "id": format!("default/ORDER-1/{version}"), "source": "/orders/default",
        "type": format!("order.{status}"), "subject": "ORDER-1",
        "time": "2026-11-29T04:05:06Z", "datacontenttype": "application/json",
        "data": { "merchant": "default", "order_id": "ORDER-1", "status": status, "version": version,
                  "replay": replayed(replay) },
    })
}

/// What is sent, and what has to become of it.
fn story() -> Vec<(Value, &'static str)> {
    vec![
        (event("e1", None), "handled"),
        (event("e1", None), "duplicate"),
        // An operator sends it again: once per replay.
        (event("e1", Some("r1")), "handled"),
        (event("e1", Some("r1")), "duplicate"),
        (event("e1", Some("r2")), "handled"),
        (event("e1", None), "duplicate"),
        // The replay overtakes the original.
        (event("e2", Some("r1")), "handled"),
        (event("e2", None), "duplicate"),
        // Versions: lower ones come too late, a replay of the newest counts, one of an old version does not.
        (order(1, "processing", None), "handled"),
        (order(3, "paid", None), "handled"),
        (order(2, "failed", None), "stale"),
        (order(3, "paid", None), "duplicate"),
        (order(3, "paid", Some("r1")), "handled"),
        (order(1, "processing", Some("r1")), "stale"),
        // Not one of payhook's messages: a consumer must not stop at it.
        (json!({ "id": "x" }), "refused"),
        (json!("text"), "refused"),
        (event("e3", None), "handled"),
    ]
}

/// Plays the story to a consumer, cuts its connection, starts it again, and looks at what it did.
async fn play(start: impl Fn(&str, &str) -> Consumer) {
    let queue = Queue::declare().await;
    let played = AssertUnwindSafe(act(&queue, start)).catch_unwind().await;
    queue.delete().await;
    if let Err(panic) = played {
        std::panic::resume_unwind(panic);
    }
}

async fn act(queue: &Queue, start: impl Fn(&str, &str) -> Consumer) {
    let proxy = Proxy::start();
    let mut consumer = start(&proxy.url(), queue.name());
    for (message, _) in story() {
        queue.publish(&message).await;
    }
    for (message, expected) in story() {
        let (id, verdict) = consumer.next();
        assert_eq!(verdict, expected, "{message}\n{}", consumer.errors());
        let known = (expected != "refused").then(|| message["id"].as_str().unwrap().to_owned());
        assert_eq!(id, known, "{message}");
    }
    assert_eq!(
        queue.dead_letters(2).await,
        2,
        "what is no message is kept for a human"
    );

    // Acknowledgements that were under way may be lost with the connection: those messages come again.
    proxy.cut();
    queue.publish(&event("e3", None)).await;
    queue.publish(&event("e4", None)).await;
    let after_cut = consumer.until("e4");
    assert_eq!(after_cut.last().unwrap().1, "handled", "{after_cut:?}");
    let before = after_cut.iter().take(after_cut.len() - 1);
    assert!(
        before
            .clone()
            .all(|(_, verdict)| verdict == "duplicate" || verdict == "refused"),
        "{after_cut:?}"
    );
    assert!(
        before.clone().any(|(id, _)| id.as_deref() == Some("e3")),
        "{after_cut:?}"
    );
    consumer.stop();

    // What it knew, it knows after a restart.
    let mut again = start(&proxy.url(), queue.name());
    queue.publish(&event("e1", None)).await;
    queue.publish(&event("e5", None)).await;
    let after_restart = again.until("e5");
    assert_eq!(after_restart.last().unwrap().1, "handled", "{after_restart:?}");
    assert!(
        after_restart.contains(&(Some("e1".to_owned()), "duplicate".to_owned())),
        "{after_restart:?}"
    );
    again.stop();
}

const SHIPMENTS: &str = "select count(*) from shipments where merchant = 'default' and order_id = 'ORDER-1'";

#[tokio::test(flavor = "multi_thread")]
async fn the_python_example_counts_each_message_once() {
    let python = installed("python", &["requirements.txt"], |folder| {
        let venv = folder.join("venv");
        vec![
            command("python3", &["-m", "venv"], &[&venv]),
            command(
                venv.join("bin/pip").to_str().unwrap(),
                &["install", "--quiet", "--disable-pip-version-check", "-r"],
                &[&example("python/requirements.txt")],
            ),
        ]
    })
    .join("venv/bin/python");
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("consumer.db");
    play(|amqp_url, queue| {
        let mut command = Command::new(&python);
        command
            .arg(example("python/consumer.py"))
            .env("DATABASE", &database);
        Consumer::start(command, amqp_url, queue)
    })
    .await;
    let mut db = SqliteConnection::connect(database.to_str().unwrap())
        .await
        .unwrap();
    let shipments: i64 = sqlx::query_scalar(SHIPMENTS).fetch_one(&mut db).await.unwrap();
    assert_eq!(shipments, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_example_counts_each_message_once() {
    let folder = installed("node", &["package.json", "package-lock.json"], |folder| {
        let mut install = command("npm", &["ci", "--no-audit", "--no-fund", "--silent"], &[]);
        install.current_dir(folder);
        vec![install]
    });
    // A module is looked for beside the file that imports it.
    let script = folder.join("consumer.mjs");
    fs::copy(example("node/consumer.mjs"), &script).unwrap();
    FreshStore::with_postgres(|fresh| async move {
        play(|amqp_url, queue| {
            let mut command = Command::new("node");
            command.arg(&script).env("DATABASE_URL", &fresh.url);
            Consumer::start(command, amqp_url, queue)
        })
        .await;
        let mut db = PgConnection::connect(&fresh.url).await.unwrap();
        let shipments: i64 = sqlx::query_scalar(SHIPMENTS).fetch_one(&mut db).await.unwrap();
        assert_eq!(shipments, 1);
    })
    .await;
}

fn command(program: &str, words: &[&str], paths: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.args(words).args(paths);
    command
}
