//! `/v1/quarantine`: what was refused, why it would or would not be today, and another judgement of all of it.
//!
//! A refused notification may still be a payment, so all of this asks for the scope `raw`, but for the other
//! judgement, which changes something and shows nothing.

mod judged;
pub(super) mod list;
pub(super) mod reverify;
