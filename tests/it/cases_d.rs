//! What bit publishers and consumers elsewhere, at RabbitMQ: one test per case that nothing else shows. The others
//! are named where they are shown; `cases` lists them all.

use std::sync::Arc;

use payhook::relay::{Relay, RelayOptions};
use payhook::store::outbox::Bell;
use sqlx::{Connection as _, Executor as _};
use tokio::sync::mpsc;

use crate::support::events::event;
use crate::support::rabbit::{Rabbit, Running, until};
use crate::support::servers::PrivateRabbitmq;
use crate::support::store::FreshStore;
use crate::worker::{Flows, finished, paid};

/// The broker ends a channel whose deliveries wait too long for their ack. What was applied meanwhile is found to
/// be applied, and the worker consumes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d04_d05_a_consumer_that_was_timed_out_comes_back_and_applies_nothing_twice() {
    let server = PrivateRabbitmq::start();
    server.ctl(&["eval", "application:set_env(rabbit, channel_tick_interval, 500)."]);
    server.ctl(&["eval", "application:set_env(rabbit, consumer_timeout, 1500)."]);
    // How often a queue is counted.
    server.ctl(&["eval", "application:set_env(rabbit, quorum_tick_interval, 500)."]);
    let rabbit = Rabbit::at(&server.url()).await;
    FreshStore::with_postgres(async |fresh| {
        let flows = Flows::start(&rabbit.options(), &fresh.store, 8).await;
        let mut conn = fresh.connection().await;
        let mut slow = conn.begin().await.unwrap();
        slow.execute("lock table orders in exclusive mode").await.unwrap();
        let batch: Vec<_> = (1..=10).map(paid).collect();
        fresh.store.insert_fresh(&batch, None).await.unwrap();
        let apply = rabbit.name("apply");
        // Ready or with a consumer, when the server last counted them.
        let counted = || -> Option<u32> {
            let queues = server.ctl(&["list_queues", "name", "messages"]);
            let mut lines = queues.lines();
            lines.find_map(|line| line.strip_prefix(&apply)?.trim().parse().ok())
        };
        // What a consumer has is not ready, and is again when it was taken from it.
        until("published and taken", || async {
            let published = fresh
                .number("select count(*) from outbox where published_at is not null")
                .await;
            published == 10 && rabbit.ready(&apply).await == Some(0)
        })
        .await;
        until("timed out", || async { rabbit.ready(&apply).await == Some(10) }).await;
        // So that a count of none is not one of before they came.
        until("counted", || async { counted() == Some(10) }).await;
        slow.rollback().await.unwrap();
        until("all have ended", || async { finished(&fresh).await == 10 }).await;
        until("acked at last", || async {
            fresh.number("select count(*) from outbox").await == 0 && counted() == Some(0)
        })
        .await;
        flows.stop().await;
        assert_eq!(rabbit.ready(&apply).await, Some(0));
        assert_eq!(
            fresh
                .number("select count(*) from orders where version = 1 and paid = 8888")
                .await,
            10
        );
        assert_eq!(fresh.number("select count(*) from dead_letters").await, 0);
    })
    .await;
}

/// A row that is older than what was sent, and was not visible when that was sent, is sent when it is there; and
/// nothing of it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d20_d21_a_row_that_becomes_visible_late_is_sent_then_and_not_before() {
    FreshStore::with_postgres(async |fresh| {
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "#").await;
            let (_handoffs, received) = mpsc::channel(1);
            let broker = running.rabbitmq.clone();
            let store = fresh.store.clone();
            let mut relay = Relay::new(store, broker, received, Bell::default(), "one", RelayOptions::default());

            let early = event("early", b"early");
            let late = event("late", b"late");
            fresh.store.insert_fresh(&[Arc::new(late.clone())], Some("held back")).await.unwrap();
            let mut conn = fresh.connection().await;
            let mut long = conn.begin().await.unwrap();
            let copied = format!(
                "insert into events (id, event_key, provider, account, merchant, type, provider_event_type, \
                 occurred_at, received_at, fingerprint, headers, body) select '0', '{}', provider, account, \
                 merchant, type, provider_event_type, occurred_at, received_at, fingerprint, headers, body \
                 from events where id = '{}'",
                early.key.as_str(),
                late.id
            );
            long.execute(copied.as_str()).await.unwrap();
            long.execute(
                "insert into outbox (id, kind, event_id, created_at, due_at) values ('0', 'event', '0', 0, 0)",
            )
            .await
            .unwrap();
            fresh.by_hand("update outbox set due_at = micros(1)").await.unwrap();
            relay.step().await.unwrap();
            let first: Vec<String> = rabbit.take_all(&own, 1).await.into_iter().map(|seen| seen.id).collect();
            assert_eq!(first, [late.key.as_str()], "nothing of what is not committed");
            long.commit().await.unwrap();
            relay.step().await.unwrap();
            let then: Vec<String> = rabbit.take_all(&own, 1).await.into_iter().map(|seen| seen.id).collect();
            assert_eq!(then, [early.key.as_str()]);
            rabbit
        })
        .await;
    })
    .await;
}

/// A worker that ends with its messages in hand gives them back, and another one finds what it had done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d11_d24_what_is_delivered_again_is_found_to_be_applied() {
    FreshStore::with_postgres(async |fresh| {
        Rabbit::with(|rabbit| async move {
            let mut options = rabbit.options();
            options.config.queues = vec![rabbit.order_queue("order.paid")];
            let flows = Flows::start(&options, &fresh.store, 8).await;
            let batch: Vec<_> = (1..=20).map(paid).collect();
            fresh.store.insert_fresh(&batch, None).await.unwrap();
            until("all have ended", || async { finished(&fresh).await == 20 }).await;
            let apply = rabbit.name("apply");
            for event in batch.iter().chain(&batch) {
                rabbit.put(&apply, Some(event.key.as_str()), b"").await;
            }
            until("taken", || async { rabbit.ready(&apply).await == Some(0) }).await;
            until("nothing is left", || async {
                fresh.number("select count(*) from outbox").await == 0
            })
            .await;
            flows.stop().await;
            let announced = rabbit.take_all(&rabbit.name("q"), 20).await;
            let mut ids: Vec<&str> = announced.iter().map(|seen| seen.id.as_str()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(
                (ids.len(), announced.len()),
                (20, 20),
                "one message each, its id the order's version"
            );
            assert_eq!(fresh.number("select count(*) from ledger_entries").await, 20);
            rabbit
        })
        .await;
    })
    .await;
}
