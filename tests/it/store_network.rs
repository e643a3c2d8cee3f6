//! What a batch costs over the network, beside a Unix socket.

use std::sync::Arc;
use std::time::Duration;

use payhook::event::Event;
use payhook::store::Store;
use tokio::time::Instant;

use crate::support::events::event;
use crate::support::servers::PrivatePostgres;
use crate::support::store::patient;

const BATCHES: usize = 15;
const BATCH: usize = 64;

/// Without `TCP_NODELAY` the last, partial segment of a statement longer than the socket's buffers is held back until
/// the server acknowledges what came before, some 40 ms later: ten times and more what the whole batch takes otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_over_tcp_or_tls_waits_for_no_delayed_ack() {
    let server = PrivatePostgres::start_with_tls(&[]);
    let socket = format!("?host={}", server.folder().display());
    let tls = format!(
        "?sslmode=verify-full&sslrootcert={}",
        server.certificate().display()
    );
    let mut links = Vec::new();
    for query in [socket.as_str(), "?sslmode=disable", &tls] {
        let url = format!("{}{query}", server.url());
        let store = Store::open(&url, &patient()).await.unwrap();
        store.migrate().await.unwrap();
        links.push((store, Duration::MAX));
    }
    for batch in 0..BATCHES {
        for (link, (store, fastest)) in links.iter_mut().enumerate() {
            let events: Vec<Arc<Event>> = (0..BATCH)
                .map(|n| Arc::new(event(&format!("{link}-{batch}-{n}"), &[b'x'; 3000])))
                .collect();
            let began = Instant::now();
            store.insert_fresh(&events, None).await.unwrap();
            *fastest = began.elapsed().min(*fastest);
        }
    }
    let [socket, tcp, tls] = [0, 1, 2].map(|link| links[link].1);
    assert!(
        tcp < socket * 4 && tls < socket * 4,
        "socket {socket:?}, TCP {tcp:?}, TLS {tls:?}"
    );
}
