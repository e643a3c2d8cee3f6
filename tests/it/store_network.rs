//! What a batch costs over the network, beside a Unix socket.

use std::sync::Arc;

use payhook::event::Event;
use payhook::store::{Store, Writer};
use tokio::time::{Duration, Instant};

use crate::support::events::event;
use crate::support::servers::PrivatePostgres;
use crate::support::store::patient;

/// A new connection acknowledges at once for a while: these are not counted.
const WARM_UP: usize = 20;
const BATCHES: usize = 50;
/// Together somewhat more than one segment of the loopback interface.
const ROWS: usize = 64;
const BODY: usize = 700;

/// Without `TCP_NODELAY` the last, partial segment of a statement waits until the server acknowledges what came before,
/// some 40 ms later: with sqlx 0.9.0 a batch like this one took 47 ms over TLS and 4 over a Unix socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_over_tcp_or_tls_waits_for_no_delayed_ack() {
    let server = PrivatePostgres::start_with_tls(&[]);
    let socket = format!("?host={}", server.folder().display());
    let tls = format!(
        "?sslmode=verify-full&sslrootcert={}",
        server.certificate().display()
    );
    let mut links = Vec::new();
    for query in [&socket, "?sslmode=disable", &tls] {
        let store = Store::open(&format!("{}{query}", server.url()), &patient())
            .await
            .unwrap();
        store.migrate().await.unwrap();
        links.push((store.writer(), Vec::new()));
    }
    for batch in 0..BATCHES {
        for (link, (writer, took)) in links.iter_mut().enumerate() {
            took.push(time(writer, &format!("{link}-{batch}")).await);
        }
    }
    let medians: Vec<Duration> = links
        .into_iter()
        .map(|(_, took)| {
            let mut counted = took[WARM_UP..].to_vec();
            counted.sort();
            counted[counted.len() / 2]
        })
        .collect();
    let limit = medians[0] * 4;
    assert!(
        medians.iter().all(|median| *median < limit),
        "socket, TCP, TLS: {medians:?}"
    );
}

/// How long it takes to store a batch of new events.
async fn time(writer: &mut Writer, name: &str) -> Duration {
    let events: Vec<Arc<Event>> = (0..ROWS)
        .map(|n| Arc::new(event(&format!("{name}-{n}"), &[b'x'; BODY])))
        .collect();
    let began = Instant::now();
    let fresh = writer.insert_fresh(&events, None).await.unwrap();
    assert_eq!(fresh, [true; ROWS]);
    began.elapsed()
}
