//! What the schemes share of cryptography: RSA PKCS#1 v1.5 with keys parsed once, HMAC, strict base64.
//!
//! Which digest a signature uses is always the caller's argument, and so always the configuration's word;
//! nothing here reads an algorithm out of a key, a header or a message. [`RsaKey`] verifies notifications,
//! [`RsaSigner`] makes the samples, [`mac`] serves the schemes with a shared secret.

mod key;
pub mod mac;
mod signer;

pub use key::{Certificate, Digest, KeyError, RsaKey, SignatureDoesNotHold, same_serial};
pub use signer::RsaSigner;
