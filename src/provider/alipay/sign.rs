//! The sending side: makes bodies as Alipay would, for samples, `demo`, `send` and the tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use encoding_rs::{Encoding, UTF_8};

use super::algorithm;
use super::form::{Form, encode};
use crate::config::AlipaySignType;
use crate::provider::signature::{Digest, RsaSigner};

/// Why a sample could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// A parameter twice, or none.
    #[error("the parameters do not make a form")]
    Form,
    /// The private key refused.
    #[error("the text could not be signed")]
    Key,
}

/// The form body for `parameters` in their order, with `sign_type` and `sign` behind them. Values are written
/// in the charset that the parameter `charset` names, UTF-8 without one.
pub fn sign(
    signer: &RsaSigner,
    sign_type: AlipaySignType,
    parameters: &[(&str, &str)],
) -> Result<Vec<u8>, SignError> {
    let (named, digest): (&str, Digest) = algorithm(sign_type);
    let label = parameters
        .iter()
        .find(|(name, _)| *name == "charset")
        .map(|(_, label)| label.as_bytes());
    let charset = label.and_then(Encoding::for_label).unwrap_or(UTF_8);
    let mut all: Vec<(String, Vec<u8>)> = parameters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), charset.encode(value).0.into_owned()))
        .collect();
    let signed = Form::of(all.clone()).map_err(|_| SignError::Form)?.signed(false);
    let signature = signer.sign(digest, &signed).map_err(|_| SignError::Key)?;
    all.push(("sign_type".to_owned(), named.as_bytes().to_vec()));
    all.push(("sign".to_owned(), STANDARD.encode(signature).into_bytes()));
    let body: Vec<_> = all
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    Ok(body.join("&").into_bytes())
}

/// What is signed of `body`, by the usual rule.
pub fn signed_bytes(body: &[u8]) -> Result<Vec<u8>, SignError> {
    Ok(Form::parse(body).map_err(|_| SignError::Form)?.signed(false))
}

/// `body` with its `notify_time` and `sign` made anew; every other byte stays, its percent-encoding too.
/// `tail` is signed behind the rest: empty for a genuine notification.
pub fn resign(
    signer: &RsaSigner,
    sign_type: AlipaySignType,
    body: &[u8],
    notify_time: &str,
    tail: &[u8],
) -> Result<Vec<u8>, SignError> {
    let (_, digest): (&str, Digest) = algorithm(sign_type);
    let body = with_value(body, "notify_time=", notify_time.as_bytes());
    let signature = signer
        .sign(digest, &[&signed_bytes(&body)?, tail].concat())
        .map_err(|_| SignError::Key)?;
    Ok(with_value(&body, "sign=", STANDARD.encode(signature).as_bytes()))
}

/// The form with another value behind `name=`; a name that is not there stays away.
fn with_value(body: &[u8], name: &str, value: &[u8]) -> Vec<u8> {
    let segment = |segment: &[u8]| {
        if segment.starts_with(name.as_bytes()) {
            format!("{name}{}", encode(value)).into_bytes()
        } else {
            segment.to_vec()
        }
    };
    body.split(|b| *b == b'&')
        .map(segment)
        .collect::<Vec<_>>()
        .join(&b'&')
}
