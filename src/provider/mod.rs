//! The seam to the providers: one trait, one file each, a registry built once from configuration.
//!
//! A provider is pure: bytes and a time in, a verdict out. It does no I/O, knows no database and reads no
//! clock. Only this module can make a [`Verified`], so nothing after it can act on an unverified request.
//! Adding a provider is one file, one configuration variant, one arm in [`build`], one folder of samples.

pub mod alipay;
pub mod antom;
pub mod json;
mod judgement;
mod raw_json;
mod recordable;
mod registry;
pub mod request_file;
mod respelled;
mod secret;
pub mod signature;
pub mod stripe;
pub mod twoctwop;
mod variants;
mod verdict;
pub mod wechatpay;
mod window;

use std::fmt;

use bytes::Bytes;

pub use judgement::{IdentityOutcome, Judgement, Outcome, ShownFact};
pub use recordable::{headers_as_kept, kept_headers};
pub use registry::{Registered, Registry};
pub use verdict::{Ack, Explanation, KeyInfo, Reason, Refusal, Step, Verdict};

use crate::config::{Account, AccountProblem, Scheme};
use crate::event::{EventKey, Fingerprint, Identity, Notification, Reading};
use crate::time::Timestamp;

/// One provider's scheme with one account's keys.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Judges one notification: signature over the raw bytes, time window against its arrival, then what it
    /// is. Everything in the result is derived from signed material.
    fn verify(&self, notification: &Notification) -> Result<Verified, Refusal>;

    /// What a verified event says, from its stored content (see [`Verified::content`]) and the provider's own
    /// type as `verify` found it (WeChat v3 names it outside the content); the same function that `verify`
    /// used. An error is a reason in words: the content cannot be understood.
    fn read(&self, content: &[u8], provider_event_type: &str) -> Result<Reading, String>;

    /// The exact answer for `verdict`. `body` is the request's, for schemes that share a path (WeChat v2/v3).
    fn ack(&self, verdict: Verdict, body: &[u8]) -> Ack;

    /// The judgement step by step with the exact string that was signed, for an operator. Never on the
    /// request path.
    fn explain(&self, notification: &Notification) -> Explanation;

    /// The keys held, for `check` and metrics; never the keys themselves.
    fn keys(&self) -> Vec<KeyInfo>;

    /// Parts of the account's configuration that are not checked because they were not given, in words.
    fn unchecked(&self) -> Vec<&'static str>;
}

/// A notification that its provider's scheme has found genuine and in time. Only `provider` makes these.
#[derive(Clone)]
pub struct Verified {
    /// What makes it the same event when it comes again.
    pub key: EventKey,
    /// What must be equal for that to be a duplicate.
    pub fingerprint: Fingerprint,
    /// The provider's own fields as JSON text when the body itself is not that; `None`: the body is.
    pub content: Option<Bytes>,
    /// What it says.
    pub reading: Reading,
    /// Which of the account's keys verified it (a serial, a key id or `#1`), for closing a rotation.
    pub key_id: String,
    /// The send time inside the signed material, where there is one: the clock offset's source.
    pub signed_at: Option<Timestamp>,
    _made_here: MadeHere,
}

/// Keeps `Verified` from being built outside this module.
#[derive(Clone)]
struct MadeHere;

impl Verified {
    fn new(
        key: EventKey,
        fingerprint: Fingerprint,
        content: Option<Bytes>,
        mut reading: Reading,
        key_id: String,
        signed_at: Option<Timestamp>,
    ) -> Self {
        if matches!(reading.identity, Identity::Mismatch(_)) {
            "other.identity_mismatch".clone_into(&mut reading.kind);
        }
        Self {
            key,
            fingerprint,
            content,
            reading,
            key_id,
            signed_at,
            _made_here: MadeHere,
        }
    }
}

impl fmt::Debug for Verified {
    /// Without content: it holds payer data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verified")
            .field("key", &self.key)
            .field("kind", &self.reading.kind)
            .finish_non_exhaustive()
    }
}

/// Builds the provider for one configured account; the problems name the account's configuration keys.
pub fn build(account: &Account) -> Result<Box<dyn Provider>, Vec<AccountProblem>> {
    match &account.scheme {
        Scheme::Alipay(settings) => Ok(Box::new(alipay::Alipay::new(account, settings)?)),
        Scheme::Wechatpay(settings) => Ok(Box::new(wechatpay::WechatPay::new(account, settings)?)),
        Scheme::Stripe(settings) => Ok(Box::new(stripe::Stripe::new(account, settings)?)),
        Scheme::TwoCTwoP(settings) => Ok(Box::new(twoctwop::TwoCTwoP::new(account, settings)?)),
        Scheme::Antom(settings) => Ok(Box::new(antom::Antom::new(account, settings)?)),
    }
}
