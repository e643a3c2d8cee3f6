//! The promise under fire: providers keep sending, servers are killed, and in the end each acked event is
//! stored once, published and applied, and each order is what its events say.
//!
//! The load is bounded so that the whole suite stays short; `PAYHOOK_STORM` multiplies it for a long run.

mod alarm;
mod failover;
mod network;
mod recount;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use payhook::time::Clock;
use rand::RngExt as _;
use tokio::sync::Mutex;

use super::support::daemon::{Daemon, Setup};
use super::support::servers::{PrivatePostgres, PrivateRabbitmq};
use super::support::services::amqp_url;
use super::support::store::FreshStore;
use super::support::traffic::{End, Signers, Story, Telling, shuffled, stories};

/// How long everything may take to settle after the last kill.
const SETTLE: Duration = Duration::from_mins(3);

/// Senders at once.
const SENDERS: usize = 24;

/// The weight that `PAYHOOK_STORM` gives.
fn weight() -> u32 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the length of a test by hand is no configuration of payhook's"
    )]
    let weight = std::env::var("PAYHOOK_STORM");
    weight.ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// How many stories.
fn scale(count: usize) -> usize {
    count * usize::try_from(weight()).unwrap()
}

/// How long this load may take to settle.
fn patience() -> Duration {
    SETTLE + Duration::from_mins(1) * (weight() - 1)
}

/// A load in progress: what is still to be acked, and how many answers there were.
struct Load {
    left: Mutex<Vec<Telling>>,
    total: usize,
    acked: AtomicUsize,
    refused: AtomicUsize,
}

/// Sends every telling until it is acked, as a provider does, to whichever daemon answers.
async fn send(load: &Load, signers: &Signers, daemons: &[Arc<Mutex<Daemon>>]) {
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(10))
        .build()
        .unwrap();
    let clock = Clock::system();
    let until = Instant::now() + patience();
    let sender = async |number: usize| loop {
        let Some(telling) = load.left.lock().await.pop() else {
            return;
        };
        let request = signers.sign(&telling, clock.now());
        let url = {
            let daemon = daemons.get(number % daemons.len()).unwrap().lock().await;
            daemon.notify_url(request.path)
        };
        let mut post = client.post(url).body(request.body.clone());
        for (name, value) in &request.headers {
            post = post.header(name, value);
        }
        let answer = match post.send().await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                answer.bytes().await.ok().map(|body| (status, body))
            }
            Err(_) => None,
        };
        match answer {
            Some((200, body)) => {
                assert_eq!(body.as_ref(), telling.sender.ack());
                load.acked.fetch_add(1, Ordering::SeqCst);
            }
            other => {
                if let Some((status, _)) = other {
                    assert_eq!(status, 503, "a genuine notification was refused");
                    load.refused.fetch_add(1, Ordering::SeqCst);
                }
                assert!(Instant::now() < until, "no ack for {telling:?}: {other:?}");
                load.left.lock().await.insert(0, telling);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    futures_util::future::join_all((0..SENDERS).map(sender)).await;
}

impl Load {
    fn new(stories: &[Story], seed: u64) -> Self {
        Self::with_again(stories, 20, seed)
    }

    /// `again` out of 100 are sent twice.
    fn with_again(stories: &[Story], again: u32, seed: u64) -> Self {
        let left = shuffled(stories, again, seed);
        Self {
            total: left.len(),
            left: Mutex::new(left),
            acked: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        }
    }

    /// Waits until `share` of 100 are acked.
    async fn reach(&self, share: usize) {
        let until = Instant::now() + patience();
        while self.acked.load(Ordering::SeqCst) * 100 < self.total * share {
            assert!(
                Instant::now() < until,
                "{} of {} acked",
                self.acked.load(Ordering::SeqCst),
                self.total
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until nothing is left to do, then compares every order with its story.
async fn judge(daemon: &Daemon, stories: &[Story]) {
    let until = Instant::now() + patience();
    let wanted: usize = stories.iter().map(|story| story.tellings.len()).sum();
    loop {
        let metrics = daemon.get("/metrics").await.1;
        let text = metrics.as_str().unwrap_or_default();
        let gauge = |name: &str| -> Option<f64> {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let wrong = wrong_orders(daemon, stories).await;
        let idle =
            gauge("payhook_outbox_rows ") == Some(0.0) && gauge("payhook_unfinished_events ") == Some(0.0);
        if idle && wrong.is_empty() {
            break;
        }
        assert!(
            Instant::now() < until,
            "not settled: {} orders wrong of {wanted} events, such as {:?}; outbox {:?}, without outcome {:?}",
            wrong.len(),
            wrong.first(),
            gauge("payhook_outbox_rows "),
            gauge("payhook_unfinished_events "),
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (_, letters) = daemon.get("/v1/dead-letters").await;
    assert_eq!(
        letters["items"].as_array().map(Vec::len),
        Some(0),
        "dead letters: {letters}"
    );
}

async fn wrong_orders(daemon: &Daemon, stories: &[Story]) -> Vec<(String, End, serde_json::Value)> {
    let mut wrong = Vec::new();
    for story in stories {
        let (status, order) = daemon.get(&format!("/v1/orders/{}", story.order_id)).await;
        let same = status == 200
            && order["status"] == story.end.status
            && order["paid"] == story.end.paid
            && order["refunded"] == story.end.refunded
            && ledger(&order) == (story.end.paid, -story.end.refunded);
        if !same {
            wrong.push((story.order_id.clone(), story.end.clone(), order));
            if wrong.len() > 3 {
                break;
            }
        }
    }
    wrong
}

/// Payments and refunds in an order's ledger.
fn ledger(order: &serde_json::Value) -> (i64, i64) {
    let sum = |kind: &str| -> i64 {
        let entries = order["ledger"].as_array().map(Vec::as_slice).unwrap_or_default();
        entries
            .iter()
            .filter(|e| e["entry_type"] == kind)
            .filter_map(|e| e["amount"].as_i64())
            .sum()
    };
    (sum("payment"), sum("refund"))
}

/// Kills the daemon at random moments of the load and starts it again.
async fn kill_at_random(daemon: &Mutex<Daemon>, load: &Load, times: usize) {
    for time in 1..=times {
        load.reach(time * 80 / (times + 1)).await;
        let pause = rand::rng().random_range(0..30);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let mut daemon = daemon.lock().await;
        daemon.kill();
        daemon.spawn();
        daemon.ready().await;
    }
}

async fn storm_of_kills(
    store: Option<&str>,
    broker: &str,
    prefix: &str,
    count: usize,
) -> (Arc<Mutex<Daemon>>, Vec<Story>) {
    let more = queues(broker, prefix);
    let setup = Setup {
        store,
        broker,
        prefix,
        broker_more: &more,
        patient: false,
    };
    let mut daemon = Daemon::new(&setup);
    daemon.start().await;
    let daemon = Arc::new(Mutex::new(daemon));
    let stories = stories(7, count, "k");
    let load = Load::new(&stories, 8);
    let signers = Signers::new();
    let daemons = [daemon.clone()];
    tokio::join!(send(&load, &signers, &daemons), kill_at_random(&daemon, &load, 5));
    judge(&*daemon.lock().await, &stories).await;
    (daemon, stories)
}

/// Consumer queues of this test's own, where there is a broker.
fn queues(broker: &str, prefix: &str) -> String {
    if broker == "embedded" {
        return String::new();
    }
    format!(
        r##"queues = [
  {{ name = "{prefix}.fulfilment", exchange = "orders", bind = ["order.paid"] }},
  {{ name = "{prefix}.evidence", exchange = "events", bind = ["#"] }} ]"##
    )
}

/// What a consumer that is not ours finds in a queue: message id → how often. Everything that is there, and at
/// least `distinct`.
pub(crate) async fn drain(url: &str, queue: &str, distinct: usize) -> BTreeMap<String, usize> {
    let seen = drain_until(url, queue, |seen| seen.len() >= distinct).await;
    assert!(seen.len() >= distinct, "{queue}: {} of {distinct}", seen.len());
    seen
}

/// The same; `complete` says whether all is there that must be.
async fn drain_until(
    url: &str,
    queue: &str,
    complete: impl Fn(&BTreeMap<String, usize>) -> bool,
) -> BTreeMap<String, usize> {
    let connection = lapin::Connection::connect(url, lapin::ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    let consume = BasicConsumeOptions::default();
    let mut consumer = channel
        .basic_consume(queue.into(), "test".into(), consume, FieldTable::default())
        .await
        .unwrap();
    let mut seen = BTreeMap::new();
    loop {
        // All that is there has been published before; what is missing is waited for.
        let patience = Duration::from_secs(if complete(&seen) { 2 } else { 30 });
        let Ok(next) = tokio::time::timeout(patience, consumer.next()).await else {
            break;
        };
        let delivery = next.unwrap().unwrap();
        let id = delivery
            .properties
            .message_id()
            .as_ref()
            .expect("a message id")
            .to_string();
        *seen.entry(id).or_default() += 1;
        delivery.ack(BasicAckOptions::default()).await.unwrap();
    }
    seen
}

/// Every event in the evidence queue, and one `order.paid` for each order that was paid. An order first known
/// as wholly refunded announces no payment: those may be missing.
async fn judge_queues(url: &str, prefix: &str, stories: &[Story]) {
    let events = stories.iter().map(|story| story.tellings.len()).sum();
    drain(url, &format!("{prefix}.evidence"), events).await;
    let named = |wanted: fn(&End) -> bool| -> BTreeSet<&str> {
        let stories = stories.iter().filter(|story| wanted(&story.end));
        stories.map(|story| story.order_id.as_str()).collect()
    };
    let paid = named(|end| end.paid > 0);
    let kept = named(|end| end.paid > end.refunded);
    // As many messages may be of others, which were paid too.
    let all_kept = |seen: &BTreeMap<String, usize>| {
        kept.iter().all(|order_id| {
            let any = format!("default/{order_id}/");
            let next = seen.range(any.clone()..).next();
            next.is_some_and(|(id, _)| id.starts_with(&any))
        })
    };
    let messages = drain_until(url, &format!("{prefix}.fulfilment"), all_kept).await;
    let announced: BTreeSet<&str> = messages.keys().map(|id| id.split('/').nth(1).unwrap()).collect();
    assert_eq!(messages.len(), announced.len(), "no order has two ids");
    assert!(announced.is_subset(&paid), "nothing unpaid is announced");
    assert!(
        kept.is_subset(&announced),
        "missing: {:?}",
        kept.difference(&announced)
    );
}

/// Removes what the test left on the shared broker.
pub(crate) async fn clean_up(url: &str, prefix: &str) {
    let connection = lapin::Connection::connect(url, lapin::ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    for queue in [
        "apply",
        "dead",
        "fulfilment",
        "fulfilment.dead",
        "evidence",
        "evidence.dead",
    ] {
        let name = format!("{prefix}.{queue}");
        channel
            .queue_delete(name.as_str().into(), QueueDeleteOptions::default())
            .await
            .unwrap();
    }
    for exchange in ["events", "orders"] {
        let name = format!("{prefix}.{exchange}");
        channel
            .exchange_delete(
                name.as_str().into(),
                lapin::options::ExchangeDeleteOptions::default(),
            )
            .await
            .unwrap();
    }
}

/// A prefix of one test's own.
pub(crate) fn prefix() -> String {
    format!("t{}", hex::encode(rand::random::<[u8; 5]>()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_loses_nothing_on_sqlite() {
    storm_of_kills(None, "embedded", "payhook", scale(150)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_loses_nothing_on_postgres_and_rabbitmq() {
    FreshStore::with_postgres(async |fresh| {
        let (url, prefix) = (amqp_url(), prefix());
        let (daemon, stories) = storm_of_kills(Some(&fresh.url), &url, &prefix, scale(200)).await;
        judge_queues(&url, &prefix, &stories).await;
        daemon.lock().await.kill();
        clean_up(&url, &prefix).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_share_the_work_and_one_may_die() {
    FreshStore::with_postgres(async |fresh| {
        let (url, prefix) = (amqp_url(), prefix());
        let more = queues(&url, &prefix);
        let setup = Setup {
            store: Some(&fresh.url),
            broker: &url,
            prefix: &prefix,
            broker_more: &more,
            patient: false,
        };
        let mut daemons = Vec::new();
        for _ in 0..2 {
            let mut daemon = Daemon::new(&setup);
            daemon.start().await;
            daemons.push(Arc::new(Mutex::new(daemon)));
        }
        let stories = stories(17, scale(200), "d");
        let load = Load::new(&stories, 18);
        let signers = Signers::new();
        let kill = async {
            load.reach(50).await;
            let mut second = daemons.get(1).unwrap().lock().await;
            second.kill();
            load.reach(60).await;
        };
        // The senders of the dead one wait until it is back, as a provider's retries do.
        let revive = async {
            load.reach(65).await;
            let mut second = daemons.get(1).unwrap().lock().await;
            second.spawn();
        };
        tokio::join!(send(&load, &signers, &daemons), async {
            kill.await;
            revive.await;
        });
        let first = daemons.first().unwrap().lock().await;
        judge(&first, &stories).await;
        judge_queues(&url, &prefix, &stories).await;
        drop(first);
        for daemon in &daemons {
            daemon.lock().await.kill();
        }
        clean_up(&url, &prefix).await;
    })
    .await;
}

/// D01, D25.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_wiped_servers_lose_nothing() {
    let postgres = Arc::new(Mutex::new(PrivatePostgres::start()));
    let rabbitmq = Arc::new(Mutex::new(PrivateRabbitmq::start()));
    let (store, broker) = (postgres.lock().await.url(), rabbitmq.lock().await.url());
    let more = format!("{}\nreapply_after = \"2s\"", queues(&broker, "payhook"));
    let setup = Setup {
        store: Some(&store),
        broker: &broker,
        prefix: "payhook",
        broker_more: &more,
        patient: false,
    };
    let mut daemon = Daemon::new(&setup);
    daemon.start().await;
    let daemon = Arc::new(Mutex::new(daemon));
    let stories = stories(27, scale(200), "s");
    let load = Load::new(&stories, 28);
    let signers = Signers::new();
    let daemons = [daemon.clone()];
    let faults = async {
        load.reach(15).await;
        in_thread(&rabbitmq, |broker| {
            broker.kill();
            broker.restart();
        })
        .await;
        load.reach(35).await;
        in_thread(&postgres, |postgres| {
            postgres.kill();
            postgres.restart();
        })
        .await;
        load.reach(60).await;
        in_thread(&rabbitmq, |broker| {
            broker.kill();
            broker.wipe();
            broker.restart();
        })
        .await;
    };
    tokio::join!(send(&load, &signers, &daemons), faults);
    judge(&*daemon.lock().await, &stories).await;
}

/// Servers are started and stopped by blocking calls.
async fn in_thread<T: Send + 'static>(server: &Arc<Mutex<T>>, work: impl FnOnce(&mut T) + Send + 'static) {
    let server = server.clone().lock_owned().await;
    let mut server = server;
    tokio::task::spawn_blocking(move || work(&mut server))
        .await
        .unwrap();
}

/// D02, D11, D25.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_closed_twenty_times_loses_nothing() {
    let rabbitmq = Arc::new(Mutex::new(PrivateRabbitmq::start()));
    let broker = rabbitmq.lock().await.url();
    let more = queues(&broker, "payhook");
    let setup = Setup {
        store: None,
        broker: &broker,
        prefix: "payhook",
        broker_more: &more,
        patient: false,
    };
    let mut daemon = Daemon::new(&setup);
    daemon.start().await;
    let daemon = Arc::new(Mutex::new(daemon));
    let stories = stories(37, scale(200), "c");
    let load = Load::new(&stories, 38);
    let signers = Signers::new();
    let daemons = [daemon.clone()];
    let faults = async {
        for time in 1..=20 {
            load.reach(time * 4).await;
            in_thread(&rabbitmq, |broker| {
                broker.ctl(&["close_all_connections", "test"]);
            })
            .await;
        }
    };
    tokio::join!(send(&load, &signers, &daemons), faults);
    judge(&*daemon.lock().await, &stories).await;
    judge_queues(&broker, "payhook", &stories).await;
}

/// Kills the daemon at `point` while it works, and asserts the promise.
#[cfg(feature = "crash-points")]
async fn die_at(point: &str, store: Option<&str>, broker: &str, prefix: &str) {
    let more = queues(broker, prefix);
    let setup = Setup {
        store,
        broker,
        prefix,
        broker_more: &more,
        patient: false,
    };
    let mut daemon = Daemon::new(&setup);
    // The second time, so that something has happened; but so little traffic may be swept up at one go.
    let time = if point == "relay.claimed" { 1 } else { 2 };
    daemon.env("PAYHOOK_CRASH_AT", &format!("{point}:{time}"));
    daemon.start().await;
    let daemon = Arc::new(Mutex::new(daemon));
    let stories = stories(47, 24, &point.replace('.', "-"));
    let load = Load::new(&stories, 48);
    let signers = Signers::new();
    let daemons = [daemon.clone()];
    let revive = async {
        // Not held while waiting: the senders ask it where to send.
        let until = Instant::now() + patience();
        while daemon.lock().await.is_running() {
            assert!(Instant::now() < until, "{point} was never reached");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut daemon = daemon.lock().await;
        daemon.clear_env();
        daemon.start().await;
    };
    tokio::join!(send(&load, &signers, &daemons), revive);
    judge(&*daemon.lock().await, &stories).await;
}

/// C21, C34.
#[cfg(feature = "crash-points")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_between_any_two_steps_loses_nothing() {
    use payhook::crash::Point;
    FreshStore::with_postgres(async |fresh| {
        let (url, prefix) = (amqp_url(), prefix());
        for (point, name) in Point::ALL {
            if name.starts_with("idempotency.") {
                continue;
            }
            let on_the_way_out = matches!(
                point,
                Point::RelayClaimed | Point::RelayPublished | Point::RelayConfirmed
            );
            if !on_the_way_out {
                die_at(name, None, "embedded", "payhook").await;
            }
            die_at(name, Some(&fresh.url), &url, &prefix).await;
        }
        clean_up(&url, &prefix).await;
    })
    .await;
}
