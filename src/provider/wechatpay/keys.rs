//! The keys of one account, found by the serial that a notification names.
//!
//! WeChat moves merchants from platform certificates to public keys a few percent at a time and lets old and
//! new certificates overlap, so all of them are held side by side; no newest one replaces the others.

use std::collections::HashMap;
use std::fmt;

use secrecy::ExposeSecret as _;

use super::cipher::ResourceKey;
use crate::config::{Account, AccountProblem, KeyMaterial, WechatpayAccount};
use crate::provider::KeyInfo;
use crate::provider::signature::RsaKey;
use crate::provider::signature::mac::secret_fingerprint;

/// What verifies and opens v3 notifications.
#[derive(Debug)]
pub(super) struct V3Keys {
    /// By [`spelling`] of the serial or public key id.
    by_serial: HashMap<String, HeldKey>,
    /// Opens the resource.
    pub(super) resource: ResourceKey,
    resource_fingerprint: String,
}

/// One of WeChat's public keys under the name it is configured with.
#[derive(Debug)]
pub(super) struct HeldKey {
    /// The public key id, or the certificate's serial.
    pub(super) id: String,
    /// The key.
    pub(super) key: RsaKey,
}

/// The API v2 key.
#[derive(Clone)]
pub(super) struct V2Key(Vec<u8>);

/// What [`crate::provider::Verified::key_id`] calls the v2 key.
pub(super) const V2_KEY_ID: &str = "api_v2_key";

impl V3Keys {
    /// The key that `serial` names: a public key id, or a certificate's serial as a hexadecimal number.
    pub(super) fn get(&self, serial: &str) -> Option<&HeldKey> {
        self.by_serial.get(&spelling(serial))
    }

    /// All public keys, in the order of their names.
    pub(super) fn all(&self) -> Vec<&HeldKey> {
        let mut keys: Vec<_> = self.by_serial.values().collect();
        keys.sort_by(|a, b| a.id.cmp(&b.id));
        keys
    }

    /// What may be told of them.
    pub(super) fn info(&self) -> Vec<KeyInfo> {
        let mut info: Vec<_> = self
            .all()
            .into_iter()
            .map(|held| held.key.info(held.id.clone()))
            .collect();
        let opener = secret_info("api_v3_key", "aes-256 key", self.resource_fingerprint.clone());
        info.push(KeyInfo {
            verifies: false,
            ..opener
        });
        info
    }
}

impl V2Key {
    /// The key's bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What may be told of it.
    pub(super) fn info(&self) -> KeyInfo {
        secret_info(V2_KEY_ID, "api v2 key", secret_fingerprint(&self.0))
    }
}

impl fmt::Debug for V2Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("V2Key")
    }
}

fn secret_info(id: &str, kind: &str, fingerprint: String) -> KeyInfo {
    KeyInfo {
        id: id.to_owned(),
        kind: kind.to_owned(),
        fingerprint,
        verifies: true,
        subject: None,
        expires_at: None,
        doubt: None,
    }
}

/// One spelling for every way to write a serial: hex digits differ in case and in leading zeros.
fn spelling(serial: &str) -> String {
    serial.trim_start_matches('0').to_ascii_uppercase()
}

/// Both generations' keys of an account, or everything that is wrong with them.
pub(super) fn build(
    account: &Account,
    scheme: &WechatpayAccount,
) -> Result<(Option<V3Keys>, Option<V2Key>), Vec<AccountProblem>> {
    let mut problems = Vec::new();
    let v2 = scheme.api_v2_key.as_ref().and_then(|material| {
        let key = secret(material);
        if key.is_empty() {
            problems.push(account.problem("api_v2_key", format!("{}: it is empty", material.origin)));
            return None;
        }
        Some(V2Key(key))
    });
    let by_serial = public_keys(account, scheme, &mut problems);
    let resource = scheme.api_v3_key.as_ref().and_then(|material| {
        let key = secret(material);
        let opener = ResourceKey::new(&key).map(|opener| (opener, secret_fingerprint(&key)));
        if opener.is_none() {
            let (origin, len) = (&material.origin, key.len());
            let message = format!(
                "{origin}: an APIv3 key has {} bytes, this one {len}",
                ResourceKey::LEN
            );
            problems.push(account.problem("api_v3_key", message));
        }
        opener
    });
    let wants_v3 = !scheme.public_keys.is_empty() || !scheme.platform_certs.is_empty();
    match (wants_v3, &scheme.api_v3_key) {
        (true, None) => {
            problems.push(account.problem("api_v3_key", "missing: it opens what the public keys verify"));
        }
        (false, Some(_)) => problems.push(account.problem(
            "public_keys",
            "missing: give public_keys or platform_cert_files beside api_v3_key",
        )),
        (false, None) if scheme.api_v2_key.is_none() => problems.push(account.problem(
            "api_v3_key",
            "missing: an account needs api_v3_key with public keys, or api_v2_key",
        )),
        _ => {}
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let v3 = resource.map(|(resource, resource_fingerprint)| V3Keys {
        by_serial,
        resource,
        resource_fingerprint,
    });
    Ok((v3, v2))
}

/// Public keys and certificates by their serial.
fn public_keys(
    account: &Account,
    scheme: &WechatpayAccount,
    problems: &mut Vec<AccountProblem>,
) -> HashMap<String, HeldKey> {
    let mut held = HashMap::new();
    let configured = scheme
        .public_keys
        .iter()
        .map(|(id, material)| (Some(id), material));
    let certificates = scheme.platform_certs.iter().map(|material| (None, material));
    for (place, (id, material)) in configured.chain(certificates).enumerate() {
        let path = if id.is_some() {
            format!("public_keys[{place}]")
        } else {
            format!(
                "platform_cert_files[{}]",
                place.saturating_sub(scheme.public_keys.len())
            )
        };
        let mut complain = |message: String| {
            problems.push(account.problem(&path, format!("{}: {message}", material.origin)));
        };
        let key = match RsaKey::parse(material.bytes.expose_secret()) {
            Ok(key) => key,
            Err(e) => {
                complain(e.to_string());
                continue;
            }
        };
        let id = id
            .map(|id| id.trim().to_owned())
            .or_else(|| key.certificate().map(|c| c.serial.clone()));
        let Some(id) = id.filter(|id| !spelling(id).is_empty()) else {
            complain(
                "a public key without an id; list it under public_keys with its PUB_KEY_ID_…".to_owned(),
            );
            continue;
        };
        if key.bits() < 2048 {
            complain("WeChat Pay's keys have 2048 bits or more".to_owned());
        } else if held.insert(spelling(&id), HeldKey { id, key }).is_some() {
            complain("another key of this account has the same serial or id".to_owned());
        }
    }
    held
}

/// A secret as it is meant: files end with a newline, keys do not.
fn secret(material: &KeyMaterial) -> Vec<u8> {
    material.bytes.expose_secret().trim_ascii().to_vec()
}
