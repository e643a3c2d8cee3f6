//! `/v1/replays` and `POST /v1/events/{id}/replay`: sending again what is stored, and seeing first what that would do.
//!
//! A call only writes down what is asked; whoever drives replays does the rest. What is refused is refused here
//! with a reason, and stands in the audit like what is done.

pub(super) mod begin;
pub(super) mod cancel;
pub(super) mod list;
mod wish;
