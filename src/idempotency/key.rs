//! The `Idempotency-Key` request header: which key a caller named, or why it named none.
//!
//! The IETF draft (draft-ietf-httpapi-idempotency-key-header) has a structured-field string, most clients send
//! a bare token; both spell the same key here. What a key may hold is narrow on purpose: it goes into no log,
//! but it does come back in a header.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

/// The standard header.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The older spelling; taken when the standard one is absent.
pub const X_IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("x-idempotency-key");

/// 1 to 255 characters of `A-Za-z0-9._:-`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    text: String,
    as_sent: HeaderValue,
}

/// Why a request has no usable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// The header is absent.
    #[error("the Idempotency-Key header is required")]
    Missing,
    /// Sent twice, empty, too long, or with other characters.
    #[error(
        "an Idempotency-Key is one value of 1 to 255 characters A-Z a-z 0-9 . _ : -, bare or in double quotes"
    )]
    Malformed,
}

impl Key {
    /// The key that these headers name; the standard name wins.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, KeyProblem> {
        let name = if headers.contains_key(IDEMPOTENCY_KEY) {
            IDEMPOTENCY_KEY
        } else {
            X_IDEMPOTENCY_KEY
        };
        let mut values = headers.get_all(name).iter();
        let value = values.next().ok_or(KeyProblem::Missing)?;
        if values.next().is_some() {
            return Err(KeyProblem::Malformed);
        }
        let text = value.to_str().map_err(|_| KeyProblem::Malformed)?.trim();
        let bare = match text.strip_prefix('"') {
            Some(rest) => rest.strip_suffix('"').ok_or(KeyProblem::Malformed)?,
            None => text,
        };
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
        if bare.is_empty() || bare.len() > 255 || !bare.bytes().all(allowed) {
            return Err(KeyProblem::Malformed);
        }
        Ok(Self {
            text: bare.to_owned(),
            as_sent: value.clone(),
        })
    }

    /// The key itself; for the scope's hash only, never for a log.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The header value as the caller spelled it, to be echoed.
    pub fn echo(&self) -> HeaderValue {
        self.as_sent.clone()
    }

    /// The first 16 hex digits of the key's SHA-256: all that logs and metrics may show.
    pub fn hash(&self) -> String {
        hex::encode(Sha256::digest(self.text.as_bytes()))
            .chars()
            .take(16)
            .collect()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.hash())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pairs: &[(HeaderName, &str)]) -> Result<String, KeyProblem> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        Key::from_headers(&headers).map(|key| key.text)
    }

    #[test]
    fn two_spellings_are_one_key_and_the_standard_name_wins() {
        assert_eq!(
            key(&[(IDEMPOTENCY_KEY, "a-1")]),
            key(&[(IDEMPOTENCY_KEY, "\"a-1\"")])
        );
        assert_eq!(
            key(&[(X_IDEMPOTENCY_KEY, "x"), (IDEMPOTENCY_KEY, "std")]),
            Ok("std".to_owned())
        );
        assert_eq!(key(&[(X_IDEMPOTENCY_KEY, "x")]), Ok("x".to_owned()));
    }

    #[test]
    fn what_is_not_one_plain_key_is_refused() {
        assert_eq!(key(&[]), Err(KeyProblem::Missing));
        let long = "k".repeat(256);
        for bad in [
            "",
            "\"\"",
            "\"a",
            "a\"",
            "a b",
            "a,b",
            "\"a\";p=1",
            "schl\u{fc}ssel",
            "\\",
            long.as_str(),
        ] {
            assert_eq!(
                key(&[(IDEMPOTENCY_KEY, bad)]),
                Err(KeyProblem::Malformed),
                "{bad:?}"
            );
        }
        assert_eq!(
            key(&[(IDEMPOTENCY_KEY, "a"), (IDEMPOTENCY_KEY, "a")]),
            Err(KeyProblem::Malformed)
        );
        assert!(key(&[(IDEMPOTENCY_KEY, &"k".repeat(255))]).is_ok());
    }
}
