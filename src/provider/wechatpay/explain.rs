//! The v3 judgement step by step, and what would make a refused one pass.
//!
//! Never on the request path. It walks the steps that `verify` walks; where one fails, the changes that are
//! known to happen are tried one at a time, and a hint is given only for what held or is a plain fact.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::WechatPay;
use super::keys::{HeldKey, V3Keys};
use super::v3::{self, Headers};
use crate::event::{Identity, Notification, Reading, text};
use crate::provider::signature::{Digest, mac};
use crate::provider::{Explanation, Refusal, Step, variants};

/// The members of a v3 body in the order that WeChat sends them.
const ENVELOPE: [&str; 6] = [
    "id",
    "create_time",
    "resource_type",
    "event_type",
    "summary",
    "resource",
];
const RESOURCE: [&str; 5] = [
    "original_type",
    "algorithm",
    "ciphertext",
    "associated_data",
    "nonce",
];

/// Walks the v3 judgement.
pub(super) fn explain(account: &WechatPay, notification: &Notification) -> Explanation {
    let mut told = Explanation::default();
    if let Err(refusal) = walk(account, notification, &mut told) {
        told.hint = hint(account, notification, &refusal);
    }
    told
}

/// The steps until the first that fails.
fn walk(account: &WechatPay, notification: &Notification, told: &mut Explanation) -> Result<(), Refusal> {
    let body = &notification.body;
    let headers = told.step("headers", Headers::of(notification), |h| {
        format!(
            "timestamp, nonce, signature and serial {} once each",
            text::printable(h.serial)
        )
    })?;
    told.signed = Some(headers.signed(body));
    told.step("probe", headers.no_probe(), |()| "no probe".to_owned())?;
    told.step("signature type", Headers::rsa_named(notification), |()| {
        "SHA-256 with RSA".to_owned()
    })?;
    let keys = told.step("keys", v3::held(account.v3.as_ref()), |keys| held_in_words(keys))?;
    let key = told.step("key", headers.key(keys), |held| {
        format!("{}, {}", held.id, held.key.info("").kind)
    })?;
    told.step("signature", headers.check_signature(key, body), |()| {
        "holds over these bytes".to_owned()
    })?;
    told.step("time window", headers.check_window(notification), |()| {
        format!(
            "signed {} s before its arrival, {} s are allowed",
            headers.age_secs(notification),
            v3::WINDOW_SECS
        )
    })?;
    let opened = v3::open(&account.scope.account, &keys.resource, body);
    let opened = told.step("resource", opened, |opened| {
        format!("opens to {} bytes", opened.resource.len())
    })?;
    told.reading(
        &account.reading(&opened.resource, &opened.event_type),
        opened.key.as_str(),
    );
    Ok(())
}

impl Explanation {
    /// Adds a step for `result` and hands it on.
    pub(super) fn step<T>(
        &mut self,
        check: &str,
        result: Result<T, Refusal>,
        found: impl FnOnce(&T) -> String,
    ) -> Result<T, Refusal> {
        let (ok, found) = match &result {
            Ok(value) => (true, found(value)),
            Err(refusal) => (false, refusal.to_string()),
        };
        self.steps.push(Step {
            check: check.to_owned(),
            ok,
            found,
        });
        result
    }

    /// Adds what a verified message says.
    pub(super) fn reading(&mut self, reading: &Reading, event_key: &str) {
        let (ok, identity) = match &reading.identity {
            Identity::Ok => (true, "this account's".to_owned()),
            Identity::Mismatch(why) => (false, why.clone()),
        };
        self.steps.push(Step {
            check: "identity".to_owned(),
            ok,
            found: identity,
        });
        let found = format!(
            "{} ({} facts), event key {event_key}",
            reading.kind,
            reading.facts.len()
        );
        self.steps.push(Step {
            check: "event".to_owned(),
            ok: true,
            found,
        });
    }
}

fn held_in_words(keys: &V3Keys) -> String {
    let ids: Vec<_> = keys.all().into_iter().map(|held| held.id.as_str()).collect();
    format!("this account holds {}", ids.join(", "))
}

/// The one difference that would make `notification` pass.
fn hint(account: &WechatPay, notification: &Notification, refusal: &Refusal) -> Option<String> {
    use crate::provider::Reason;
    match refusal.reason {
        Reason::Probe => Some("nothing is wrong: WeChat sends such probes and expects a refusal".to_owned()),
        Reason::OutsideWindow => {
            let headers = Headers::of(notification).ok()?;
            let at = headers.signed_at;
            let arrived = Notification {
                received_at: at,
                ..notification.clone()
            };
            account.verify_v3(&arrived).ok()?;
            let age = headers.age_secs(notification);
            let side = if age < 0 { "behind" } else { "ahead" };
            Some(format!(
                "it passes when judged at {at}: this clock is {} s {side}, or the message was held back or sent again",
                age.unsigned_abs()
            ))
        }
        Reason::Undecryptable => same_secret(account),
        _ => {
            let keys = account.v3.as_ref()?;
            other_key(keys, notification)
                .or_else(|| swapped_headers(keys, notification))
                .or_else(|| other_body(keys, notification))
                .or_else(|| own_certificate(account, keys))
                .or_else(|| not_held(notification, refusal))
        }
    }
}

/// The v2 key given as the v3 key is a fact, not a guess: the two are one text.
pub(super) fn same_secret(account: &WechatPay) -> Option<String> {
    let v2 = account.v2.as_ref()?.info().fingerprint;
    let v3 = account
        .v3
        .as_ref()?
        .info()
        .into_iter()
        .find(|info| info.id == "api_v3_key")?;
    (v3.fingerprint == v2)
        .then(|| "api_v3_key and api_v2_key are the same text: the console sets them separately".to_owned())
}

fn holds(held: &HeldKey, message: &[u8], signature: &[u8]) -> bool {
    held.key.verify(Digest::Sha256, message, signature).is_ok()
}

/// Another key of the account signed these very bytes.
fn other_key(keys: &V3Keys, notification: &Notification) -> Option<String> {
    let headers = Headers::of(notification).ok()?;
    let signature = mac::decode_base64(headers.signature.as_bytes())?;
    let message = headers.signed(&notification.body);
    let held = keys
        .all()
        .into_iter()
        .find(|held| holds(held, &message, &signature))?;
    let serial = text::printable(headers.serial);
    Some(format!(
        "the signature holds with key {}, but Wechatpay-Serial names {serial}",
        held.id
    ))
}

/// Something handed the four header values on in another order.
fn swapped_headers(keys: &V3Keys, notification: &Notification) -> Option<String> {
    let names = [
        "Wechatpay-Timestamp",
        "Wechatpay-Nonce",
        "Wechatpay-Serial",
        "Wechatpay-Signature",
    ];
    let values = names.map(|name| notification.header(name));
    let [Some(a), Some(b), Some(c), Some(d)] = values else {
        return None;
    };
    for [timestamp, nonce, serial, signature] in orders([a, b, c, d]) {
        let Some((held, signature)) = keys.get(serial).zip(mac::decode_base64(signature.as_bytes())) else {
            continue;
        };
        if holds(
            held,
            &v3::signed(timestamp, nonce, &notification.body),
            &signature,
        ) {
            return Some(
                "the signature holds when the values of the Wechatpay- headers change places".to_owned(),
            );
        }
    }
    None
}

/// All orders of four things.
fn orders<T: Copy>([a, b, c, d]: [T; 4]) -> impl Iterator<Item = [T; 4]> {
    let turns = move |[x, y, z]: [T; 3]| [[x, y, z], [x, z, y], [y, x, z], [y, z, x], [z, x, y], [z, y, x]];
    [(a, [b, c, d]), (b, [a, c, d]), (c, [a, b, d]), (d, [a, b, c])]
        .into_iter()
        .flat_map(move |(first, rest)| turns(rest).map(|[x, y, z]| [first, x, y, z]))
}

/// The body is not the bytes that were sent.
fn other_body(keys: &V3Keys, notification: &Notification) -> Option<String> {
    let headers = Headers::of(notification).ok()?;
    let signature = mac::decode_base64(headers.signature.as_bytes())?;
    let held = keys.get(headers.serial)?;
    let passes = |body: &[u8]| holds(held, &headers.signed(body), &signature);
    let advice = "hand the raw bytes on";
    if let Some(variant) = variants::of_json(&notification.body)
        .into_iter()
        .find(|variant| passes(&variant.body))
    {
        return Some(format!(
            "the body was changed on its way, {}: {advice}",
            variant.happened
        ));
    }
    let ordered = in_wechats_order(&notification.body)?;
    let all = std::iter::once(ordered.clone()).chain(variants::of_json(&ordered).into_iter().map(|v| v.body));
    all.into_iter().any(|body| passes(&body)).then(|| {
        format!("the body was changed on its way, its JSON members were put into another order: {advice}")
    })
}

/// The body compact and with its members in WeChat's order, their values as they stand.
fn in_wechats_order(body: &[u8]) -> Option<Vec<u8>> {
    let mut envelope: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    let resource: BTreeMap<String, &RawValue> = serde_json::from_str(envelope.get("resource")?.get()).ok()?;
    let resource = RawValue::from_string(written(&resource, &RESOURCE)).ok()?;
    envelope.insert("resource".to_owned(), &resource);
    Some(written(&envelope, &ENVELOPE).into_bytes())
}

fn written(members: &BTreeMap<String, &RawValue>, order: &[&str]) -> String {
    let known = order
        .iter()
        .filter_map(|name| members.get(*name).map(|value| (*name, value)));
    let rest = members.iter().filter(|(name, _)| !order.contains(&name.as_str()));
    let all = known.chain(rest.map(|(name, value)| (name.as_str(), value)));
    let all: Vec<_> = all
        .map(|(name, value)| format!("{}:{}", serde_json::json!(name), value.get()))
        .collect();
    format!("{{{}}}", all.join(","))
}

/// The key that is named is not here: a plain fact, and the way out of a rotation that was missed.
fn not_held(notification: &Notification, refusal: &Refusal) -> Option<String> {
    let unknown = refusal.reason == crate::provider::Reason::UnknownKey;
    let headers = Headers::of(notification).ok().filter(|_| unknown)?;
    let serial = text::printable(headers.serial);
    let kind = if serial.starts_with("PUB_KEY_ID_") {
        "public key, add it to public_keys"
    } else {
        "platform certificate, add it to platform_cert_files"
    };
    Some(format!(
        "Wechatpay-Serial names {serial}, which this account does not hold: if WeChat shows it as your {kind}"
    ))
}

/// A merchant's own certificate names its merchant id; WeChat never signs with that.
fn own_certificate(account: &WechatPay, keys: &V3Keys) -> Option<String> {
    let own = format!("CN={}", account.scope.mch_id);
    let held = keys.all().into_iter().find(|held| {
        let subject = held
            .key
            .certificate()
            .map(|certificate| certificate.subject.as_str());
        subject.is_some_and(|subject| subject.split(", ").any(|part| part == own))
    })?;
    Some(format!(
        "certificate {} is the merchant's own, its subject is {own}: WeChat signs with the platform certificate or \
         public key, which the console shows under API security",
        held.id
    ))
}
