//! payhook
pub mod api;
pub mod cli;
pub mod config;
pub mod crash;
pub mod event;
pub mod idempotency;
pub mod provider;
pub mod store;
pub mod telemetry;
pub mod time;
