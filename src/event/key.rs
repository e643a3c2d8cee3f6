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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct EventKey(String);

impl EventKey {
    /// The key for a delivery `id` from signed material. A missing or empty id, one that makes the key too long,
    /// and one that could be taken for another's (control characters, U+FFFD for bytes that were no text, a
    /// leading `sha256:`) is replaced by `sha256:` and the fingerprint.
    pub fn new(provider: ProviderName, account: &str, id: Option<&str>, fingerprint: &Fingerprint) -> Self {
        if let Some(id) = id.filter(|id| identifies(id)) {
            let key = format!("webhook:{provider}:{account}:{id}");
            if key.len() <= MAX_KEY {
                return Self(key);
            }
        }
        Self(format!("webhook:{provider}:{account}:sha256:{fingerprint}"))
    }

    /// One id out of several `parts`, joined by `:`; `None` where a part is empty or holds a `:` itself, so that
    /// no two lists give one id.
    pub fn joined(parts: &[&str]) -> Option<String> {
        let fit = parts.iter().all(|part| !part.is_empty() && !part.contains(':'));
        fit.then(|| parts.join(":"))
    }

    /// A key read back from the store or named by a caller.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether a text from outside could be a key at all: short enough, and nothing that a database refuses.
    pub fn is_possible(text: &str) -> bool {
        text.len() <= MAX_KEY && text.starts_with("webhook:") && !text.chars().any(char::is_control)
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn identifies(id: &str) -> bool {
    let odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    !id.is_empty() && !id.starts_with("sha256:") && !id.chars().any(odd)
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// SHA-256 over what must be equal for a second arrival to count as a duplicate (design section 5.3).
///
/// Stored as 32 bytes; or, where part of the content is bound to a version of the provider's API (Stripe), as
/// 96: the fixed part, the version, the versioned part. One plain hash could not say "equal, if the versions
/// are", so duplicates are found with [`Fingerprint::agrees_with`] and never with `==` on the column.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    fixed: [u8; 32],
    versioned: Option<Versioned>,
}

/// What is comparable only within one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Versioned {
    version: [u8; 32],
    content: [u8; 32],
}

impl Fingerprint {
    /// Over `parts`, each preceded by its length, so that no two different lists give the same bytes.
    pub fn over<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self {
            fixed: hash(parts),
            versioned: None,
        }
    }

    /// Over `parts`, which must always be equal, and `content`, which must be only if `version` is.
    pub fn versioned<'a>(parts: impl IntoIterator<Item = &'a [u8]>, version: &[u8], content: &[u8]) -> Self {
        let versioned = Versioned {
            version: hash([version]),
            content: hash([content]),
        };
        Self {
            fixed: hash(parts),
            versioned: Some(versioned),
        }
    }

    /// Whether an event with this fingerprint and one with `other`, under one key, are the same event; if
    /// not, they are in conflict (I4).
    pub fn agrees_with(&self, other: &Self) -> bool {
        let same_content = match (&self.versioned, &other.versioned) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => mine.version != theirs.version || mine.content == theirs.content,
            _ => false,
        };
        self.fixed == other.fixed && same_content
    }

    /// As stored: 32 or 96 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.fixed.to_vec();
        if let Some(versioned) = &self.versioned {
            bytes.extend_from_slice(&versioned.version);
            bytes.extend_from_slice(&versioned.content);
        }
        bytes
    }

    /// From a stored column; `None` when it is neither 32 nor 96 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<32>()?;
        let versioned = if rest.is_empty() {
            None
        } else {
            let (version, content) = rest.split_first_chunk::<32>()?;
            Some(Versioned {
                version: *version,
                content: content.try_into().ok()?,
            })
        };
        Some(Self {
            fixed: *fixed,
            versioned,
        })
    }
}

/// SHA-256 over `parts`, each preceded by its length.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl fmt::Display for Fingerprint {
    /// 64 hex digits over all of it, whatever its stored length: fit for an event key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self
            .versioned
            .map_or(self.fixed, |v| hash([&self.fixed[..], &v.version, &v.content]));
        f.write_str(&hex::encode(whole))
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
        for odd in ["", "x\0", "x\u{fffd}", "sha256:00", &"x".repeat(300)] {
            assert_eq!(
                EventKey::new(ProviderName::Stripe, "a", Some(odd), &print),
                hashed
            );
        }
        assert_eq!(
            EventKey::new(ProviderName::TwoCTwoP, "a", Some("e"), &print).as_str(),
            "webhook:2c2p:a:e"
        );
        assert_eq!(EventKey::joined(&["a", "b"]).as_deref(), Some("a:b"));
        for odd in [["a:b", "c"], ["a", "b:c"], ["a", ""]] {
            assert_eq!(EventKey::joined(&odd), None);
        }
    }

    #[test]
    fn moving_a_byte_between_parts_changes_the_fingerprint() {
        let one = Fingerprint::over([b"ab".as_slice(), b"c".as_slice()]);
        let two = Fingerprint::over([b"a".as_slice(), b"bc".as_slice()]);
        assert_ne!(one, two);
    }

    #[test]
    fn versioned_content_is_compared_within_its_version_only() {
        let parts = [b"type".as_slice()];
        let one = Fingerprint::versioned(parts, b"v1", b"data");
        assert!(one.agrees_with(&Fingerprint::versioned(parts, b"v1", b"data")));
        assert!(one.agrees_with(&Fingerprint::versioned(parts, b"v2", b"other data")));
        assert!(!one.agrees_with(&Fingerprint::versioned(parts, b"v1", b"other data")));
        assert!(!one.agrees_with(&Fingerprint::versioned([b"else".as_slice()], b"v2", b"data")));
        assert!(!one.agrees_with(&Fingerprint::over(parts)));
        assert_eq!(one.to_string().len(), 64);
    }

    #[test]
    fn a_fingerprint_comes_back_from_its_column() {
        for print in [
            Fingerprint::over([b"a".as_slice()]),
            Fingerprint::versioned([b"a".as_slice()], b"v", b"d"),
        ] {
            assert_eq!(Fingerprint::from_slice(&print.to_bytes()), Some(print));
        }
        for odd in [0, 31, 33, 64, 97] {
            assert_eq!(Fingerprint::from_slice(&vec![0; odd]), None);
        }
    }
}
