//! Replays: what an operator asked to have sent again, how far that has come, and who drives it.
//!
//! A replay walks from the oldest to the newest of what was there when it was asked for, a page in a
//! transaction: outbox rows, the feed's note, the cursor and the counts are one commit, so whoever goes on after a
//! crash goes on exactly there. One process at a time drives it, by a lease on the row that runs out by itself.
//! It is done when the broker has everything (with the embedded one: when everything was applied again).

mod cancel;
mod count;
mod drive;
mod filter;
mod list;
mod walk;

use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use sqlx::types::Json;

pub use cancel::cancel;
pub use count::{COUNTED_AT_MOST, Counted, Group};
pub use drive::{Held, Judged, LEASE, Moved, Outstanding};
pub use filter::ReplayFilter;
pub use list::{RefusedBecause, ReplayView, seen_by};
pub use walk::{Candidate, Look, WINDOW};

use super::{StoreError, Tx, on_tx};
use crate::event::new_id;
use crate::event::text::storable;

const BEGIN: &str = "insert into replays (id, merchant, actor, reason, what, queue, filter, per_second, \
     end_position, end_id, created_at, updated_at) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11)";

/// What is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ReplayedKind)]
pub enum What {
    /// Events.
    #[default]
    Events,
    /// Order and attention messages.
    Orders,
}

impl What {
    /// The stored text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Orders => "orders",
        }
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        [Self::Events, Self::Orders]
            .into_iter()
            .find(|what| what.as_str() == text)
    }
}

/// A replay that is asked for.
#[derive(Clone, Debug)]
pub struct NewReplay<'a> {
    /// Whose events or messages.
    pub merchant: &'a str,
    /// Who asks.
    pub actor: &'a str,
    /// Why; goes out with everything that is sent again.
    pub reason: &'a str,
    /// What.
    pub what: What,
    /// To this queue alone.
    pub queue: Option<&'a str>,
    /// Which of them.
    pub filter: &'a ReplayFilter,
    /// At most so many in a second.
    pub per_second: u32,
}

/// Where a walk stands or ends: the position of messages (nothing for events) and the id.
#[derive(Clone, Debug, Default, PartialEq, Eq, FromRow)]
pub struct Place {
    /// In the order of the messages' commits.
    pub position: i64,
    /// Of the event or message.
    pub id: String,
}

/// Writes `new`: once this is committed, it runs.
pub async fn begin(tx: &mut Tx, new: &NewReplay<'_>) -> Result<ReplayView, StoreError> {
    let now = tx.now().await?;
    let id = new_id(now);
    let end = walk::newest(tx, new.what, new.merchant).await?;
    on_tx!(&mut *tx, |conn| sqlx::query(BEGIN)
        .bind(&id)
        .bind(new.merchant)
        .bind(new.actor)
        .bind(storable(new.reason).as_ref())
        .bind(new.what.as_str())
        .bind(new.queue)
        .bind(Json(new.filter))
        .bind(i32::try_from(new.per_second).unwrap_or(i32::MAX))
        .bind(end.position)
        .bind(&end.id)
        .bind(now)
        .execute(conn)
        .await
        .map(drop))?;
    seen_by(tx, new.merchant, &id)
        .await?
        .ok_or_else(|| StoreError::corrupt("replays", "a replay that was just written is gone"))
}
