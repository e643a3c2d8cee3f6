//! Calls under an Idempotency-Key while the daemon dies: at every named point of their path, and at random.
//!
//! A caller that heard nothing asks again with the same key, until it is answered. Then there is one order and
//! one answer, whatever died when. `PAYHOOK_KILLS` says how often the daemon is killed in the long test.

#[cfg(feature = "crash-points")]
mod points;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::storm::{clean_up, drain, prefix};
use super::support::daemon::{Answered, Caller, Daemon, Setup};
use super::support::services::amqp_url;
use super::support::store::FreshStore;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Callers at once.
const CALLERS: usize = 12;

/// One daemon over one store, with a queue for what its orders announce where there is a broker.
struct Stage {
    fresh: FreshStore,
    broker: String,
    prefix: String,
}

impl Stage {
    fn daemon(&self) -> Daemon {
        let more = if self.broker == "embedded" {
            String::new()
        } else {
            let prefix = &self.prefix;
            format!(
                r#"queues = [
  {{ name = "{prefix}.fulfilment", exchange = "orders", bind = ["order.paid"] }},
  {{ name = "{prefix}.evidence", exchange = "orders", bind = ["order.closed"] }} ]"#
            )
        };
        Daemon::new(&Setup {
            store: Some(&self.fresh.url),
            broker: &self.broker,
            prefix: &self.prefix,
            broker_more: &more,
            ..Setup::default()
        })
    }

    /// What a minute does: the leases of the dead run out.
    async fn let_leases_run_out(&self) {
        let sql = "update idempotency_keys set lease_until = micros(0) where state = 'running'";
        self.fresh.by_hand(sql).await.unwrap();
    }

    async fn counted(&self, what: &str) -> i64 {
        self.fresh.number(&format!("select count(*) from {what}")).await
    }

    /// What the queue got, by message id.
    async fn announced(&self, queue: &str, distinct: usize) -> Option<BTreeMap<String, usize>> {
        if self.broker == "embedded" {
            return None;
        }
        Some(drain(&self.broker, &format!("{}.{queue}", self.prefix), distinct).await)
    }
}

/// With the embedded broker.
async fn on_sqlite<F: Future<Output = ()>>(test: impl FnOnce(Stage) -> F) {
    FreshStore::with_sqlite(async |fresh| {
        let (broker, prefix) = ("embedded".to_owned(), "payhook".to_owned());
        test(Stage {
            fresh,
            broker,
            prefix,
        })
        .await;
    })
    .await;
}

/// With RabbitMQ.
async fn on_postgres<F: Future<Output = ()>>(test: impl FnOnce(Stage) -> F) {
    FreshStore::with_postgres(async |fresh| {
        let (broker, prefix) = (amqp_url(), prefix());
        let stage = Stage {
            fresh,
            broker: broker.clone(),
            prefix: prefix.clone(),
        };
        test(stage).await;
        clean_up(&broker, &prefix).await;
    })
    .await;
}

fn registration(order_id: &str) -> Value {
    json!({"order_id": order_id, "amount": {"minor": 10_000, "currency": "CNY"}})
}

/// Asks again until there is an answer that is one.
async fn insist(caller: &Caller, path: &str, key: &str, body: &Value) -> Answered {
    let until = Instant::now() + PATIENCE;
    loop {
        let answered = caller.post(path, key, body).await;
        match &answered {
            None => {}
            Some(answer) if answer.status == 503 || answer.status == 429 => {}
            Some(answer) if answer.code().as_deref() == Some("request_in_progress") => {}
            Some(answer) => {
                assert!(answer.status < 300, "{path} {key}: {answer:?}");
                return answered.unwrap();
            }
        }
        assert!(
            Instant::now() < until,
            "{path} {key} is never answered: {answered:?}"
        );
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Callers that register orders, and close every other one, until they are told to stop.
struct Calls {
    stop: AtomicBool,
    begun: AtomicUsize,
    unheard: AtomicUsize,
    /// By path and key: what was answered.
    answers: Mutex<BTreeMap<(String, String), String>>,
}

impl Calls {
    async fn make(&self, caller: &Caller, number: usize) {
        let mut round = 0;
        while !self.stop.load(Ordering::SeqCst) {
            let order_id = format!("K{number}-{round}");
            self.one(caller, "/v1/orders", &order_id, &registration(&order_id))
                .await;
            if round % 2 == 1 {
                let path = format!("/v1/orders/{order_id}/close");
                self.one(caller, &path, &order_id, &json!({"reason": "a test"}))
                    .await;
            }
            round += 1;
        }
    }

    async fn one(&self, caller: &Caller, path: &str, key: &str, body: &Value) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let first = caller.post(path, key, body).await;
        if first.is_none() {
            self.unheard.fetch_add(1, Ordering::SeqCst);
        }
        let answer = insist(caller, path, key, body).await;
        if let Some(heard) = first.filter(|heard| heard.status < 300) {
            assert_eq!(heard.text, answer.text, "{path} {key} was answered in two ways");
        }
        let mut answers = self.answers.lock().await;
        answers.insert((path.to_owned(), key.to_owned()), answer.text);
    }
}

/// How often the daemon dies.
fn kills() -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "the length of a test by hand is no configuration of payhook's"
    )]
    let asked = std::env::var("PAYHOOK_KILLS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(4)
}

async fn die_at_random(stage: Stage) {
    let mut daemon = stage.daemon();
    daemon.start().await;
    let caller = daemon.caller();
    let calls = Arc::new(Calls {
        stop: AtomicBool::new(false),
        begun: AtomicUsize::new(0),
        unheard: AtomicUsize::new(0),
        answers: Mutex::default(),
    });
    let callers = futures_util::future::join_all((0..CALLERS).map(|number| calls.make(&caller, number)));
    let killer = async {
        for _ in 0..kills() {
            let begun = calls.begun.load(Ordering::SeqCst);
            let until = Instant::now() + PATIENCE;
            while calls.begun.load(Ordering::SeqCst) < begun + 3 {
                assert!(Instant::now() < until, "nobody calls any more");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let pause = rand::rng().random_range(0..60);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            daemon.kill();
            stage.let_leases_run_out().await;
            daemon.start().await;
        }
        calls.stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(callers, killer);

    let answers = calls.answers.lock().await;
    assert!(calls.unheard.load(Ordering::SeqCst) > 0, "no call was cut off");
    for ((path, key), text) in answers.iter() {
        let body = if path == "/v1/orders" {
            registration(key)
        } else {
            json!({"reason": "a test"})
        };
        let again = insist(&caller, path, key, &body).await;
        assert_eq!((again.replayed, &again.text), (true, text), "{path} {key}");
    }
    let closed = answers.keys().filter(|(path, _)| path != "/v1/orders").count();
    let orders = answers.len() - closed;
    let (all, registered) = (
        i64::try_from(answers.len()).unwrap(),
        i64::try_from(orders).unwrap(),
    );
    for (what, count) in [
        ("orders", registered),
        ("facts", all),
        ("order_history", all),
        ("audit", all),
        ("messages where routing_key = 'order.closed'", all - registered),
        ("idempotency_keys", all),
    ] {
        assert_eq!(stage.counted(what).await, count, "{what}");
    }
    if let Some(announced) = stage.announced("evidence", closed).await {
        assert_eq!(announced.len(), closed);
    }
    #[expect(clippy::print_stderr, reason = "figures of a long run by hand")]
    {
        eprintln!(
            "{} kills, {} calls, {} of them cut off, {orders} orders",
            kills(),
            answers.len(),
            calls.unheard.load(Ordering::SeqCst)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_cut_off_have_one_answer_on_sqlite() {
    on_sqlite(die_at_random).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_cut_off_have_one_answer_on_postgres_and_rabbitmq() {
    on_postgres(die_at_random).await;
}
