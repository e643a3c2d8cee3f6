//! What a call asks of its key, and what it finds: the words of the keys' table.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::key::Key;

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an attempt may run before another may take its claim over.
    pub lease: Duration,
    /// How long a stored answer is kept.
    pub expiry: Duration,
    /// Largest stored answer, headers and body, in bytes.
    pub max_answer: usize,
    /// New keys a second for one caller, and how many at once.
    pub pace: (u32, u32),
    /// How many calls are carried out at the same time. Each holds a connection of the pool, perhaps waiting for
    /// a row that all of them change: leave some to others. The rest wait for their turn.
    pub at_once: usize,
    /// How many of them may be long ones ([`super::Call::is_long`]): those must not take every turn.
    pub long_at_once: usize,
    /// How long a call waits for its turn before it is told to come again.
    pub turn_timeout: Duration,
    /// How long Postgres may say nothing about a statement: longer than its `statement_timeout`. A server that is gone
    /// without a word would else be waited for without end, and with it the turn.
    pub silence: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: Duration::from_mins(1),
            expiry: Duration::from_hours(7 * 24),
            max_answer: 256 * 1024,
            pace: (50, 200),
            at_once: 8,
            long_at_once: 2,
            turn_timeout: Duration::from_secs(5),
            silence: Duration::from_secs(35),
        }
    }
}

/// Whose key, for which call.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The caller's merchant: two merchants never share a key.
    pub merchant: String,
    /// The request's method.
    pub method: String,
    /// The request's path as sent.
    pub path: String,
    /// The key.
    pub key: Key,
}

impl Scope {
    /// SHA-256 over its parts, in hex: the row's primary key.
    pub(super) fn id(&self) -> String {
        let mut hash = Sha256::new();
        for part in [&self.merchant, &self.method, &self.path, self.key.as_str()] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hex::encode(hash.finalize())
    }
}

/// Whether a call does something that the database's transaction does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Everything is in the transaction: an unfinished claim did nothing.
    None,
    /// Something outside may have happened: an unfinished claim has an unknown outcome.
    Outside,
}

impl Effect {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Outside => "outside",
        }
    }
}

/// An answer, as kept and replayed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// HTTP status.
    pub status: u16,
    /// Headers in order, without those that belong to the connection.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What a claim found.
#[derive(Debug)]
pub enum Claim {
    /// This attempt goes first.
    Won(Guard),
    /// The call has ended; this is its answer.
    Finished(Stored),
    /// Another attempt runs; come again after this.
    Running(Duration),
    /// The key was used for another payload.
    Reused,
    /// An attempt with an outside effect died half-way; reconciliation will tell.
    OutcomePending,
    /// The caller makes keys too fast; come again after this.
    TooFast(Duration),
}

/// The right to complete or release one claim.
#[derive(Clone, Debug)]
pub struct Guard {
    pub(super) id: String,
    pub(super) owner: String,
}

/// A claim whose outcome is not known.
#[derive(Clone, Debug)]
pub struct Unsettled {
    /// Whose call.
    pub merchant: String,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// What identifies the payload.
    pub fingerprint: Vec<u8>,
    /// What logs may show of the key.
    pub key_hash: String,
}

/// What reconciliation found out about an [`Unsettled`] claim.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// The effect is there, and this is the answer.
    Happened(Stored),
    /// The effect is not there and cannot come any more: the key is free again.
    Nothing,
    /// Still not known.
    Unknown,
}

/// How the table stands, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Age of the oldest claim that is worked on or whose outcome is unknown, microseconds.
    pub oldest_running: i64,
    /// Claims with an outside effect whose lease ran out.
    pub unknown_outcomes: i64,
}

/// Why the table did not do it.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The database did not answer.
    #[error("the idempotency store is unavailable")]
    Store(#[from] sqlx::Error),
    /// The claim belongs to another attempt by now: roll back.
    #[error("the claim was taken over")]
    Lost,
    /// The answer is larger than may be stored: roll back.
    #[error("the answer is too large to be stored")]
    TooLarge,
    /// A stored row does not read as what it should be.
    #[error("corrupt row in idempotency_keys: {0}")]
    Corrupt(&'static str),
}
