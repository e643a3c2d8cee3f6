//! The feed: both streams in the order of their commits, read without a lock and without a gap.
//!
//! **Order.** On Postgres a row's position is the id of the transaction that wrote it, and a reader sees only
//! positions below the oldest transaction that still runs: below it every transaction has ended, so nothing
//! can appear there any more. On SQLite the one writer numbers the rows. What a replay sends has a position of
//! its own ([`sent`]), behind the rows at that position.
//!
//! **Never a gap.** A cursor given after a page that was not full stands at the end of what could be read, not
//! at the last item, so an idle merchant's reader does not fall behind. What a restore or a failover takes
//! away is handled by epochs ([`epoch`]): a cursor of an earlier epoch is drawn back to what both histories
//! share. An item may then come twice, none is left out. A cursor that retention has overtaken is refused, and
//! the reader begins at the oldest kept.
//!
//! Everything of a page is read in one snapshot, so that a purge in between cannot take items out of it.

mod cursor;
mod epoch;
mod page;
mod sent;
mod watch;

use std::sync::Arc;

pub use cursor::{Cursor, NoCursor, Stream, UnknownStream};
pub use sent::{note_replayed_events, note_replayed_messages};
pub use watch::FeedWatch;

use crate::event::{Event, Replay};

/// Where a reader begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With the oldest that is kept.
    Oldest,
    /// With what is yet to come.
    End,
    /// After a cursor of this stream.
    After(Cursor),
}

/// What a reader finds.
#[derive(Clone, Debug)]
pub enum FeedRead {
    /// Items, perhaps none, and where to go on.
    Page {
        /// In the stream's order.
        items: Vec<FeedItem>,
        /// After them.
        next: Cursor,
    },
    /// Retention removed events that the cursor had not passed.
    Expired,
}

/// One item of the feed.
#[derive(Clone, Debug)]
pub struct FeedItem {
    /// What it is.
    pub what: FeedContent,
    /// Set when a replay sent it again.
    pub replay: Option<Replay>,
}

/// What an item of the feed is.
#[derive(Clone)]
pub enum FeedContent {
    /// A stored event.
    Event(Arc<Event>),
    /// An order or attention message: the CloudEvent as it was written.
    Message(Vec<u8>),
}

impl std::fmt::Debug for FeedContent {
    /// Without the body: it holds payer data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event(event) => f.debug_tuple("Event").field(&event.id).finish(),
            Self::Message(_) => f.debug_tuple("Message").finish_non_exhaustive(),
        }
    }
}
