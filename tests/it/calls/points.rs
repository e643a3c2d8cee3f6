//! A call cut off at every named point of its path.

use std::time::{Duration, Instant};

use payhook::crash::Point;
use payhook::time::Clock;
use serde_json::json;

use super::{PATIENCE, Stage, insist, on_postgres, on_sqlite, registration};
use crate::support::daemon::{Caller, Daemon};
use crate::support::traffic::{Happening, Sender, Signers, Telling};

/// Registered at 100.00, paid 88.00: the held payment's item.
async fn held(daemon: &Daemon, caller: &Caller, order_id: &str) -> String {
    insist(caller, "/v1/orders", order_id, &registration(order_id)).await;
    let telling = Telling {
        sender: Sender::Alipay,
        order_id: order_id.to_owned(),
        trade_id: format!("2026{order_id}"),
        amount: 8800,
        number: 0,
        happening: Happening::Paid,
    };
    let paid = Signers::new().sign(&telling, Clock::system().now());
    let acked = daemon.notify(&reqwest::Client::new(), &paid).await;
    assert_eq!(acked.map(|(status, _)| status), Some(200));
    let until = Instant::now() + PATIENCE;
    loop {
        let (_, page) = daemon.get(&format!("/v1/attention?order_id={order_id}")).await;
        if let Some(id) = page["items"][0]["id"].as_str() {
            return id.to_owned();
        }
        assert!(Instant::now() < until, "the payment is not held: {page}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A registration, and a decision that writes `order.paid`, each cut off at `point`.
async fn die_at(stage: &Stage, point: &str) {
    let order_id = point.replace('.', "-");
    let (new, accepted) = (format!("{order_id}-new"), format!("{order_id}-held"));
    let mut daemon = stage.daemon();
    daemon.start().await;
    let caller = daemon.caller();
    let item = held(&daemon, &caller, &accepted).await;
    let decision = json!({"action": "accept_payment", "reason": "a coupon"});
    let calls = [
        ("/v1/orders".to_owned(), registration(&new)),
        (format!("/v1/attention/{item}/resolve"), decision),
    ];
    for (path, body) in &calls {
        daemon.kill();
        daemon.env("PAYHOOK_CRASH_AT", point);
        daemon.start().await;
        let until = Instant::now() + PATIENCE;
        // A busy machine may answer 503 before the point is reached, and leave the claim to its lease.
        while let Some(heard) = caller.post(path, point, body).await {
            let passes = heard.status == 503 || heard.code().as_deref() == Some("request_in_progress");
            assert!(
                passes && Instant::now() < until,
                "{point} was not reached: {heard:?}"
            );
            stage.let_leases_run_out().await;
        }
        while daemon.is_running() {
            assert!(Instant::now() < until, "{point}: it goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        daemon.clear_env();
        daemon.start().await;

        let committed = point == "idempotency.committed";
        let next = loop {
            let next = caller.post(path, point, body).await.unwrap();
            if next.status != 503 {
                break next;
            }
            assert!(Instant::now() < until, "{point}: {next:?}");
        };
        if committed {
            assert_eq!(
                (next.status < 300, next.replayed),
                (true, true),
                "{point}: {next:?}"
            );
        } else {
            assert_eq!(
                next.code().as_deref(),
                Some("request_in_progress"),
                "{point}: {next:?}"
            );
            assert!(next.retry_after.is_some(), "{point}: {next:?}");
            stage.let_leases_run_out().await;
        }
        let answer = insist(&caller, path, point, body).await;
        assert_eq!(answer.replayed, committed, "{point}: {answer:?}");
        let again = insist(&caller, path, point, body).await;
        assert_eq!((again.replayed, &again.text), (true, &answer.text), "{point}");
    }
    for (what, count) in [
        (format!("orders where order_id = '{new}'"), 1),
        (format!("facts where order_id = '{new}'"), 1),
        (format!("order_history where order_id = '{new}'"), 1),
        (format!("facts where key = '{item}'"), 1),
        (
            format!("messages where routing_key = 'order.paid' and order_id = '{accepted}'"),
            1,
        ),
        (
            format!("audit where action = 'attention.resolve' and cast(details as text) like '%{item}%'"),
            1,
        ),
    ] {
        assert_eq!(stage.counted(&what).await, count, "{point}: {what}");
    }
    assert_eq!(
        daemon.get(&format!("/v1/orders/{accepted}")).await.1["status"],
        "paid"
    );
    if let Some(announced) = stage.announced("fulfilment", 1).await {
        assert_eq!(announced.len(), 1, "{point}: {announced:?}");
    }
}

async fn die_at_each(stage: Stage) {
    let points = Point::ALL;
    let names = points
        .iter()
        .map(|(_, name)| *name)
        .filter(|name| name.starts_with("idempotency."));
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 4);
    for name in names {
        die_at(&stage, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_dies_between_any_two_steps_has_one_answer_on_sqlite() {
    on_sqlite(die_at_each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_dies_between_any_two_steps_has_one_answer_on_postgres_and_rabbitmq() {
    on_postgres(die_at_each).await;
}
