//! A TCP proxy that breaks on command: what stands between a daemon and its database when the network fails.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Bytes pass.
    Open,
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
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// In front of the server behind `url`, open.
    pub(crate) async fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (network, state) = watch::channel(Network::Open);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server(url).to_owned(), state));
        Self {
            addr,
            network,
            _tasks: tasks,
        }
    }

    /// `url` with the proxy in the place of the server.
    pub(crate) fn instead(&self, url: &str) -> String {
        url.replacen(server(url), &self.addr.to_string(), 1)
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

async fn accept(listener: TcpListener, target: String, state: watch::Receiver<Network>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        connections.spawn(forward(client, target.clone(), state.clone()));
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
            Network::Open | Network::Forgotten => {
                if server.is_none() {
                    server = TcpStream::connect(&target).await.ok();
                }
                let Some(server) = &mut server else {
                    return;
                };
                tokio::select! {
                    // What was under way when the network changed may be lost, as on a real one.
                    _ = tokio::io::copy_bidirectional(&mut client, server) => return,
                    changed = state.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}
