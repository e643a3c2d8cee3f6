//! What is counted of one account's notifications, with the handles kept: finding a metric by its labels costs
//! more than counting does.
//!
//! The handles are made at first use and not before: an account is read from the configuration before the
//! process's recorder is there, and a handle made without one counts nothing.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::Restraint;
use super::metrics::names;
use crate::event::ProviderName;
use crate::time::Timestamp;

/// What usually becomes of a notification; the rest is rare.
const USUAL: [&str; 2] = ["recorded", "duplicate"];

/// One account's metrics.
#[derive(Debug)]
pub struct AccountMeters {
    provider: ProviderName,
    account: String,
    ack: OnceLock<Histogram>,
    clock_offset: OnceLock<Gauge>,
    usual: [OnceLock<Counter>; 2],
    keys: Vec<(String, OnceLock<Gauge>)>,
    /// Of the log's lines about what was refused.
    pub refusals: Restraint,
}

impl AccountMeters {
    /// For an account that holds keys with these ids.
    pub fn new(provider: ProviderName, account: &str, key_ids: impl IntoIterator<Item = String>) -> Self {
        Self {
            provider,
            account: account.to_owned(),
            ack: OnceLock::new(),
            clock_offset: OnceLock::new(),
            usual: [OnceLock::new(), OnceLock::new()],
            keys: key_ids.into_iter().map(|id| (id, OnceLock::new())).collect(),
            refusals: Restraint::new(),
        }
    }

    /// A notification was answered, so long after its first byte.
    pub fn answered(&self, after: Duration) {
        let provider = self.provider.as_str();
        self.ack
            .get_or_init(|| histogram!(names::ACK_SECONDS, "provider" => provider))
            .record(after.as_secs_f64());
    }

    /// A notification ended so.
    pub fn count(&self, outcome: &'static str, reason: &'static str) {
        let mut usual = std::iter::zip(USUAL, &self.usual);
        match usual.find(|(name, _)| *name == outcome && reason == "none") {
            Some((_, kept)) => kept.get_or_init(|| self.counter(outcome, reason)).increment(1),
            None => self.counter(outcome, reason).increment(1),
        }
    }

    /// One that arrived then was signed at `signed_at`, by the sender's clock.
    pub fn clock_offset(&self, received_at: Timestamp, signed_at: Timestamp) {
        let provider = self.provider.as_str();
        self.clock_offset
            .get_or_init(|| gauge!(names::CLOCK_OFFSET, "provider" => provider))
            .set(seconds(received_at.micros_since(signed_at)));
    }

    /// A key has verified one that arrived then.
    pub fn key_verified(&self, key_id: &str, received_at: Timestamp) {
        let at = seconds(received_at.micros());
        match self.keys.iter().find(|(id, _)| id == key_id) {
            Some((_, kept)) => kept.get_or_init(|| self.key(key_id)).set(at),
            None => self.key(key_id).set(at),
        }
    }

    fn counter(&self, outcome: &'static str, reason: &'static str) -> Counter {
        counter!(
            names::NOTIFICATIONS,
            "provider" => self.provider.as_str(),
            "account" => self.account.clone(),
            "outcome" => outcome,
            "reason" => reason
        )
    }

    fn key(&self, id: &str) -> Gauge {
        gauge!(
            names::KEY_LAST_VERIFIED,
            "provider" => self.provider.as_str(),
            "account" => self.account.clone(),
            "key" => id.to_owned()
        )
    }
}

/// Microseconds as seconds, with their sign.
fn seconds(micros: i64) -> f64 {
    let size = Duration::from_micros(micros.unsigned_abs()).as_secs_f64();
    if micros < 0 { size.copysign(-1.0) } else { size }
}
