//! Everything that happened to one event, in order: its arrivals, its sending, what it did, how it ended.
//!
//! Put together from the tables that each step writes, so it needs no table of its own and cannot disagree
//! with them. Once an event has ended, its outbox row is gone, and with it when it was published.

use serde::Serialize;

use super::{Store, StoreError, on_pool};
use crate::time::Timestamp;

const RECEIVED: &str = "select received_at, remote_addr from events where id = $1";
const DUPLICATES: &str = "select received_at, remote_addr from deliveries where event_id = $1 order by id";
const CONFLICTS: &str = "select received_at, remote_addr from event_conflicts where event_id = $1";
const SENDING: &str = "select published_at, cast(attempts as bigint), due_at, last_error from outbox \
     where event_id = $1 and kind = 'event'";
// By the orders that the event concerned: the history has no index by event.
const HISTORY: &str = "select h.at, h.order_id, h.fact, h.outcome, h.reason, h.status_before, h.status_after \
     from event_orders eo join order_history h on h.merchant = eo.merchant and h.order_id = eo.order_id \
     where eo.event_id = $1 and h.event_id = $1 order by h.id";
const OUTCOME: &str = "select decided_at, outcome, reason from event_outcomes where event_id = $1";
const REPLAYS: &str = "select sent_at, replay_id, reason from replays_sent where event_id = $1 order by turn";
const DEAD_LETTERS: &str = "select id, created_at, error, cast(attempts as bigint), redriven_at from dead_letters \
     where event_id = $1 order by id";

/// One thing that happened to an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Moment {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Happening {
    /// It came, was verified and stored.
    Received {
        /// The sender.
        remote_addr: Option<String>,
    },
    /// It came again, the same.
    Duplicate {
        /// The sender.
        remote_addr: Option<String>,
    },
    /// It came again with other content.
    Conflict {
        /// The sender.
        remote_addr: Option<String>,
    },
    /// The broker confirmed it, last then.
    Published,
    /// Applying it failed; it is due again.
    Failing {
        /// How often so far.
        attempts: i64,
        /// The last error.
        error: Option<String>,
    },
    /// It, or one of its facts, did or did not move an order.
    History {
        /// Which order.
        order_id: String,
        /// By which fact.
        fact: String,
        /// How that ended.
        outcome: String,
        /// Why, in words.
        reason: String,
        /// The order's status before.
        before: String,
        /// And after.
        after: String,
    },
    /// It ended.
    Outcome {
        /// How.
        outcome: String,
        /// Why, in words.
        reason: String,
    },
    /// An operator had it sent to everybody again.
    Replayed {
        /// The replay's id.
        replay: String,
        /// Why, in the operator's words.
        reason: String,
    },
    /// It was given up.
    DeadLetter {
        /// The dead letter's id.
        id: String,
        /// Why.
        error: String,
        /// After so many attempts.
        attempts: i64,
    },
    /// A dead letter was sent to the workers again.
    Redriven {
        /// The dead letter's id.
        id: String,
    },
}

type Arrival = (Timestamp, Option<String>);
type Sending = (Option<Timestamp>, i64, Timestamp, Option<String>);
type History = (Timestamp, String, String, String, String, String, String);
type DeadLetter = (String, Timestamp, String, i64, Option<Timestamp>);

impl Store {
    /// The timeline of the event `id`, earliest first. Whose event it is must be known to the caller.
    pub async fn timeline(&self, id: &str) -> Result<Vec<Moment>, StoreError> {
        let mut moments = Vec::new();
        let mut add = |at: Timestamp, what: Happening| moments.push(Moment { at, what });
        for (at, remote_addr) in self.arrivals(RECEIVED, id).await? {
            add(at, Happening::Received { remote_addr });
        }
        for (at, remote_addr) in self.arrivals(DUPLICATES, id).await? {
            add(at, Happening::Duplicate { remote_addr });
        }
        for (at, remote_addr) in self.arrivals(CONFLICTS, id).await? {
            add(at, Happening::Conflict { remote_addr });
        }
        let sending: Option<Sending> = on_pool!(self, |pool| sqlx::query_as(SENDING)
            .bind(id)
            .fetch_optional(pool)
            .await)?;
        if let Some((published_at, attempts, due_at, error)) = sending {
            if let Some(at) = published_at {
                add(at, Happening::Published);
            }
            if attempts > 0 {
                add(due_at, Happening::Failing { attempts, error });
            }
        }
        let history: Vec<History> = on_pool!(self, |pool| sqlx::query_as(HISTORY)
            .bind(id)
            .fetch_all(pool)
            .await)?;
        for (at, order_id, fact, outcome, reason, before, after) in history {
            let what = Happening::History {
                order_id,
                fact,
                outcome,
                reason,
                before,
                after,
            };
            add(at, what);
        }
        let outcome: Option<(Timestamp, String, String)> = on_pool!(self, |pool| sqlx::query_as(OUTCOME)
            .bind(id)
            .fetch_optional(pool)
            .await)?;
        if let Some((at, outcome, reason)) = outcome {
            add(at, Happening::Outcome { outcome, reason });
        }
        let replays: Vec<(Timestamp, String, String)> = on_pool!(self, |pool| sqlx::query_as(REPLAYS)
            .bind(id)
            .fetch_all(pool)
            .await)?;
        for (at, replay, reason) in replays {
            add(at, Happening::Replayed { replay, reason });
        }
        let dead: Vec<DeadLetter> = on_pool!(self, |pool| sqlx::query_as(DEAD_LETTERS)
            .bind(id)
            .fetch_all(pool)
            .await)?;
        for (letter, at, error, attempts, redriven_at) in dead {
            if let Some(redriven_at) = redriven_at {
                add(redriven_at, Happening::Redriven { id: letter.clone() });
            }
            let what = Happening::DeadLetter {
                id: letter,
                error,
                attempts,
            };
            add(at, what);
        }
        // Stable: of two things at one moment the one that comes first in the path stays first.
        moments.sort_by_key(|moment| moment.at);
        Ok(moments)
    }

    async fn arrivals(&self, sql: &'static str, id: &str) -> Result<Vec<Arrival>, StoreError> {
        Ok(on_pool!(self, |pool| sqlx::query_as(sql)
            .bind(id)
            .fetch_all(pool)
            .await)?)
    }
}
