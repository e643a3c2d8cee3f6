//! Everything with I/O, in one binary: real sockets, real Postgres, real RabbitMQ.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod api;
mod authorised;
mod calls;
mod check;
mod consumers;
mod demo;
mod deploy;
mod feed;
mod flood;
mod full_disk;
mod house;
mod long_ids;
mod one_path;
mod readme;
mod storm;
mod support;

mod broker;
mod cases;
mod cases_a;
mod cases_b;
mod cases_c;
mod cases_d;
mod cases_e;
mod hints;
mod hostile;
mod idempotency;
mod ingress;
mod interop;
mod orders;
mod quarantine;
mod reads;
mod recorder;
mod relay;
mod replay_others;
mod replay_walk;
mod replays;
mod retention;
mod reverify;
mod samples;
mod signed_material;
mod store_connections;
mod store_contract;
mod store_events;
mod store_network;
mod store_outbox;
mod worker;
