//! RabbitMQ raises an alarm and blocks publishers: acks go on, the outbox grows, and then all of it leaves once.

use super::super::support::rabbit::until;
use super::*;

/// Blocks publishers by `alarm` while half of the load arrives, and unblocks them by `calm`.
async fn blocked(alarm: &'static [&'static str], calm: &'static [&'static str], reason: &str) {
    FreshStore::with_postgres(async |fresh| {
        let node = tokio::task::spawn_blocking(PrivateRabbitmq::start).await.unwrap();
        let rabbitmq = Arc::new(Mutex::new(node));
        let broker = rabbitmq.lock().await.url();
        let more = queues(&broker, "payhook");
        let mut daemon = Daemon::new(&Setup {
            store: Some(&fresh.url),
            broker: &broker,
            prefix: "payhook",
            broker_more: &more,
            patient: false,
        });
        daemon.start().await;
        let daemon = Arc::new(Mutex::new(daemon));
        let stories = stories(67, scale(150), "b");
        let (before, during) = stories.split_at(stories.len() / 2);
        let signers = Signers::new();
        let daemons = [daemon.clone()];
        send(&Load::new(before, 68), &signers, &daemons).await;
        in_thread(&rabbitmq, |node| drop(node.ctl(alarm))).await;
        send(&Load::new(during, 69), &signers, &daemons).await;
        let daemon = daemon.lock().await;
        until("the broker to block", async || {
            daemon.get("/readyz").await.1["broker"] == "blocked"
        })
        .await;
        assert_eq!(daemon.get("/readyz").await.0, 200);
        let waiting = fresh
            .number("select count(*) from outbox where published_at is null")
            .await;
        assert!(waiting > 50, "{waiting} rows wait");
        in_thread(&rabbitmq, |node| drop(node.ctl(calm))).await;
        judge(&daemon, &stories).await;
        let blocked =
            format!("broker blocks publishers by an alarm, messages wait in the outbox reason=\"{reason}\"");
        assert_eq!(daemon.log().matches(&blocked).count(), 1);
        judge_queues(&broker, "payhook", &stories).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_alarm_delays_messages_and_loses_none() {
    let alarm = &["set_vm_memory_high_watermark", "absolute", "1"];
    blocked(alarm, &["set_vm_memory_high_watermark", "0.6"], "low on memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_alarm_delays_messages_and_loses_none() {
    let alarm = &["set_disk_free_limit", "900GB"];
    blocked(alarm, &["set_disk_free_limit", "1MB"], "low on disk").await;
}
