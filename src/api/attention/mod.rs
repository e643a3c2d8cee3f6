//! What needs a human, and what humans decide about it.

mod list;
mod resolve;

pub(super) use self::list::{list, show};
pub(super) use self::resolve::resolve;
