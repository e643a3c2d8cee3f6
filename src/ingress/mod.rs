//! The public listener: where providers call. Verify, record, answer exactly.
//!
//! [`receive`] takes one request through the whole path, [`recorder`] makes it durable together with its
//! neighbours, [`reply`] says what the provider expects to hear. Nothing but `POST /notify/{provider}/{account}`
//! lives here, and nothing here tells a stranger what exists.

mod body;
mod committer;
mod conflicts;
mod deliveries;
mod key_uses;
mod origin;
pub mod quarantine;
mod queue;
pub mod receive;
pub mod recorder;
mod reply;
pub mod senders;
mod settler;
mod unrecordable;

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use body::LargeBodies;
use tokio::sync::Semaphore;

pub use key_uses::KeyUses;
pub use quarantine::Quarantine;
pub use recorder::{Recorder, RecorderOptions, Unrecorded};
pub use senders::Senders;

use crate::config::ServerConfig;
use crate::provider::Registry;
use crate::telemetry::{Health, Restraint};
use crate::time::Clock;

/// What receiving needs; clones share it.
#[derive(Clone, Debug)]
pub struct Ingress {
    /// The accounts; a reload swaps them.
    pub registry: Arc<ArcSwap<Registry>>,
    /// The way into the store.
    pub recorder: Recorder,
    /// Where refusals go.
    pub quarantine: Quarantine,
    /// Limits of the listener.
    pub server: Arc<ServerConfig>,
    /// The present.
    pub clock: Clock,
    /// Whether the drain has begun: then new requests are answered 503, and those that were taken as ever.
    pub health: Arc<Health>,
    /// Networks that new events came from; their owner runs [`Senders::run`].
    pub senders: Senders,
    /// Which keys verified what came last; somebody must write it ([`KeyUses::run`]).
    pub key_uses: KeyUses,
    /// Being stored.
    in_flight: Arc<Semaphore>,
    /// The budget of bodies that are not small.
    large: Arc<LargeBodies>,
    /// Of the log's lines about paths that no account has.
    strays: Arc<Restraint>,
}

impl Ingress {
    /// For one process.
    pub fn new(
        registry: Arc<ArcSwap<Registry>>,
        recorder: Recorder,
        quarantine: Quarantine,
        server: ServerConfig,
        clock: Clock,
        health: Arc<Health>,
    ) -> Self {
        // What counts from nothing shows its first one.
        receive::strays().increment(0);
        Self {
            registry,
            recorder,
            in_flight: Arc::new(Semaphore::new(server.max_in_flight)),
            large: Arc::new(LargeBodies::new(server.max_in_flight)),
            server: Arc::new(server),
            clock,
            health,
            senders: quarantine.senders().clone(),
            quarantine,
            key_uses: KeyUses::default(),
            strays: Arc::default(),
        }
    }

    /// The whole public listener.
    pub fn router(self) -> Router {
        Router::new().fallback(receive::receive).with_state(self)
    }
}
