//! The relay against a real RabbitMQ and both stores: nothing lost, nothing published twice in normal running.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use payhook::config::BrokerUrl;
use payhook::event::{Event, EventId, Replay};
use payhook::relay::{Carried, Relay, RelayOptions};
use payhook::store::messages::{self, NewMessage};
use payhook::store::outbox::{Bell, CLAIM, Handoff, Scope, enqueue_replays, resend_messages};
use payhook::time::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::events::{event, events};
use crate::support::proxy::{Network, Proxy};
use crate::support::rabbit::{Rabbit, Running, until, within};
use crate::support::store::{FreshStore, on_both_stores};

/// A relay with nothing handed over, and the way to hand over.
fn relay(fresh: &FreshStore, running: &Running, process: &str) -> (Relay, mpsc::Sender<Handoff>) {
    let (handoffs, received) = mpsc::channel(16);
    let options = RelayOptions {
        poll: Duration::from_millis(50),
        ..RelayOptions::default()
    };
    let broker = running.rabbitmq.clone();
    let relay = Relay::new(
        fresh.store.clone(),
        broker,
        received,
        Bell::default(),
        process,
        options,
    );
    (relay, handoffs)
}

fn published(published: usize) -> Carried {
    Carried {
        published,
        ..Carried::default()
    }
}

async fn write_message(fresh: &FreshStore, id: &str, routing_key: &str) {
    let mut tx = fresh.store.begin().await.unwrap();
    let message = NewMessage {
        id: id.to_owned(),
        merchant: "default".to_owned(),
        order_id: None,
        routing_key: routing_key.to_owned(),
        body: br#"{"specversion":"1.0","data":{}}"#.to_vec(),
    };
    messages::insert(&mut tx, &[message], Timestamp::from_secs(1_796_000_000))
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn finish(fresh: &FreshStore, event: &Event, at: i64) {
    let sql = format!(
        "insert into event_outcomes values ('{}', 'applied', 'test', micros({at}))",
        event.id
    );
    fresh.by_hand(&sql).await.unwrap();
}

async fn make_due(fresh: &FreshStore) {
    fresh
        .by_hand("update outbox set due_at = micros(0)")
        .await
        .unwrap();
}

on_both_stores! {
    async fn what_is_handed_over_is_published_once_and_waits_for_its_outcome(fresh) {
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "#").await;
            let (mut relay, handoffs) = relay(&fresh, &running, "one");
            let batch = events(3);
            fresh.store.insert_fresh(&batch, Some("one")).await.unwrap();
            for event in &batch {
                let claimed_until = Instant::now() + CLAIM;
                handoffs.send(Handoff { event: Arc::clone(event), claimed_until }).await.unwrap();
            }
            assert_eq!(relay.step().await.unwrap(), published(3));
            assert_eq!(relay.step().await.unwrap(), published(0), "not due");
            let seen = rabbit.take_all(&own, 3).await;
            assert_eq!(seen.len(), 3);
            let body: serde_json::Value = serde_json::from_slice(&seen[0].body).unwrap();
            assert_eq!(body["id"], seen[0].id);
            assert_eq!(body["data"]["replay"], serde_json::Value::Null);
            let waiting = "select count(*) from outbox where published_at is not null and publishes = 1 \
                           and claimed_by is null and due_at > published_at";
            assert_eq!(fresh.number(waiting).await, 3);

            // An outcome that was there before the confirm: nothing is owed any more.
            let fast = event("fast", b"fast");
            fresh.store.insert_fresh(&[Arc::new(fast.clone())], None).await.unwrap();
            finish(&fresh, &fast, 1).await;
            assert_eq!(relay.step().await.unwrap(), published(1));
            assert_eq!(fresh.number("select count(*) from outbox").await, 3);
            rabbit
        })
        .await;
    }

    /// D22.
    async fn a_claim_that_ran_out_is_anybodys_and_one_that_holds_is_nobodys(fresh) {
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "two").await;
            let (mut relay, handoffs) = relay(&fresh, &running, "two");
            let batch = events(2);
            // Process "one" has claimed them, and dies.
            fresh.store.insert_fresh(&batch, Some("one")).await.unwrap();
            assert_eq!(relay.step().await.unwrap(), published(0));
            // A hand-off that waited too long is left to the sweep.
            let late = Handoff { event: Arc::clone(&batch[0]), claimed_until: Instant::now() };
            handoffs.send(late).await.unwrap();
            assert_eq!(relay.step().await.unwrap(), published(0));
            make_due(&fresh).await;
            assert_eq!(relay.step().await.unwrap(), published(2));
            rabbit
        })
        .await;
    }

    async fn what_has_not_ended_goes_to_the_workers_alone_and_not_into_a_backlog(fresh) {
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "#").await;
            let apply = rabbit.name("apply");
            let (mut relay, _handoffs) = relay(&fresh, &running, "one");
            let batch = events(2);
            fresh.store.insert_fresh(&batch, None).await.unwrap();
            relay.step().await.unwrap();
            assert_eq!(rabbit.take_all(&own, 2).await.len(), 2);
            assert_eq!(rabbit.take_all(&apply, 2).await.len(), 2);

            make_due(&fresh).await;
            assert_eq!(relay.step().await.unwrap(), published(0), "a queue that seems empty is asked twice");
            assert_eq!(relay.step().await.unwrap(), published(2));
            let again = rabbit.take_all(&apply, 2).await;
            let mut ids: Vec<&str> = again.iter().map(|seen| seen.id.as_str()).collect();
            ids.sort_unstable();
            assert_eq!(ids, [batch[0].key.as_str(), batch[1].key.as_str()]);
            assert!(rabbit.take(&own).await.is_none(), "consumers have had it");
            let doubled = "select count(*) from outbox where publishes = 2 and due_at - published_at = span(600000000)";
            assert_eq!(fresh.number(doubled).await, 2);

            let options = RelayOptions { again_backlog: 0, ..RelayOptions::default() };
            let (_, received) = mpsc::channel(1);
            let broker = running.rabbitmq.clone();
            let mut timid = Relay::new(fresh.store.clone(), broker, received, Bell::default(), "one", options);
            rabbit.put(&apply, Some("x"), b"").await;
            // Of a queue whose leader is slow to answer RabbitMQ says that nothing waits.
            until("there is a backlog", async || {
                running.rabbitmq.apply_backlog().await.is_some_and(|waiting| waiting > 0)
            })
            .await;
            make_due(&fresh).await;
            assert_eq!(timid.step().await.unwrap(), published(0), "a backlog is not a loss");
            rabbit
        })
        .await;
    }

    /// D09, D25: what the workers' queue held when it was deleted does not wait for `reapply_after`.
    async fn what_a_deleted_workers_queue_held_comes_again_at_once(fresh) {
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "#").await;
            let apply = rabbit.name("apply");
            let (mut relay, _handoffs) = relay(&fresh, &running, "one");
            let batch = events(4);
            fresh.store.insert_fresh(&batch, None).await.unwrap();
            relay.step().await.unwrap();
            assert_eq!(rabbit.take_all(&own, 4).await.len(), 4);
            // One has ended, and one has failed and waits for its next attempt.
            finish(&fresh, &batch[0], 1).await;
            fresh.by_hand(&format!("delete from outbox where id = '{}'", batch[0].id)).await.unwrap();
            fresh.by_hand(&format!("update outbox set attempts = 1 where id = '{}'", batch[1].id)).await.unwrap();
            assert_eq!(relay.step().await.unwrap(), published(0));
            rabbit.delete(&apply).await;
            let until_sent = async {
                while rabbit.ready(&apply).await != Some(2) {
                    relay.step().await.unwrap();
                }
            };
            within("sent again", until_sent).await;
            let mut again: Vec<String> = rabbit.take_all(&apply, 2).await.into_iter().map(|seen| seen.id).collect();
            again.sort_unstable();
            assert_eq!(again, [batch[2].key.as_str(), batch[3].key.as_str()]);
            assert!(rabbit.take(&own).await.is_none(), "consumers have had it");
            rabbit
        })
        .await;
    }

    /// D08.
    async fn an_order_message_nobody_wants_is_done_and_one_whose_queue_vanished_waits(fresh) {
        Rabbit::with(|rabbit| async move {
            let mut options = rabbit.options();
            options.config.queues = vec![rabbit.order_queue("order.paid")];
            options.assert_every = Duration::from_hours(1);
            let running = Running::connected(&options, &fresh.store, "one").await;
            let (mut relay, _handoffs) = relay(&fresh, &running, "one");
            let queue = rabbit.name("q");
            rabbit.delete(&queue).await;
            write_message(&fresh, "default/a/1", "order.processing").await;
            write_message(&fresh, "default/a/2", "order.paid").await;
            let carried = relay.step().await.unwrap();
            assert_eq!(carried, Carried { published: 1, unrouted: 1, failed: 1, refused: 0 });
            assert_eq!(fresh.texts("select id from outbox").await, ["default/a/2"]);

            // The queue comes back with the next connection, the message with the next sweep.
            let running = Running::connected(&options, &fresh.store, "two").await;
            let (mut relay, _handoffs) = self::relay(&fresh, &running, "two");
            make_due(&fresh).await;
            // The attention item about the queue is a message too, and nobody wants it.
            let carried = relay.step().await.unwrap();
            assert_eq!(carried, Carried { published: 2, unrouted: 1, failed: 0, refused: 0 });
            let seen = rabbit.take_all(&queue, 1).await;
            assert_eq!(seen[0].id, "default/a/2");
            assert_eq!(fresh.number("select count(*) from outbox").await, 0);
            assert_eq!(fresh.number("select count(*) from messages").await, 3, "kept for the feed");
            rabbit
        })
        .await;
    }

    async fn a_row_that_cannot_be_published_stops_nobody_else(fresh) {
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let own = rabbit.own_queue("orders", "order.#").await;
            let (mut relay, _handoffs) = relay(&fresh, &running, "one");
            let long = format!("default/{}/1", "x".repeat(250));
            write_message(&fresh, &long, "order.paid").await;
            write_message(&fresh, "default/b/1", "order.paid").await;
            // An event whose row has lost it: retention has a bug, say.
            let orphan = "insert into outbox (id, kind, event_id, created_at, due_at) values ('gone', 'event', 'gone', 0, 0)";
            fresh.by_hand(orphan).await.unwrap();
            let carried = relay.step().await.unwrap();
            assert_eq!(carried, Carried { published: 1, unrouted: 0, failed: 0, refused: 2 });
            assert_eq!(rabbit.take_all(&own, 1).await[0].id, "default/b/1");
            let told = "select count(*) from attention where code = 'unpublishable'";
            assert_eq!(fresh.number(told).await, 2);
            // Its neighbours were the two attention messages; it itself is not tried again.
            relay.step().await.unwrap();
            make_due(&fresh).await;
            assert_eq!(relay.step().await.unwrap(), published(0));
            assert_eq!(fresh.number("select count(*) from outbox where unpublishable").await, 1);
            rabbit
        })
        .await;
    }

    async fn what_goes_to_a_queue_of_another_configuration_waits_for_it_but_not_for_ever(fresh) {
        Rabbit::with(|rabbit| async move {
            let older = Running::connected(&rabbit.options(), &fresh.store, "older").await;
            let mut options = rabbit.options();
            options.config.queues = vec![rabbit.order_queue("order.paid")];
            let newer = Running::connected(&options, &fresh.store, "newer").await;
            let queue = rabbit.name("q");
            for id in ["default/a/1", "default/b/1"] {
                write_message(&fresh, id, "order.paid").await;
            }
            fresh.by_hand("delete from outbox").await.unwrap();
            let replay = Replay { id: "r1".to_owned(), reason: "lost".to_owned() };
            let mut tx = fresh.store.begin().await.unwrap();
            resend_messages(&mut tx, &["default/a/1"], &replay, Some(&queue)).await.unwrap();
            tx.commit().await.unwrap();
            let (mut of_older, _open) = relay(&fresh, &older, "older");
            let left = Carried { failed: 1, ..Carried::default() };
            assert_eq!(of_older.step().await.unwrap(), left);
            assert_eq!(of_older.step().await.unwrap(), published(0), "it does not take it again at once");
            assert_eq!(fresh.number("select count(*) from outbox where claimed_by is null").await, 1);
            make_due(&fresh).await;
            let (mut of_newer, _open) = relay(&fresh, &newer, "newer");
            assert_eq!(of_newer.step().await.unwrap(), published(1));
            assert_eq!(rabbit.take_all(&queue, 1).await[0].id, "default/a/1");

            // Nobody has the queue any more.
            let mut tx = fresh.store.begin().await.unwrap();
            resend_messages(&mut tx, &["default/b/1"], &replay, Some(&queue)).await.unwrap();
            tx.commit().await.unwrap();
            fresh.by_hand("update outbox set created_at = created_at - span(3000000000)").await.unwrap();
            assert_eq!(of_older.step().await.unwrap(), left);
            fresh.by_hand("update outbox set created_at = created_at - span(700000000), due_at = micros(0)").await.unwrap();
            assert_eq!(of_older.step().await.unwrap(), Carried { refused: 1, ..Carried::default() });
            assert_eq!(fresh.number("select count(*) from outbox where kind = 'resend'").await, 0);
            assert_eq!(fresh.texts("select code || ' ' || source from attention").await, ["unpublishable default/b/1#r1"]);
            rabbit
        })
        .await;
    }

    async fn a_replay_goes_to_everybody_under_the_same_id(fresh) {
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "#").await;
            let (mut relay, _handoffs) = relay(&fresh, &running, "one");
            let one = event("1", br#"{"paid":true}"#);
            fresh.store.insert_fresh(&[Arc::new(one.clone())], None).await.unwrap();
            finish(&fresh, &one, 1).await;
            relay.step().await.unwrap();
            assert_eq!(fresh.number("select count(*) from outbox").await, 0);
            rabbit.take_all(&own, 1).await;

            let replay = Replay { id: "r1".to_owned(), reason: "lost in a queue".to_owned() };
            for expected in [1, 0] {
                let mut tx = fresh.store.begin().await.unwrap();
                let unknown = EventId::from_text("unknown");
                let asked = [one.id.clone(), unknown];
                assert_eq!(enqueue_replays(&mut tx, &asked, &replay).await.unwrap(), expected);
                tx.commit().await.unwrap();
            }
            assert_eq!(relay.step().await.unwrap(), published(1));
            let seen = rabbit.take_all(&own, 1).await;
            assert_eq!(seen[0].id, one.key.as_str());
            let body: serde_json::Value = serde_json::from_slice(&seen[0].body).unwrap();
            assert_eq!(body["data"]["replay"]["id"], "r1");
            assert_eq!(body["data"]["content"]["paid"], true);
            // The old outcome does not end it.
            assert_eq!(fresh.number("select count(*) from outbox where kind = 'replay'").await, 1);
            rabbit
        })
        .await;
    }

    /// D01, D19.
    async fn an_outage_of_the_broker_loses_nothing(fresh) {
        Rabbit::with(|rabbit| async move {
            let proxy = Proxy::before(&rabbit.url).await;
            let mut options = rabbit.options();
            options.config.url = BrokerUrl::Rabbitmq(proxy.instead(&rabbit.url).into());
            let running = Running::connected(&options, &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "#").await;
            let (relay, _handoffs) = relay(&fresh, &running, "one");
            let shutdown = CancellationToken::new();
            let mut tasks = JoinSet::new();
            tasks.spawn(relay.run(shutdown.clone()));

            let batch = events(300);
            let (before, during) = batch.split_at(100);
            fresh.store.insert_fresh(before, None).await.unwrap();
            until("some are out", || async { rabbit.ready(&own).await.unwrap_or(0) > 0 }).await;
            proxy.set(Network::Cut);
            fresh.store.insert_fresh(during, None).await.unwrap();
            until("down", || async { running.rabbitmq.link() != payhook::broker::Link::Up }).await;
            proxy.set(Network::Open);
            let all_out = "select count(*) from outbox where published_at is null";
            let make_due_once = "update outbox set due_at = micros(0) where published_at is null and claimed_by is not null";
            until("all are out", || async {
                // What was claimed when the connection broke waits for its claim; the test does not.
                fresh.by_hand(make_due_once).await.unwrap();
                fresh.number(all_out).await == 0
            })
            .await;
            shutdown.cancel();
            while tasks.join_next().await.is_some() {}
            let mut seen: HashMap<String, usize> = HashMap::new();
            for message in rabbit.take_all(&own, 300).await {
                *seen.entry(message.id).or_default() += 1;
            }
            assert_eq!(seen.len(), 300);
            rabbit
        })
        .await;
    }
}

/// C28, D18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_on_one_database_publish_each_row_once() {
    FreshStore::with_postgres(|fresh| async move {
        let fresh = fresh;
        Rabbit::with(|rabbit| async move {
            let one = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let two = Running::connected(&rabbit.options(), &fresh.store, "two").await;
            let own = rabbit.own_queue("events", "#").await;
            let all = events(1000);
            for batch in all.chunks(250) {
                fresh.store.insert_fresh(batch, None).await.unwrap();
            }
            let shutdown = CancellationToken::new();
            let mut tasks = JoinSet::new();
            let mut open = Vec::new();
            for (running, process) in [(&one, "one"), (&two, "two")] {
                let (relay, handoffs) = relay(&fresh, running, process);
                open.push(handoffs);
                tasks.spawn(relay.run(shutdown.clone()));
            }
            until("all are out", || async {
                fresh
                    .number("select count(*) from outbox where published_at is null")
                    .await
                    == 0
            })
            .await;
            shutdown.cancel();
            while tasks.join_next().await.is_some() {}
            let mut seen: HashMap<String, usize> = HashMap::new();
            for message in rabbit.take_all(&own, 1000).await {
                *seen.entry(message.id).or_default() += 1;
            }
            assert_eq!(seen.len(), 1000);
            assert!(seen.values().all(|&times| times == 1), "published twice");
            rabbit
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_has_locked_is_passed_over() {
    FreshStore::with_postgres(|fresh| async move {
        let fresh = fresh;
        let batch = events(5);
        fresh.store.insert_fresh(&batch, None).await.unwrap();
        let mut holder = fresh.connection().await;
        let lock = format!("select id from outbox where id = '{}' for update", batch[2].id);
        let mut held = sqlx::Connection::begin(&mut holder).await.unwrap();
        sqlx::Executor::execute(&mut *held, lock.as_str()).await.unwrap();
        let claimed = fresh.store.claim_due(Scope::First, "one", 10).await.unwrap();
        assert_eq!(claimed.len(), 4);
        assert!(claimed.iter().all(|row| row.row != batch[2].id.as_str()));
        held.rollback().await.unwrap();
        let claimed = fresh.store.claim_due(Scope::First, "two", 10).await.unwrap();
        assert_eq!(claimed.len(), 1);
    })
    .await;
}
