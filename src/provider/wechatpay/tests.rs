//! One account with both of its v3 keys and a v2 key, and what WeChat may send it.

mod explaining;
mod reading;
mod recorded;
mod v2;
mod v3;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;

use super::WechatPay;
use super::sign::{V3Message, V3Signer};
use crate::config::{Account, AccountProblem, AccountState, KeyMaterial, Scheme, WechatpayAccount};
use crate::event::{Currency, Notification};
use crate::provider::signature::{RsaKey, RsaSigner};
use crate::provider::{Provider as _, Reason, Refusal, Verified};
use crate::time::Timestamp;

const PUBLIC: &str = include_str!("../../../provider-samples/keys/wechatpay_public.pem");
const PRIVATE: &str = include_str!("../../../provider-samples/keys/wechatpay_private.pem");
const CERT: &str = include_str!("../../../provider-samples/keys/wechatpay_platform_cert.pem");
const CERT_PRIVATE: &str = include_str!("../../../provider-samples/keys/wechatpay_platform_private.pem");
const V3_KEY: &str = include_str!("../../../provider-samples/keys/wechatpay_apiv3.key");
const V2_KEY: &str = include_str!("../../../provider-samples/keys/wechatpay_apiv2.key");
const KEY_ID: &str = "PUB_KEY_ID_0119000000002026010100000000000001";
const MCH_ID: &str = "1900000001";
const APP_ID: &str = "wx0000000000000001";
const ACK_V3: &str = "{\"code\":\"SUCCESS\",\"message\":\"成功\"}";

/// The moment everything is signed at.
fn now() -> Timestamp {
    Timestamp::parse_rfc3339("2026-11-29T04:05:06Z").unwrap()
}

fn material(bytes: &str) -> KeyMaterial {
    KeyMaterial {
        origin: "a file".to_owned(),
        bytes: bytes.as_bytes().to_vec().into(),
    }
}

fn settings() -> WechatpayAccount {
    WechatpayAccount {
        mch_id: MCH_ID.to_owned(),
        app_ids: vec![APP_ID.to_owned()],
        currency: Currency::CNY,
        api_v3_key: Some(material(V3_KEY)),
        public_keys: vec![(KEY_ID.to_owned(), material(PUBLIC))],
        platform_certs: vec![material(CERT)],
        api_v2_key: Some(material(V2_KEY)),
    }
}

fn build(settings: &WechatpayAccount) -> Result<WechatPay, Vec<AccountProblem>> {
    let account = Account {
        path: "accounts[0]".to_owned(),
        name: "shop-cn".to_owned(),
        merchant: "default".to_owned(),
        state: AccountState::Active,
        rules: crate::event::AccountRules::default(),
        scheme: Scheme::Wechatpay(settings.clone()),
    };
    WechatPay::new(&account, settings)
}

fn account() -> WechatPay {
    build(&settings()).unwrap()
}

fn serial() -> String {
    RsaKey::parse(CERT.as_bytes())
        .unwrap()
        .certificate()
        .unwrap()
        .serial
        .clone()
}

fn signer() -> V3Signer {
    V3Signer::new(RsaSigner::from_pem(PRIVATE).unwrap(), KEY_ID, V3_KEY.as_bytes()).unwrap()
}

fn platform_signer() -> V3Signer {
    V3Signer::new(
        RsaSigner::from_pem(CERT_PRIVATE).unwrap(),
        &serial(),
        V3_KEY.as_bytes(),
    )
    .unwrap()
}

fn notification(headers: HeaderMap, body: impl Into<Bytes>) -> Notification {
    Notification {
        path: "/notify/wechatpay/shop-cn".to_owned(),
        headers,
        body: body.into(),
        received_at: now(),
        remote_addr: None,
    }
}

/// `resource` as an event of type `event_type`, signed with the public key's other half at [`now`].
fn v3(event_type: &str, resource: &str) -> Notification {
    let message = V3Message {
        id: "EV-2026112904050600001",
        create_time: "2026-11-29T12:05:05+08:00",
        event_type,
        summary: "支付成功",
        original_type: "transaction",
        resource,
    };
    let body = signer().body(&message, *b"0123456789ab").unwrap();
    let headers = signer()
        .headers(&body, now(), "aNonceOfThirtyTwoCharacters00001")
        .unwrap();
    notification(headers, body)
}

fn payment() -> serde_json::Value {
    json!({
        "mchid": MCH_ID, "appid": APP_ID, "out_trade_no": "ORDER-1001",
        "transaction_id": "4200002026112900000000000001", "trade_type": "JSAPI", "trade_state": "SUCCESS",
        "success_time": "2026-11-29T12:05:04+08:00", "payer": {"openid": "oTEST"},
        "amount": {"total": 8888, "payer_total": 8880, "currency": "CNY", "payer_currency": "CNY"},
    })
}

fn paid() -> Notification {
    v3("TRANSACTION.SUCCESS", &payment().to_string())
}

fn verify(notification: &Notification) -> Result<Verified, Refusal> {
    account().verify(notification)
}

fn reason(notification: &Notification) -> Reason {
    verify(notification).expect_err("it must be refused").reason
}
