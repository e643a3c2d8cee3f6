//! Genuine notifications of every provider, made to measure, and the accounts that they are for.
//!
//! What is signed is the caller's: any bytes, any order. The signatures are made by code that shares nothing
//! with the judging side but the published rules, or by the senders that a provider's own recorded bodies hold
//! against. The fuzz targets include this file too.

use std::path::{Path, PathBuf};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use payhook::config::{Config, Environment};
use payhook::event::Notification;
use payhook::provider::signature::RsaSigner;
use payhook::provider::wechatpay::sign::{Method, V3Message, V3Signer, v2_payment};
use payhook::provider::{Provider, Registry, stripe, twoctwop};
use payhook::time::Timestamp;

/// The serial of WeChat's public key.
pub(crate) const PUBLIC_KEY_ID: &str = "PUB_KEY_ID_0119000000002026010100000000000001";
/// Stripe's throw-away secret.
pub(crate) const STRIPE_SECRET: &str = "whsec_throw_away_for_tests";
/// 2C2P's throw-away secret.
pub(crate) const TWOCTWOP_SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// Antom's client.
pub(crate) const ANTOM_CLIENT: &str = "SANDBOX_5Y0000000000000000";

/// The moment at which everything is signed and arrives: 2026-11-29T04:05:06Z.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_secs(1_795_925_106)
}

/// The repository's folder, also from the fuzz package inside it.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let holds = |folder: &&Path| folder.join("provider-samples/keys").is_dir();
    here.ancestors().find(holds).unwrap().to_owned()
}

/// A file of `provider-samples/keys`.
pub(crate) fn key_file(name: &str) -> String {
    std::fs::read_to_string(root().join("provider-samples/keys").join(name)).unwrap()
}

/// One account per provider, and a second one at Alipay for the older algorithm.
pub(crate) fn accounts() -> String {
    let keys = root().join("provider-samples/keys");
    let keys = keys.display();
    since_long_ago(&format!(
        r#"
[[accounts]]
provider = "alipay"
name = "shop-cn"
app_id = "2021000000000001"
seller_id = "2088000000000002"
public_key_file = "{keys}/alipay_public.pem"

[[accounts]]
provider = "alipay"
name = "old"
app_id = "2021000000000001"
public_key_file = "{keys}/alipay_rsa1_public.pem"
sign_type = "RSA"

[[accounts]]
provider = "wechatpay"
name = "shop-cn"
mch_id = "1900000001"
app_ids = ["wx0000000000000001"]
api_v3_key_file = "{keys}/wechatpay_apiv3.key"
public_keys = [{{ id = "{PUBLIC_KEY_ID}", file = "{keys}/wechatpay_public.pem" }}]
platform_cert_files = ["{keys}/wechatpay_platform_cert.pem"]
api_v2_key_file = "{keys}/wechatpay_apiv2.key"

[[accounts]]
provider = "stripe"
name = "shop-intl"
signing_secrets = ["{STRIPE_SECRET}"]

[[accounts]]
provider = "2c2p"
name = "shop-th"
merchant_id = "JT01"
secret_key = "{TWOCTWOP_SECRET}"

[[accounts]]
provider = "antom"
name = "shop-sg"
client_id = "{ANTOM_CLIENT}"
public_key_file = "{keys}/antom_public.pem"
"#
    ))
}

/// The same accounts, whose payments are shipped however old they are: the notifications of the tests have dates of
/// their own.
pub(crate) fn since_long_ago(accounts: &str) -> String {
    accounts.replace(
        "[[accounts]]\n",
        "[[accounts]]\nsince = \"2000-01-01T00:00:00Z\"\n",
    )
}

/// The accounts of a configuration, keys parsed.
pub(crate) fn registry_of(accounts: &str) -> Registry {
    let parsed = Config::parse_with(accounts, &root(), &Environment::default(), Registry::build);
    parsed.unwrap_or_else(|errors| panic!("{errors}")).1
}

/// The scheme of `provider/name`.
pub(crate) fn scheme<'a>(registry: &'a Registry, account: &str) -> &'a dyn Provider {
    let (provider, name) = account.split_once('/').unwrap();
    let found = registry.get(provider.parse().unwrap(), name);
    found
        .unwrap_or_else(|| panic!("no account {account}"))
        .scheme
        .as_ref()
}

/// A request with `headers` that arrives at [`now`].
pub(crate) fn notification(path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Notification {
    let headers = headers.iter().map(|(name, value)| {
        (
            HeaderName::try_from(*name).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        )
    });
    arriving(path, headers.collect(), body)
}

fn arriving(path: &str, headers: HeaderMap, body: impl Into<Bytes>) -> Notification {
    Notification {
        path: path.to_owned(),
        headers,
        body: body.into(),
        received_at: now(),
        remote_addr: None,
    }
}

/// An RSA key that signs with SHA-256.
pub(crate) struct Rsa(RsaKeyPair);

impl Rsa {
    /// The private half in `provider-samples/keys`.
    pub(crate) fn of(file: &str) -> Self {
        let pem = key_file(file);
        let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        Self(RsaKeyPair::from_pkcs8(&STANDARD.decode(base64).unwrap()).unwrap())
    }

    /// The signature in base64.
    pub(crate) fn sign(&self, message: &[u8]) -> String {
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
            .unwrap();
        STANDARD.encode(signature)
    }
}

/// Parameters as an Alipay body: each value's bytes percent-encoded, whatever they are.
pub(crate) fn form(parameters: &[(&str, &[u8])]) -> Vec<u8> {
    let value = |bytes: &[u8]| -> String {
        let plain = |b: &u8| b.is_ascii_alphanumeric();
        let byte = |b: &u8| {
            if plain(b) {
                char::from(*b).to_string()
            } else {
                format!("%{b:02X}")
            }
        };
        bytes.iter().map(byte).collect()
    };
    let pairs: Vec<_> = parameters
        .iter()
        .map(|(n, v)| format!("{n}={}", value(v)))
        .collect();
    pairs.join("&").into_bytes()
}

/// The bytes that Alipay signs: by name, joined, without `sign` and, by the usual rule, `sign_type`.
pub(crate) fn alipay_signed(parameters: &[(&str, &[u8])], keep_sign_type: bool) -> Vec<u8> {
    let mut kept: Vec<_> = parameters
        .iter()
        .filter(|(name, _)| *name != "sign" && (keep_sign_type || *name != "sign_type"))
        .collect();
    kept.sort();
    let pairs: Vec<_> = kept
        .iter()
        .map(|(n, v)| [n.as_bytes(), b"=", v].concat())
        .collect();
    pairs.join(&b'&')
}

/// A usual paid notification's parameters, unsigned.
pub(crate) fn alipay_paid() -> Vec<(&'static str, &'static [u8])> {
    vec![
        ("app_id", b"2021000000000001"),
        ("charset", b"utf-8"),
        (
            "fund_bill_list",
            br#"[{"amount":"88.88","fundChannel":"ALIPAYACCOUNT"}]"#,
        ),
        ("gmt_create", b"2026-11-29 12:05:00"),
        ("gmt_payment", b"2026-11-29 12:05:04"),
        ("notify_id", b"2026112900222120505000000000000001"),
        ("notify_time", b"2026-11-29 12:05:06"),
        ("notify_type", b"trade_status_sync"),
        ("out_trade_no", b"ORDER-1001"),
        ("seller_id", b"2088000000000002"),
        ("subject", "测试商品 100% + A&B".as_bytes()),
        ("total_amount", b"88.88"),
        ("trade_no", b"2026112922001400000000000001"),
        ("trade_status", b"TRADE_SUCCESS"),
        ("version", b"1.0"),
    ]
}

/// The resource of a usual WeChat payment.
pub(crate) const WECHAT_PAID: &str = r#"{"mchid":"1900000001","appid":"wx0000000000000001","out_trade_no":"ORDER-1002","transaction_id":"4200002026112900000000000001","trade_type":"JSAPI","trade_state":"SUCCESS","trade_state_desc":"支付成功","success_time":"2026-11-29T12:05:04+08:00","payer":{"openid":"oTEST"},"amount":{"total":8888,"payer_total":8880,"currency":"CNY","payer_currency":"CNY"}}"#;

/// The resource of a usual WeChat refund.
pub(crate) const WECHAT_REFUND: &str = r#"{"mchid":"1900000001","out_trade_no":"ORDER-1002","transaction_id":"4200002026112900000000000001","refund_id":"50000000382019052709732678859","out_refund_no":"R-1","refund_status":"SUCCESS","success_time":"2026-11-29T12:05:04+08:00","user_received_account":"招商银行信用卡0403","amount":{"total":8888,"refund":3000,"payer_total":8880,"payer_refund":2998}}"#;

/// The elements of a usual WeChat v2 payment.
pub(crate) const WECHAT_V2_PAID: [(&str, &str); 12] = [
    ("appid", "wx0000000000000001"),
    ("attach", "a & b <c>"),
    ("fee_type", "CNY"),
    ("mch_id", "1900000001"),
    ("nonce_str", "5d2b6c2a8db53831f7eda20af46e531c"),
    ("out_trade_no", "ORDER-1003"),
    ("result_code", "SUCCESS"),
    ("return_code", "SUCCESS"),
    ("time_end", "20261129120504"),
    ("total_fee", "8888"),
    ("trade_type", "NATIVE"),
    ("transaction_id", "4200002026112900000000000002"),
];

/// A usual Stripe event, indented as Stripe sends it.
pub(crate) const STRIPE_PAID: &str = r#"{
  "id": "evt_1PtestPaid",
  "object": "event",
  "api_version": "2024-06-20",
  "created": 1795925104,
  "type": "payment_intent.succeeded",
  "livemode": false,
  "pending_webhooks": 1,
  "request": {"id": null, "idempotency_key": null},
  "data": {
    "object": {
      "id": "pi_1Ptest",
      "object": "payment_intent",
      "amount": 8888,
      "amount_received": 8888,
      "currency": "usd",
      "description": "caf\u00e9 / 测试",
      "latest_charge": "ch_1Ptest",
      "metadata": {"order_id": "ORDER-1004"},
      "status": "succeeded"
    }
  }
}"#;

/// The claims of a usual 2C2P payment.
pub(crate) const TWOCTWOP_PAID: &str = r#"{"merchantID":"JT01","invoiceNo":"ORDER-1005","amount":"88.88","currencyCode":"THB","transactionDateTime":"20261129110504","tranRef":"2842201","respCode":"0000","respDesc":"Success"}"#;

/// A usual Antom payment.
pub(crate) const ANTOM_PAID: &str = r#"{"notifyType":"PAYMENT_RESULT","result":{"resultCode":"SUCCESS","resultStatus":"S","resultMessage":"success"},"paymentRequestId":"ORDER-1006","paymentId":"202611291540108001001880C0207000001","paymentAmount":{"value":"8888","currency":"USD"},"paymentCreateTime":"2026-11-29T12:05:00+08:00","paymentTime":"2026-11-29T12:05:04+08:00"}"#;

/// The sending side of every account of [`accounts`].
pub(crate) struct Senders {
    alipay: Rsa,
    wechat_key: Rsa,
    wechat: V3Signer,
    v2_key: String,
    antom: Rsa,
}

impl Senders {
    pub(crate) fn new() -> Self {
        let rsa = RsaSigner::from_pem(&key_file("wechatpay_private.pem")).unwrap();
        Self {
            alipay: Rsa::of("alipay_private.pem"),
            wechat_key: Rsa::of("wechatpay_private.pem"),
            wechat: V3Signer::new(rsa, PUBLIC_KEY_ID, key_file("wechatpay_apiv3.key").as_bytes()).unwrap(),
            v2_key: key_file("wechatpay_apiv2.key"),
            antom: Rsa::of("antom_private.pem"),
        }
    }

    /// Alipay's `parameters` with `sign_type` and `sign` behind them.
    pub(crate) fn alipay(&self, parameters: &[(&str, &[u8])]) -> Notification {
        self.alipay_by(parameters, false)
    }

    /// The same by the rule that keeps `sign_type` among what is signed.
    pub(crate) fn alipay_by(&self, parameters: &[(&str, &[u8])], keep_sign_type: bool) -> Notification {
        let mut all = parameters.to_vec();
        all.push(("sign_type", b"RSA2"));
        let sign = self.alipay.sign(&alipay_signed(&all, keep_sign_type));
        all.push(("sign", sign.as_bytes()));
        let content_type = "application/x-www-form-urlencoded; charset=utf-8";
        notification(
            "/notify/alipay/shop-cn",
            &[("content-type", content_type)],
            form(&all),
        )
    }

    /// Any body with WeChat's headers.
    pub(crate) fn wechat(&self, body: &[u8]) -> Notification {
        let (time, nonce) = (now().secs().to_string(), "aNonceOfThirtyTwoCharacters00001");
        let message = [time.as_bytes(), b"\n", nonce.as_bytes(), b"\n", body, b"\n"].concat();
        let headers = [
            ("content-type", "application/json"),
            ("wechatpay-timestamp", &time),
            ("wechatpay-nonce", nonce),
            ("wechatpay-serial", PUBLIC_KEY_ID),
            ("wechatpay-signature", &self.wechat_key.sign(&message)),
            ("wechatpay-signature-type", "WECHATPAY2-SHA256-RSA2048"),
        ];
        notification("/notify/wechatpay/shop-cn", &headers, body.to_vec())
    }

    /// A v3 body around an encrypted `resource`.
    pub(crate) fn wechat_body(&self, id: &str, event_type: &str, resource: &str) -> Vec<u8> {
        let message = V3Message {
            id,
            create_time: "2026-11-29T12:05:05+08:00",
            event_type,
            summary: "支付成功 / ok",
            original_type: if event_type.starts_with("REFUND") {
                "refund"
            } else {
                "transaction"
            },
            resource,
        };
        self.wechat.body(&message, *b"0123456789ab").unwrap()
    }

    /// A v3 event.
    pub(crate) fn wechat_event(&self, event_type: &str, resource: &str) -> Notification {
        self.wechat(&self.wechat_body("EV-2026112904050600001", event_type, resource))
    }

    /// A v2 payment with these elements.
    pub(crate) fn wechat_v2(&self, fields: &[(&str, &str)], method: Method) -> Notification {
        let body = v2_payment(fields, method, self.v2_key.as_bytes());
        notification("/notify/wechatpay/shop-cn", &[("content-type", "text/xml")], body)
    }

    /// Any body with Stripe's header.
    pub(crate) fn stripe(body: &[u8]) -> Notification {
        let header = stripe::sign(STRIPE_SECRET.as_bytes(), now(), body);
        let headers = [
            ("content-type", "application/json; charset=utf-8"),
            ("stripe-signature", &header),
        ];
        notification("/notify/stripe/shop-intl", &headers, body.to_vec())
    }

    /// Any claims in 2C2P's token.
    pub(crate) fn twoctwop(claims: &str) -> Notification {
        let body = twoctwop::sign(TWOCTWOP_SECRET.as_bytes(), claims).unwrap();
        notification(
            "/notify/2c2p/shop-th",
            &[("content-type", "application/json")],
            body,
        )
    }

    /// Any body with Antom's headers.
    pub(crate) fn antom(&self, body: &[u8]) -> Notification {
        let (path, time) = ("/notify/antom/shop-sg", "2026-11-29T12:05:06+08:00");
        let head = format!("POST {path}\n{ANTOM_CLIENT}.{time}.");
        let signature = self.antom.sign(&[head.as_bytes(), body].concat());
        let signature = signature
            .replace('+', "%2B")
            .replace('/', "%2F")
            .replace('=', "%3D");
        let headers = [
            ("content-type", "application/json; charset=UTF-8"),
            ("client-id", ANTOM_CLIENT),
            ("request-time", time),
            (
                "signature",
                &format!("algorithm=RSA256, keyVersion=1, signature={signature}"),
            ),
        ];
        notification(path, &headers, body.to_vec())
    }
}
