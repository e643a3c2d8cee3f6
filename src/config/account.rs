//! `[[accounts]]`: one merchant identity at one provider, with its keys already read from their files.
//!
//! Keys here: `provider`, `name`, `merchant`, `state`, then the scheme's own (design section 5.1). A scheme
//! gets bytes and where they came from; whether they are a usable key is the provider's judgement.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretSlice};

use crate::event::{AccountRules, Currency, ProviderName};

/// One `[[accounts]]` entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its place in the file, for key paths: `accounts[2]`.
    pub path: String,
    /// `[a-z0-9][a-z0-9-]{0,31}`; a path segment and part of the event key.
    pub name: String,
    /// The owner of its orders.
    pub merchant: String,
    /// Whether it still takes notifications.
    pub state: AccountState,
    /// What it says about its payments.
    pub rules: AccountRules,
    /// The provider's own settings.
    pub scheme: Scheme,
}

impl Account {
    /// Which provider it is an account of.
    pub fn provider(&self) -> ProviderName {
        match &self.scheme {
            Scheme::Alipay(_) => ProviderName::Alipay,
            Scheme::Wechatpay(_) => ProviderName::Wechatpay,
            Scheme::Stripe(_) => ProviderName::Stripe,
            Scheme::TwoCTwoP(_) => ProviderName::TwoCTwoP,
            Scheme::Antom(_) => ProviderName::Antom,
        }
    }

    /// A problem with one of this account's keys. What the message says of where a key was read from is left out if
    /// that is the path.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> AccountProblem {
        let (path, message) = (format!("{}.{key}", self.path), message.into());
        let message = message
            .strip_prefix(&path)
            .and_then(|rest| rest.strip_prefix(": "))
            .map_or_else(|| message.clone(), str::to_owned);
        AccountProblem { path, message }
    }
}

/// What is wrong with an account, by key path; never with the key's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct AccountProblem {
    /// `accounts[0].public_key_file`.
    pub path: String,
    /// In words.
    pub message: String,
}

/// Whether an account takes notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountState {
    /// It does.
    #[default]
    Active,
    /// Refused and kept in quarantine.
    Retired,
}

/// A key's bytes as read, and where they were read from.
#[derive(Clone, Debug)]
pub struct KeyMaterial {
    /// A file path or the configuration key, for messages.
    pub origin: String,
    /// The bytes; redacted in debug output.
    pub bytes: SecretSlice<u8>,
}

impl PartialEq for KeyMaterial {
    /// The same bytes from the same place: nothing to read again.
    fn eq(&self, other: &Self) -> bool {
        self.origin == other.origin && self.bytes.expose_secret() == other.bytes.expose_secret()
    }
}

impl Eq for KeyMaterial {}

/// The provider's own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Alipay open platform.
    Alipay(AlipayAccount),
    /// WeChat Pay, v3 and v2.
    Wechatpay(WechatpayAccount),
    /// Stripe.
    Stripe(StripeAccount),
    /// 2C2P.
    TwoCTwoP(TwoCTwoPAccount),
    /// Antom / Alipay+.
    Antom(AntomAccount),
}

/// Alipay's pinned algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum AlipaySignType {
    /// SHA-256 with RSA.
    #[default]
    #[serde(rename = "RSA2")]
    Rsa2,
    /// SHA-1 with RSA, old apps only.
    #[serde(rename = "RSA")]
    Rsa,
}

/// Alipay's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlipayAccount {
    /// `app_id`, checked against the message's.
    pub app_id: String,
    /// `seller_id`; absent: not checked.
    pub seller_id: Option<String>,
    /// `public_key_file` (PEM, DER or bare base64).
    pub public_key: Option<KeyMaterial>,
    /// `alipay_cert_file`.
    pub alipay_cert: Option<KeyMaterial>,
    /// `sign_type`.
    pub sign_type: AlipaySignType,
}

/// WeChat Pay's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WechatpayAccount {
    /// `mch_id`, checked against mchid, sp_mchid or combine_mchid.
    pub mch_id: String,
    /// `app_ids`; empty: not checked.
    pub app_ids: Vec<String>,
    /// `currency` of refunds that come before their payment.
    pub currency: Currency,
    /// `api_v3_key`, 32 ASCII bytes.
    pub api_v3_key: Option<KeyMaterial>,
    /// `public_keys`: (`PUB_KEY_ID_…`, key).
    pub public_keys: Vec<(String, KeyMaterial)>,
    /// `platform_cert_files`.
    pub platform_certs: Vec<KeyMaterial>,
    /// `api_v2_key`, 32 ASCII bytes.
    pub api_v2_key: Option<KeyMaterial>,
}

/// Stripe's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripeAccount {
    /// `signing_secrets`, several while one is being rolled.
    pub signing_secrets: Vec<KeyMaterial>,
    /// `tolerance`, never zero.
    pub tolerance: Duration,
    /// `order_id_from`: dotted paths in `data.object`, the first that is present.
    pub order_id_from: Vec<String>,
    /// `livemode`; absent: not checked.
    pub livemode: Option<bool>,
    /// `connect_accounts`; empty: not checked.
    pub connect_accounts: Vec<String>,
    /// `merchant_from = "account"`: each connected account is a merchant of its own.
    pub merchant_from_account: bool,
    /// `only`: (path in `data.object`, the text that must stand there).
    pub only: Vec<(String, String)>,
}

/// When a success is a payment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// At once: the provider captures by itself what it has authorised.
    #[default]
    Auto,
    /// When the capture is reported: the success before it is an authorisation only.
    Manual,
}

/// 2C2P's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoCTwoPAccount {
    /// `merchant_id`, checked against the claim.
    pub merchant_id: String,
    /// `secret_key`, as its ASCII text.
    pub secret_key: Option<KeyMaterial>,
    /// `timezone_offset` of transactionDateTime, minutes east of UTC (default +07:00 = 420).
    pub utc_offset_minutes: i32,
    /// `capture`.
    pub capture: Capture,
}

/// Antom's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AntomAccount {
    /// `client_id`, checked against the header.
    pub client_id: String,
    /// `public_key_file`.
    pub public_key: Option<KeyMaterial>,
    /// `notify_path`: the signed path where a proxy rewrites it.
    pub notify_path: Option<String>,
    /// `capture`.
    pub capture: Capture,
}
