//! WeChat Pay v2: legacy XML, payments signed with the API key, refunds only encrypted with it.
//!
//! A payment's signature covers the sorted non-empty elements; whether it is MD5 or HMAC-SHA256 shows in its
//! length, as both are made with the same secret. A refund carries `req_info` and no signature: that it opens
//! is all the proof there is, so what it says is marked and waits for a verified payment. No send time is
//! signed, so there is no window.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use serde_json::Value;

use super::cipher::open_req_info;
use super::keys::V2Key;
use super::scope::{Object, text_of};
use super::xml::{self, Fields};
use crate::event::{EventKey, Fingerprint, ProviderName};
use crate::provider::signature::mac::{ct_eq, hmac_sha256};
use crate::provider::{Reason, Refusal};

/// A judged message.
#[derive(Debug)]
pub(super) struct Opened {
    /// What it says: the elements without `sign`, or the decrypted refund with the outer ids.
    pub(super) content: Object,
    pub(super) fingerprint: Fingerprint,
}

/// How a message is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// 32 characters.
    Md5,
    /// 64 characters.
    HmacSha256,
}

/// Outer elements of a refund that are carried over; nothing proves them, they only identify.
const OUTER: [&str; 5] = ["return_code", "appid", "mch_id", "sub_appid", "sub_mch_id"];

/// Elements that are acted on. The signed string joins names and values without escaping, so a value that
/// holds `&total_fee=` could be cut into elements in two ways; no genuine one does.
const ACTED_ON: [&str; 10] = [
    "appid",
    "fee_type",
    "mch_id",
    "out_trade_no",
    "req_info",
    "result_code",
    "return_code",
    "time_end",
    "total_fee",
    "transaction_id",
];

/// The elements of a notification.
pub(super) fn parse(body: &[u8]) -> Result<Fields, Refusal> {
    let refuse = |detail: String| Refusal::new(Reason::Malformed, detail);
    let fields = xml::parse(body, &["xml"]).map_err(|e| refuse(format!("the XML body is refused: {e}")))?;
    let ambiguous = |value: &String| ACTED_ON.iter().any(|name| value.contains(&format!("&{name}=")));
    if fields.values().any(ambiguous) {
        return Err(refuse(
            "an element's text holds another element's name, so that what was signed is ambiguous".to_owned(),
        ));
    }
    Ok(fields)
}

/// Judges the elements with the account's key.
pub(super) fn open(fields: Fields, key: Option<&V2Key>) -> Result<Opened, Refusal> {
    let key = key.ok_or_else(|| {
        Refusal::new(
            Reason::UnknownKey,
            "a v2 message, but this account holds no api_v2_key",
        )
    })?;
    let signed = fields.get("sign").is_some_and(|sign| !sign.is_empty());
    if signed {
        check_signature(&fields, key)?;
    }
    match fields.get("req_info").filter(|info| !info.is_empty()) {
        Some(info) => open_refund(&fields, info, key).map_err(|detail| {
            // Not `undecryptable`: anyone can send bytes that do not open, and unless the message is signed,
            // opening is the only proof.
            let reason = if signed {
                Reason::Malformed
            } else {
                Reason::BadSignature
            };
            Refusal::new(reason, detail)
        }),
        None if signed => {
            let content = object(fields.into_iter().filter(|(name, _)| name != "sign"));
            let fingerprint = fingerprint(&content);
            Ok(Opened { content, fingerprint })
        }
        None => Err(Refusal::new(Reason::BadSignature, "the message has no sign")),
    }
}

fn check_signature(fields: &Fields, key: &V2Key) -> Result<(), Refusal> {
    let bad = |detail| Err(Refusal::new(Reason::BadSignature, detail));
    let sign = fields.get("sign").map(String::as_str).unwrap_or_default();
    let method = match sign.len() {
        32 => Method::Md5,
        64 => Method::HmacSha256,
        _ => return bad("sign has neither 32 characters (MD5) nor 64 (HMAC-SHA256)"),
    };
    if ct_eq(
        self::sign(method, fields, key.bytes()).as_bytes(),
        sign.as_bytes(),
    ) {
        return Ok(());
    }
    bad("sign does not hold over these elements with this account's api_v2_key")
}

fn open_refund(fields: &Fields, info: &str, key: &V2Key) -> Result<Opened, String> {
    let info: String = info.split_ascii_whitespace().collect();
    let info = STANDARD
        .decode(info)
        .map_err(|_| "req_info is not base64".to_owned())?;
    let text = open_req_info(key.bytes(), info).map_err(|e| format!("req_info: {e} (api_v2_key)"))?;
    let inner =
        xml::parse(&text, &["root", "xml"]).map_err(|e| format!("req_info opens to no refund: {e}"))?;
    let mut content = object(inner);
    let fingerprint = fingerprint(&content);
    for name in OUTER {
        if let Some(value) = fields.get(name).filter(|value| !value.is_empty()) {
            content
                .entry(name)
                .or_insert_with(|| Value::String(value.clone()));
        }
    }
    Ok(Opened { content, fingerprint })
}

/// The string that is signed, without the key at its end.
pub(super) fn canonical(fields: &Fields) -> String {
    let mut text = String::new();
    for (name, value) in fields
        .iter()
        .filter(|(name, value)| *name != "sign" && !value.is_empty())
    {
        for part in [name, "=", value, "&"] {
            text.push_str(part);
        }
    }
    text.push_str("key=");
    text
}

/// The signature of `fields`: upper-case hex.
pub(super) fn sign(method: Method, fields: &Fields, key: &[u8]) -> String {
    let text = canonical(fields);
    match method {
        Method::Md5 => hex::encode_upper(Md5::new().chain_update(text).chain_update(key).finalize()),
        Method::HmacSha256 => hex::encode_upper(hmac_sha256(key, &[text.as_bytes(), key])),
    }
}

/// What makes a message the same one again. A failed attempt has no id of its own: were it filed under its
/// transaction, the payment that follows would look like its duplicate.
pub(super) fn event_key(account: &str, content: &Object, fingerprint: &Fingerprint) -> EventKey {
    let id = match (text_of(content, "refund_status"), text_of(content, "refund_id")) {
        (Some(status), Some(refund)) => EventKey::joined(&["refund", refund, status]),
        (None, _) if succeeded(content) => {
            text_of(content, "transaction_id").and_then(|trade| EventKey::joined(&["pay", trade]))
        }
        _ => None,
    };
    EventKey::new(ProviderName::Wechatpay, account, id.as_deref(), fingerprint)
}

/// Neither the call nor the payment is reported as failed.
pub(super) fn succeeded(content: &Object) -> bool {
    ["return_code", "result_code"]
        .iter()
        .all(|name| text_of(content, name).is_none_or(|code| code == "SUCCESS"))
}

/// Over all but the nonce, which a retry may renew.
pub(super) fn fingerprint(content: &Object) -> Fingerprint {
    let pairs = content.iter().filter(|(name, _)| *name != "nonce_str");
    Fingerprint::over(
        pairs.flat_map(|(name, value)| [name.as_bytes(), value.as_str().unwrap_or_default().as_bytes()]),
    )
}

/// Empty elements are not signed, so they are not kept as said.
fn object(fields: impl IntoIterator<Item = (String, String)>) -> Object {
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name, Value::String(value)))
        .collect()
}
