//! Limits of the public listener, over real sockets: size, time, number, and the drain.

use std::time::{Duration, Instant};

use payhook::listener::{Listener, ListenerOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::support::rabbit::until;
use crate::support::traffic::{Happening, Sender, Signers, Telling};

/// Longer than anything takes that is not meant to hang.
const PATIENCE: Duration = Duration::from_secs(30);

struct Served {
    addr: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

async fn serve(public: &Public, options: ListenerOptions) -> Served {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), options)
        .await
        .unwrap();
    let addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    #[expect(clippy::disallowed_methods, reason = "the test waits for the handle itself")]
    let serving = tokio::spawn(listener.serve(public.router.clone(), stop.clone()));
    Served { addr, stop, serving }
}

fn options() -> ListenerOptions {
    ListenerOptions {
        max_connections: 16,
        header_timeout: Duration::from_secs(10),
        drain_deadline: Duration::from_secs(5),
    }
}

/// Everything until the other side closes; what arrived, if it breaks.
async fn read_all(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await;
    assert!(
        ended.is_ok(),
        "the connection stays open: {}",
        String::from_utf8_lossy(&read)
    );
    String::from_utf8_lossy(&read).into_owned()
}

/// The status line of the next answer on a connection that stays open.
async fn status(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(
            tokio::time::timeout(PATIENCE, stream.read_u8())
                .await
                .unwrap()
                .unwrap(),
        );
    }
    let read = String::from_utf8(read).unwrap();
    read.lines().next().unwrap().to_owned()
}

async fn on_sqlite<F: Future<Output = ()>>(test: impl FnOnce(FreshStore) -> F) {
    FreshStore::with_sqlite(test).await;
}

/// Sends 3 MiB as one that listens only once it has written everything, and gives what it hears.
async fn send_too_much(addr: SocketAddr, chunked: bool) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    let framing = if chunked {
        "transfer-encoding: chunked".to_owned()
    } else {
        format!("content-length: {}", 3 << 20)
    };
    let head = format!("POST /notify/stripe/load HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..3 {
        if chunked {
            stream
                .write_all(format!("{:x}\r\n", chunk.len()).as_bytes())
                .await?;
        }
        stream.write_all(&chunk).await?;
        if chunked {
            stream.write_all(b"\r\n").await?;
        }
    }
    if chunked {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(read_all(&mut stream).await)
}

/// E02, E03.
#[tokio::test]
async fn a_body_over_the_cap_is_read_on_and_answered() {
    on_sqlite(|fresh| async move {
        let public = Public::with(&fresh, "[server]\nmax_body = \"2KiB\"");
        let served = serve(&public, options()).await;
        for chunked in [false, true] {
            let mut answer = String::new();
            // It is read on for a second: what took longer, because the machine stalled, is sent again.
            for _ in 0..3 {
                let began = Instant::now();
                let heard = send_too_much(served.addr, chunked).await;
                answer = heard.unwrap_or_else(|error| error.to_string());
                if answer.starts_with("HTTP/1.1 413 ") || began.elapsed() < Duration::from_secs(1) {
                    break;
                }
            }
            assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        }
        // At the cap it is taken and judged.
        let exact = request_of(2048);
        let answer = public.ask(exact).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert_eq!(
            public.ask(request_of(2049)).await.status,
            StatusCode::PAYLOAD_TOO_LARGE
        );
    })
    .await;
}

fn request_of(bytes: usize) -> Request<Body> {
    Request::post("/notify/stripe/load")
        .body(Body::from(vec![b'x'; bytes]))
        .unwrap()
}

/// E01.
#[tokio::test]
async fn an_endless_body_is_cut_off() {
    on_sqlite(|fresh| async move {
        let public = Public::with(&fresh, "[server]\nmax_body = \"2KiB\"");
        let endless = futures_util::stream::repeat_with(|| {
            Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b'x'; 65536]))
        });
        let request = Request::post("/notify/stripe/load")
            .body(Body::from_stream(endless))
            .unwrap();
        let answer = tokio::time::timeout(PATIENCE, public.ask(request)).await.unwrap();
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    })
    .await;
}

#[tokio::test]
async fn slow_heads_slow_bodies_and_idle_connections_end() {
    on_sqlite(|fresh| async move {
        let public = Public::with(&fresh, "[server]\nbody_timeout = \"1s\"");
        let quick = ListenerOptions {
            header_timeout: Duration::from_millis(300),
            ..options()
        };
        let served = serve(&public, quick).await;
        let mut head = TcpStream::connect(served.addr).await.unwrap();
        head.write_all(b"POST /notify/stripe/load HTTP/1.1\r\nhost:")
            .await
            .unwrap();
        read_all(&mut head).await;
        let mut idle = TcpStream::connect(served.addr).await.unwrap();
        read_all(&mut idle).await;
        let mut body = TcpStream::connect(served.addr).await.unwrap();
        body.write_all(b"POST /notify/stripe/load HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nabc")
            .await
            .unwrap();
        let answer = read_all(&mut body).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn one_more_than_may_be_stored_hears_503_in_its_provider_s_form() {
    on_sqlite(|fresh| async move {
        let public = Public::with(&fresh, "[server]\nmax_in_flight = 1");
        let telling = Telling {
            sender: Sender::Stripe,
            order_id: "O-1".to_owned(),
            trade_id: "pi_1".to_owned(),
            amount: 8888,
            number: 1,
            happening: Happening::Paid,
        };
        let genuine = Signers::new().sign(&telling, now());
        let held = fresh.store.begin().await.unwrap();
        let mut stored = std::pin::pin!(public.post(&genuine));
        let refused = async {
            loop {
                let other = Request::post("/notify/alipay/load")
                    .body(Body::from("x=1"))
                    .unwrap();
                let answer = public.ask(other).await;
                if answer.status == StatusCode::SERVICE_UNAVAILABLE {
                    return answer;
                }
            }
        };
        let answer = tokio::select! {
            biased;
            answer = &mut stored => panic!("{:?} while nothing can be written", answer.status),
            answer = tokio::time::timeout(PATIENCE, refused) => answer.unwrap(),
        };
        assert_eq!(answer.body, b"fail");
        assert!(answer.header("retry-after").is_some());
        drop(held);
        assert_eq!(stored.await.status, StatusCode::OK);
        assert_eq!(
            public.ask(request_of(5)).await.status,
            StatusCode::UNAUTHORIZED,
            "the place is free again"
        );
    })
    .await;
}

/// Somebody who sends byte after byte keeps nobody out.
#[tokio::test]
async fn slow_bodies_take_no_place_of_others_until_they_are_large() {
    on_sqlite(|fresh| async move {
        let public = Public::with(&fresh, "[server]\nmax_in_flight = 1");
        let served = serve(&public, options()).await;
        let began = async |length: usize, sent: usize| {
            let mut slow = TcpStream::connect(served.addr).await.unwrap();
            let head =
                format!("POST /notify/stripe/load HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
            slow.write_all(head.as_bytes()).await.unwrap();
            slow.write_all(&vec![b'x'; sent]).await.unwrap();
            slow
        };
        let _small = [began(500, 1).await, began(500, 1).await];
        let mut large = began(30_000, 20_000).await;
        until("there is no place for another large one", async || {
            public.ask(request_of(20_000)).await.status == StatusCode::SERVICE_UNAVAILABLE
        })
        .await;
        assert_eq!(public.ask(request_of(500)).await.status, StatusCode::UNAUTHORIZED);
        large.write_all(&[b'x'; 10_000]).await.unwrap();
        assert_eq!(status(&mut large).await, "HTTP/1.1 401 Unauthorized");
        assert_eq!(
            public.ask(request_of(20_000)).await.status,
            StatusCode::UNAUTHORIZED
        );
    })
    .await;
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_a_place() {
    on_sqlite(|fresh| async move {
        let public = Public::over(&fresh);
        let served = serve(
            &public,
            ListenerOptions {
                max_connections: 1,
                ..options()
            },
        )
        .await;
        let ask = b"GET /notify/stripe/load HTTP/1.1\r\nhost: x\r\n\r\n";
        let mut first = TcpStream::connect(served.addr).await.unwrap();
        first.write_all(ask).await.unwrap();
        assert_eq!(status(&mut first).await, "HTTP/1.1 405 Method Not Allowed");
        let mut second = TcpStream::connect(served.addr).await.unwrap();
        second.write_all(ask).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(300), second.read_u8()).await;
        assert!(waiting.is_err(), "the second was served beside the first");
        drop(first);
        assert_eq!(status(&mut second).await, "HTTP/1.1 405 Method Not Allowed");
    })
    .await;
}

#[tokio::test]
async fn a_drain_answers_what_was_taken_and_closes_what_is_idle() {
    on_sqlite(|fresh| async move {
        let public = Public::over(&fresh);
        // Its deadline is not what ends it.
        let served = serve(&public, ListenerOptions { drain_deadline: 2 * PATIENCE, ..options() }).await;
        let mut idle = TcpStream::connect(served.addr).await.unwrap();
        idle.write_all(b"GET /notify/stripe/load HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert_eq!(status(&mut idle).await, "HTTP/1.1 405 Method Not Allowed");
        let mut taken = TcpStream::connect(served.addr).await.unwrap();
        taken.write_all(b"POST /notify/stripe/load HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n").await.unwrap();
        assert_eq!(status(&mut taken).await, "HTTP/1.1 100 Continue");
        served.stop.cancel();
        read_all(&mut idle).await;
        taken.write_all(b"abcde").await.unwrap();
        let answer = read_all(&mut taken).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        tokio::time::timeout(PATIENCE, served.serving).await.unwrap().unwrap();
        assert!(TcpStream::connect(served.addr).await.is_err(), "nobody listens any more");
    })
    .await;
}

#[tokio::test]
async fn a_drain_ends_at_its_deadline() {
    on_sqlite(|fresh| async move {
        let public = Public::over(&fresh);
        let served = serve(&public, ListenerOptions { drain_deadline: Duration::from_millis(300), ..options() }).await;
        let mut stuck = TcpStream::connect(served.addr).await.unwrap();
        stuck.write_all(b"POST /notify/stripe/load HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n").await.unwrap();
        assert_eq!(status(&mut stuck).await, "HTTP/1.1 100 Continue");
        served.stop.cancel();
        tokio::time::timeout(PATIENCE, served.serving).await.unwrap().unwrap();
    })
    .await;
}
