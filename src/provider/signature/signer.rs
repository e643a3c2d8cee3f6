//! The sending side, for samples: `demo`, `send` and the tests sign with throw-away keys.
//!
//! No notification path holds a private key.

use rsa::PrivateKey;
use rsa::pkcs1::DecodeRsaPrivateKey as _;
use rsa::pkcs1v15::SigningKey;
use rsa::pkcs8::DecodePrivateKey as _;
use rsa::signature::{SignatureEncoding as _, Signer as _};
use sha1::Sha1;
use sha2::Sha256;

use super::{Digest, KeyError};

/// A private key that signs PKCS#1 v1.5, ready for both digests.
pub struct RsaSigner {
    sha256: SigningKey<Sha256>,
    sha1: SigningKey<Sha1>,
}

impl RsaSigner {
    /// From a PEM private key, PKCS#8 (`PRIVATE KEY`) or PKCS#1 (`RSA PRIVATE KEY`).
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let key = PrivateKey::from_pkcs8_pem(pem)
            .or_else(|_| PrivateKey::from_pkcs1_pem(pem))
            .map_err(|_| KeyError::Unreadable)?;
        Ok(Self {
            sha256: SigningKey::new(key.clone()),
            sha1: SigningKey::new(key),
        })
    }

    /// The signature of `message`, in raw bytes.
    pub fn sign(&self, digest: Digest, message: &[u8]) -> Result<Vec<u8>, rsa::signature::Error> {
        Ok(match digest {
            Digest::Sha256 => self.sha256.try_sign(message)?.to_vec(),
            Digest::Sha1 => self.sha1.try_sign(message)?.to_vec(),
        })
    }
}

impl std::fmt::Debug for RsaSigner {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RsaSigner").finish_non_exhaustive()
    }
}
