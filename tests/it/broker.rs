//! The broker seam against a real RabbitMQ: confirms, returns, topology, and every way a connection ends.

use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::options::{BasicGetOptions, BasicNackOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use payhook::broker::{Death, Found, Link, Outgoing, Published, Route, Source, inspect};
use payhook::config::BrokerUrl;
use payhook::time::Timestamp;

use crate::support::proxy::{Network, Proxy};
use crate::support::rabbit::{Rabbit, Running, until, within};
use crate::support::servers::PrivateRabbitmq;
use crate::support::store::{FreshStore, on_both_stores};

fn outgoing(route: Route, id: &str) -> Outgoing {
    Outgoing {
        route,
        id: id.to_owned(),
        kind: "payment.succeeded".to_owned(),
        at: Timestamp::from_secs(1_796_000_000),
        body: Bytes::from_static(b"{}"),
        until: None,
    }
}

fn event(id: &str) -> Outgoing {
    outgoing(Route::Events("alipay.shop.payment.succeeded".to_owned()), id)
}

/// Publishes until the broker has said something: a channel that closes may take the connection with it.
async fn published(running: &Running, message: Outgoing) -> Published {
    loop {
        match running.rabbitmq.publish(message.clone()).await {
            Published::Failed => running.rabbitmq.wait_up().await,
            fate => return fate,
        }
    }
}

/// Whether it is the fate of one that the broker refuses, or of one that it takes.
fn told(refused: bool, fate: &Published) -> bool {
    match fate {
        Published::Refused(_) => refused,
        fate => !refused && *fate == Published::Routed,
    }
}

fn order(key: &str, id: &str) -> Outgoing {
    outgoing(Route::Orders(key.to_owned()), id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_says_whether_any_queue_has_it() {
    FreshStore::with_sqlite(|fresh| async move {
        let fresh = fresh;
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "alipay.#").await;
            assert_eq!(running.rabbitmq.publish(event("e1")).await, Published::Routed);
            let seen = rabbit.take_all(&own, 1).await;
            let properties = &seen[0].properties;
            assert_eq!(seen[0].id, "e1");
            assert_eq!(seen[0].routing_key, "alipay.shop.payment.succeeded");
            assert_eq!(
                properties.content_type().as_ref().unwrap().as_str(),
                "application/cloudevents+json"
            );
            assert_eq!(properties.kind().as_ref().unwrap().as_str(), "payment.succeeded");
            assert_eq!(properties.app_id().as_ref().unwrap().as_str(), "payhook");
            assert_eq!(*properties.delivery_mode(), Some(2));
            assert_eq!(*properties.timestamp(), Some(1_796_000_000));
            assert_eq!(
                rabbit.ready(&rabbit.name("apply")).await,
                Some(1),
                "the workers have it too"
            );

            // D07: acked, and yet nobody has it.
            assert_eq!(
                running.rabbitmq.publish(order("order.paid", "o1")).await,
                Published::Unrouted
            );
            // What AMQP cannot carry is the message's fault, not the connection's.
            let long = "x".repeat(256);
            assert!(matches!(
                running.rabbitmq.publish(order("order.paid", &long)).await,
                Published::Refused(_)
            ));
            // By now it is another process's.
            let late = Outgoing {
                until: Some(tokio::time::Instant::now()),
                ..event("late")
            };
            assert_eq!(running.rabbitmq.publish(late).await, Published::Failed);
            assert_eq!(running.rabbitmq.publish(event("e2")).await, Published::Routed);
            assert_eq!(within("backlog", running.rabbitmq.apply_backlog()).await, Some(2));
            rabbit
        })
        .await;
    })
    .await;
}

on_both_stores! {
    /// D09.
    async fn a_queue_that_vanished_comes_back_and_a_human_is_told_once(fresh) {
        Rabbit::with(|rabbit| async move {
            let mut options = rabbit.options();
            options.config.queues = vec![rabbit.order_queue("order.paid")];
            options.merchants = vec!["default".to_owned(), "other".to_owned()];
            let running = Running::connected(&options, &fresh.store, "one").await;
            let queue = rabbit.name("q");
            assert_eq!(rabbit.ready(&queue).await, Some(0));
            assert_eq!(rabbit.ready(&rabbit.name("q.dead")).await, Some(0));
            assert_eq!(fresh.number("select count(*) from attention").await, 0, "new is not vanished");

            rabbit.delete(&queue).await;
            until("declared again", || async { rabbit.ready(&queue).await.is_some() }).await;
            assert_eq!(running.rabbitmq.publish(order("order.paid", "o1")).await, Published::Routed);
            let told = "select count(*) from attention where code = 'queue_missing' and state = 'open'";
            assert_eq!(fresh.number(told).await, 2, "each merchant once");
            drop(running);

            // Another process, later: the store remembers what the broker forgot.
            rabbit.delete(&queue).await;
            let _running = Running::connected(&options, &fresh.store, "two").await;
            assert_eq!(fresh.number(told).await, 4);
            rabbit
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_queue_is_used_as_it_is_and_reported() {
    FreshStore::with_sqlite(|fresh| async move {
        let fresh = fresh;
        Rabbit::with(|rabbit| async move {
            let mut options = rabbit.options();
            options.config.queues = vec![rabbit.order_queue("order.paid")];
            let queue = rabbit.name("q");
            rabbit
                .channel()
                .await
                .queue_declare(
                    queue.as_str().into(),
                    QueueDeclareOptions::durable(),
                    FieldTable::default(),
                )
                .await
                .unwrap();
            let running = Running::connected(&options, &fresh.store, "one").await;
            assert_eq!(
                running.rabbitmq.publish(order("order.paid", "o1")).await,
                Published::Routed
            );
            assert_eq!(rabbit.ready(&queue).await, Some(1));
            let reported: Vec<String> = running
                .rabbitmq
                .mismatches()
                .into_iter()
                .map(|found| found.queue)
                .collect();
            assert_eq!(reported, std::slice::from_ref(&queue));
            let others: Vec<String> = inspect(&options)
                .await
                .unwrap()
                .into_iter()
                .filter(|inspected| inspected.found != Found::Fitting)
                .map(|inspected| inspected.name)
                .collect();
            assert_eq!(others, [queue]);
            rabbit
        })
        .await;
    })
    .await;
}

/// The words are the broker's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_message_says_why_it_is_dead() {
    FreshStore::with_sqlite(|fresh| async move {
        Rabbit::with(|rabbit| async move {
            let running = Running::connected(&rabbit.options(), &fresh.store, "one").await;
            let mut dead = running.rabbitmq.subscribe(Source::Dead, 16).await.unwrap();
            let apply = rabbit.name("apply");
            let expiring = BasicProperties::default()
                .with_message_id("expiring".into())
                .with_expiration("1".into());
            rabbit.publish(&apply, expiring, b"").await;
            let expired = within("expired", dead.next()).await.unwrap();
            assert_eq!(
                (expired.id.as_deref(), expired.death),
                (Some("expiring"), Death::Expired)
            );

            rabbit.put(&apply, Some("poison"), b"").await;
            let channel = rabbit.channel().await;
            let poison = async {
                loop {
                    let got = channel
                        .basic_get(apply.as_str().into(), BasicGetOptions::default())
                        .await
                        .unwrap();
                    let Some(got) = got else {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        continue;
                    };
                    let requeue = BasicNackOptions {
                        multiple: false,
                        requeue: true,
                    };
                    channel.basic_nack(got.delivery_tag, requeue).await.unwrap();
                }
            };
            let poisoned = tokio::select! {
                () = poison => unreachable!("it never ends"),
                dead = within("at the delivery limit", dead.next()) => dead.unwrap(),
            };
            assert_eq!(
                (poisoned.id.as_deref(), poisoned.death),
                (Some("poison"), Death::DeliveryLimit)
            );

            rabbit
                .put(&rabbit.name("dead"), Some("by somebody else"), b"")
                .await;
            let other = within("by somebody else", dead.next()).await.unwrap();
            assert_eq!(other.death, Death::Unknown);
            dead.hand_back().await;
            rabbit
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inspection_declares_nothing() {
    Rabbit::with(|rabbit| async move {
        let mut options = rabbit.options();
        options.config.queues = vec![rabbit.order_queue("order.paid")];
        for _ in 0..2 {
            let inspected = inspect(&options).await.unwrap();
            assert_eq!(
                inspected.len(),
                6,
                "two exchanges, two queues and their dead letters"
            );
            for one in inspected {
                assert_eq!(one.found, Found::Missing, "{}", one.name);
            }
        }
        rabbit
    })
    .await;
}

/// D10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_fails_what_waits_and_is_built_anew() {
    FreshStore::with_sqlite(|fresh| async move {
        let fresh = fresh;
        Rabbit::with(|rabbit| async move {
            let proxy = Proxy::before(&rabbit.url).await;
            let mut options = rabbit.options();
            options.config.url = BrokerUrl::Rabbitmq(proxy.instead(&rabbit.url).into());
            options.confirm_timeout = Duration::from_secs(5);
            let running = Running::connected(&options, &fresh.store, "one").await;
            let own = rabbit.own_queue("events", "#").await;

            proxy.set(Network::Cut);
            within("seen to be down", running.rabbitmq.changed(Link::Up)).await;
            let lost = within("answered while down", running.rabbitmq.publish(event("lost"))).await;
            assert_eq!(lost, Published::Failed);
            proxy.set(Network::Open);
            within("up again", running.rabbitmq.wait_up()).await;
            assert_eq!(running.rabbitmq.publish(event("e1")).await, Published::Routed);

            // D03: no reset, no answer.
            proxy.set(Network::Silent);
            let frozen = within("answered while frozen", running.rabbitmq.publish(event("e2"))).await;
            assert_eq!(frozen, Published::Failed);
            within("seen to be down", running.rabbitmq.changed(Link::Up)).await;
            proxy.set(Network::Open);
            within("up again", running.rabbitmq.wait_up()).await;
            assert_eq!(running.rabbitmq.publish(event("e3")).await, Published::Routed);
            let ids: Vec<String> = rabbit
                .take_all(&own, 2)
                .await
                .into_iter()
                .map(|seen| seen.id)
                .collect();
            assert!(
                ids.contains(&"e1".to_owned()) && ids.contains(&"e3".to_owned()),
                "{ids:?}"
            );
            assert!(!ids.contains(&"lost".to_owned()), "{ids:?}");
            rabbit
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_the_broker_refuses_costs_its_neighbours_nothing_and_an_alarm_hangs_nobody() {
    let server = PrivateRabbitmq::start();
    server.ctl(&["eval", "application:set_env(rabbit, max_message_size, 100000)."]);
    let rabbit = Rabbit::at(&server.url()).await;
    FreshStore::with_sqlite(|fresh| async move {
        let fresh = fresh;
        let mut options = rabbit.options();
        let running = Running::connected(&options, &fresh.store, "one").await;
        let refused = |n: usize| n % 100 == 50;
        let message = |n: usize| {
            let mut message = event(&format!("e{n}"));
            if refused(n) {
                message.body = vec![b' '; 200_000].into();
            }
            message
        };
        let mut steady = true;
        let fates = {
            let all = futures_util::future::join_all((0..100).map(|n| running.rabbitmq.publish(message(n))));
            let mut all = std::pin::pin!(within("all answered", all));
            loop {
                tokio::select! {
                    fates = &mut all => break fates,
                    _ = running.rabbitmq.changed(Link::Up), if steady => steady = false,
                }
            }
        };
        for (n, fate) in fates.iter().enumerate() {
            // What was on its way to the closed channel may have closed the connection with it.
            let allowed = *fate == Published::Failed && !steady;
            assert!(told(refused(n), fate) || allowed, "{n}: {fate:?}");
        }
        // Enough of them that some come to a channel that is being closed over another.
        let all = (0..2_000).map(|n| published(&running, message(n)));
        let fates = within("all answered", futures_util::future::join_all(all)).await;
        for (n, fate) in fates.iter().enumerate() {
            assert!(told(refused(n), fate), "{n}: {fate:?}");
        }

        // Nor does one whose routing key we may not use.
        let may = [
            "set_topic_permissions",
            "guest",
            &rabbit.name("events"),
            "^(?!forbidden).*",
            ".*",
        ];
        server.ctl(&may);
        let publishes = (0..100).map(|n| {
            let mut message = event(&format!("f{n}"));
            if n == 50 {
                message.route = Route::Events("forbidden.shop.payment.succeeded".to_owned());
            }
            published(&running, message)
        });
        let fates = within("all answered", futures_util::future::join_all(publishes)).await;
        for (n, fate) in fates.iter().enumerate() {
            match fate {
                Published::Refused(reason) if n == 50 => {
                    assert!(reason.contains("ACCESS_REFUSED"), "{reason}");
                }
                fate => assert_eq!((n != 50, fate), (true, &Published::Routed), "{n}"),
            }
        }

        // D12: the broker is out of memory, and says so.
        drop(running);
        options.confirm_timeout = Duration::from_secs(3);
        let running = Running::connected(&options, &fresh.store, "one").await;
        server.ctl(&["set_vm_memory_high_watermark", "0"]);
        until("blocked", || async {
            let fate = within("answered while blocked", running.rabbitmq.publish(event("x"))).await;
            fate == Published::Failed && running.rabbitmq.link() == Link::Blocked
        })
        .await;
        server.ctl(&["set_vm_memory_high_watermark", "0.9"]);
        within("unblocked", running.rabbitmq.wait_up()).await;
        until("published again", || async {
            running.rabbitmq.publish(event("y")).await == Published::Routed
        })
        .await;
    })
    .await;
}
