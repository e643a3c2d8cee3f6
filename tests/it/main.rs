//! Everything with I/O, in one binary: real sockets, real Postgres, real RabbitMQ.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod api;
mod house;
mod support;

mod idempotency;
mod ingress;
mod quarantine;
mod recorder;
mod store_contract;
mod store_events;
