//! What is still to be sent. One row for each event without an outcome and each message without a confirm.
//!
//! `due_at` is the only clock and it is the database's: a claim is `due_at` moved ahead by [`CLAIM`], so that a
//! claim nobody lives to finish runs out by itself. The recorder writes event rows in the event's own commit,
//! `orders::apply` writes message rows in the order's.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::event::Event;

/// How long a claim holds.
pub const CLAIM: Duration = Duration::from_secs(15);

/// How many committed events may wait in memory between the recorder and this process's relay (or, with the
/// embedded broker, worker). What finds no room is born unclaimed and taken by the sweep.
pub const HANDOFF_ROOM: usize = 1024;

/// A committed event whose outbox row was born claimed by this process.
#[derive(Clone, Debug)]
pub struct Handoff {
    /// The event, as stored; its outbox row has the event's id.
    pub event: Arc<Event>,
    /// Measured from before the commit began: later than this the claim may be somebody else's.
    pub claimed_until: Instant,
}
