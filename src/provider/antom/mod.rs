//! Antom / Alipay+: JSON notifications signed with RSA over path, client id, send time and raw body.
//!
//! Scheme: docs.antom.com, digital signature. Judged in this order: the three headers, the client id (it
//! names the key), the signature, the send time. The path is signed without its query; where a proxy rewrites
//! it, the account's `notify_path` says what Antom called. What an event says is `facts`'.

mod dispute;
mod explain;
mod facts;
mod header;
mod sign;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use secrecy::ExposeSecret as _;

use self::facts::Body;
use self::header::SignedHeaders;
pub use self::sign::{SignError, sign};
use super::signature::{Digest, RsaKey, SignatureDoesNotHold};
use super::{Ack, Explanation, KeyInfo, Provider, Reason, Refusal, Verdict, Verified, raw_json, window};
use crate::config::{Account, AccountProblem, AntomAccount, Capture};
use crate::event::{EventKey, Fingerprint, Notification, ProviderName, Reading};

/// What the one key is called.
const KEY_ID: &str = "#1";

/// Antom with one account's key.
#[derive(Debug)]
pub(super) struct Antom {
    account: String,
    client_id: String,
    notify_path: Option<String>,
    capture: Capture,
    key: RsaKey,
}

impl Antom {
    /// Reads the account's key.
    pub(super) fn new(account: &Account, settings: &AntomAccount) -> Result<Self, Vec<AccountProblem>> {
        let mut problems = Vec::new();
        let mut problem = |key: &str, message: String| problems.push(account.problem(key, message));
        if settings.client_id.is_empty() {
            problem("client_id", "is empty".to_owned());
        }
        if settings
            .notify_path
            .as_ref()
            .is_some_and(|path| !path.starts_with('/'))
        {
            problem("notify_path", "is a path: it begins with '/'".to_owned());
        }
        let key = match &settings.public_key {
            None => {
                problem(
                    "public_key_file",
                    "is missing: without a key nothing can be verified".to_owned(),
                );
                None
            }
            Some(material) => match RsaKey::parse(material.bytes.expose_secret()) {
                Ok(key) if key.bits() >= 2048 => Some(key),
                Ok(key) => {
                    problem(
                        "public_key_file",
                        format!("{}: {} bits are too few", material.origin, key.bits()),
                    );
                    None
                }
                Err(why) => {
                    problem("public_key_file", format!("{}: {why}", material.origin));
                    None
                }
            },
        };
        match key {
            Some(key) if problems.is_empty() => Ok(Self {
                account: account.name.clone(),
                client_id: settings.client_id.clone(),
                notify_path: settings.notify_path.clone(),
                capture: settings.capture,
                key,
            }),
            _ => Err(problems),
        }
    }

    /// The path that Antom signed, as far as known here.
    fn path<'a>(&'a self, notification: &'a Notification) -> &'a str {
        let path = self.notify_path.as_deref().unwrap_or(&notification.path);
        path.split('?').next().unwrap_or_default()
    }

    /// The client id names whose key signed; another's is not held here.
    fn check_client(&self, headers: &SignedHeaders<'_>) -> Result<(), Refusal> {
        if headers.client_id == self.client_id {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::UnknownKey,
            "client-id is not this account's",
        ))
    }

    fn holds(&self, signed: &[u8], signature: &[u8]) -> Result<(), SignatureDoesNotHold> {
        self.key.verify(Digest::Sha256, signed, signature)
    }

    fn check_signature(
        &self,
        headers: &SignedHeaders<'_>,
        notification: &Notification,
    ) -> Result<(), Refusal> {
        let signed = signed(self.path(notification), headers, &notification.body);
        self.holds(&signed, &headers.signature)
            .map_err(|e| Refusal::new(Reason::BadSignature, e.to_string()))
    }

    /// Key, fingerprint, stored content and reading of a verified body. One that is no sound JSON is kept.
    fn understand(&self, body: &Bytes) -> (EventKey, Fingerprint, Option<Bytes>, Reading) {
        let print = Fingerprint::over([body.as_ref()]);
        let key = |id: Option<&str>| EventKey::new(ProviderName::Antom, &self.account, id, &print);
        if let Ok(text) = raw_json::readable(body)
            && let Ok(read) = Body::read(text.as_bytes())
        {
            return (
                key(read.key().as_deref()),
                print,
                raw_json::content(body, &text),
                read.reading(self.capture),
            );
        }
        (
            key(None),
            print,
            Some(Bytes::from_static(raw_json::NO_CONTENT)),
            raw_json::unreadable(),
        )
    }
}

fn signed(path: &str, headers: &SignedHeaders<'_>, body: &[u8]) -> Vec<u8> {
    canonical(path, headers.client_id, headers.request_time, body)
}

/// `POST`, a space and the path, a line feed, then client id, send time and body joined by points.
fn canonical(path: &str, client_id: &str, request_time: &str, body: &[u8]) -> Vec<u8> {
    [
        format!("POST {path}\n{client_id}.{request_time}.").as_bytes(),
        body,
    ]
    .concat()
}

impl Provider for Antom {
    fn verify(&self, notification: &Notification) -> Result<Verified, Refusal> {
        let headers = SignedHeaders::of(notification)?;
        self.check_client(&headers)?;
        self.check_signature(&headers, notification)?;
        window::check(headers.sent, notification.received_at)?;
        let (key, print, content, reading) = self.understand(&notification.body);
        Ok(Verified::new(
            key,
            print,
            content,
            reading,
            KEY_ID.to_owned(),
            Some(headers.sent),
        ))
    }

    fn read(&self, content: &[u8], _provider_event_type: &str) -> Result<Reading, String> {
        if content == raw_json::NO_CONTENT {
            return Ok(raw_json::unreadable());
        }
        Ok(Body::read(content)?.reading(self.capture))
    }

    fn ack(&self, verdict: Verdict, _body: &[u8]) -> Ack {
        let body: &[u8] = match verdict {
            Verdict::Accepted => {
                br#"{"result":{"resultCode":"SUCCESS","resultStatus":"S","resultMessage":"success"}}"#
            }
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
        vec![self.key.info(KEY_ID)]
    }

    fn unchecked(&self) -> Vec<&'static str> {
        Vec::new()
    }
}
