//! Alipay open platform: form notifications signed with RSA over their sorted parameters.
//!
//! Scheme: opendocs 270/105902 and 203/105286. Judged in this order: the form, the pinned algorithm, the
//! signature over raw bytes (the rule that drops `sign_type` first, then the one that keeps it), that the
//! form can be taken in one way only (`content`), the send time. What it says is `reading`'s, why it failed is
//! `explain`'s.

mod content;
mod explain;
mod form;
mod reading;
mod sign;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use secrecy::ExposeSecret as _;

use self::form::Form;
use self::reading::Owner;
pub use self::sign::{SignError, resign, sign, signed_bytes};
use super::signature::{Digest, RsaKey, mac};
use super::{Ack, Explanation, KeyInfo, Provider, Reason, Refusal, Verdict, Verified, window};
use crate::config::{Account, AccountProblem, AlipayAccount, AlipaySignType, KeyMaterial};
use crate::event::{EventKey, Fingerprint, Notification, ProviderName, Reading};
use crate::time::Timestamp;

/// Alipay with one account's keys.
#[derive(Debug)]
pub(super) struct Alipay {
    account: String,
    owner: Owner,
    /// What a message's `sign_type` must say, if it says anything.
    sign_type: &'static str,
    digest: Digest,
    /// With the name each is called by.
    keys: Vec<(String, RsaKey)>,
}

/// Which key and rule a signature holds under.
#[derive(Debug)]
struct Genuine<'a> {
    key_id: &'a str,
    keeps_sign_type: bool,
}

impl Alipay {
    /// Reads the account's keys.
    pub(super) fn new(account: &Account, settings: &AlipayAccount) -> Result<Self, Vec<AccountProblem>> {
        let (sign_type, digest) = algorithm(settings.sign_type);
        let smallest = if digest == Digest::Sha1 { 1024 } else { 2048 };
        let mut keys = Vec::new();
        let mut problems = Vec::new();
        let mut take = |key: &str, material: &KeyMaterial| match RsaKey::parse(material.bytes.expose_secret())
        {
            Ok(parsed) if parsed.bits() < smallest => problems.push(account.problem(
                key,
                format!(
                    "{}: {} bits are too few for sign_type {sign_type}",
                    material.origin,
                    parsed.bits()
                ),
            )),
            Ok(parsed) => {
                let id = parsed
                    .certificate()
                    .map_or_else(|| format!("#{}", keys.len() + 1), |c| c.serial.clone());
                keys.push((id, parsed));
            }
            Err(why) => problems.push(account.problem(key, format!("{}: {why}", material.origin))),
        };
        if let Some(material) = &settings.public_key {
            take("public_key_file", material);
        }
        if let Some(material) = &settings.alipay_cert {
            take("alipay_cert_file", material);
        }
        if keys.is_empty() && problems.is_empty() {
            problems.push(account.problem(
                "public_key_file",
                "give this or alipay_cert_file: without a key nothing can be verified",
            ));
        }
        if settings.app_id.is_empty() {
            problems.push(account.problem("app_id", "is empty"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let owner = Owner {
            app_id: settings.app_id.clone(),
            seller_id: settings.seller_id.clone(),
        };
        Ok(Self {
            account: account.name.clone(),
            owner,
            sign_type,
            digest,
            keys,
        })
    }

    /// Refuses a message that names another algorithm than the pinned one. Naming none is no offence.
    fn check_sign_type(&self, form: &Form) -> Result<(), Refusal> {
        match form.get("sign_type") {
            Some(named) if named != self.sign_type.as_bytes() => Err(Refusal::new(
                Reason::BadSignature,
                format!(
                    "sign_type names another algorithm than the account's {}",
                    self.sign_type
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Finds the key and rule under which `sign` holds.
    fn check_signature(&self, form: &Form) -> Result<Genuine<'_>, Refusal> {
        let refuse = |detail: &str| Refusal::new(Reason::BadSignature, detail);
        let sign = form
            .get("sign")
            .filter(|s| !s.is_empty())
            .ok_or_else(|| refuse("sign is missing"))?;
        let signature = mac::decode_base64(sign).ok_or_else(|| refuse("sign is not base64"))?;
        // Without a sign_type both rules give the same bytes.
        let rules: &[bool] = if form.get("sign_type").is_some() {
            &[false, true]
        } else {
            &[false]
        };
        for keeps_sign_type in rules.iter().copied() {
            let signed = form.signed(keeps_sign_type);
            for (key_id, key) in &self.keys {
                if key.verify(self.digest, &signed, &signature).is_ok() {
                    return Ok(Genuine {
                        key_id,
                        keeps_sign_type,
                    });
                }
            }
        }
        Err(refuse(
            "the signature holds under neither rule with any key of the account",
        ))
    }

    /// The signed send time, and whether the arrival is near enough.
    fn check_time(form: &Form, received: Timestamp) -> Result<Timestamp, Refusal> {
        let sent = Self::sent(form).map_err(|why| Refusal::new(Reason::Malformed, why))?;
        window::check(sent, received)?;
        Ok(sent)
    }

    /// The signed send time: `notify_time`, or `utc_timestamp` of a message of the open platform, in milliseconds.
    fn sent(form: &Form) -> Result<Timestamp, &'static str> {
        let text = |name| {
            form.get(name)
                .map(|value| std::str::from_utf8(value).unwrap_or_default())
        };
        if let Some(time) = text("notify_time") {
            return reading::time(time).ok_or("notify_time is not a time");
        }
        let millis = text("utc_timestamp").ok_or("notify_time is missing")?;
        let millis = millis
            .parse::<i64>()
            .ok()
            .and_then(|millis| millis.checked_mul(1000));
        millis
            .map(Timestamp::from_micros)
            .ok_or("utc_timestamp is not a number of milliseconds")
    }

    /// Refuses a form that another reader of the same signed bytes could read differently.
    fn check_unambiguous(form: &Form) -> Result<(), Refusal> {
        if content::ambiguous(form) {
            return Err(Refusal::new(
                Reason::Malformed,
                "one value holds what reads as another parameter",
            ));
        }
        Ok(())
    }

    fn form(notification: &Notification) -> Result<Form, Refusal> {
        Form::parse(&notification.body).map_err(|e| Refusal::new(Reason::Malformed, e.to_string()))
    }
}

/// The name on the wire and the digest behind it.
fn algorithm(sign_type: AlipaySignType) -> (&'static str, Digest) {
    match sign_type {
        AlipaySignType::Rsa2 => ("RSA2", Digest::Sha256),
        AlipaySignType::Rsa => ("RSA", Digest::Sha1),
    }
}

/// Over all parameters but those that differ between two sends of one notification.
fn fingerprint(form: &Form) -> Fingerprint {
    let kept = form
        .iter()
        .filter(|(name, _)| !matches!(*name, "sign" | "sign_type" | "notify_time" | "utc_timestamp"));
    Fingerprint::over(kept.flat_map(|(name, value)| [name.as_bytes(), value]))
}

impl Provider for Alipay {
    fn verify(&self, notification: &Notification) -> Result<Verified, Refusal> {
        let form = Self::form(notification)?;
        self.check_sign_type(&form)?;
        let genuine = self.check_signature(&form)?;
        Self::check_unambiguous(&form)?;
        let sent = Self::check_time(&form, notification.received_at)?;

        let content = content::of(&form);
        let reading =
            reading::read(&content, &self.owner).map_err(|why| Refusal::new(Reason::Malformed, why))?;
        let print = fingerprint(&form);
        let id = form.get("notify_id").and_then(|id| std::str::from_utf8(id).ok());
        let key = EventKey::new(ProviderName::Alipay, &self.account, id, &print);
        let key_id = genuine.key_id.to_owned();
        Ok(Verified::new(
            key,
            print,
            Some(Bytes::from(content)),
            reading,
            key_id,
            Some(sent),
        ))
    }

    fn read(&self, content: &[u8], _provider_event_type: &str) -> Result<Reading, String> {
        reading::read(content, &self.owner)
    }

    fn ack(&self, verdict: Verdict, _body: &[u8]) -> Ack {
        let body: &[u8] = if verdict == Verdict::Accepted {
            b"success"
        } else {
            b"fail"
        };
        Ack {
            content_type: Some("text/plain"),
            body,
        }
    }

    fn explain(&self, notification: &Notification) -> Explanation {
        explain::explain(self, notification)
    }

    fn keys(&self) -> Vec<KeyInfo> {
        self.keys.iter().map(|(id, key)| key.info(id)).collect()
    }

    fn unchecked(&self) -> Vec<&'static str> {
        if self.owner.seller_id.is_none() {
            vec!["seller_id is not given: events of any seller with this app_id are applied"]
        } else {
            Vec::new()
        }
    }
}
