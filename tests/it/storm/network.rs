//! Postgres and RabbitMQ behind a slow network that resets connections.

use super::super::support::proxy::{Network, Proxy};
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_with_resets_loses_nothing() {
    FreshStore::with_postgres(async |fresh| {
        let (url, prefix) = (amqp_url(), prefix());
        let more = queues(&url, &prefix);
        let (store, broker) = (Proxy::before(&fresh.url).await, Proxy::before(&url).await);
        let mut daemon = Daemon::new(&Setup {
            store: Some(&store.instead(&fresh.url)),
            broker: &broker.instead(&url),
            prefix: &prefix,
            broker_more: &more,
            patient: false,
        });
        daemon.start().await;
        let daemon = Arc::new(Mutex::new(daemon));
        let stories = stories(77, scale(25), "n");
        let load = Load::new(&stories, 78);
        let signers = Signers::new();
        let daemons = [daemon.clone()];
        let faults = async {
            load.reach(10).await;
            store.set(Network::Slow);
            broker.set(Network::Slow);
            for time in 1..=4 {
                load.reach(10 + time * 15).await;
                for proxy in [&store, &broker] {
                    proxy.set(Network::Cut);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    proxy.set(Network::Slow);
                }
            }
            load.reach(80).await;
            store.set(Network::Open);
            broker.set(Network::Open);
        };
        tokio::join!(send(&load, &signers, &daemons), faults);
        judge(&*daemon.lock().await, &stories).await;
        judge_queues(&url, &prefix, &stories).await;
        daemon.lock().await.kill();
        clean_up(&url, &prefix).await;
    })
    .await;
}
