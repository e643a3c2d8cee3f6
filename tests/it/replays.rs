//! Replays driven to their end: who gets what again, that no order moves, and that a crash in the middle costs nothing.
//!
//! The long one sends a few hundred events; `PAYHOOK_REPLAYS` says another number for a run by hand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use payhook::broker::{Broker, BrokerOptions};
use payhook::config::{BrokerConfig, BrokerUrl, Exchange, Queue};
use payhook::event::{Event, Replay};
use payhook::orders::apply::{Policy, Unknown};
use payhook::relay::{Relay, RelayOptions};
use payhook::replay::{Driver, Replays};
use payhook::store::feed::{Begin, FeedRead, Stream};
use payhook::store::outbox::{Bell, Scope};
use payhook::store::replays::{self, NewReplay, ReplayFilter, ReplayView, What};
use payhook::time::Clock;
use payhook::worker::{Worker, WorkerOptions, WorkerParts};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::replays::paid;
use crate::support::daemon::{Daemon, Setup};
use crate::support::events::events;
use crate::support::rabbit::{Rabbit, Running, until};
use crate::support::services::amqp_url;
use crate::support::signed::{self, Senders};
use crate::support::store::{FreshStore, on_both_stores};
use crate::support::traffic::{Happening, Sender, Signers, Telling};

const POLICY: Policy = Policy {
    unknown: Unknown::Create,
    park_deadline: Duration::from_hours(24),
};

pub(crate) fn over(fresh: &FreshStore, queues: &[Queue]) -> Replays {
    let registry = Arc::new(ArcSwap::from_pointee(signed::registry_of(&signed::accounts())));
    let clock = Clock::fixed(signed::now());
    Replays::new(fresh.store.clone(), registry, queues, POLICY, clock)
}

/// The embedded worker with today's mapping.
fn worker(fresh: &FreshStore) -> Worker {
    let config = BrokerConfig {
        url: BrokerUrl::Embedded,
        management_url: None,
        prefix: "payhook".to_owned(),
        reapply_after: Duration::from_mins(5),
        queues: Vec::new(),
    };
    let options = BrokerOptions::new(config, vec!["default".to_owned()]);
    let (broker, _) = Broker::new(&options, fresh.store.clone(), "one").unwrap();
    let (_, handoffs) = mpsc::channel(1);
    let parts = WorkerParts {
        store: fresh.store.clone(),
        broker,
        registry: Arc::new(ArcSwap::from_pointee(signed::registry_of(&signed::accounts()))),
        policy: POLICY,
        clock: Clock::fixed(signed::now()),
        bell: Bell::default(),
        handoffs,
    };
    Worker::new(parts, WorkerOptions::default())
}

/// Works until nothing is due.
async fn work(worker: &mut Worker) {
    while worker.step().await.unwrap().applied > 0 {}
}

pub(crate) async fn stored(fresh: &FreshStore, events: impl IntoIterator<Item = Event>) {
    let all: Vec<Arc<Event>> = events.into_iter().map(Arc::new).collect();
    for batch in all.chunks(200) {
        fresh.store.insert_fresh(batch, None).await.unwrap();
    }
}

pub(crate) struct Wish<'a> {
    pub(crate) what: What,
    pub(crate) queue: Option<&'a str>,
    pub(crate) filter: ReplayFilter,
    pub(crate) per_second: u32,
}

impl Default for Wish<'_> {
    fn default() -> Self {
        Self {
            what: What::Events,
            queue: None,
            filter: ReplayFilter::default(),
            per_second: 10_000,
        }
    }
}

pub(crate) async fn begin(fresh: &FreshStore, wish: Wish<'_>) -> String {
    let new = NewReplay {
        merchant: "default",
        actor: "ops",
        reason: "the queue was lost",
        what: wish.what,
        queue: wish.queue,
        filter: &wish.filter,
        per_second: wish.per_second,
    };
    let mut tx = fresh.store.begin().await.unwrap();
    let begun = replays::begin(&mut tx, &new).await.unwrap();
    tx.commit().await.unwrap();
    begun.id
}

pub(crate) async fn seen(fresh: &FreshStore, id: &str) -> ReplayView {
    fresh.store.replay("default", id).await.unwrap().unwrap()
}

/// What the orders are and everything they are made of, as text.
async fn orders(fresh: &FreshStore) -> Vec<String> {
    let mut all = Vec::new();
    for (columns, table) in [
        (
            "merchant, order_id, status, paid, refunded, reversed, version, updated_at",
            "orders",
        ),
        (
            "provider, trade_id, status, amount, refunded, updated_at",
            "trades",
        ),
        ("provider, key, kind, event_id", "facts"),
        ("provider, source, entry_type, amount", "ledger_entries"),
        ("order_id, event_id, outcome, reason", "order_history"),
        ("event_id, outcome, reason, decided_at", "event_outcomes"),
        ("id, routing_key", "messages"),
        ("code, source, state", "attention"),
    ] {
        let text: Vec<String> = columns
            .split(", ")
            .map(|name| format!("coalesce(cast({name} as text), '')"))
            .collect();
        let text = text.join(" || '|' || ");
        all.extend(
            fresh
                .texts(&format!("select {text} as line from {table} order by 1"))
                .await,
        );
    }
    assert!(!all.is_empty());
    all
}

/// The replay of each thing in the feed, once there are `count`: a write anywhere in the cluster holds it back.
async fn in_the_feed(fresh: &FreshStore, stream: Stream, count: usize) -> Vec<Option<Replay>> {
    let mut replays = Vec::new();
    until("the feed to show it", async || {
        let read = fresh
            .store
            .feed(stream, "default", &Begin::Oldest, 500)
            .await
            .unwrap();
        let FeedRead::Page { items, .. } = read else {
            panic!("expired")
        };
        replays = items.into_iter().map(|item| item.replay).collect();
        replays.len() >= count
    })
    .await;
    replays
}

on_both_stores! {
    async fn what_is_replayed_is_applied_again_and_moves_nothing(fresh) {
        let (mut worker, senders) = (worker(&fresh), Senders::new());
        stored(&fresh, (0..30).map(|n| paid(&senders, n))).await;
        work(&mut worker).await;
        let before = orders(&fresh).await;
        assert_eq!(fresh.number("select count(*) from orders where status = 'paid'").await, 30);

        let id = begin(&fresh, Wish::default()).await;
        let mut driver = Driver::new(over(&fresh, &[]), "one");
        until("the replay to end", async || {
            driver.step().await.unwrap();
            work(&mut worker).await;
            seen(&fresh, &id).await.state == "done"
        }).await;
        let ended = seen(&fresh, &id).await;
        assert_eq!((ended.total, ended.sent, ended.published, ended.refused), (Some(30), 30, 30, 0));
        assert_eq!(orders(&fresh).await, before);
        assert_eq!(fresh.number("select count(*) from outbox").await, 0);
        let feed = in_the_feed(&fresh, Stream::Events, 60).await;
        assert_eq!(feed.len(), 60);
        assert!(feed[..30].iter().all(Option::is_none), "the replays come behind");
        assert!(feed[30..].iter().flatten().all(|replay| replay.id == id && replay.reason == "the queue was lost"));
        assert_eq!(fresh.texts("select action || ' ' || actor from audit").await, ["replay.end ops"]);
        assert_eq!(driver.step().await.unwrap().driven, 0);
    }

    async fn a_mapping_that_was_mended_takes_effect(fresh) {
        let (mut worker, senders) = (worker(&fresh), Senders::new());
        // As a version stored and judged it that did not know the type.
        let mut older = paid(&senders, 1);
        "other.transaction.success".clone_into(&mut older.kind);
        stored(&fresh, [older.clone(), paid(&senders, 2)]).await;
        fresh.by_hand(&format!("delete from outbox where id = '{}'", older.id)).await.unwrap();
        let outcome = format!("insert into event_outcomes values ('{}', 'unmapped', 'it says nothing', 1)", older.id);
        fresh.by_hand(&outcome).await.unwrap();
        work(&mut worker).await;
        assert_eq!(fresh.texts("select order_id from orders").await, ["O-2"]);

        let filter = ReplayFilter { outcome: Some("unmapped".to_owned()), ..ReplayFilter::default() };
        let id = begin(&fresh, Wish { filter, ..Wish::default() }).await;
        let mut driver = Driver::new(over(&fresh, &[]), "one");
        until("the replay to end", async || {
            driver.step().await.unwrap();
            work(&mut worker).await;
            seen(&fresh, &id).await.state == "done"
        }).await;
        assert_eq!(seen(&fresh, &id).await.sent, 1, "the other one was not asked for");
        assert_eq!(fresh.texts("select order_id || ' ' || status from orders order by 1").await, ["O-1 paid", "O-2 paid"]);
        assert_eq!(fresh.texts("select outcome from event_outcomes order by 1").await, ["applied", "applied"]);
        assert_eq!(fresh.number("select count(*) from messages where routing_key = 'order.paid'").await, 2);
    }

    async fn one_drives_and_another_goes_on_where_it_stopped(fresh) {
        let senders = Senders::new();
        stored(&fresh, (0..40).map(|n| paid(&senders, n))).await;
        fresh.by_hand("delete from outbox").await.unwrap();
        let id = begin(&fresh, Wish { per_second: 25, ..Wish::default() }).await;
        let mut one = Driver::new(over(&fresh, &[]), "one");
        let mut two = Driver::new(over(&fresh, &[]), "two");
        let began = Instant::now();
        until("some to be sent", async || one.step().await.unwrap().sent > 0).await;
        assert_eq!(two.step().await.unwrap().driven, 0, "driven by the first");
        // The first one dies, and its lease runs out.
        fresh.by_hand("update replays set leased_until = micros(0)").await.unwrap();
        until("the second to take over", async || two.step().await.unwrap().driven == 1).await;
        until("all to be sent", async || {
            two.step().await.unwrap();
            // It was not dead after all, and moves nothing any more.
            one.step().await.unwrap();
            seen(&fresh, &id).await.sent == 40
        }).await;
        let pace = began.elapsed().as_millis() * 25 / 1000 + 10;
        assert!(pace >= 40, "faster than it was asked for");
        assert_eq!(fresh.number("select count(*) from outbox").await, 40, "each once");
        assert_eq!(fresh.number("select count(*) from replays_sent").await, 40);
    }

    async fn a_replay_waits_while_the_outbox_is_behind_and_can_be_cancelled(fresh) {
        let replays = over(&fresh, &[]);
        let all: Vec<Event> = events(1300).iter().map(|event| {
            let mut event = Event::clone(event);
            event.provider = "wechatpay".parse().unwrap();
            "shop-cn".clone_into(&mut event.account);
            event
        }).collect();
        stored(&fresh, all).await;
        fresh.by_hand("delete from outbox").await.unwrap();
        let id = begin(&fresh, Wish::default()).await;
        let mut driver = Driver::new(replays, "one");
        until("as much as may wait", async || {
            driver.step().await.unwrap();
            seen(&fresh, &id).await.sent == 1000
        }).await;
        assert_eq!(driver.step().await.unwrap().sent, 0);
        assert_eq!(seen(&fresh, &id).await.published, 0);
        fresh.by_hand("update outbox set published_at = micros(1) where id in (select id from outbox order by id limit 10)").await.unwrap();

        // Claimed just now: these are on their way.
        assert_eq!(fresh.store.claim_due(Scope::First, "relay", 5).await.unwrap().len(), 5);
        let mut tx = fresh.store.begin().await.unwrap();
        assert_eq!(replays::cancel(&mut tx, "other", &id).await.unwrap(), None);
        assert_eq!(replays::cancel(&mut tx, "default", &id).await.unwrap(), Some(985));
        tx.commit().await.unwrap();
        let ended = seen(&fresh, &id).await;
        assert_eq!((ended.state.as_str(), ended.sent, ended.published), ("cancelled", 15, 10));
        assert_eq!(fresh.number("select count(*) from outbox").await, 15);
        assert_eq!(driver.step().await.unwrap().driven, 0);
    }

    async fn replays_share_what_may_wait_in_the_outbox(fresh) {
        let replays = over(&fresh, &[]);
        let all: Vec<Event> = events(700).iter().map(|event| {
            let mut event = Event::clone(event);
            event.provider = "wechatpay".parse().unwrap();
            "shop-cn".clone_into(&mut event.account);
            event
        }).collect();
        stored(&fresh, all).await;
        fresh.by_hand("delete from outbox").await.unwrap();
        let mut begun = Vec::new();
        for _ in 0..5 {
            begun.push(begin(&fresh, Wish::default()).await);
        }
        let mut driver = Driver::new(replays, "one");
        for _ in 0..10 {
            driver.step().await.unwrap();
        }
        for id in &begun {
            let sent = seen(&fresh, id).await.sent;
            assert!((100..=200).contains(&sent), "{sent} of the first thousand");
        }
        assert!(fresh.number("select count(*) from outbox").await <= 1000);
    }

    async fn one_queue_alone_gets_it_and_only_what_it_asks_for(fresh) {
        Rabbit::with(|rabbit| async move {
            let queue = |name: &str, exchange, bind: &str| Queue { name: rabbit.name(name), exchange, bind: vec![bind.to_owned()] };
            let queues = [queue("q", Exchange::Orders, "order.paid"), queue("q2", Exchange::Events, "wechatpay.#")];
            let mut options = rabbit.options();
            options.config.queues = queues.to_vec();
            let running = Running::connected(&options, &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "#").await;
            let (mut worker, senders) = (worker(&fresh), Senders::new());
            stored(&fresh, (0..3).map(|n| paid(&senders, n))).await;
            stored(&fresh, [crate::support::events::event("x", b"{}")]).await;
            work(&mut worker).await;
            fresh.by_hand("delete from outbox").await.unwrap();
            // A message that the queue does not ask for.
            let blob = if fresh.is_postgres() { "convert_to('{\"data\":{}}', 'utf8')" } else { "cast('{\"data\":{}}' as blob)" };
            fresh.by_hand(&format!("insert into messages (id, merchant, order_id, routing_key, body, created_at)
                values ('default/O-0/9', 'default', 'O-0', 'order.updated', {blob}, 1)")).await.unwrap();
            let before = orders(&fresh).await;

            let (_open, received) = mpsc::channel(1);
            let mut relay = Relay::new(fresh.store.clone(), running.rabbitmq.clone(), received, Bell::default(), "one", RelayOptions::default());
            let mut driver = Driver::new(over(&fresh, &queues), "one");
            let (fulfilment, evidence) = (rabbit.name("q"), rabbit.name("q2"));
            let events = begin(&fresh, Wish { queue: Some(&evidence), ..Wish::default() }).await;
            let messages = begin(&fresh, Wish { what: What::Orders, queue: Some(&fulfilment), ..Wish::default() }).await;
            until("both to end", async || {
                driver.step().await.unwrap();
                relay.step().await.unwrap();
                seen(&fresh, &events).await.state == "done" && seen(&fresh, &messages).await.state == "done"
            }).await;
            for (id, queue, refused) in [(&events, &evidence, "payment.succeeded"), (&messages, &fulfilment, "order.updated")] {
                let ended = seen(&fresh, id).await;
                assert_eq!((ended.total, ended.sent, ended.published, ended.refused), (Some(4), 3, 3, 1));
                assert_eq!(ended.refusals[0].reason, format!("queue {queue} does not ask for {refused}"));
                let got = rabbit.take_all(queue, 3).await;
                assert_eq!(got.len(), 3);
                for message in got {
                    let body: Value = serde_json::from_slice(&message.body).unwrap();
                    assert_eq!(body["id"], message.id);
                    assert_eq!(body["data"]["replay"]["id"], id.as_str());
                }
            }
            assert!(rabbit.take(&own).await.is_none(), "nobody else gets it");
            assert_eq!(rabbit.ready(&rabbit.name("apply")).await, Some(0), "nor do the workers");
            assert_eq!(fresh.number("select count(*) from replays_sent").await, 0, "nor do the readers of the feed");
            assert_eq!(fresh.number("select count(*) from outbox").await, 0);
            assert_eq!(orders(&fresh).await, before);

            // To everybody: both queues that ask, and the feed.
            let again = begin(&fresh, Wish { what: What::Orders, filter: ReplayFilter { order_id: Some("O-1".to_owned()), ..ReplayFilter::default() }, ..Wish::default() }).await;
            until("it to end", async || {
                driver.step().await.unwrap();
                relay.step().await.unwrap();
                seen(&fresh, &again).await.state == "done"
            }).await;
            let got = rabbit.take_all(&fulfilment, 1).await;
            assert_eq!((got.len(), got[0].id.as_str(), got[0].routing_key.as_str()), (1, "default/O-1/1", "order.paid"));
            let feed = in_the_feed(&fresh, Stream::Orders, 5).await;
            assert_eq!(feed.iter().flatten().filter(|replay| replay.id == again).count(), 1);
            rabbit
        })
        .await;
    }
}

/// How many events the test with a crash replays.
fn count() -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "the length of a test by hand is no configuration of payhook's"
    )]
    let asked = std::env::var("PAYHOOK_REPLAYS")
        .ok()
        .and_then(|text| text.parse().ok());
    asked.unwrap_or(240)
}

fn telling(number: usize) -> Telling {
    Telling {
        sender: Sender::Wechat,
        order_id: format!("AGAIN-{number}"),
        trade_id: format!("42000{number:06}"),
        amount: 8888,
        number,
        happening: Happening::Paid,
    }
}

/// Sends the events, lets them be applied, begins a replay of all, kills the daemon in the middle and starts it
/// again. Gives the replay's id.
async fn killed_in_the_middle(
    fresh: &FreshStore,
    daemon: &mut Daemon,
    settled: impl AsyncFn() -> bool,
) -> String {
    let (client, signers) = (reqwest::Client::new(), Signers::new());
    let nowhere = daemon.notify_url("/");
    until("the public listener", async || {
        client.get(&nowhere).send().await.is_ok()
    })
    .await;
    for number in 0..count() {
        let request = signers.sign(&telling(number), Clock::system().now());
        let (status, _) = daemon.notify(&client, &request).await.unwrap();
        assert_eq!(status, 200);
    }
    until("everything to be applied", &settled).await;
    let before = orders(fresh).await;

    let rate = (count() / 4).max(1).to_string();
    let args = [
        "replay",
        "--account",
        "load",
        "--rate",
        &rate,
        "--reason",
        "a drill",
        "--detach",
        "--json",
    ];
    let (code, out, err) = daemon.run(&args);
    assert_eq!(code, 0, "{err}");
    let begun: Value = serde_json::from_str(&out).unwrap();
    let id = begun["id"].as_str().unwrap().to_owned();
    until("some to be sent", async || seen(fresh, &id).await.sent > 0).await;
    daemon.kill();
    let total = i64::try_from(count()).unwrap();
    let then = seen(fresh, &id).await;
    assert!(then.state == "running" && then.sent < total, "{then:?}");
    // Its lease would run out by itself; the test does not wait for it.
    fresh
        .by_hand("update replays set leased_until = micros(0) where state = 'running'")
        .await
        .unwrap();
    fresh
        .by_hand("update outbox set due_at = micros(0) where claimed_by is not null")
        .await
        .unwrap();

    daemon.start().await;
    let (code, out, err) = daemon.run(&["replay", "--watch", &id, "--json"]);
    assert_eq!(code, 0, "{err}");
    let ended: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&ended["state"], &ended["sent"], &ended["published"]),
        (&"done".into(), &total.into(), &total.into())
    );
    until("everything to be applied again", &settled).await;
    assert_eq!(orders(fresh).await, before, "an order moved");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_a_replay_costs_nothing_without_services() {
    FreshStore::with_sqlite(|fresh| async move {
        let mut daemon = Daemon::new(&Setup {
            store: Some(&fresh.url),
            ..Setup::default()
        });
        daemon.start().await;
        let all = i64::try_from(count()).unwrap();
        let settled = async || {
            fresh.number("select count(*) from event_outcomes").await == all
                && fresh.number("select count(*) from outbox").await == 0
        };
        let id = killed_in_the_middle(&fresh, &mut daemon, settled).await;
        let noted = format!("select count(*) from replays_sent where replay_id = '{id}'");
        assert_eq!(fresh.number(&noted).await, all, "each is in the feed again, once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_a_replay_costs_nothing_with_postgres_and_rabbitmq() {
    FreshStore::with_postgres(|fresh| async move {
        let fresh = fresh;
        Rabbit::with(|rabbit| async move {
            let mut daemon = Daemon::new(&Setup {
                store: Some(&fresh.url),
                broker: &amqp_url(),
                prefix: &rabbit.prefix,
                ..Setup::default()
            });
            daemon.start().await;
            let apply = rabbit.name("apply");
            until("the topology", async || rabbit.ready(&apply).await.is_some()).await;
            let own = rabbit.own_queue("events", "#").await;
            let all = i64::try_from(count()).unwrap();
            let settled = async || {
                fresh.number("select count(*) from event_outcomes").await == all
                    && fresh.number("select count(*) from outbox").await == 0
            };
            let id = killed_in_the_middle(&fresh, &mut daemon, settled).await;
            let mut again: HashMap<String, usize> = HashMap::new();
            for message in rabbit.take_all(&own, 2 * count()).await {
                let body: Value = serde_json::from_slice(&message.body).unwrap();
                if body["data"]["replay"]["id"] == id.as_str() {
                    *again.entry(message.id).or_default() += 1;
                }
            }
            assert_eq!(again.len(), count(), "each was published again, at least once");
            rabbit
        })
        .await;
    })
    .await;
}
