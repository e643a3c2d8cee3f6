//! `[recorder]`: how notifications are gathered into commits.
//!
//! Keys: `batch`, `writers`.

use super::keys::Keys;

/// The `[recorder]` section.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// Most events in one commit.
    pub batch: u32,
    /// Commits under way at once; with SQLite they queue for its one writer.
    pub writers: u32,
}

impl RecorderConfig {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        Self {
            batch: keys.integer("batch", 1..=256),
            writers: keys.integer("writers", 1..=64),
        }
    }
}
