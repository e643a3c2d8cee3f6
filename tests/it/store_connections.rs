//! What becomes of a connection to Postgres whose statement was abandoned.

use std::time::Duration;

use payhook::store::{StoreOptions, Tx};
use tokio::time::Instant;

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
        let mut held = fresh.store.begin().await.unwrap();
        if let Tx::Postgres(conn) = &mut held {
            sqlx::query("lock table orders in access exclusive mode")
                .execute(&mut **conn)
                .await
                .unwrap();
        }
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
