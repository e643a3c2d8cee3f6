//! `/v1/dead-letters`: what could not be applied, and sending it to the workers again.

mod list;
mod redrive;

pub(super) use list::{list, show};
pub(super) use redrive::{redrive, redrive_one};
