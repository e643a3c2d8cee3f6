//! The identity of an event: what makes the second arrival "the same thing".
//!
//! Both come from signed material only (I3). The order number alone is never an identity: every provider
//! sends several legitimate notifications per order.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ProviderName;

/// The longest event key that is kept as such, in bytes.
const MAX_KEY: usize = 200;

/// `webhook:{provider}:{account}:{id}`, at most 200 bytes, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventKey(String);

impl EventKey {
    /// The key for a delivery `id` from signed material. A missing or empty id, one with control
    /// characters, or one that makes the key too long, is replaced by `sha256:` and the fingerprint.
    pub fn new(provider: ProviderName, account: &str, id: Option<&str>, fingerprint: &Fingerprint) -> Self {
        if let Some(id) = id.filter(|id| !id.is_empty() && !id.chars().any(char::is_control)) {
            let key = format!("webhook:{provider}:{account}:{id}");
            if key.len() <= MAX_KEY {
                return Self(key);
            }
        }
        Self(format!("webhook:{provider}:{account}:sha256:{fingerprint}"))
    }

    /// A key read back from the store or named by a caller.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// SHA-256 over what must be equal for a second arrival to count as a duplicate (design section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Over `parts`, each preceded by its length, so that no two different lists give the same bytes.
    pub fn over<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// As stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// From a stored column; `None` when it is not 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_ids_are_hashed_and_stay_apart() {
        let print = Fingerprint::over([b"content".as_slice()]);
        let hashed = EventKey::new(ProviderName::Stripe, "a", None, &print);
        assert!(hashed.as_str().starts_with("webhook:stripe:a:sha256:"));
        assert_eq!(EventKey::new(ProviderName::Stripe, "a", Some("x\0"), &print), hashed);
        assert_eq!(EventKey::new(ProviderName::Stripe, "a", Some(&"x".repeat(300)), &print), hashed);
        assert_eq!(EventKey::new(ProviderName::TwoCTwoP, "a", Some("e"), &print).as_str(), "webhook:2c2p:a:e");
    }

    #[test]
    fn moving_a_byte_between_parts_changes_the_fingerprint() {
        let one = Fingerprint::over([b"ab".as_slice(), b"c".as_slice()]);
        let two = Fingerprint::over([b"a".as_slice(), b"bc".as_slice()]);
        assert_ne!(one, two);
    }
}
