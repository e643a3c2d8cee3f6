//! One HTTP/1.1 listener, for the public and for the private side alike: limits on the way in, a drain at the end.
//!
//! `axum::serve` has neither connection limits nor header timeouts, so the connections are served by hyper
//! directly. At the end the listener stops accepting, idle connections close at once, and what was taken is
//! answered; what is still open at the deadline is cut.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

/// Longest request head, and the read buffer of a connection; providers stay under 4 KiB.
const MAX_HEAD: usize = 16 * 1024;

/// After an error of `accept` that is not about one connection (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerOptions {
    /// Most connections; more wait to be accepted.
    pub max_connections: usize,
    /// For a request head, and for the wait before it.
    pub header_timeout: Duration,
    /// From the beginning of the drain to the cut.
    pub drain_deadline: Duration,
}

/// A bound socket that serves a router until it is told to stop.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    options: ListenerOptions,
}

impl Listener {
    /// Binds; connections wait in the socket until [`Self::serve`].
    pub async fn bind(addr: SocketAddr, options: ListenerOptions) -> io::Result<Self> {
        let socket = TcpListener::bind(addr).await?;
        Ok(Self { socket, options })
    }

    /// The address, with the port that was chosen for port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves `service` until `stop`, then drains. The peer's `SocketAddr` is an extension of every request.
    pub async fn serve<S, B>(self, service: S, stop: CancellationToken)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let slots = Arc::new(Semaphore::new(self.options.max_connections));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.accept(&slots) => accepted,
                // Ended connections are let go of while new ones come.
                Some(_) = connections.join_next() => continue,
            };
            let Some((stream, peer, slot)) = accepted else {
                continue;
            };
            let connection = self.connection(stream, peer, service.clone());
            let connection = graceful.watch(connection);
            connections.spawn(async move {
                // A peer that breaks off is its own affair.
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "connection ended");
                }
                drop(slot);
            });
        }
        drop(self.socket);
        let drained = tokio::time::timeout(self.options.drain_deadline, graceful.shutdown()).await;
        if drained.is_err() {
            tracing::warn!("connections were cut at the drain deadline");
        }
        connections.shutdown().await;
    }

    async fn accept(
        &self,
        slots: &Arc<Semaphore>,
    ) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
        let slot = Arc::clone(slots).acquire_owned().await.ok()?;
        match self.socket.accept().await {
            Ok((stream, peer)) => {
                // Answers are small and final: waiting to fill a packet only delays them.
                drop(stream.set_nodelay(true));
                Some((stream, peer, slot))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                None
            }
        }
    }

    fn connection<S, B>(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        service: S,
    ) -> impl GracefulConnection<Error = hyper::Error> + use<S, B>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let service = service.map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request
        });
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.options.header_timeout)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
    }
}
