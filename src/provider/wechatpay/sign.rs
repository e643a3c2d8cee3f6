//! The sending side: makes notifications as WeChat Pay would, for samples, `demo`, `send` and the tests.
//!
//! It shares the canonical strings and the ciphers with the judging side and nothing else; the tests hold it
//! against vectors that it did not make.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use super::cipher::{ResourceKey, seal_req_info};
use super::v2;
pub use super::v2::Method;
use super::v3;
use super::xml::Fields;
use crate::provider::signature::{Digest, RsaSigner};
use crate::time::Timestamp;

/// Why a sample could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The APIv3 key is not 32 bytes.
    #[error("the APIv3 key is not 32 bytes long")]
    ResourceKey,
    /// The cipher refused.
    #[error("the text could not be encrypted")]
    Cipher,
    /// The private key refused.
    #[error("the text could not be signed")]
    Key,
    /// A serial or nonce that no header can carry.
    #[error("a value does not fit into a header")]
    Header,
}

/// WeChat's side of one account under APIv3.
#[derive(Debug)]
pub struct V3Signer {
    signer: RsaSigner,
    serial: String,
    resource: ResourceKey,
}

/// What a v3 notification is made of.
#[derive(Clone, Copy, Debug)]
pub struct V3Message<'a> {
    /// The notification's id.
    pub id: &'a str,
    /// When it happened, with an offset, as WeChat writes it.
    pub create_time: &'a str,
    /// `TRANSACTION.SUCCESS`, `REFUND.SUCCESS`, ….
    pub event_type: &'a str,
    /// In words.
    pub summary: &'a str,
    /// `transaction` or `refund`; also the associated data.
    pub original_type: &'a str,
    /// The JSON text that gets encrypted.
    pub resource: &'a str,
}

impl V3Signer {
    /// `serial` is the public key id, or the platform certificate's serial.
    pub fn new(signer: RsaSigner, serial: &str, api_v3_key: &[u8]) -> Result<Self, SignError> {
        let resource = ResourceKey::new(api_v3_key.trim_ascii()).ok_or(SignError::ResourceKey)?;
        Ok(Self {
            signer,
            serial: serial.to_owned(),
            resource,
        })
    }

    /// The body, in WeChat's member order. `nonce` must be another one for every text.
    pub fn body(&self, message: &V3Message<'_>, nonce: [u8; 12]) -> Result<Vec<u8>, SignError> {
        // The nonce travels as text and is used as bytes.
        let nonce = nonce.map(|b| {
            if b.is_ascii_alphanumeric() {
                b
            } else {
                b'a'.saturating_add(b % 26)
            }
        });
        let aad = message.original_type;
        let sealed = self
            .resource
            .seal(nonce, aad.as_bytes(), message.resource.as_bytes())
            .map_err(|_| SignError::Cipher)?;
        let (ciphertext, nonce) = (
            STANDARD.encode(sealed),
            String::from_utf8_lossy(&nonce).into_owned(),
        );
        let text = |value: &str| json!(value).to_string();
        Ok(format!(
            "{{\"id\":{},\"create_time\":{},\"resource_type\":\"encrypt-resource\",\"event_type\":{},\"summary\":{},\
             \"resource\":{{\"original_type\":{},\"algorithm\":\"AEAD_AES_256_GCM\",\"ciphertext\":{},\
             \"associated_data\":{},\"nonce\":{}}}}}",
            text(message.id),
            text(message.create_time),
            text(message.event_type),
            text(message.summary),
            text(aad),
            text(&ciphertext),
            text(aad),
            text(&nonce),
        )
        .into_bytes())
    }

    /// What [`Self::body`] has sealed, out of base64: the resource's text again.
    pub fn open(&self, nonce: &[u8], aad: &[u8], sealed: Vec<u8>) -> Result<Vec<u8>, SignError> {
        self.resource
            .open(nonce, aad, sealed)
            .map_err(|_| SignError::Cipher)
    }

    /// The headers that sign `body` as sent at `at`; a retry signs the same body again.
    pub fn headers(&self, body: &[u8], at: Timestamp, nonce: &str) -> Result<HeaderMap, SignError> {
        let timestamp = at.secs().to_string();
        let signature = self
            .signer
            .sign(Digest::Sha256, &signed_bytes(&timestamp, nonce, body))
            .map_err(|_| SignError::Key)?;
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| SignError::Header);
        let header = HeaderName::from_static;
        Ok(HeaderMap::from_iter([
            (
                header("content-type"),
                HeaderValue::from_static("application/json"),
            ),
            (header("wechatpay-timestamp"), value(&timestamp)?),
            (header("wechatpay-nonce"), value(nonce)?),
            (header("wechatpay-serial"), value(&self.serial)?),
            (header("wechatpay-signature"), value(&STANDARD.encode(signature))?),
            (
                header("wechatpay-signature-type"),
                HeaderValue::from_static("WECHATPAY2-SHA256-RSA2048"),
            ),
        ]))
    }
}

/// What APIv3 signs of a body sent at `timestamp` with `nonce`.
pub fn signed_bytes(timestamp: &str, nonce: &str, body: &[u8]) -> Vec<u8> {
    v3::signed(timestamp, nonce, body)
}

/// A v2 payment notification: `fields` and their signature, one line.
pub fn v2_payment(fields: &[(&str, &str)], method: Method, api_v2_key: &[u8]) -> Vec<u8> {
    let map: Fields = fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let sign = v2::sign(method, &map, api_v2_key.trim_ascii());
    xml("xml", fields.iter().copied().chain([("sign", sign.as_str())])).into_bytes()
}

/// A v2 refund notification: the `outer` elements as they stand and `refund` encrypted.
pub fn v2_refund(
    outer: &[(&str, &str)],
    refund: &[(&str, &str)],
    api_v2_key: &[u8],
) -> Result<Vec<u8>, SignError> {
    let text = xml("root", refund.iter().copied());
    let sealed = seal_req_info(api_v2_key.trim_ascii(), text.as_bytes()).map_err(|_| SignError::Cipher)?;
    let info = STANDARD.encode(sealed);
    Ok(xml("xml", outer.iter().copied().chain([("req_info", info.as_str())])).into_bytes())
}

/// Elements with CDATA; a text that would end it is split over two.
fn xml<'a>(root: &str, fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = format!("<{root}>");
    for (name, value) in fields {
        let value = value.replace("]]>", "]]]]><![CDATA[>");
        for part in ["<", name, "><![CDATA[", &value, "]]></", name, ">"] {
            text.push_str(part);
        }
    }
    text + "</" + root + ">"
}
