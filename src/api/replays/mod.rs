//! `/v1/replays` and `POST /v1/events/{id}/replay`: sending again what is stored, and seeing first what that would do.
//!
//! A call only writes down what is asked; whoever drives replays does the rest. What is refused is refused here
//! with a reason, and stands in the audit like what is done.

mod begin;
mod cancel;
mod list;
mod wish;

pub(super) use begin::{begin, begin_one};
pub(super) use cancel::cancel;
pub(super) use list::{list, show};
