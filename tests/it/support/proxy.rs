//! A TCP proxy that breaks on command: what stands between a daemon and its database when the network fails.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What [`Network::Slow`] takes for each way, in milliseconds: round trips of 50 to 300.
const SLOW: Range<u64> = 25..150;

/// How the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Bytes pass.
    Open,
    /// Bytes pass, late: each way takes [`SLOW`].
    Slow,
    /// Connections are closed, new ones too.
    Cut,
    /// Connections stay, nothing passes: what a dead peer looks like.
    Silent,
    /// So for those that there are, for ever; new ones pass. The peer came back, or a firewall has forgotten them.
    Forgotten,
}

/// Forwards to one address for as long as it lives.
pub(crate) struct Proxy {
    addr: SocketAddr,
    network: watch::Sender<Network>,
    target: watch::Sender<String>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// In front of the server behind `url`, open.
    pub(crate) async fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (network, state) = watch::channel(Network::Open);
        let (target, to) = watch::channel(server(url).to_owned());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, to, state));
        Self {
            addr,
            network,
            target,
            _tasks: tasks,
        }
    }

    /// `url` with the proxy in the place of the server.
    pub(crate) fn instead(&self, url: &str) -> String {
        url.replacen(server(url), &self.addr.to_string(), 1)
    }

    /// Leads new connections to the server behind `url`: what a failover does to an address.
    pub(crate) fn redirect(&self, url: &str) {
        self.target.send_replace(server(url).to_owned());
    }

    /// Changes the network, for the connections there are and for those to come.
    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

/// The server behind `url`, as `host:port`.
fn server(url: &str) -> &str {
    let (_, rest) = url.rsplit_once('@').unwrap();
    rest.split('/').next().unwrap()
}

async fn accept(listener: TcpListener, target: watch::Receiver<String>, state: watch::Receiver<Network>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        connections.spawn(forward(client, target.borrow().clone(), state.clone()));
    }
}

async fn forward(mut client: TcpStream, target: String, mut state: watch::Receiver<Network>) {
    let mut server = None;
    loop {
        let now = *state.borrow_and_update();
        match now {
            Network::Cut => return,
            Network::Silent => {
                if state.changed().await.is_err() {
                    return;
                }
            }
            Network::Forgotten if server.is_some() => std::future::pending().await,
            Network::Open | Network::Slow | Network::Forgotten => {
                if server.is_none() {
                    server = TcpStream::connect(&target).await.ok();
                }
                let Some(server) = &mut server else {
                    return;
                };
                let pass = async {
                    if now == Network::Slow {
                        pass_late(&mut client, server).await;
                    } else {
                        drop(tokio::io::copy_bidirectional(&mut client, server).await);
                    }
                };
                tokio::select! {
                    // What was under way when the network changed may be lost, as on a real one.
                    () = pass => return,
                    changed = state.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}

/// Passes bytes both ways until one of the two closes.
async fn pass_late(client: &mut TcpStream, server: &mut TcpStream) {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        () = one_way(from_client, to_server) => {}
        () = one_way(from_server, to_client) => {}
    }
}

/// Each piece has its own delay, and none overtakes another.
async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (sent, mut under_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let delay = Duration::from_millis(rand::random_range(SLOW));
            if sent
                .send((Instant::now() + delay, buffer[..length].to_vec()))
                .is_err()
            {
                return;
            }
        }
    };
    let write = async {
        while let Some((due, bytes)) = under_way.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}
