//! What WeChat Pay encrypts: the v3 `resource` (AES-256-GCM under the APIv3 key) and the v2 `req_info`
//! (AES-256-ECB under the hex of the v2 key's MD5).
//!
//! Both directions, so that samples are made by the code that opens them. GCM proves where the text came
//! from; ECB proves only that the sender knows the key and lets blocks be cut and moved, which is why a v2
//! refund waits for a verified payment.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_256, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use md5::{Digest as _, Md5};

/// Why a text could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CipherError {
    /// The nonce is not 12 bytes.
    #[error("the nonce is not 12 bytes long")]
    Nonce,
    /// Shorter than the tag alone, or not whole blocks.
    #[error("the ciphertext has an impossible length")]
    Length,
    /// The tag does not agree (GCM) or the padding is wrong (ECB): another key or changed bytes.
    #[error("it does not open with this key")]
    Key,
}

/// The APIv3 key.
pub(super) struct ResourceKey(LessSafeKey);

impl ResourceKey {
    /// The key's length in bytes.
    pub(super) const LEN: usize = 32;

    /// `None` when it is not [`Self::LEN`] bytes.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        UnboundKey::new(&AES_256_GCM, key)
            .ok()
            .map(|key| Self(LessSafeKey::new(key)))
    }

    /// The text inside `ciphertext` (with its tag at the end).
    pub(super) fn open(
        &self,
        nonce: &[u8],
        aad: &[u8],
        mut ciphertext: Vec<u8>,
    ) -> Result<Vec<u8>, CipherError> {
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| CipherError::Nonce)?;
        if ciphertext.len() < AES_256_GCM.tag_len() {
            return Err(CipherError::Length);
        }
        let text = self
            .0
            .open_in_place(nonce, Aad::from(aad), &mut ciphertext)
            .map_err(|_| CipherError::Key)?;
        let len = text.len();
        ciphertext.truncate(len);
        Ok(ciphertext)
    }

    /// `text` encrypted, its tag at the end.
    pub(super) fn seal(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        text: &[u8],
    ) -> Result<Vec<u8>, CipherError> {
        let mut sealed = text.to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut sealed)
            .map_err(|_| CipherError::Length)?;
        Ok(sealed)
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResourceKey")
    }
}

/// Opens a v2 `req_info` (already out of base64) with the API v2 key.
pub(super) fn open_req_info(api_key: &[u8], mut ciphertext: Vec<u8>) -> Result<Vec<u8>, CipherError> {
    if ciphertext.is_empty() || !ciphertext.len().is_multiple_of(AES_256.block_len()) {
        return Err(CipherError::Length);
    }
    let key = req_info_key(api_key)
        .and_then(PaddedBlockDecryptingKey::ecb_pkcs7)
        .map_err(|_| CipherError::Key)?;
    let text = key
        .decrypt(&mut ciphertext, DecryptionContext::None)
        .map_err(|_| CipherError::Key)?;
    Ok(text.to_vec())
}

/// Makes a v2 `req_info` (before base64).
pub(super) fn seal_req_info(api_key: &[u8], text: &[u8]) -> Result<Vec<u8>, CipherError> {
    let key = req_info_key(api_key)
        .and_then(PaddedBlockEncryptingKey::ecb_pkcs7)
        .map_err(|_| CipherError::Key)?;
    let mut sealed = text.to_vec();
    key.encrypt(&mut sealed).map_err(|_| CipherError::Key)?;
    Ok(sealed)
}

/// The 32 lower-case hex digits of the key's MD5 are the AES key, leading zeros and all.
fn req_info_key(api_key: &[u8]) -> Result<UnboundCipherKey, aws_lc_rs::error::Unspecified> {
    UnboundCipherKey::new(&AES_256, hex::encode(Md5::digest(api_key)).as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &[u8; 32] = b"payhook-sample-apiv3-key-0000001";
    const NONCE: [u8; 12] = *b"0123456789ab";

    #[test]
    fn b20_odd_lengths_are_errors() {
        assert!(ResourceKey::new(&KEY[..16]).is_none());
        let key = ResourceKey::new(KEY).unwrap();
        for nonce in [&b""[..], b"123456", b"0123456789abc"] {
            assert_eq!(key.open(nonce, b"", vec![0; 40]), Err(CipherError::Nonce));
        }
        for short in [0, 1, 15] {
            assert_eq!(key.open(&NONCE, b"", vec![0; short]), Err(CipherError::Length));
        }
        assert_eq!(key.open(&NONCE, b"", vec![0; 16]), Err(CipherError::Key));
        for odd in [0, 1, 15, 17] {
            assert_eq!(open_req_info(KEY, vec![0; odd]), Err(CipherError::Length));
        }
    }

    #[test]
    fn an_md5_that_begins_with_zero_keeps_its_zero() {
        let zero = (0..1000)
            .map(|i| format!("api-key-{i}"))
            .find(|key| hex::encode(Md5::digest(key)).starts_with("00"))
            .unwrap();
        let sealed = seal_req_info(zero.as_bytes(), b"text").unwrap();
        assert_eq!(open_req_info(zero.as_bytes(), sealed).unwrap(), b"text");
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_a_flipped_bit_does_not(
            text in proptest::collection::vec(any::<u8>(), 0..200), aad in "[a-z]{0,12}", flip in any::<prop::sample::Index>()
        ) {
            let key = ResourceKey::new(KEY).unwrap();
            let mut sealed = key.seal(NONCE, aad.as_bytes(), &text).unwrap();
            prop_assert_eq!(&key.open(&NONCE, aad.as_bytes(), sealed.clone()).unwrap(), &text);
            prop_assert_eq!(key.open(&NONCE, b"other", sealed.clone()), Err(CipherError::Key));
            let bit = flip.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(key.open(&NONCE, aad.as_bytes(), sealed), Err(CipherError::Key));

            let sealed = seal_req_info(KEY, &text).unwrap();
            prop_assert_eq!(open_req_info(KEY, sealed).unwrap(), text);
        }
    }
}
