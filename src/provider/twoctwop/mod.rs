//! 2C2P PGW v4 backend notification: a JWT in JSON, HS256 with the merchant secret as its text
//! (developer.2c2p.com/docs/api-payment-response-backend).
//!
//! Nothing signed tells when it was sent, so there is no window: the event key and the order's rules carry
//! the load. The browser's return is unsigned and has no place here; refund notices by form are refused.

mod claims;
mod explain;
mod token;

use std::borrow::Cow;

use bytes::Bytes;

pub use token::sign;

use self::claims::{Claims, Rules};
use self::token::Token;
use super::secret::Secret;
use super::{Ack, Explanation, KeyInfo, Provider, Reason, Refusal, Verdict, Verified, raw_json};
use crate::config::{Account, AccountProblem, TwoCTwoPAccount};
use crate::event::{EventKey, Fingerprint, Notification, ProviderName, Reading};

/// Merchants are given 64 hexadecimal digits.
fn doubt(secret: &[u8]) -> Option<&'static str> {
    let is_usual = secret.len() == 64 && secret.iter().all(u8::is_ascii_hexdigit);
    (!is_usual).then_some("2C2P's secret keys are 64 hexadecimal digits: is it whole?")
}

/// One 2C2P merchant's secret and rules.
#[derive(Debug)]
pub struct TwoCTwoP {
    account: String,
    secret: Secret,
    rules: Rules,
}

impl TwoCTwoP {
    /// From the account's settings, or every problem with them.
    pub fn new(account: &Account, settings: &TwoCTwoPAccount) -> Result<Self, Vec<AccountProblem>> {
        let mut problems = Vec::new();
        if settings.merchant_id.is_empty() {
            problems.push(account.problem("merchant_id", "is empty"));
        }
        let secret = match &settings.secret_key {
            Some(material) => Secret::read(material, "#1", doubt),
            None => Err("is needed".to_owned()),
        };
        let secret = secret.map_err(|why| problems.push(account.problem("secret_key", why)));
        let (Ok(secret), true) = (secret, problems.is_empty()) else {
            return Err(problems);
        };
        let rules = Rules {
            merchant_id: settings.merchant_id.clone(),
            utc_offset_minutes: settings.utc_offset_minutes,
            capture: settings.capture,
        };
        Ok(Self {
            account: account.name.clone(),
            secret,
            rules,
        })
    }

    /// Key, fingerprint, content and reading of a token that is known to be 2C2P's.
    fn understand(&self, token: &Token<'_>) -> (EventKey, Fingerprint, Bytes, Reading) {
        let key = |id: Option<&str>, print| EventKey::new(ProviderName::TwoCTwoP, &self.account, id, print);
        let claims = token.claims().unwrap_or_default();
        if let Ok(text) = raw_json::readable(&claims)
            && let Ok(read) = Claims::read(&text)
        {
            // Two tokens must not agree by what was put in the place of their odd bytes.
            let print = match &text {
                Cow::Borrowed(text) => claims::fingerprint(text),
                Cow::Owned(_) => Fingerprint::over([token.signed().as_bytes()]),
            };
            let content = Bytes::copy_from_slice(text.as_bytes());
            return (
                key(read.key_id().as_deref(), &print),
                print,
                content,
                read.reading(&self.rules),
            );
        }
        let print = Fingerprint::over([token.signed().as_bytes()]);
        (
            key(None, &print),
            print,
            Bytes::from_static(raw_json::NO_CONTENT),
            raw_json::unreadable(),
        )
    }
}

impl Provider for TwoCTwoP {
    fn verify(&self, notification: &Notification) -> Result<Verified, Refusal> {
        let token = Token::in_body(&notification.body)?;
        if !token.names_hs256() {
            return Err(Refusal::new(
                Reason::BadSignature,
                "the token's header does not name HS256",
            ));
        }
        if !token.is_signed_with(self.secret.bytes()) {
            return Err(Refusal::new(
                Reason::BadSignature,
                "the token's signature does not hold",
            ));
        }
        let (key, fingerprint, content, reading) = self.understand(&token);
        Ok(Verified::new(
            key,
            fingerprint,
            Some(content),
            reading,
            self.secret.info().id.clone(),
            None,
        ))
    }

    fn read(&self, content: &[u8], _provider_event_type: &str) -> Result<Reading, String> {
        if content == raw_json::NO_CONTENT {
            return Ok(raw_json::unreadable());
        }
        let text = std::str::from_utf8(content).map_err(|_| "the content is not UTF-8".to_owned())?;
        Ok(Claims::read(text)?.reading(&self.rules))
    }

    fn ack(&self, _verdict: Verdict, _body: &[u8]) -> Ack {
        Ack {
            content_type: None,
            body: b"",
        }
    }

    fn explain(&self, notification: &Notification) -> Explanation {
        explain::explain(self, notification)
    }

    fn keys(&self) -> Vec<KeyInfo> {
        vec![self.secret.info().clone()]
    }

    fn unchecked(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
