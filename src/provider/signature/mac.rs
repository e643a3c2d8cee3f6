//! Shared-secret signatures, comparison in constant time, and base64 that forgives nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// HMAC-SHA256 of `message`, given in parts, under `key`.
#[expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "HMAC takes a key of any length"
)]
pub fn hmac_sha256(key: &[u8], message: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in message {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Whether two byte strings are equal, in a time that depends on their lengths only.
pub fn ct_eq(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

/// Standard base64 with its padding, nothing around or inside it, unused bits zero.
pub fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Names a secret without giving it away: the first 16 hex digits of a SHA-256 over a fixed prefix and it.
pub fn secret_fingerprint(secret: &[u8]) -> String {
    let digest = Sha256::new()
        .chain_update(b"payhook secret fingerprint\0")
        .chain_update(secret)
        .finalize();
    let mut text = hex::encode(digest);
    text.truncate(16);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_is_the_known_one_and_parts_join() {
        // RFC 4231, test case 2.
        let want = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let whole: &[u8] = b"what do ya want for nothing?";
        assert_eq!(hex::encode(hmac_sha256(b"Jefe", &[whole])), want);
        let (a, b) = whole.split_at(7);
        assert_eq!(hex::encode(hmac_sha256(b"Jefe", &[a, b])), want);
    }

    #[test]
    fn comparison_knows_lengths() {
        assert!(ct_eq(b"same", b"same"));
        assert!(!ct_eq(b"same", b"sama"));
        assert!(!ct_eq(b"same", b"sam"));
    }

    #[test]
    fn loose_base64_is_refused() {
        assert_eq!(decode_base64(b"aGk=").as_deref(), Some(b"hi".as_slice()));
        for loose in [b"aGk".as_slice(), b"aGk= ", b"aGl=", b"aG k", b"aGk=\n", b"_-8="] {
            assert_eq!(decode_base64(loose), None);
        }
    }
}
