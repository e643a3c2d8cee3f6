//! The public listener over a fresh store, asked in-process: the router that the daemon serves, without its socket.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt as _;
use payhook::config::{Config, Environment};
use payhook::event::{Event, Notification};
use payhook::ingress::{Ingress, Quarantine, Recorder, RecorderOptions};
use payhook::provider::Registry;
use payhook::store::{Recorded, Store};
use payhook::telemetry::Health;
use payhook::time::Clock;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::signed::{now, root};
use super::store::FreshStore;

/// A listener with its store.
pub(crate) struct Listener {
    router: Router,
    /// Where it records.
    pub(crate) fresh: FreshStore,
    /// What it takes for the present; [`now`] at first.
    pub(crate) clock: Clock,
}

/// A machine that stalls is no store that does; tests of one that does say how long they wait.
pub(crate) fn patient(process: &str) -> RecorderOptions {
    RecorderOptions::new(Duration::from_mins(1), process)
}

/// Records `events` in their order, as notifications are recorded, and waits until all is written.
pub(crate) async fn record(store: &Store, events: &[Arc<Event>]) -> Vec<Recorded> {
    let tasks = TaskTracker::new();
    let quarantine = Quarantine::start(store.clone(), &tasks);
    let recorder = Recorder::start(store, patient("test"), quarantine, Clock::system(), &tasks);
    let recorded = events.iter().map(|event| recorder.record(Arc::clone(event)));
    let recorded = futures_util::future::try_join_all(recorded).await.unwrap();
    drop(recorder);
    tasks.close();
    tasks.wait().await;
    recorded
}

/// An answer as it goes over the wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Status and body, for a look at both.
    pub(crate) fn seen(&self) -> (u16, &str) {
        (self.status, std::str::from_utf8(&self.body).unwrap())
    }
}

impl Listener {
    /// Runs `test` with a listener for `accounts` over a SQLite store of its own.
    pub(crate) async fn with<F: Future<Output = ()>>(accounts: &str, test: impl FnOnce(Self) -> F) {
        FreshStore::with_sqlite(|fresh| test(Self::over(fresh, accounts))).await;
    }

    /// The same over Postgres.
    pub(crate) async fn with_postgres<F: Future<Output = ()>>(accounts: &str, test: impl FnOnce(Self) -> F) {
        FreshStore::with_postgres(|fresh| test(Self::over(fresh, accounts))).await;
    }

    fn over(fresh: FreshStore, accounts: &str) -> Self {
        let parsed = Config::parse_with(accounts, &root(), &Environment::default(), Registry::build);
        let (config, registry) = parsed.unwrap_or_else(|errors| panic!("{errors}"));
        let (tasks, clock) = (TaskTracker::new(), Clock::fixed(now()));
        let quarantine = Quarantine::start(fresh.store.clone(), &tasks);
        let options = patient("test");
        let recorder = Recorder::start(&fresh.store, options, quarantine.clone(), clock.clone(), &tasks);
        let registry = Arc::new(ArcSwap::from_pointee(registry));
        let health = Arc::new(Health::new(true));
        let ingress = Ingress::new(
            registry,
            recorder,
            quarantine,
            config.server,
            clock.clone(),
            health,
        );
        Self {
            router: ingress.router(),
            fresh,
            clock,
        }
    }

    /// Posts `notification` now, whenever it says it arrives.
    pub(crate) async fn post(&self, notification: &Notification) -> Answer {
        self.post_to(&notification.path, notification).await
    }

    /// Posts it to another target, such as one with a query.
    pub(crate) async fn post_to(&self, target: &str, notification: &Notification) -> Answer {
        let mut request = Request::post(target)
            .body(Body::from(notification.body.clone()))
            .unwrap();
        *request.headers_mut() = notification.headers.clone();
        self.send(request).await
    }

    /// Any request.
    pub(crate) async fn send(&self, request: Request) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let content_type = response.headers().get("content-type");
        let content_type = content_type.map(|value| value.to_str().unwrap().to_owned());
        Answer {
            status: response.status().as_u16(),
            content_type,
            body: response.into_body().collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    /// The keys of the recorded events, in the order of the keys.
    pub(crate) async fn keys(&self) -> Vec<String> {
        self.fresh
            .texts("select event_key from events order by event_key")
            .await
    }
}
