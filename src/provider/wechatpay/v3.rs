//! WeChat Pay APIv3: JSON, signed in headers with WeChat's RSA key, its resource encrypted.
//!
//! The judgement in small steps, so that `verify` and `explain` walk the same ones. Nothing is opened before
//! the signature over the raw bytes has held, and the window is judged on the signed time alone: `create_time`
//! keeps the first attempt's value over a day of retries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::cipher::ResourceKey;
use super::keys::{HeldKey, V3Keys};
use super::scope::text_of;
use crate::event::{EventKey, Fingerprint, Notification, ProviderName};
use crate::provider::json;
use crate::provider::signature::{Digest, mac};
use crate::provider::{Reason, Refusal};
use crate::time::Timestamp;

/// How far the signed time may be from the arrival, in seconds, either way, inclusive.
pub(super) const WINDOW_SECS: i64 = 300;
/// What WeChat's probes put before a signature, to see that it is refused.
const PROBE: &str = "WECHATPAY/SIGNTEST/";
const RSA: &str = "WECHATPAY2-SHA256-RSA2048";
const AES: &str = "AEAD_AES_256_GCM";

/// What the headers say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers<'a> {
    pub(super) timestamp: &'a str,
    pub(super) nonce: &'a str,
    pub(super) serial: &'a str,
    pub(super) signature: &'a str,
    pub(super) signed_at: Timestamp,
}

/// A verified envelope, opened.
pub(super) struct Opened {
    pub(super) key: EventKey,
    pub(super) fingerprint: Fingerprint,
    pub(super) event_type: String,
    pub(super) resource: Vec<u8>,
}

impl<'a> Headers<'a> {
    /// Each header exactly once.
    pub(super) fn of(notification: &'a Notification) -> Result<Self, Refusal> {
        let timestamp = required(notification, "Wechatpay-Timestamp")?;
        let nonce = required(notification, "Wechatpay-Nonce")?;
        let serial = required(notification, "Wechatpay-Serial")?;
        let signature = required(notification, "Wechatpay-Signature")?;
        let digits = timestamp.len() <= 12 && timestamp.bytes().all(|b| b.is_ascii_digit());
        let secs = timestamp.parse().ok().filter(|_| digits);
        let secs = secs.ok_or_else(|| malformed("Wechatpay-Timestamp is not a number of seconds"))?;
        Ok(Self {
            timestamp,
            nonce,
            serial,
            signature,
            signed_at: Timestamp::from_secs(secs),
        })
    }

    /// The bytes that were signed.
    pub(super) fn signed(&self, body: &[u8]) -> Vec<u8> {
        signed(self.timestamp, self.nonce, body)
    }

    /// Refuses WeChat's own probe.
    pub(super) fn no_probe(&self) -> Result<(), Refusal> {
        if self.signature.starts_with(PROBE) {
            return Err(Refusal::new(
                Reason::Probe,
                "WeChat's signature probe: refusing it is the right answer",
            ));
        }
        Ok(())
    }

    /// Refuses another algorithm than the one this account's keys are for. The header is optional.
    pub(super) fn rsa_named(notification: &Notification) -> Result<(), Refusal> {
        const NAME: &str = "Wechatpay-Signature-Type";
        if !notification.headers.contains_key(NAME) {
            return Ok(());
        }
        let named = required(notification, NAME)?;
        if named.eq_ignore_ascii_case(RSA) {
            return Ok(());
        }
        let detail = if named.contains("SM2") {
            "signed with SM2 and SM3, which this account's RSA keys can't judge: switch the merchant account to RSA"
        } else {
            "Wechatpay-Signature-Type names another algorithm than SHA-256 with RSA"
        };
        Err(Refusal::new(Reason::BadSignature, detail))
    }

    /// The key that Wechatpay-Serial names.
    pub(super) fn key<'k>(&self, keys: &'k V3Keys) -> Result<&'k HeldKey, Refusal> {
        let unknown = "Wechatpay-Serial names a key that this account does not hold";
        keys.get(self.serial)
            .ok_or_else(|| Refusal::new(Reason::UnknownKey, unknown))
    }

    /// Whether `held` signed `body`.
    pub(super) fn check_signature(&self, held: &HeldKey, body: &[u8]) -> Result<(), Refusal> {
        let bad = |detail| Refusal::new(Reason::BadSignature, detail);
        let signature = mac::decode_base64(self.signature.as_bytes())
            .ok_or_else(|| bad("Wechatpay-Signature is not base64"))?;
        held.key
            .verify(Digest::Sha256, &self.signed(body), &signature)
            .map_err(|_| bad("the signature does not hold over these bytes with the named key"))
    }

    /// Seconds from the signed time to the arrival, rounded away from zero.
    pub(super) fn age_secs(&self, notification: &Notification) -> i64 {
        let micros = notification.received_at.micros_since(self.signed_at);
        let whole = micros.div_euclid(1_000_000);
        if micros > 0 && micros.rem_euclid(1_000_000) != 0 {
            whole.saturating_add(1)
        } else {
            whole
        }
    }

    /// Whether it arrived within the window.
    pub(super) fn check_window(&self, notification: &Notification) -> Result<(), Refusal> {
        let age = self.age_secs(notification);
        if (-WINDOW_SECS..=WINDOW_SECS).contains(&age) {
            return Ok(());
        }
        let side = if age > 0 { "before" } else { "after" };
        let detail = format!(
            "signed {} s {side} its arrival, {WINDOW_SECS} s are allowed",
            age.unsigned_abs()
        );
        Err(Refusal::new(Reason::OutsideWindow, detail))
    }
}

/// The account's v3 keys, if it has any.
pub(super) fn held(keys: Option<&V3Keys>) -> Result<&V3Keys, Refusal> {
    keys.ok_or_else(|| Refusal::new(Reason::UnknownKey, "this account holds no APIv3 keys"))
}

/// timestamp LF nonce LF body LF.
pub(super) fn signed(timestamp: &str, nonce: &str, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(
        timestamp
            .len()
            .saturating_add(nonce.len())
            .saturating_add(body.len()),
    );
    for part in [timestamp.as_bytes(), nonce.as_bytes(), body] {
        message.extend_from_slice(part);
        message.push(b'\n');
    }
    message
}

/// Opens a body whose signature has held.
pub(super) fn open(account: &str, key: &ResourceKey, body: &[u8]) -> Result<Opened, Refusal> {
    let envelope = json::object(body).map_err(|e| malformed(&format!("the body is {e}")))?;
    let event_type =
        text_of(&envelope, "event_type").ok_or_else(|| malformed("the body has no event_type"))?;
    let resource = envelope.get("resource").and_then(Value::as_object);
    let resource = resource.ok_or_else(|| malformed("the body has no resource"))?;
    let part =
        |name: &str| text_of(resource, name).ok_or_else(|| malformed(&format!("resource.{name} is missing")));
    let (ciphertext, nonce) = (part("ciphertext")?, part("nonce")?);
    let undecryptable = |detail: &str| Refusal::new(Reason::Undecryptable, detail);
    if text_of(resource, "algorithm").is_some_and(|named| named != AES) {
        return Err(undecryptable(
            "resource.algorithm is another than AEAD_AES_256_GCM",
        ));
    }
    let aad = text_of(resource, "associated_data").unwrap_or_default();
    let ciphertext = STANDARD
        .decode(ciphertext)
        .map_err(|_| undecryptable("resource.ciphertext is not base64"))?;
    let text = key
        .open(nonce.as_bytes(), aad.as_bytes(), ciphertext)
        .map_err(|e| {
            undecryptable(&format!(
                "the signature holds, but resource.ciphertext: {e}; compare api_v3_key with the console's"
            ))
        })?;
    let fingerprint = Fingerprint::over([event_type.as_bytes(), &text]);
    let event_key = EventKey::new(
        ProviderName::Wechatpay,
        account,
        text_of(&envelope, "id"),
        &fingerprint,
    );
    Ok(Opened {
        key: event_key,
        fingerprint,
        event_type: event_type.to_owned(),
        resource: text,
    })
}

fn malformed(detail: &str) -> Refusal {
    Refusal::new(Reason::Malformed, detail)
}

/// The one value of a header that must be there.
fn required<'a>(notification: &'a Notification, name: &str) -> Result<&'a str, Refusal> {
    match notification.header(name).filter(|value| !value.is_empty()) {
        Some(value) => Ok(value),
        None if notification.headers.get_all(name).iter().count() > 1 => {
            Err(malformed(&format!("header {name} comes more than once")))
        }
        None => Err(malformed(&format!("header {name} is missing"))),
    }
}
