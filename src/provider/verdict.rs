//! What a judgement can be, and what goes back over the wire for it.
//!
//! A refusal keeps two voices apart: [`Reason`] and `detail` are for the operator; the provider hears
//! the same short failure whatever check failed, so that an attacker learns nothing.

use std::fmt;

use http::StatusCode;
use serde::Serialize;

use crate::time::Timestamp;

/// Why a notification was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RefusalReason)]
pub enum Reason {
    /// The signature does not hold, is missing, or names another algorithm than the pinned one.
    BadSignature,
    /// It names a key that the account does not hold.
    UnknownKey,
    /// The signed send time is too far from the arrival.
    OutsideWindow,
    /// Not what the scheme sends: unparsable, a required part missing, a parameter twice.
    Malformed,
    /// WeChat's signature probe: counted, no alarm, not kept.
    Probe,
    /// The signature is right, the APIv3 key is wrong: our fault, so the provider shall retry.
    Undecryptable,
    /// The account is retired.
    RetiredAccount,
    /// Verified, but the database refuses this very row.
    Unrecordable,
}

impl Reason {
    /// All reasons, for metrics.
    pub const ALL: [Self; 8] = [
        Self::BadSignature,
        Self::UnknownKey,
        Self::OutsideWindow,
        Self::Malformed,
        Self::Probe,
        Self::Undecryptable,
        Self::RetiredAccount,
        Self::Unrecordable,
    ];

    /// The name in logs, metrics, quarantine and `verify`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadSignature => "bad_signature",
            Self::UnknownKey => "unknown_key",
            Self::OutsideWindow => "outside_window",
            Self::Malformed => "malformed",
            Self::Probe => "probe",
            Self::Undecryptable => "undecryptable",
            Self::RetiredAccount => "retired_account",
            Self::Unrecordable => "unrecordable",
        }
    }

    /// What the provider hears: refused for good, malformed, or come again.
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Malformed => Verdict::Malformed,
            Self::Undecryptable | Self::Unrecordable => Verdict::Unavailable,
            Self::BadSignature
            | Self::UnknownKey
            | Self::OutsideWindow
            | Self::Probe
            | Self::RetiredAccount => Verdict::Refused,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A notification that is not accepted, and why, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {detail}")]
pub struct Refusal {
    /// Which check.
    pub reason: Reason,
    /// In words, without payload values, signatures or keys.
    pub detail: String,
}

impl Refusal {
    /// A refusal for `reason`; `detail` says what was found, never what was sent.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }
}

/// What the provider is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Recorded, duplicate or conflict: 200.
    Accepted,
    /// 401.
    Refused,
    /// 400.
    Malformed,
    /// 503 with Retry-After: store, overload, draining, or our own key fault.
    Unavailable,
}

impl Verdict {
    /// The HTTP status, the same for every provider.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Accepted => StatusCode::OK,
            Self::Refused => StatusCode::UNAUTHORIZED,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An answer, exact to the byte; no trailing newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// `Content-Type`; `None` for an empty body.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: &'static [u8],
}

/// A key that an account holds, without the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// What `Verified::key_id` calls it: serial, public key id or `#1`.
    pub id: String,
    /// `rsa-2048 public key`, `platform certificate`, `hmac secret`, `aes-256 key`, ….
    pub kind: String,
    /// First 16 hex digits of the SHA-256 of the public key's DER, or of the secret with a fixed prefix.
    pub fingerprint: String,
    /// Whether it is for verifying, and not only for opening what another key verified.
    pub verifies: bool,
    /// A certificate's subject, for people.
    pub subject: Option<String>,
    /// A certificate's end of validity.
    pub expires_at: Option<Timestamp>,
    /// Why it does not look like what the provider hands out.
    pub doubt: Option<&'static str>,
}

/// One step of a judgement, for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = VerificationStep)]
pub struct Step {
    /// What was looked at: `header Wechatpay-Serial`, `time window`, ….
    pub check: String,
    /// Whether it held.
    pub ok: bool,
    /// What was found, in words.
    pub found: String,
}

/// A judgement with its reasons; made on demand for an operator.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// In the order of the scheme.
    pub steps: Vec<Step>,
    /// The exact bytes that were signed, as far as they could be built.
    pub signed: Option<Vec<u8>>,
    /// The one difference that would make it pass: printed only when that change was tried and held.
    pub hint: Option<String>,
}
