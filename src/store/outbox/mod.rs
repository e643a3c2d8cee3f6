//! What is still to be sent. One row for each event without an outcome and each message without a confirm.
//!
//! `due_at` is the only clock and it is the database's: a claim is `due_at` moved ahead by [`CLAIM`], so that a
//! claim nobody lives to finish runs out by itself. The recorder writes event rows in the event's own commit,
//! `orders::apply` writes message rows in the order's. A row leaves in one of three ways: its message was
//! confirmed and nothing more is owed ([`publish`]), its event was applied, or it was given up ([`finish`]).
//!
//! Whoever changes how an event stands takes locks in one order, so that Postgres finds no circle and gives nobody
//! up: its open dead letters by id, its outcome (of several by event id), its rows here by id, its attention items
//! by merchant and source. A redrive goes all the way; a worker and a burial begin with the outcome. At the very
//! end a worker closes dead letters as well, and passes over those that somebody has locked: they are being
//! redriven. Items of other codes a worker raises and settles before its rows here; nobody else holds both.

mod claim;
mod finish;
mod publish;
mod read;
mod replay;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::event::{Event, EventKey, Replay};
#[expect(unused_imports, reason = "named by the docs above")]
use crate::store::Store;
use crate::store::Unreadable;
use crate::time::Timestamp;

pub use claim::Scope;
pub use finish::{Burial, Failed, FailurePolicy, finish_applied};
pub use replay::{enqueue_replays, resend_events, resend_messages};

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

/// Tells the relay of this process that rows were written which nobody holds, so that it sweeps at once
/// instead of at its next poll. Clones ring the same bell.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Notify>);

impl Bell {
    /// Something is due.
    pub fn ring(&self) {
        self.0.notify_one();
    }

    /// Returns when somebody has rung since the last time.
    pub async fn rung(&self) {
        self.0.notified().await;
    }
}

/// A row that this process has claimed.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The row's id.
    pub row: String,
    /// What is to be sent.
    pub content: Content,
    /// To this queue alone.
    pub queue: Option<String>,
    /// Later than this the claim may be somebody else's.
    pub claimed_until: Instant,
}

/// What a row says is to be sent.
#[derive(Clone, Debug)]
pub enum Content {
    /// An event, to everybody; with `Some`, because an operator re-sends it.
    Event(Arc<Event>, Option<Replay>),
    /// An event, by its name to the workers, who read it themselves.
    Name(EventName),
    /// A message about an order or an attention item.
    Message(Message),
    /// The row's event is in the store, and does not read.
    Unreadable(Unreadable),
    /// The row's event or message is not in the store: nothing can be sent.
    Missing,
    /// The row's message is there and cannot be sent as the row wants it; why.
    Unsendable(String),
}

impl Content {
    /// How many bytes of memory its bodies take, about.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Event(event, _) => event.bytes(),
            Self::Message(message) => message.body.len(),
            Self::Name(_) | Self::Missing | Self::Unreadable(_) | Self::Unsendable(_) => 0,
        }
    }
}

/// What the workers know an event by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventName {
    /// The message id.
    pub key: EventKey,
    /// payhook's type.
    pub kind: String,
    /// When it happened.
    pub occurred_at: Timestamp,
}

/// A stored message, ready to be sent.
#[derive(Clone)]
pub struct Message {
    /// The CloudEvent's id.
    pub id: String,
    /// The routing key on the orders exchange; also the CloudEvent's type.
    pub routing_key: String,
    /// When it was written.
    pub at: Timestamp,
    /// The CloudEvent.
    pub body: bytes::Bytes,
}

impl std::fmt::Debug for Message {
    /// Without the body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("routing_key", &self.routing_key)
            .finish_non_exhaustive()
    }
}

/// A statement over the ids of a JSON array in `$1`, in both dialects: `(postgres, sqlite)`. The first part ends with
/// the column. Postgres gets them as an array: a join it may turn round, and walk the whole table with the ids inside
/// when it takes the table for empty, as after a vacuum that found it so.
macro_rules! over_ids {
    ($before:expr, $after:expr) => {
        (
            concat!(
                $before,
                "= any (array(select json_array_elements_text($1::json)))",
                $after
            ),
            concat!($before, "in (select value from json_each($1))", $after),
        )
    };
}
pub(crate) use over_ids;

/// `ids` as [`over_ids`] wants them.
pub(crate) fn id_list<'a>(ids: impl IntoIterator<Item = &'a str>) -> String {
    serde_json::Value::from_iter(ids).to_string()
}
