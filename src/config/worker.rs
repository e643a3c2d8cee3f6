//! `[worker]`: how the workers apply events.
//!
//! Keys: `max_attempts`, `batch`.

use super::keys::Keys;

/// The `[worker]` section.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// After so many failures the event is a dead letter.
    pub max_attempts: u32,
    /// Deliveries of different orders applied in one transaction.
    pub batch: u32,
}

impl WorkerConfig {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        Self {
            max_attempts: keys.integer("max_attempts", 1..=100),
            batch: keys.integer("batch", 1..=256),
        }
    }
}
