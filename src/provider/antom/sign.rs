//! The sending side: signs as Antom would, for samples, `demo`, `send` and the tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::canonical;
use crate::provider::signature::{Digest, RsaSigner};

/// The private key refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text could not be signed")]
pub struct SignError;

/// The value of the `signature` header for `body` posted to `path`, under the headers `client-id` and
/// `request-time` as given.
pub fn sign(
    signer: &RsaSigner,
    path: &str,
    client_id: &str,
    request_time: &str,
    body: &[u8],
) -> Result<String, SignError> {
    let signed = canonical(path, client_id, request_time, body);
    let signature = signer.sign(Digest::Sha256, &signed).map_err(|_| SignError)?;
    let signature = STANDARD.encode(signature);
    let encoded = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
    Ok(format!("algorithm=RSA256, keyVersion=1, signature={encoded}"))
}
