//! The public listener: where providers call. Verify, record, answer exactly.
//!
//! [`receive`] takes one request through the whole path, [`recorder`] makes it durable in a batch with others,
//! [`reply`] is what the provider expects as an answer. The listener serves only
//! `POST /notify/{provider}/{account}`, and no answer reveals which accounts exist.

mod body;
mod key_uses;
mod origin;
pub mod quarantine;
pub mod receive;
pub mod recorder;
mod reply;
pub mod senders;

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
    /// Records events.
    pub recorder: Recorder,
    /// Keeps refused notifications.
    pub quarantine: Quarantine,
    /// Limits of the listener.
    pub server: Arc<ServerConfig>,
    /// The time.
    pub clock: Clock,
    /// Whether the drain has begun: new requests are then answered 503.
    pub health: Arc<Health>,
    /// Networks that new events came from; needs [`Senders::run`].
    pub senders: Senders,
    /// When each key last verified a notification; needs [`KeyUses::run`].
    pub key_uses: KeyUses,
    /// Permits of notifications that are being stored.
    in_flight: Arc<Semaphore>,
    /// The memory budget of large bodies.
    large: Arc<LargeBodies>,
    /// Limits the log lines about paths that no account has.
    strays: Arc<Restraint>,
}

impl Ingress {
    /// The ingress of one process.
    pub fn new(
        registry: Arc<ArcSwap<Registry>>,
        recorder: Recorder,
        quarantine: Quarantine,
        server: ServerConfig,
        clock: Clock,
        health: Arc<Health>,
    ) -> Self {
        // A counter that starts at zero shows its first increment.
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

    /// The router of the public listener.
    pub fn router(self) -> Router {
        Router::new().fallback(receive::receive).with_state(self)
    }
}
