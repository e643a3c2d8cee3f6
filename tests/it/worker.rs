//! The worker with either broker and on either database: what is applied, what fails, what is not believed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use payhook::broker::{Broker, BrokerOptions};
use payhook::config::{AccountState, BrokerConfig, BrokerUrl};
use payhook::event::{Currency, Event, Fact, FactKind, Money, Notification, ProviderName, Reading};
use payhook::orders::apply::{Policy, Unknown};
use payhook::provider::{
    Ack, Explanation, KeyInfo, Provider, Reason, Refusal, Registered, Registry, Verdict, Verified,
};
use payhook::relay::{Relay, RelayOptions};
use payhook::store::outbox::{Bell, CLAIM, FailurePolicy, Handoff, Scope};
use payhook::store::{Store, StoreOptions};
use payhook::telemetry::AccountMeters;
use payhook::time::{Clock, Timestamp};
use payhook::worker::{Tally, Worker, WorkerOptions, WorkerParts};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::events::{ARRIVAL, event};
use crate::support::proxy::{Network, Proxy};
use crate::support::rabbit::{Rabbit, Running, until};
use crate::support::store::{FreshStore, on_both_stores};

/// Reads what the tests write: `paid {n}` pays order n; anything else is trouble.
#[derive(Debug)]
struct Scripted;

impl Provider for Scripted {
    fn verify(&self, _: &Notification) -> Result<Verified, Refusal> {
        Err(Refusal::new(Reason::BadSignature, "nothing comes in here"))
    }

    fn read(&self, content: &[u8], _: &str) -> Result<Reading, String> {
        let text = std::str::from_utf8(content).unwrap();
        let Some(n) = text.strip_prefix("paid ") else {
            assert!(text != "panic", "as the test wants it");
            return match text.strip_prefix("odd ") {
                Some(why) => Ok(Reading::unreadable("odd".to_owned(), why)),
                None => Err(format!("cannot read {text}")),
            };
        };
        let amount = Money::new(8888, Currency::CNY);
        let order = format!("order-{n}");
        let fact = Fact::of_trade(FactKind::PaymentSucceeded, &format!("trade-{n}"), "paid");
        Ok(Reading {
            kind: "payment.succeeded".to_owned(),
            order_id: Some(order.clone()),
            facts: vec![fact.with_amount(Some(amount)).for_order(Some(&order))],
            ..Reading::default()
        })
    }

    fn ack(&self, _: Verdict, _: &[u8]) -> Ack {
        unimplemented!("nothing comes in here")
    }

    fn explain(&self, _: &Notification) -> Explanation {
        unimplemented!("nothing comes in here")
    }

    fn keys(&self) -> Vec<KeyInfo> {
        Vec::new()
    }

    fn unchecked(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

pub(crate) fn paid(n: usize) -> Arc<Event> {
    Arc::new(event(&n.to_string(), format!("paid {n}").as_bytes()))
}

/// Events that cannot be applied, each for a reason of its own.
fn troubles() -> Vec<Arc<Event>> {
    let mut elsewhere = event("elsewhere", b"paid 900");
    "unknown".clone_into(&mut elsewhere.account);
    vec![
        Arc::new(event("panic", b"panic")),
        Arc::new(event("unreadable", b"nonsense")),
        Arc::new(elsewhere),
    ]
}

fn parts(store: &Store, broker: Broker, bell: &Bell) -> (WorkerParts, mpsc::Sender<Handoff>) {
    let registered = Registered {
        provider: ProviderName::Stripe,
        account: "shop".to_owned(),
        merchant: "default".to_owned(),
        state: AccountState::Active,
        rules: payhook::event::AccountRules::default(),
        scheme: Box::new(Scripted),
        meters: AccountMeters::new(ProviderName::Stripe, "shop", []),
    };
    let registry = Registry::from_iter([registered]);
    let (handoffs, received) = mpsc::channel(1024);
    let parts = WorkerParts {
        store: store.clone(),
        broker,
        registry: Arc::new(ArcSwap::from_pointee(registry)),
        policy: Policy {
            unknown: Unknown::Create,
            park_deadline: Duration::from_hours(24),
        },
        clock: Clock::fixed(Timestamp::from_micros(ARRIVAL)),
        bell: bell.clone(),
        handoffs: received,
    };
    (parts, handoffs)
}

fn options(max_attempts: u32) -> WorkerOptions {
    WorkerOptions {
        max_attempts,
        poll: Duration::from_millis(50),
        check_every: Duration::from_millis(500),
        ..WorkerOptions::default()
    }
}

pub(crate) fn embedded(store: &Store, process: &str, max_attempts: u32) -> (Worker, mpsc::Sender<Handoff>) {
    let config = BrokerConfig {
        url: BrokerUrl::Embedded,
        management_url: None,
        prefix: "payhook".to_owned(),
        reapply_after: Duration::from_mins(5),
        queues: Vec::new(),
    };
    let options_of_broker = BrokerOptions::new(config, vec!["default".to_owned()]);
    let (broker, _) = Broker::new(&options_of_broker, store.clone(), process).unwrap();
    let (parts, handoffs) = parts(store, broker, &Bell::default());
    (Worker::new(parts, options(max_attempts)), handoffs)
}

/// A relay and a worker at RabbitMQ, until dropped.
pub(crate) struct Flows {
    running: Running,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    _handoffs: (mpsc::Sender<Handoff>, mpsc::Sender<Handoff>),
}

impl Flows {
    pub(crate) async fn start(options_of_broker: &BrokerOptions, store: &Store, max_attempts: u32) -> Self {
        let running = Running::connected(options_of_broker, store, "one").await;
        let bell = Bell::default();
        let rabbitmq = running.rabbitmq.clone();
        let (to_relay, received) = mpsc::channel(16);
        let relay_options = RelayOptions {
            poll: Duration::from_millis(50),
            failures: FailurePolicy::new(max_attempts, false),
            ..RelayOptions::default()
        };
        let relay = Relay::new(
            store.clone(),
            rabbitmq.clone(),
            received,
            bell.clone(),
            "one",
            relay_options,
        );
        let (parts, to_worker) = parts(store, Broker::Rabbitmq(rabbitmq), &bell);
        let worker = Worker::new(parts, options(max_attempts));
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(relay.run(shutdown.clone()));
        tasks.spawn(worker.run(shutdown.clone()));
        Self {
            running,
            shutdown,
            tasks,
            _handoffs: (to_relay, to_worker),
        }
    }

    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

pub(crate) async fn make_due(fresh: &FreshStore) {
    fresh
        .by_hand("update outbox set due_at = micros(0)")
        .await
        .unwrap();
}

/// Stores an event as a newer version might: this one cannot read its `orders`.
async fn store_odd(fresh: &FreshStore, id: &str) -> String {
    let like = paid(9000);
    fresh
        .store
        .insert_fresh(std::slice::from_ref(&like), None)
        .await
        .unwrap();
    let (key, id) = (format!("webhook:stripe:shop:{id}"), format!("odd-{id}"));
    let copy = format!(
        "insert into events (id, event_key, provider, account, merchant, type, provider_event_type, orders, \
         occurred_at, received_at, fingerprint, headers, body) \
         select '{id}', '{key}', provider, account, merchant, type, provider_event_type, '\"of tomorrow\"', \
         occurred_at, received_at, fingerprint, headers, body from events where event_key = '{}'",
        like.key.as_str()
    );
    assert_eq!(fresh.by_hand(&copy).await.unwrap(), 1);
    let outbox = format!(
        "insert into outbox (id, kind, event_id, created_at, due_at) values ('{id}', 'event', '{id}', 0, 0)"
    );
    fresh.by_hand(&outbox).await.unwrap();
    key
}

pub(crate) async fn finished(fresh: &FreshStore) -> i64 {
    fresh.number("select count(*) from event_outcomes").await
}

/// Waits until nothing is left in a queue, at several looks: what a worker has in hand is not ready either, and comes
/// back if the worker stops.
async fn emptied(rabbit: &Rabbit, queue: &str) {
    let mut looks = 0;
    until("emptied", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        looks = if rabbit.ready(queue).await == Some(0) {
            looks + 1
        } else {
            0
        };
        looks == 3
    })
    .await;
}

/// How often each message id is in the queue.
async fn counted(rabbit: &Rabbit, queue: &str, count: usize) -> HashMap<String, usize> {
    let mut ids = HashMap::new();
    for seen in rabbit.take_all(queue, count).await {
        *ids.entry(seen.id).or_default() += 1;
    }
    ids
}

on_both_stores! {
    async fn without_a_broker_the_outbox_is_the_queue(fresh) {
        let (mut worker, handoffs) = embedded(&fresh.store, "one", 8);
        let handed = vec![paid(1), paid(2)];
        fresh.store.insert_fresh(&handed, Some("one")).await.unwrap();
        for event in &handed {
            let claimed_until = Instant::now() + CLAIM;
            handoffs.send(Handoff { event: Arc::clone(event), claimed_until }).await.unwrap();
        }
        let swept: Vec<_> = (3..=10).map(paid).collect();
        fresh.store.insert_fresh(&swept, None).await.unwrap();
        let tally = worker.step().await.unwrap();
        assert_eq!(tally, Tally { applied: 10, ..Tally::default() });
        assert_eq!(fresh.number("select count(*) from orders where status = 'paid'").await, 10);
        assert_eq!(fresh.number("select count(*) from outbox").await, 0, "messages too");
        assert_eq!(fresh.number("select count(*) from messages where routing_key = 'order.paid'").await, 10);
        assert_eq!(worker.step().await.unwrap(), Tally::default());
    }

    async fn a_claim_of_another_process_is_left_alone_until_it_runs_out(fresh) {
        let (mut worker, handoffs) = embedded(&fresh.store, "two", 8);
        let event = paid(1);
        fresh.store.insert_fresh(&[Arc::clone(&event)], Some("one")).await.unwrap();
        handoffs.send(Handoff { event, claimed_until: Instant::now() }).await.unwrap();
        assert_eq!(worker.step().await.unwrap(), Tally::default());
        make_due(&fresh).await;
        assert_eq!(worker.step().await.unwrap().applied, 1);
    }

    /// C26, D16.
    async fn trouble_costs_its_neighbours_nothing_and_is_buried_in_the_end(fresh) {
        let (mut worker, _handoffs) = embedded(&fresh.store, "one", 2);
        let mut batch = troubles();
        batch.extend((1..=5).map(paid));
        fresh.store.insert_fresh(&batch, None).await.unwrap();
        let first = worker.step().await.unwrap();
        assert_eq!(first, Tally { applied: 5, retried: 3, buried: 0 });
        assert_eq!(fresh.number("select count(*) from outbox where attempts = 1 and claimed_by is null").await, 3);
        make_due(&fresh).await;
        assert_eq!(worker.step().await.unwrap(), Tally { applied: 0, retried: 0, buried: 3 });
        make_due(&fresh).await;
        assert_eq!(worker.step().await.unwrap(), Tally::default());
        let mut errors = fresh.texts("select error from dead_letters").await;
        errors.sort();
        assert_eq!(errors, ["account stripe/unknown is not configured", "cannot read nonsense", "reading it panicked"]);
        assert_eq!(fresh.number("select count(*) from attention where code = 'dead_letter'").await, 3);
        assert_eq!(fresh.number("select count(*) from event_outcomes where outcome = 'dead'").await, 3);
    }

    async fn a_genuine_event_that_nobody_understands_is_a_humans_and_told_once(fresh) {
        let (mut worker, _handoffs) = embedded(&fresh.store, "one", 2);
        let odd = Arc::new(event("odd", b"odd the order id is longer than 255 bytes"));
        for _ in 0..2 {
            fresh.store.insert_fresh(&[Arc::clone(&odd)], None).await.unwrap();
            make_due(&fresh).await;
            worker.step().await.unwrap();
        }
        let told = "select outcome || ': ' || reason from event_outcomes";
        let told = fresh.texts(told).await;
        assert_eq!(told, ["attention: genuine, but it cannot be understood: the order id is longer than 255 bytes; \
            nothing was applied (order order-odd, trade trade-odd, 88.88 CNY)"]);
        assert_eq!(fresh.number("select count(*) from attention where code = 'event_unreadable' and state = 'open'").await, 1);
        for table in ["dead_letters", "orders", "facts", "outbox"] {
            assert_eq!(fresh.number(&format!("select count(*) from {table}")).await, 0, "{table}");
        }
    }

    /// C26: it is met first each time, and would be the end of every batch.
    async fn an_event_of_a_newer_version_is_buried_in_the_end_and_its_neighbours_go_on(fresh) {
        let (mut worker, _handoffs) = embedded(&fresh.store, "one", 2);
        store_odd(&fresh, "tomorrow").await;
        fresh.store.insert_fresh(&[paid(1), paid(2)], None).await.unwrap();
        assert_eq!(worker.step().await.unwrap(), Tally { applied: 3, retried: 1, buried: 0 });
        assert_eq!(worker.step().await.unwrap(), Tally::default());
        let waits = "select count(*) from outbox where id = 'odd-tomorrow' and attempts = 1 \
            and published_at is null and claimed_by is null";
        assert_eq!(fresh.number(waits).await, 1, "a newer daemon may read it");
        make_due(&fresh).await;
        assert_eq!(worker.step().await.unwrap(), Tally { applied: 0, retried: 0, buried: 1 });
        assert_eq!(worker.step().await.unwrap(), Tally::default());
        let letters = fresh.texts("select event_id || ' ' || event_key || ' ' || merchant from dead_letters").await;
        assert_eq!(letters, ["odd-tomorrow webhook:stripe:shop:tomorrow default"]);
        assert_eq!(fresh.number("select count(*) from outbox").await, 0);
        assert_eq!(fresh.number("select count(*) from event_outcomes where outcome = 'dead'").await, 1);
        assert_eq!(fresh.number("select count(*) from attention where code = 'dead_letter'").await, 1);
    }

    async fn through_rabbitmq_too_an_event_of_a_newer_version_stops_nobody(fresh) {
        Rabbit::with(|rabbit| async move {
            store_odd(&fresh, "in-the-outbox").await;
            let named = store_odd(&fresh, "in-the-queue").await;
            let good: Vec<_> = (1..=5).map(paid).collect();
            fresh.store.insert_fresh(&good, None).await.unwrap();
            // Published long ago, and confirmed: only the messages of this test name them. A row whose publish is
            // still owed would be published once its claim has run out, be it during the stop.
            let apart = "delete from outbox where id <> 'odd-in-the-outbox' \
                and event_id not in (select id from events where event_key = 'webhook:stripe:shop:9000')";
            assert_eq!(fresh.by_hand(apart).await.unwrap(), 6);
            let flows = Flows::start(&rabbit.options(), &fresh.store, 1).await;
            let apply = rabbit.name("apply");
            rabbit.put(&apply, Some(&named), b"").await;
            for event in &good {
                rabbit.put(&apply, Some(event.key.as_str()), b"").await;
            }
            until("all have ended", || async { finished(&fresh).await == 8 }).await;
            until("acked", || async { rabbit.ready(&apply).await == Some(0) }).await;
            flows.stop().await;
            assert_eq!(rabbit.ready(&apply).await, Some(0), "what has ended was acked");
            let mut letters = fresh.texts("select event_id from dead_letters").await;
            letters.sort();
            assert_eq!(letters, ["odd-in-the-outbox", "odd-in-the-queue"]);
            assert_eq!(fresh.number("select count(*) from event_outcomes where outcome = 'applied'").await, 6);
            rabbit
        })
        .await;
    }

    async fn what_an_older_daemon_cannot_read_waits_unpublished_for_a_newer_one(fresh) {
        Rabbit::with(|rabbit| async move {
            let named = store_odd(&fresh, "tomorrow").await;
            let flows = Flows::start(&rabbit.options(), &fresh.store, 8).await;
            let outbox = "select count(*) from outbox where id = 'odd-tomorrow' and published_at is null \
                and claimed_by is null and attempts > 0";
            until("the relay has met it", || async { fresh.number(outbox).await == 1 }).await;
            rabbit.put(&rabbit.name("apply"), Some(&named), b"").await;
            let twice = "select count(*) from outbox where id = 'odd-tomorrow' and attempts > 1";
            until("so has the worker", || async { fresh.number(twice).await == 1 }).await;
            flows.stop().await;
            assert_eq!(fresh.number("select count(*) from outbox where id = 'odd-tomorrow' and published_at is null").await, 1);
            assert_eq!(fresh.number("select count(*) from dead_letters").await, 0);
            make_due(&fresh).await;
            let newer = fresh.store.claim_due(Scope::First, "newer", 100).await.unwrap();
            assert!(newer.iter().any(|claimed| claimed.row == "odd-tomorrow"));
            rabbit
        })
        .await;
    }

    async fn through_rabbitmq_each_order_is_announced_once(fresh) {
        Rabbit::with(|rabbit| async move {
            let mut options = rabbit.options();
            options.config.queues = vec![rabbit.order_queue("order.paid")];
            let flows = Flows::start(&options, &fresh.store, 8).await;
            let batch: Vec<_> = (1..=150).map(paid).collect();
            fresh.store.insert_fresh(&batch, None).await.unwrap();
            until("all have ended", || async {
                finished(&fresh).await == 150 && fresh.number("select count(*) from outbox").await == 0
            })
            .await;
            flows.stop().await;
            let apply = rabbit.name("apply");
            assert_eq!(rabbit.ready(&apply).await, Some(0), "what was applied was acked");
            // The same again, by hand: known, and silent.
            for event in &batch[..20] {
                rabbit.put(&apply, Some(event.key.as_str()), b"").await;
            }
            let flows = Flows::start(&options, &fresh.store, 8).await;
            until("taken", || async { rabbit.ready(&apply).await == Some(0) }).await;
            flows.stop().await;
            let announced = counted(&rabbit, &rabbit.name("q"), 150).await;
            assert_eq!(announced.len(), 150);
            assert!(announced.values().all(|&times| times == 1));
            assert_eq!(fresh.number("select count(*) from orders where paid = 8888").await, 150);
            rabbit
        })
        .await;
    }

    /// D13.
    async fn trouble_in_the_queue_comes_back_by_the_sweep_and_not_by_the_queue(fresh) {
        Rabbit::with(|rabbit| async move {
            let flows = Flows::start(&rabbit.options(), &fresh.store, 2).await;
            let mut batch = troubles();
            batch.extend((1..=30).map(paid));
            fresh.store.insert_fresh(&batch, None).await.unwrap();
            until("good ones have ended", || async { finished(&fresh).await >= 30 }).await;
            until("the others are buried", || async {
                make_due_failed(&fresh).await;
                fresh.number("select count(*) from dead_letters").await == 3
            })
            .await;
            until("nothing is left", || async { fresh.number("select count(*) from outbox").await == 0 }).await;
            // Made due while a worker had it in hand, one may have been sent once more.
            let apply = rabbit.name("apply");
            emptied(&rabbit, &apply).await;
            flows.stop().await;
            assert_eq!(rabbit.ready(&apply).await, Some(0));
            assert_eq!(fresh.number("select cast(max(attempts) as bigint) from dead_letters").await, 2);
            rabbit
        })
        .await;
    }

    async fn a_message_is_believed_in_nothing_but_the_name_of_an_event(fresh) {
        Rabbit::with(|rabbit| async move {
            let flows = Flows::start(&rabbit.options(), &fresh.store, 8).await;
            let apply = rabbit.name("apply");
            let forged = br#"{"id":"webhook:stripe:shop:77","type":"payment.succeeded","data":{"order_id":"order-77"}}"#;
            rabbit.put(&apply, Some("webhook:stripe:shop:77"), forged).await;
            rabbit.put(&apply, None, b"no name").await;
            until("kept", || async { fresh.number("select count(*) from dead_letters").await == 2 }).await;
            until("acked", || async { rabbit.ready(&apply).await == Some(0) }).await;
            flows.stop().await;
            assert_eq!(rabbit.ready(&apply).await, Some(0), "not put back");
            assert_eq!(fresh.number("select count(*) from orders").await, 0);
            assert_eq!(fresh.number("select count(*) from dead_letters where event_id is null and message is not null").await, 2);
            assert_eq!(fresh.number("select count(*) from attention where code = 'dead_letter'").await, 1);
            rabbit
        })
        .await;
    }

    async fn a_dead_message_counts_only_when_workers_stopped_over_it(fresh) {
        Rabbit::with(|rabbit| async move {
            let (ended, expired, crashing) = (paid(1), paid(2), paid(3));
            fresh.store.insert_fresh(&[Arc::clone(&ended)], None).await.unwrap();
            let flows = Flows::start(&rabbit.options(), &fresh.store, 2).await;
            until("one has ended", || async { finished(&fresh).await == 1 }).await;
            // Published long ago, and no worker has them.
            fresh.store.insert_fresh(&[Arc::clone(&expired), Arc::clone(&crashing)], Some("nobody")).await.unwrap();
            fresh.by_hand("update outbox set published_at = micros(1), due_at = due_at + span(1000000000) where kind = 'event'").await.unwrap();
            let dead = rabbit.name("dead");
            let attempts = async |event: &Event| {
                let sql = format!("select attempts || ' ' || (due_at > created_at + span(900000000)) from outbox where id = '{}'", event.id);
                fresh.texts(&sql).await
            };
            for reason in ["expired", "maxlen", "rejected", "made up"] {
                rabbit.put_dead(&dead, expired.key.as_str(), reason).await;
            }
            rabbit.put(&dead, Some(expired.key.as_str()), b"").await;
            rabbit.put_dead(&dead, ended.key.as_str(), "delivery_limit").await;
            rabbit.put_dead(&dead, ended.key.as_str(), "expired").await;
            // One attempt in the store; the sweep sends it again, and it is applied.
            rabbit.put_dead(&dead, crashing.key.as_str(), "delivery_limit").await;
            until("counted and applied", || async { finished(&fresh).await == 2 }).await;
            emptied(&rabbit, &dead).await;
            let left = attempts(&expired).await;
            assert!(left == ["0 1"] || left == ["0 true"], "its own time stays: {left:?}");
            assert!(attempts(&ended).await.is_empty());
            // The last attempt.
            fresh.by_hand("update outbox set attempts = 1 where kind = 'event'").await.unwrap();
            rabbit.put_dead(&dead, expired.key.as_str(), "delivery_limit").await;
            until("buried", || async { finished(&fresh).await == 3 }).await;
            flows.stop().await;
            let mut outcomes = fresh.texts("select outcome from event_outcomes").await;
            outcomes.sort();
            assert_eq!(outcomes, ["applied", "applied", "dead"]);
            assert_eq!(fresh.texts("select event_id from dead_letters").await, [expired.id.as_str()]);
            assert_eq!(fresh.number("select cast(max(attempts) as bigint) from dead_letters").await, 2);
            rabbit
        })
        .await;
    }

    /// D02, D06.
    async fn a_worker_comes_back_when_its_queue_or_its_connection_is_gone(fresh) {
        Rabbit::with(|rabbit| async move {
            let proxy = Proxy::before(&rabbit.url).await;
            let mut options = rabbit.options();
            options.config.url = BrokerUrl::Rabbitmq(proxy.instead(&rabbit.url).into());
            let flows = Flows::start(&options, &fresh.store, 8).await;
            let play = async |n: usize| {
                fresh.store.insert_fresh(&[paid(n)], None).await.unwrap();
                until("ended", || async {
                    make_due_failed(&fresh).await;
                    finished(&fresh).await == i64::try_from(n).unwrap()
                })
                .await;
            };
            play(1).await;
            rabbit.delete(&rabbit.name("apply")).await;
            play(2).await;
            proxy.set(Network::Cut);
            until("down", || async { flows.running.rabbitmq.link() != payhook::broker::Link::Up }).await;
            proxy.set(Network::Open);
            play(3).await;
            flows.stop().await;
            rabbit
        })
        .await;
    }
}

/// What failed, was unlucky or got lost is due now, so that no test waits for minutes.
async fn make_due_failed(fresh: &FreshStore) {
    let sql = "update outbox set due_at = micros(0) where due_at > micros(0) and (claimed_by is null or published_at is null)";
    fresh.by_hand(sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_embedded_workers_on_one_database_apply_each_event_once() {
    FreshStore::with_postgres(|fresh| async move {
        let fresh = fresh;
        let batch: Vec<_> = (1..=250).map(paid).collect();
        fresh.store.insert_fresh(&batch, None).await.unwrap();
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut open = Vec::new();
        for process in ["one", "two"] {
            let (worker, handoffs) = embedded(&fresh.store, process, 8);
            open.push(handoffs);
            tasks.spawn(worker.run(shutdown.clone()));
        }
        until("all have ended", || async {
            finished(&fresh).await == 250 && fresh.number("select count(*) from outbox").await == 0
        })
        .await;
        shutdown.cancel();
        while tasks.join_next().await.is_some() {}
        assert_eq!(
            fresh
                .number("select count(*) from event_outcomes where outcome = 'applied'")
                .await,
            250
        );
        assert_eq!(
            fresh
                .number("select count(*) from orders where status = 'paid' and version = 1")
                .await,
            250
        );
        assert_eq!(fresh.number("select count(*) from messages").await, 250);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_its_store_gives_back_what_it_holds_and_waits() {
    FreshStore::with_postgres(|fresh| async move {
        let fresh = fresh;
        Rabbit::with(|rabbit| async move {
            let proxy = Proxy::before(&fresh.url).await;
            let url = proxy.instead(&fresh.url);
            let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
            let flows = Flows::start(&rabbit.options(), &store, 8).await;
            let batch: Vec<_> = (1..=20).map(paid).collect();
            // Stored and due far off: only the messages of this test name them.
            fresh.store.insert_fresh(&batch, Some("nobody")).await.unwrap();
            fresh
                .by_hand("update outbox set due_at = due_at + span(3600000000)")
                .await
                .unwrap();
            proxy.set(Network::Cut);
            let apply = rabbit.name("apply");
            for event in &batch {
                rabbit.put(&apply, Some(event.key.as_str()), b"").await;
            }
            until("given back", || async { rabbit.ready(&apply).await == Some(20) }).await;
            assert_eq!(finished(&fresh).await, 0);
            proxy.set(Network::Open);
            until("all have ended", || async { finished(&fresh).await == 20 }).await;
            emptied(&rabbit, &apply).await;
            flows.stop().await;
            assert_eq!(rabbit.ready(&apply).await, Some(0));
            assert_eq!(fresh.number("select count(*) from dead_letters").await, 0);
            rabbit
        })
        .await;
    })
    .await;
}

/// The statement is never answered, and its connection never ends: what a host that lost its power leaves behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whom_the_database_has_forgotten_begins_anew() {
    FreshStore::with_postgres(|fresh| async move {
        let fresh = fresh;
        Rabbit::with(|rabbit| async move {
            let proxy = Proxy::before(&fresh.url).await;
            let url = proxy.instead(&fresh.url);
            let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
            let flows = Flows::start(&rabbit.options(), &store, 8).await;
            let held = fresh.lock("orders in exclusive mode").await;
            let batch: Vec<_> = (1..=5).map(paid).collect();
            fresh.store.insert_fresh(&batch, None).await.unwrap();
            let waits = "select count(*) from pg_locks where not granted and relation = 'orders'::regclass";
            until("the worker is in a statement", || async {
                fresh.number(waits).await > 0
            })
            .await;
            proxy.set(Network::Forgotten);
            drop(held);
            let ended = async {
                while finished(&fresh).await < 5 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::time::timeout(Duration::from_mins(2), ended).await.unwrap();
            flows.stop().await;
            assert_eq!(fresh.number("select count(*) from dead_letters").await, 0);
            rabbit
        })
        .await;
    })
    .await;
}
