//! Sends stored events and messages again, because an operator asked for it.
//!
//! What is asked for is a row ([`crate::store::replays`]); a [`Driver`] in every process with a worker moves the
//! running ones on, one process at a time for each, slowly enough to leave room for what comes in. Everything goes
//! through the outbox under its own id, so it is published like any other, and the workers find what they know.
//! What would be sent and what would come of it can be seen first ([`Replays::plan`]). What may not be sent is
//! decided by the same [`Rules`] in both: nothing reaches a queue that did not ask for it, and nothing the workers
//! that no account of this process can read.

mod driver;
mod pace;
mod page;
mod plan;
mod rules;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use driver::{Driver, Round};
pub use plan::{Plan, PlannedFailure, PlannedOrder, PlannedRefusal, PlannedStanding};
pub use rules::{Rules, UnknownQueue};

use crate::config::Queue;
use crate::orders::apply::Policy;
use crate::provider::Registry;
use crate::store::Store;
use crate::time::Clock;

/// What plans and drives replays; clones share it.
#[derive(Clone, Debug)]
pub struct Replays {
    store: Store,
    registry: Arc<ArcSwap<Registry>>,
    queues: Arc<[Queue]>,
    policy: Policy,
    clock: Clock,
}

impl Replays {
    /// Over `store`; `queues` are those that the operator has declared.
    pub fn new(
        store: Store,
        registry: Arc<ArcSwap<Registry>>,
        queues: &[Queue],
        policy: Policy,
        clock: Clock,
    ) -> Self {
        Self {
            store,
            registry,
            queues: queues.into(),
            policy,
            clock,
        }
    }

    /// What may be sent to `queue`, or to everybody, as of now.
    pub fn rules(&self, queue: Option<&str>) -> Result<Rules, UnknownQueue> {
        Rules::new(self.registry.load_full(), &self.queues, queue)
    }
}
