//! `expected.json`: what must come of a sample, and when it was sent and judged.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::Timestamp;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// What the sample shows, for people.
    pub title: String,
    /// When it was sent, by its own signed word where it has one.
    pub sent: Timestamp,
    /// When it arrived.
    pub at: Timestamp,
    /// `verified` or `refused`.
    pub verdict: String,
    /// Why it is refused.
    pub reason: Option<String>,
    /// `ok` or `mismatch`.
    pub identity: Option<String>,
    /// The event key.
    pub event_key: Option<String>,
    /// payhook's type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The order, when there is exactly one.
    pub order_id: Option<String>,
    /// What it says, as `payhook verify --json` writes it.
    pub facts: Vec<Value>,
    /// The exact answer.
    pub ack: ExpectedAck,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedAck {
    /// The HTTP status.
    pub status: u16,
    /// `Content-Type`, where there is a body.
    pub content_type: Option<String>,
    /// The body, exact to the byte.
    pub body: String,
}

impl Expected {
    /// Whether it is signed by its provider; a stale one is too.
    pub fn is_genuine(&self) -> bool {
        !matches!(self.reason.as_deref(), Some("bad_signature" | "unknown_key"))
    }
}
