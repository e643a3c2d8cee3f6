//! A judgement written out: the verdict, what the event says, and nothing that needs a database.
//!
//! The one shape of `payhook verify --json`, of a quarantined notification shown, and of the samples'
//! `expected.json`, so that none of them can say something else than the others.

use serde::Serialize;

use super::{Reason, Refusal, Verified};
use crate::event::{EventKey, Fact, Identity, Money};
use crate::time::Timestamp;

/// `verified` or `refused`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Verdict)]
pub enum Outcome {
    /// Genuine and in time.
    Verified,
    /// Not accepted; the reason says why.
    Refused,
}

/// Whether a verified event is about the account it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Identity)]
pub enum IdentityOutcome {
    /// It is, as far as it says.
    Ok,
    /// Genuine, but about another one: kept, never applied.
    Mismatch,
}

/// One fact, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Fact)]
pub struct ShownFact {
    /// Its kind.
    pub fact: &'static str,
    /// Its key.
    pub key: String,
    /// The order it names.
    pub order_id: Option<String>,
    /// The trade it names.
    pub trade_id: Option<String>,
    /// The refund or dispute it names.
    pub refund_id: Option<String>,
    /// Its amount.
    pub amount: Option<Money>,
    /// When it happened.
    pub at: Option<Timestamp>,
}

impl From<&Fact> for ShownFact {
    fn from(fact: &Fact) -> Self {
        Self {
            fact: fact.kind.as_str(),
            key: fact.key.clone(),
            order_id: fact.order_id.clone(),
            trade_id: fact.trade_id.clone(),
            refund_id: fact.refund_id.clone(),
            amount: fact.amount,
            at: fact.at,
        }
    }
}

/// What came of judging one notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Judgement {
    /// Verified or refused.
    pub verdict: Outcome,
    /// Why it was refused.
    pub reason: Option<Reason>,
    /// The refusal in words, or which identity does not agree, or what cannot be understood.
    pub detail: Option<String>,
    /// Whether it is about this account; `None` when refused.
    pub identity: Option<IdentityOutcome>,
    /// The event key.
    pub event_key: Option<EventKey>,
    /// payhook's type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The order, when there is exactly one.
    pub order_id: Option<String>,
    /// What it says.
    pub facts: Vec<ShownFact>,
}

impl Judgement {
    /// Of a provider's answer.
    pub fn of(result: &Result<Verified, Refusal>) -> Self {
        match result {
            Ok(verified) => {
                let reading = &verified.reading;
                let (identity, detail) = match &reading.identity {
                    Identity::Ok => (IdentityOutcome::Ok, None),
                    Identity::Mismatch(which) => (IdentityOutcome::Mismatch, Some(which.clone())),
                };
                Self {
                    verdict: Outcome::Verified,
                    reason: None,
                    detail: detail
                        .or_else(|| reading.unreadable.clone())
                        .or_else(|| reading.amount_unreadable.clone()),
                    identity: Some(identity),
                    event_key: Some(verified.key.clone()),
                    kind: Some(reading.kind.clone()),
                    order_id: reading.order_id.clone(),
                    facts: reading.facts.iter().map(ShownFact::from).collect(),
                }
            }
            Err(refusal) => Self {
                verdict: Outcome::Refused,
                reason: Some(refusal.reason),
                detail: Some(refusal.detail.clone()),
                identity: None,
                event_key: None,
                kind: None,
                order_id: None,
                facts: Vec::new(),
            },
        }
    }
}
