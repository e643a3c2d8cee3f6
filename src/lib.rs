//! payhook receives the notifications that payment providers send, makes each of them count exactly once, and
//! keeps the orders they speak of from ever moving backwards.
//!
//! This page is the map. It follows one notification through the code; read it, then the module you came for.
//!
//! # The path of a notification
//!
//! ```text
//! provider ─POST─▶ ingress ─▶ provider ─▶ recorder ─▶ store: event + outbox row, one commit
//!                     │ refused               │ committed         │
//!                     ▼                       ▼                   ▼
//!                 quarantine           ack ─▶ provider     relay ─▶ broker ─▶ worker ─▶ orders: one transaction
//!                                                            ▲                            facts, trades, order,
//!                                                            └──── outbox: order.* ◀───── ledger, history, outcome
//! ```
//!
//! 1. [`event`] has the nouns. A [`Notification`](event::Notification) is a request as it arrived and proves
//!    nothing. An [`Event`](event::Event) is one that was verified, under the [`EventKey`](event::EventKey) that
//!    makes a second copy recognisable. A [`Fact`](event::Fact) is one thing that it says about an order.
//! 2. [`ingress`] takes the request on the public listener: its limits, its raw bytes, its time of arrival.
//! 3. [`provider`] judges it by that provider's scheme, over the raw bytes, and gives a
//!    [`Verified`](provider::Verified) that nobody else can make, or a refusal. It also knows the exact bytes of
//!    every answer. What is refused goes to the quarantine, whole, so that it can be judged again.
//! 4. The recorder in [`ingress`] gathers what waits and commits it together; only then does the ack leave.
//! 5. [`store`] is Postgres or one SQLite file behind the same functions. The event and its outbox row are one
//!    commit, so there is no moment at which an event is kept and would not be sent.
//! 6. [`relay`] takes outbox rows to the [`broker`], RabbitMQ or the outbox itself, and lets go of a row only
//!    when the broker has confirmed it.
//! 7. [`worker`] hears that there is an event, reads it from the store, and lets [`orders`] apply its facts: status
//!    and ledger as pure functions, everything they change in one transaction, with the message that says so.
//! 8. [`api`] shows all of it on the private listener, and takes the operator's decisions, each of them once
//!    ([`idempotency`]). What an operator wants sent again, [`replay`] puts into the outbox once more.
//!
//! Around the path: [`config`] is read once and handed down as values, [`time`] is the only clock,
//! [`telemetry`] what the process says about itself, [`app`] puts a process together and drains it, and [`cli`] is
//! how people reach it.
//!
//! # What always holds
//!
//! Tests, constraints and triggers hold these; whoever changes the code keeps them.
//!
//! - **I1. An ack is a promise kept.** A provider hears "success" only after the event, or the earlier copy that
//!   this one repeats, is on disk. When it cannot be, the provider hears quickly that it should come again.
//! - **I2. One key, one event.** The unique constraint in [`store`] decides, and nothing else: nobody looks first
//!   and inserts afterwards.
//! - **I3. Only what was signed counts.** Keys, facts and amounts come from signed material ([`provider`]). A
//!   broker's message merely names an event; what is acted on is read from the store.
//! - **I4. The same key with other content is a conflict.** It is acked, both contents are kept, neither acts
//!   again, and one human is told, once.
//! - **I5. What is stored is sent.** At least once, always under the same message id; a row leaves the outbox only
//!   when the broker has it and did not hand it back.
//! - **I6. A fact counts once.** By whatever way it comes, however often, through however many workers at a time:
//!   an order moves once, money is booked once.
//! - **I7. Orders do not go back.** Paid stays paid, ranks do not fall, what is final stays, totals do not
//!   shrink, and each change is one more `version`. The database itself refuses anything else.
//! - **I8. The record is not rewritten.** Events, facts, ledger, history and audit only grow, and raw bodies are
//!   the bytes that came. Retention, through its own guarded path, is the one exception.
//! - **I9. Nothing vanishes.** Every notification ends as recorded, duplicate, conflict or refused; every event
//!   ends with an outcome, and is sent to the workers again until it has one.
//! - **I10. Order of arrival does not matter.** The same facts in any order and any number of times give the same
//!   totals and ledger, always, and the same status, unless a human was called to decide it.
//!
//! # Who may use whom
//!
//! The flows ([`ingress`], [`relay`], [`worker`], [`api`]) never import each other; they meet in the [`store`]. Rules
//! ([`provider`], and status and ledger in [`orders`]) do no I/O. `tests/it/house.rs` has the whole table and
//! fails on any other edge.

// The nouns.
pub mod event;

// The path, in the order in which a notification takes it; an empty line between them keeps it.
pub mod ingress;

pub mod provider;

pub mod store;

pub mod relay;

pub mod broker;

pub mod worker;

pub mod orders;

pub mod replay;

pub mod api;

pub mod idempotency;

// Around the path.
pub mod app;
pub mod cli;
pub mod config;
pub mod crash;
pub mod listener;
pub mod retention;
pub mod samples;
pub mod telemetry;
pub mod time;
