//! The public listener: exact answers over its router, limits and drain over real sockets.

mod acks;
mod faults;
mod limits;
mod strays;

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use payhook::config::{Config, Environment};
use payhook::ingress::{Ingress, Quarantine, Recorder};
use payhook::provider::Registry;
use payhook::telemetry::Health;
use payhook::time::{Clock, Timestamp};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::support::listener::patient;
use crate::support::store::FreshStore;
use crate::support::traffic;

/// Every test's present.
fn now() -> Timestamp {
    Timestamp::parse_rfc3339("2026-11-29T12:00:00Z").unwrap()
}

/// A public side over one store.
struct Public {
    router: Router,
    registry: Arc<ArcSwap<Registry>>,
    health: Arc<Health>,
    tasks: TaskTracker,
}

/// An answer, whole.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// The accounts of the traffic, with `more` in front of them, as a configuration.
fn configured(more: &str) -> (Config, Registry) {
    let text = format!("{more}\n{}", traffic::accounts());
    let folder = std::env::temp_dir();
    Config::parse_with(&text, &folder, &Environment::default(), Registry::build).unwrap()
}

impl Public {
    fn over(fresh: &FreshStore) -> Self {
        Self::with(fresh, "")
    }

    fn with(fresh: &FreshStore, more: &str) -> Self {
        let (config, registry) = configured(more);
        let registry = Arc::new(ArcSwap::from_pointee(registry));
        let health = Arc::new(Health::new(true));
        let clock = Clock::fixed(now());
        let tasks = TaskTracker::new();
        let quarantine = Quarantine::start(fresh.store.clone(), &tasks);
        let recorder = Recorder::start(
            &fresh.store,
            patient("daemon-1"),
            quarantine.clone(),
            clock.clone(),
            &tasks,
        );
        let ingress = Ingress::new(
            Arc::clone(&registry),
            recorder,
            quarantine,
            config.server,
            clock,
            Arc::clone(&health),
        );
        Self {
            router: ingress.router(),
            registry,
            health,
            tasks,
        }
    }

    async fn ask(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    async fn post(&self, request: &traffic::Request) -> Answer {
        self.ask(http(request)).await
    }

    /// Ends as a drain does, so that everything is written.
    async fn end(self) {
        drop(self.router);
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// As it would come in over a socket from 192.0.2.7.
fn http(request: &traffic::Request) -> Request<Body> {
    let mut built = Request::post(request.path).extension(SocketAddr::from(([192, 0, 2, 7], 4711)));
    for (name, value) in &request.headers {
        built = built.header(name, value);
    }
    built.body(Body::from(request.body.clone())).unwrap()
}
