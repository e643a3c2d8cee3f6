//! What becomes of a connection to Postgres whose statement was abandoned, or that says nothing any more.

use std::time::Duration;

use payhook::store::{Store, StoreOptions};
use tokio::time::Instant;

use crate::support::proxy::{Network, Proxy};
use crate::support::store::FreshStore;

/// The statement ends in an error after nobody waits for it any more, and the server says nothing else: over TLS that
/// must not take the connection's place in the pool for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_statement_gives_its_place_back() {
    FreshStore::with_postgres(|fresh| async move {
        let one = fresh.store.dedicated(&StoreOptions {
            max_connections: 1,
            statement_timeout: Duration::from_millis(300),
            ..StoreOptions::default()
        });
        one.ping().await.unwrap();
        let held = fresh.lock("orders in access exclusive mode").await;
        let abandoned = tokio::time::timeout(Duration::from_millis(100), one.order("default", "O-1"));
        assert!(abandoned.await.is_err(), "it waits for the lock");
        let until = Instant::now() + Duration::from_secs(10);
        while one.ping().await.is_err() {
            assert!(Instant::now() < until, "its place is taken for ever");
        }
        drop(held);
    })
    .await;
}

/// Without an error for whoever asks, and without its place being taken until the kernel gives it up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_says_nothing_any_more_is_replaced() {
    FreshStore::with_postgres(|fresh| async move {
        let (_, rest) = fresh.url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let proxy = Proxy::to(server, Network::Open).await;
        let url = format!("postgres://postgres@{}/{database}", proxy.addr);
        let options = StoreOptions {
            max_connections: 1,
            acquire_timeout: Duration::from_secs(10),
            ..StoreOptions::default()
        };
        let one = Store::open(&url, &options).await.unwrap();
        one.ping().await.unwrap();
        // It has come back to its pool by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.set(Network::Forgotten);
        // Long enough to be asked whether it lives.
        tokio::time::sleep(Duration::from_secs(1)).await;
        one.ping().await.unwrap();
        one.ping().await.unwrap();
    })
    .await;
}
