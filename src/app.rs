//! Puts a process together from its configuration, and takes it apart again in the order that loses nothing.
//!
//! Everything is started here and owned by one of three stages, which end one after the other: the public side
//! (what was taken is answered), the flows behind it (what was begun is finished), the private side (until the
//! end it can be asked how things stand). A database that is down does not keep the process down: it starts,
//! answers 503, and migrates as soon as it can.

mod flows;
mod prepare;
mod public;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::prepare::{Database, accounts};
use crate::api::{self, ApiState, Readiness, Sampler, Tokens};
use crate::broker::BrokerError;
use crate::config::{Config, ServerConfig, TokenFileError, local_tokens};
use crate::event::new_id;
use crate::listener::{Listener, ListenerOptions};
use crate::provider::Registry;
use crate::replay::{Driver, Replays};
use crate::retention::Retention;
use crate::store::outbox::Bell;
use crate::store::{DaemonLock, DaemonLockError, Store, StoreError, StoreOptions};
use crate::telemetry::{Health, Metrics};
use crate::time::Clock;

/// How long work that no caller waits for has, after the drain's deadline.
const LEAVE: Duration = Duration::from_secs(5);

/// How long a flow waits for a connection of its own at least; less than [`LEAVE`].
const LOGIN: Duration = Duration::from_secs(3);

/// Connections of the private listener.
const ADMIN_CONNECTIONS: usize = 256;

/// A part of the daemon that a process may run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Role {
    /// Takes notifications.
    Ingress,
    /// Publishes what is stored.
    Relay,
    /// Applies events to orders.
    Worker,
    /// Answers operators and programs.
    Api,
}

impl Role {
    /// All of them: what a process runs that was told nothing else.
    pub const ALL: [Self; 4] = [Self::Ingress, Self::Relay, Self::Worker, Self::Api];
}

/// Why a process does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A second daemon on one SQLite file.
    #[error(transparent)]
    Lock(#[from] DaemonLockError),
    /// The database cannot be used; one that is merely away is waited for.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No token for the private API.
    #[error("no token for the private API")]
    Token(#[from] TokenFileError),
    /// The address is taken, or not ours.
    #[error("cannot listen on {addr}")]
    Bind {
        /// Which.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The broker's settings.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The metrics recorder.
    #[error("cannot count: {0}")]
    Metrics(String),
}

/// A running process.
#[derive(Debug)]
pub struct App {
    notify_addr: Option<SocketAddr>,
    admin_addr: SocketAddr,
    registry: Arc<ArcSwap<Registry>>,
    health: Arc<Health>,
    store: Store,
    process: String,
    clock: Clock,
    drain_deadline: Duration,
    public: Stage,
    flows: Stage,
    private: Stage,
    _lock: Option<DaemonLock>,
}

/// Tasks that end together.
#[derive(Debug, Default)]
struct Stage {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Stage {
    /// Tells the tasks to end and waits until they have.
    async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl App {
    /// Starts the parts named by `roles`. Both listeners are bound when this returns, and the schema is up to
    /// date unless the database is away.
    pub async fn start(
        config: Config,
        registry: Registry,
        roles: &[Role],
        clock: Clock,
    ) -> Result<Self, StartError> {
        let lock = config
            .store
            .sqlite_file
            .as_deref()
            .map(DaemonLock::take)
            .transpose()?;
        let metrics = Metrics::install().map_err(|error| StartError::Metrics(error.to_string()))?;
        let store = Store::open(config.store.url.expose_secret(), &store_options(&config)).await?;
        let recording = if roles.contains(&Role::Ingress) {
            Some(public::recording(&config, &store).await)
        } else {
            None
        };
        let health = Arc::new(Health::new(roles.contains(&Role::Ingress)));
        health.starting(true);
        let (public, flows, private) = (Stage::default(), Stage::default(), Stage::default());
        let registry = Arc::new(ArcSwap::from_pointee(registry));
        let process_id = new_id(clock.now());

        // The private listener is in every process: each is asked how it is.
        let serves_calls = roles.contains(&Role::Api);
        let tokens = tokens(&config, serves_calls)?;
        let keys = api::keys(&store, config.retention.idempotency, &private.tasks);
        let (policy, bell) = (flows::policy(&config), Bell::default());
        let replays = Replays::new(
            store.clone(),
            Arc::clone(&registry),
            flows::queues(&config),
            policy,
            clock.clone(),
        );
        let readiness = Readiness::new(recording.clone().unwrap_or_else(|| store.clone()), clock.clone());
        let state = ApiState {
            readiness,
            store: store.clone(),
            tokens,
            health: Arc::clone(&health),
            metrics: metrics.clone(),
            registry: Arc::clone(&registry),
            keys: keys.clone(),
            policy,
            bell: bell.clone(),
            replays: replays.clone(),
            clock: clock.clone(),
        };
        let calls = if serves_calls {
            api::router(state)
        } else {
            api::health_router(state)
        };
        let admin = bind(config.server.admin_addr, &config.server, ADMIN_CONNECTIONS).await?;
        let admin_addr = address(&admin, config.server.admin_addr)?;
        private.tasks.spawn(admin.serve(calls, private.stop.clone()));

        // Before the first row is written: what the feed counts from is settled here.
        let database = Database::new(&store, config.store.migrate, &registry.load(), clock.now());
        database.prepare(&flows).await?;

        // Before the ingress that hands over to them.
        let shared = flows::Shared {
            store: &store,
            registry: &registry,
            health: &health,
            clock: &clock,
            process: &process_id,
            policy,
            bell: &bell,
        };
        let handoff = flows::start(&config, roles, &shared, &flows)?;

        let notify_addr = if let Some(recording) = recording {
            Some(public::receive(&config, &shared, &recording, handoff, &public).await?)
        } else {
            None
        };
        if roles.contains(&Role::Worker) {
            let driver = Driver::new(replays, &process_id);
            flows.tasks.spawn(driver.run(flows.stop.clone()));
            let retention = Retention::new(store.clone(), keys.clone(), &config.retention, clock.clone());
            flows.tasks.spawn(retention.run(flows.stop.clone()));
        }
        let sampler = Sampler::new(
            store.clone(),
            Arc::clone(&health),
            metrics,
            Arc::clone(&registry),
            keys,
            clock.clone(),
        );
        private.tasks.spawn(sample(sampler, private.stop.clone()));
        health.starting(false);
        Ok(Self {
            notify_addr,
            admin_addr,
            registry,
            health,
            store,
            process: process_id,
            clock,
            drain_deadline: config.server.drain_deadline,
            public,
            flows,
            private,
            _lock: lock,
        })
    }

    /// Where providers call; `None` without the role `ingress`.
    pub fn notify_addr(&self) -> Option<SocketAddr> {
        self.notify_addr
    }

    /// Where the private side listens.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Judges from now on by these accounts and keys. A new account that cannot be noted as known is, by its first
    /// event.
    pub fn reload(&self, registry: Registry) {
        let (store, accounts, now) = (self.store.clone(), accounts(&registry), self.clock.now());
        self.registry.store(Arc::new(registry));
        self.flows.tasks.spawn(async move {
            if let Err(error) = store.know_accounts(accounts, now).await {
                warn(&error, "new accounts not noted, their first events will do it");
            }
        });
    }

    /// Takes nothing new, answers what was taken, finishes what was begun, ends. What a silent database or broker keeps
    /// from ending is left: others take it up when its claim has run out. Whether everything ended in time.
    pub async fn shutdown(self) -> bool {
        self.health.begin_drain();
        let within = self.drain_deadline.saturating_add(LEAVE);
        let ended = tokio::time::timeout(within, self.end()).await.is_ok();
        if !ended {
            tracing::warn!("not everything ended in time; what is left comes again");
        }
        ended
    }

    async fn end(&self) {
        self.public.end().await;
        self.flows.end().await;
        if let Err(error) = self.store.release_claims(&self.process).await {
            warn(&error, "claims were not given back; they run out by themselves");
        }
        self.private.end().await;
        self.store.close().await;
    }
}

/// Who may ask; where no calls are served nobody does, and no token is made.
fn tokens(config: &Config, serves_calls: bool) -> Result<Tokens, TokenFileError> {
    if serves_calls {
        return Ok(Tokens::new(&local_tokens(config)?));
    }
    tracing::info!("without the role `api` this process answers no command and no call, only how it is");
    Ok(Tokens::new(&[]))
}

fn store_options(config: &Config) -> StoreOptions {
    StoreOptions {
        max_connections: config.store.max_connections,
        acquire_timeout: config.store.acquire_timeout,
        ..StoreOptions::default()
    }
}

/// Options of connections that one flow alone waits for: a login over a slow network takes several round trips, and one
/// that is given up begins anew.
fn flow_options(config: &Config) -> StoreOptions {
    StoreOptions {
        acquire_timeout: config.store.acquire_timeout.max(LOGIN),
        ..store_options(config)
    }
}

async fn bind(
    addr: SocketAddr,
    server: &ServerConfig,
    max_connections: usize,
) -> Result<Listener, StartError> {
    let options = ListenerOptions {
        max_connections,
        header_timeout: server.header_timeout,
        drain_deadline: server.drain_deadline,
    };
    Listener::bind(addr, options)
        .await
        .map_err(|source| StartError::Bind { addr, source })
}

fn address(listener: &Listener, addr: SocketAddr) -> Result<SocketAddr, StartError> {
    listener
        .local_addr()
        .map_err(|source| StartError::Bind { addr, source })
}

async fn sample(mut sampler: Sampler, stop: CancellationToken) {
    loop {
        if let Err(error) = sampler.step().await {
            warn(&error, "the store could not be counted");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Sampler::EVERY) => {}
        }
    }
}

fn warn(error: &StoreError, what: &str) {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    tracing::warn!(%error, cause, "{what}");
}
