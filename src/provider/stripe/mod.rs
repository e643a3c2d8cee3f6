//! Stripe: HMAC-SHA256 over `t.body`, several secrets, snapshot and thin events (docs.stripe.com/webhooks).
//!
//! The MAC is made over the bytes as they came; only then is the body read. A body with a right signature is
//! never lost: what cannot be understood is kept as `other.unreadable`. Every attempt is signed anew, so the
//! window is judged on both sides of its arrival, limits inclusive.

mod amount;
mod charge;
mod dispute;
mod explain;
mod facts;
mod header;
mod payload;
mod scope;
mod session;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

pub use header::sign;

use self::facts::Rules;
use self::header::SignatureHeader;
use self::payload::Payload;
use self::scope::Scope;
use super::secret::Secret;
use super::{Ack, Explanation, KeyInfo, Provider, Reason, Refusal, Verdict, Verified, raw_json};
use crate::config::{Account, AccountProblem, StripeAccount};
use crate::event::{EventKey, Fingerprint, Notification, ProviderName, Reading};
use crate::time::micros;

/// Every signing secret begins so, and no API key does.
fn doubt(secret: &[u8]) -> Option<&'static str> {
    let expected =
        "Stripe's signing secrets begin with whsec_: is this the endpoint's secret, and not an API key?";
    (!secret.starts_with(b"whsec_")).then_some(expected)
}

/// One Stripe endpoint's secrets and rules.
#[derive(Debug)]
pub struct Stripe {
    account: String,
    secrets: Vec<Secret>,
    tolerance: Duration,
    rules: Rules,
}

impl Stripe {
    /// From the account's settings, or every problem with them.
    pub fn new(account: &Account, settings: &StripeAccount) -> Result<Self, Vec<AccountProblem>> {
        let mut problems = Vec::new();
        let mut secrets = Vec::new();
        if settings.signing_secrets.is_empty() {
            problems.push(account.problem("signing_secrets", "at least one is needed"));
        }
        for (n, material) in settings.signing_secrets.iter().enumerate() {
            match Secret::read(material, &format!("#{}", n + 1), doubt) {
                Ok(secret) => secrets.push(secret),
                Err(why) => problems.push(account.problem(&format!("signing_secrets[{n}]"), why)),
            }
        }
        if settings.tolerance.is_zero() {
            problems.push(account.problem(
                "tolerance",
                "zero would refuse everything or, in some readers, nothing",
            ));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let rules = Rules {
            order_id_from: settings.order_id_from.clone(),
            scope: Scope {
                livemode: settings.livemode,
                connect_accounts: settings.connect_accounts.clone(),
                merchant_from_account: settings.merchant_from_account,
                only: settings.only.clone(),
            },
        };
        Ok(Self {
            account: account.name.clone(),
            secrets,
            tolerance: settings.tolerance,
            rules,
        })
    }

    /// The secret that signed; all are tried, so that time does not tell which.
    fn signer(&self, header: &SignatureHeader<'_>, body: &[u8]) -> Option<&Secret> {
        self.secrets.iter().fold(None, |found, secret| {
            let held = header.is_signed_with(secret.bytes(), body);
            found.or(held.then_some(secret))
        })
    }

    /// Whether the send time is within the tolerance of the arrival, on either side.
    fn in_window(&self, header: &SignatureHeader<'_>, notification: &Notification) -> bool {
        let off = notification
            .received_at
            .micros_since(header.signed_at)
            .saturating_abs();
        off <= micros(self.tolerance)
    }

    /// Key, fingerprint, content and reading of a body that is known to be Stripe's.
    fn understand(&self, body: &Bytes) -> (EventKey, Fingerprint, Option<Bytes>, Reading) {
        let key = |id: Option<&str>, print| EventKey::new(ProviderName::Stripe, &self.account, id, print);
        let text = raw_json::readable(body);
        if let Ok(text) = &text
            && let Ok((id, mut print, reading)) = self.read_text(text)
        {
            // Two bodies must not agree by what was put in the place of their odd bytes.
            if matches!(text, Cow::Owned(_)) {
                print = Fingerprint::over([body.as_ref()]);
            }
            return (
                key(id.as_deref(), &print),
                print,
                raw_json::content(body, text),
                reading,
            );
        }
        let print = Fingerprint::over([body.as_ref()]);
        let id = text.ok().and_then(|text| payload::id_alone(&text));
        (
            key(id.as_deref(), &print),
            print,
            Some(Bytes::from_static(raw_json::NO_CONTENT)),
            raw_json::unreadable(),
        )
    }

    fn read_text(&self, text: &str) -> Result<(Option<String>, Fingerprint, Reading), String> {
        let payload = Payload::read(text)?;
        let id = payload.id().map(Cow::into_owned);
        Ok((id, payload.fingerprint()?, facts::read(&payload, &self.rules)))
    }
}

impl Provider for Stripe {
    fn verify(&self, notification: &Notification) -> Result<Verified, Refusal> {
        let header = SignatureHeader::of(notification)?;
        let Some(secret) = self.signer(&header, &notification.body) else {
            return Err(Refusal::new(
                Reason::BadSignature,
                "no v1 is the MAC of this body under a secret of this account",
            ));
        };
        if !self.in_window(&header, notification) {
            return Err(Refusal::new(
                Reason::OutsideWindow,
                "signed too long before or after its arrival",
            ));
        }
        let (key, fingerprint, content, reading) = self.understand(&notification.body);
        let key_id = secret.info().id.clone();
        Ok(Verified::new(
            key,
            fingerprint,
            content,
            reading,
            key_id,
            Some(header.signed_at),
        ))
    }

    fn read(&self, content: &[u8], _provider_event_type: &str) -> Result<Reading, String> {
        if content == raw_json::NO_CONTENT {
            return Ok(raw_json::unreadable());
        }
        let text = std::str::from_utf8(content).map_err(|_| "the content is not UTF-8".to_owned())?;
        Ok(facts::read(&Payload::read(text)?, &self.rules))
    }

    fn ack(&self, verdict: Verdict, _body: &[u8]) -> Ack {
        let body: &[u8] = match verdict {
            Verdict::Accepted => br#"{"received":true}"#,
            Verdict::Refused | Verdict::Malformed | Verdict::Unavailable => br#"{"error":"refused"}"#,
        };
        Ack {
            content_type: Some("application/json"),
            body,
        }
    }

    fn explain(&self, notification: &Notification) -> Explanation {
        explain::explain(self, notification)
    }

    fn keys(&self) -> Vec<KeyInfo> {
        self.secrets.iter().map(|secret| secret.info().clone()).collect()
    }

    fn unchecked(&self) -> Vec<&'static str> {
        if self.rules.scope.livemode.is_none() {
            return vec!["livemode is not given: live and test events are both applied"];
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
