//! Facts move orders, on both databases: what commutes, what is written, what happens side by side.

mod accounts;
pub(crate) mod cast;
mod commute;
mod providers;
mod stripe;
mod stripe_model;
mod written;
