//! What needs a human, and what humans decide about it.

pub(super) mod list;
pub(super) mod resolve;
