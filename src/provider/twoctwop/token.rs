//! `{"payload":"<JWT>"}`: the envelope, and a token whose algorithm is HS256 because we say so.
//!
//! The secret is used as its text. The token's header may only agree with the pinned algorithm, never choose
//! one; padding and stray bits in its base64url are refused with the signature.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, crypto};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::{Reason, Refusal, raw_json};

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

/// A token in its three parts; nothing in it is believed yet.
pub(super) struct Token<'a> {
    text: Cow<'a, str>,
    /// Where the second point stands: what is before it is signed.
    end: usize,
}

impl<'a> Token<'a> {
    /// The token in `body`.
    pub(super) fn in_body(body: &'a [u8]) -> Result<Self, Refusal> {
        let malformed = |detail: &str| Refusal::new(Reason::Malformed, detail);
        if body.starts_with(b"notifyResponse=") {
            return Err(malformed(
                "a form notice (notifyResponse), which is not the backend notification",
            ));
        }
        let envelope: Envelope<'a> = serde_json::from_slice(body)
            .map_err(|_| malformed("the body is no JSON object with one payload"))?;
        let text =
            raw_json::text(envelope.payload).ok_or_else(|| malformed("the body has no text payload"))?;
        match (text.matches('.').count(), text.rfind('.')) {
            (2, Some(end)) => Ok(Self { text, end }),
            _ => Err(malformed("the payload is no token of three parts")),
        }
    }

    /// The exact text that is signed.
    pub(super) fn signed(&self) -> &str {
        self.text.get(..self.end).unwrap_or_default()
    }

    fn signature(&self) -> &str {
        self.text.get(self.end.saturating_add(1)..).unwrap_or_default()
    }

    /// Whether the header names HS256 and asks for nothing else.
    pub(super) fn names_hs256(&self) -> bool {
        jsonwebtoken::decode_header(self.text.as_bytes()).is_ok_and(|header| header.alg == Algorithm::HS256)
    }

    /// Whether the signature is the HMAC-SHA256 under `secret`.
    pub(super) fn is_signed_with(&self, secret: &[u8]) -> bool {
        DecodingKey::from_secret(secret)
            .and_then(|key| {
                crypto::verify(self.signature(), self.signed().as_bytes(), &key, Algorithm::HS256)
            })
            .unwrap_or(false)
    }

    /// The claims' bytes; `None` when they are no base64url.
    pub(super) fn claims(&self) -> Option<Vec<u8>> {
        let (_, claims) = self.signed().split_once('.')?;
        URL_SAFE_NO_PAD.decode(claims).ok()
    }
}

/// The body that carries `claims`, for samples; `None` for a secret that cannot sign.
pub fn sign(secret: &[u8], claims: &str) -> Option<Vec<u8>> {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let key = EncodingKey::from_secret(secret).ok()?;
    let signature = crypto::sign(message.as_bytes(), &key, Algorithm::HS256).ok()?;
    Some(format!(r#"{{"payload":"{message}.{signature}"}}"#).into_bytes())
}
