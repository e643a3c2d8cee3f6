//! How the process is doing, as the flows report it and `/readyz` shows it.
//!
//! A small handle shared by all: the relay says what it sees of the broker, the sampler what waits in the
//! outbox, the drain that it has begun. Whether the store takes a write is not kept here: that is tried when
//! somebody asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::time::Timestamp;

/// What the relay (or worker) last saw of the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BrokerState {
    /// Nothing in this process has tried it yet.
    #[default]
    Unknown,
    /// The outbox itself is the queue: there is nothing to lose the connection to.
    Embedded,
    /// Connected, topology asserted.
    Connected,
    /// Connected, but an alarm of its own (memory or disk) keeps it from taking messages.
    Blocked,
    /// Not reachable; being tried again.
    Unreachable,
}

impl BrokerState {
    /// Whether messages can leave.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Embedded | Self::Connected)
    }
}

/// What waits in the outbox, as of the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxState {
    /// Rows without a confirmed publish.
    pub pending: u64,
    /// When the oldest of them was written.
    pub oldest: Option<Timestamp>,
}

/// The process's health; shared behind an `Arc`.
#[derive(Debug)]
pub struct Health {
    ingress: bool,
    starting: AtomicBool,
    draining: AtomicBool,
    broker: Mutex<(BrokerState, Option<Timestamp>)>,
    outbox: Mutex<Option<OutboxState>>,
}

impl Health {
    /// `ingress`: whether this process takes notifications. One that does is ready without a broker; one that
    /// does not has nothing to do without it.
    pub fn new(ingress: bool) -> Self {
        Self {
            ingress,
            starting: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            broker: Mutex::default(),
            outbox: Mutex::default(),
        }
    }

    /// Whether this process takes notifications.
    pub fn has_ingress(&self) -> bool {
        self.ingress
    }

    /// While the process starts it answers how it is, and takes nothing yet.
    pub fn starting(&self, yes: bool) {
        self.starting.store(yes, Ordering::SeqCst);
    }

    /// Whether it is still starting.
    pub fn is_starting(&self) -> bool {
        self.starting.load(Ordering::SeqCst)
    }

    /// From here on the process takes nothing new.
    pub fn begin_drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Reports the broker; the time is kept only when the state changes.
    pub fn set_broker(&self, state: BrokerState, at: Timestamp) {
        let mut broker = self.broker.lock().unwrap_or_else(PoisonError::into_inner);
        if broker.0 != state {
            *broker = (state, Some(at));
        }
    }

    /// The broker's state, and since when.
    pub fn broker(&self) -> (BrokerState, Option<Timestamp>) {
        *self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the outbox.
    pub fn set_outbox(&self, state: OutboxState) {
        *self.outbox.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    /// The outbox as of the last sample; `None` before the first.
    pub fn outbox(&self) -> Option<OutboxState> {
        *self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_when_the_state_changed_not_when_it_was_last_reported() {
        let health = Health::new(true);
        let (first, later) = (Timestamp::from_secs(1), Timestamp::from_secs(2));
        health.set_broker(BrokerState::Unreachable, first);
        health.set_broker(BrokerState::Unreachable, later);
        assert_eq!(health.broker(), (BrokerState::Unreachable, Some(first)));
        health.set_broker(BrokerState::Connected, later);
        assert_eq!(health.broker(), (BrokerState::Connected, Some(later)));
    }
}
