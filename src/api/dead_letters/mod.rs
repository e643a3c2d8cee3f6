//! `/v1/dead-letters`: what could not be applied, and sending it to the workers again.

pub(super) mod list;
pub(super) mod redrive;
