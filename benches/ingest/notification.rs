//! Signed notifications, each unlike every other: what the providers send, at the size they send it.
//!
//! Stripe's is 1.5 kB of indented JSON, Alipay's a form of 1.2 kB, WeChat Pay's an envelope around an encrypted
//! resource. A record is everything behind the request line and `Host`, so that one pool serves programs that
//! listen at other paths.

use anyhow::Context as _;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use payhook::provider::stripe;
use payhook::time::Timestamp;

use crate::keys;

/// Whose notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sender {
    Stripe,
    Alipay,
    Wechat,
}

impl Sender {
    pub(crate) const ALL: [Self; 3] = [Self::Stripe, Self::Alipay, Self::Wechat];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::Alipay => "alipay",
            Self::Wechat => "wechat",
        }
    }

    /// How long before and after its signed time a notification is accepted, in seconds: payhook's own rule.
    pub(crate) fn window(self) -> i64 {
        match self {
            Self::Stripe | Self::Wechat => 300,
            Self::Alipay => 600,
        }
    }
}

/// Letters and digits without end, the same for the same seed.
struct Words(u64);

impl Words {
    fn number(&mut self) -> u64 {
        // SplitMix64: a permutation of its state, so two seeds never give the same first number.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn word(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let mut bits = 0;
        let letter = |n: usize| {
            if n.is_multiple_of(10) {
                bits = self.number();
            }
            let place = usize::try_from(bits % 62).unwrap_or_default();
            bits /= 62;
            char::from(*LETTERS.get(place).unwrap_or(&b'x'))
        };
        (0..length).map(letter).collect()
    }

    fn digits(&mut self, length: usize) -> String {
        let number = |_| format!("{:019}", self.number() % 10_u64.pow(19));
        let mut digits: String = (0..length.div_ceil(19)).map(number).collect();
        digits.truncate(length);
        digits
    }
}

/// The senders' side.
pub(crate) struct Signer {
    rsa: RsaKeyPair,
    resource: LessSafeKey,
    /// Keeps the ids of two pools apart.
    salt: u64,
    /// The time that is signed.
    at: Timestamp,
    genuine: bool,
}

impl Signer {
    /// Signs for `at`; one that is not `genuine` signs something else than it sends.
    pub(crate) fn new(pem: &str, salt: u64, at: Timestamp, genuine: bool) -> anyhow::Result<Self> {
        let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let rsa = RsaKeyPair::from_pkcs8(&STANDARD.decode(text)?).context("the key is not PKCS#8")?;
        let resource = UnboundKey::new(&AES_256_GCM, keys::WECHAT_KEY.as_bytes()).context("the APIv3 key")?;
        Ok(Self {
            rsa,
            resource: LessSafeKey::new(resource),
            salt,
            at,
            genuine,
        })
    }

    /// The `n`th notification of `sender`.
    pub(crate) fn record(&self, sender: Sender, n: u64) -> anyhow::Result<Vec<u8>> {
        // Rows of 2^32, one for each pool: no two numbers are the same.
        let mut words = Words(self.salt.wrapping_shl(32).wrapping_add(n));
        match sender {
            Sender::Stripe => Ok(self.stripe(n, &mut words)),
            Sender::Alipay => self.alipay(n, &mut words),
            Sender::Wechat => self.wechat(n, &mut words),
        }
    }

    fn order(&self, n: u64) -> String {
        format!("ord_{:x}_{n:09}", self.salt)
    }

    fn tail(&self) -> &'static [u8] {
        if self.genuine { b"" } else { b"!" }
    }

    fn rsa(&self, message: &[u8]) -> anyhow::Result<String> {
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        let message = [message, self.tail()].concat();
        self.rsa
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), &message, &mut signature)
            .context("signing")?;
        Ok(STANDARD.encode(signature))
    }

    fn stripe(&self, n: u64, words: &mut Words) -> Vec<u8> {
        let amount = 100 + words.number() % 99_900;
        let created = self.at.secs();
        let order = self.order(n);
        let mut w = |length| words.word(length);
        let body = format!(
            r#"{{
  "id": "evt_{}",
  "object": "event",
  "api_version": "2024-06-20",
  "created": {created},
  "livemode": true,
  "pending_webhooks": 1,
  "request": {{
    "id": "req_{}",
    "idempotency_key": "{}"
  }},
  "type": "payment_intent.succeeded",
  "data": {{
    "object": {{
      "id": "pi_{}",
      "object": "payment_intent",
      "amount": {amount},
      "amount_received": {amount},
      "capture_method": "automatic",
      "client_secret": "pi_{}_secret_{}",
      "currency": "usd",
      "customer": "cus_{}",
      "description": "Order {}",
      "latest_charge": "ch_{}",
      "livemode": true,
      "metadata": {{
        "order_id": "{order}",
        "cart": "{}",
        "region": "eu-west-1"
      }},
      "payment_method": "pm_{}",
      "payment_method_types": [
        "card",
        "link"
      ],
      "receipt_email": "{}@example.com",
      "shipping": {{
        "name": "Jenny Rosen",
        "phone": null,
        "address": {{
          "city": "San Francisco",
          "country": "US",
          "line1": "510 Townsend St",
          "line2": null,
          "postal_code": "94103",
          "state": "CA"
        }}
      }},
      "statement_descriptor": null,
      "status": "succeeded",
      "transfer_group": null
    }}
  }}
}}"#,
            w(24),
            w(14),
            w(36),
            w(24),
            w(24),
            w(25),
            w(14),
            w(12),
            w(24),
            w(32),
            w(24),
            w(8),
        );
        let signed = [body.as_bytes(), self.tail()].concat();
        let header = stripe::sign(keys::STRIPE_SECRET.as_bytes(), self.at, &signed);
        let headers = [
            ("Content-Type", "application/json; charset=utf-8"),
            ("Stripe-Signature", &header),
        ];
        record(&headers, body.as_bytes())
    }

    fn alipay(&self, n: u64, words: &mut Words) -> anyhow::Result<Vec<u8>> {
        let time = self.at.local_text("%Y-%m-%d %H:%M:%S", 480);
        let owned = [
            ("gmt_create", time.clone()),
            ("charset", "utf-8".to_owned()),
            ("seller_email", "seller@example.com".to_owned()),
            ("subject", format!("测试商品 {}", words.word(10))),
            ("buyer_id", format!("2088{}", words.digits(12))),
            ("invoice_amount", "88.88".to_owned()),
            ("notify_id", format!("2026112900222{}", words.word(20))),
            (
                "fund_bill_list",
                r#"[{"amount":"88.88","fundChannel":"ALIPAYACCOUNT"}]"#.to_owned(),
            ),
            ("notify_type", "trade_status_sync".to_owned()),
            ("trade_status", "TRADE_SUCCESS".to_owned()),
            ("receipt_amount", "88.88".to_owned()),
            ("buyer_pay_amount", "88.88".to_owned()),
            ("app_id", keys::ALIPAY_APP.to_owned()),
            ("seller_id", keys::ALIPAY_SELLER.to_owned()),
            ("gmt_payment", time.clone()),
            ("notify_time", time),
            ("version", "1.0".to_owned()),
            ("out_trade_no", format!("{}_{}", self.order(n), words.word(8))),
            ("total_amount", "88.88".to_owned()),
            ("trade_no", format!("20261129220014{}", words.digits(14))),
            ("auth_app_id", keys::ALIPAY_APP.to_owned()),
            ("buyer_logon_id", "159****8888".to_owned()),
            ("point_amount", "0.00".to_owned()),
            ("passback_params", words.word(64)),
            ("body", format!("order of {}", words.word(100))),
        ];
        let mut sorted = owned.clone();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        let signed: Vec<String> = sorted
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let sign = self.rsa(signed.join("&").as_bytes())?;
        let all = owned.iter().map(|(name, value)| (*name, value.as_str()));
        let pairs: Vec<String> = all
            .chain([("sign", sign.as_str()), ("sign_type", "RSA2")])
            .map(|(name, value)| format!("{name}={}", escaped(value)))
            .collect();
        let headers = [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")];
        Ok(record(&headers, pairs.join("&").as_bytes()))
    }

    fn wechat(&self, n: u64, words: &mut Words) -> anyhow::Result<Vec<u8>> {
        let total = 1 + words.number() % 99_999;
        let time = self.at.local_text("%Y-%m-%dT%H:%M:%S+08:00", 480);
        let (mchid, appid, order) = (keys::WECHAT_MCHID, keys::WECHAT_APPID, self.order(n));
        let resource = format!(
            r#"{{"mchid":"{mchid}","appid":"{appid}","out_trade_no":"{order}","transaction_id":"42000{}","trade_type":"JSAPI","trade_state":"SUCCESS","trade_state_desc":"支付成功","bank_type":"OTHERS","attach":"{}","success_time":"{time}","payer":{{"openid":"{}"}},"amount":{{"total":{total},"payer_total":{total},"currency":"CNY","payer_currency":"CNY"}}}}"#,
            words.digits(23),
            words.word(60),
            words.word(28),
        );
        let nonce = words.word(12);
        let mut sealed = resource.into_bytes();
        let once = Nonce::try_assume_unique_for_key(nonce.as_bytes()).context("nonce")?;
        self.resource
            .seal_in_place_append_tag(once, Aad::from(b"transaction"), &mut sealed)
            .context("sealing")?;
        let body = format!(
            r#"{{"id":"{}","create_time":"{time}","resource_type":"encrypt-resource","event_type":"TRANSACTION.SUCCESS","summary":"支付成功","resource":{{"original_type":"transaction","algorithm":"AEAD_AES_256_GCM","ciphertext":"{}","associated_data":"transaction","nonce":"{nonce}"}}}}"#,
            words.word(32),
            STANDARD.encode(sealed),
        );
        let (timestamp, once) = (self.at.secs().to_string(), words.word(32));
        let signature = self.rsa(format!("{timestamp}\n{once}\n{body}\n").as_bytes())?;
        let headers = [
            ("Content-Type", "application/json"),
            ("Wechatpay-Timestamp", timestamp.as_str()),
            ("Wechatpay-Nonce", once.as_str()),
            ("Wechatpay-Serial", keys::WECHAT_SERIAL),
            ("Wechatpay-Signature-Type", "WECHATPAY2-SHA256-RSA2048"),
            ("Wechatpay-Signature", signature.as_str()),
        ];
        Ok(record(&headers, body.as_bytes()))
    }
}

/// A form's value: what is not a letter or digit as `%XX`.
fn escaped(value: &str) -> String {
    percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Headers, the empty line, the body.
fn record(headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let mut all = b"User-Agent: payhook-benchmark\r\nAccept: */*\r\n".to_vec();
    for (name, value) in headers.iter().chain([&("Content-Length", length.as_str())]) {
        all.extend_from_slice([name, ": ", value, "\r\n"].concat().as_bytes());
    }
    all.extend_from_slice(b"\r\n");
    all.extend_from_slice(body);
    all
}
