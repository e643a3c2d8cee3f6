//! What becomes of a connection to Postgres whose statement was abandoned, or that says nothing any more.

use std::time::Duration;

use payhook::store::{Store, StoreOptions};
use payhook::time::Timestamp;
use tokio::time::Instant;

use crate::support::proxy::{Network, Proxy};
use crate::support::store::{FreshStore, patient};

/// The statement ends in an error after nobody waits for it any more, and the server says nothing else: over TLS that
/// must not take the connection's place in the pool for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_statement_gives_its_place_back() {
    FreshStore::with_postgres(|fresh| async move {
        let one = fresh.store.dedicated(&StoreOptions {
            max_connections: 1,
            // Far from when it is abandoned: a test that stalls past both hears of this one.
            statement_timeout: Duration::from_secs(5),
            ..patient()
        });
        one.ping().await.unwrap();
        let held = fresh.lock("orders in access exclusive mode").await;
        let abandoned = tokio::time::timeout(Duration::from_millis(100), one.order("default", "O-1"));
        assert!(abandoned.await.is_err(), "it waits for the lock");
        let until = Instant::now() + Duration::from_secs(30);
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
        let proxy = Proxy::before(&fresh.url).await;
        let url = proxy.instead(&fresh.url);
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

/// The server hears of it later than whoever began: the next one to write over that connection must not be told of a
/// commit that is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_that_silence_ended_leaves_no_transaction_open() {
    FreshStore::with_postgres(|fresh| async move {
        let proxy = Proxy::before(&fresh.url).await;
        let options = StoreOptions {
            max_connections: 1,
            ..patient()
        };
        let one = Store::open(&proxy.instead(&fresh.url), &options).await.unwrap();
        one.ping().await.unwrap();
        // It is back in its pool by then, and not asked yet whether it lives.
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy.set(Network::Silent);
        assert!(one.begin().await.is_err(), "nobody answers");
        proxy.set(Network::Open);
        one.probe(Timestamp::from_secs(1_796_000_000)).await.unwrap();
        assert_eq!(fresh.number("select count(*) from write_probe").await, 1);
    })
    .await;
}
