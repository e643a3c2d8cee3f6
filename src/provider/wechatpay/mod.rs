//! WeChat Pay: APIv3 (JSON, RSA) and the legacy v2 (XML, MD5 or HMAC) on one path.
//!
//! Sources: pay.weixin.qq.com/doc/v3/merchant/4012791865 (callbacks), 4013053249 and 4013053420 (signatures);
//! v2: pay.weixin.qq.com/wiki/doc/api (9_7, 9_16). A body whose first non-blank byte is `<` is v2. `v3` and
//! `v2` judge, `facts` and `facts_v2` read, `sign` is the sending side for samples.

mod cipher;
mod explain;
mod explain_v2;
mod facts;
mod facts_v2;
mod keys;
mod scope;
pub mod sign;
#[cfg(test)]
mod tests;
mod v2;
mod v3;
mod xml;

use bytes::Bytes;

use self::keys::{V2Key, V3Keys};
use self::scope::Scope;
use super::{Ack, Explanation, KeyInfo, Provider, Refusal, Verdict, Verified};
use crate::config::{Account, AccountProblem, WechatpayAccount};
use crate::event::{Notification, Reading};

/// One WeChat Pay account with its keys.
#[derive(Debug)]
pub struct WechatPay {
    scope: Scope,
    v3: Option<V3Keys>,
    v2: Option<V2Key>,
}

impl WechatPay {
    /// From configuration; keys are parsed once, here.
    pub fn new(account: &Account, scheme: &WechatpayAccount) -> Result<Self, Vec<AccountProblem>> {
        let (v3, v2) = keys::build(account, scheme)?;
        let scope = Scope {
            account: account.name.clone(),
            mch_id: scheme.mch_id.clone(),
            app_ids: scheme.app_ids.clone(),
            currency: scheme.currency,
        };
        Ok(Self { scope, v3, v2 })
    }

    fn verify_v3(&self, notification: &Notification) -> Result<Verified, Refusal> {
        let headers = v3::Headers::of(notification)?;
        headers.no_probe()?;
        v3::Headers::rsa_named(notification)?;
        let keys = v3::held(self.v3.as_ref())?;
        let held = headers.key(keys)?;
        headers.check_signature(held, &notification.body)?;
        headers.check_window(notification)?;
        let opened = v3::open(&self.scope.account, &keys.resource, &notification.body)?;
        let reading = self.reading(&opened.resource, &opened.event_type);
        Ok(Verified::new(
            opened.key,
            opened.fingerprint,
            Some(opened.resource.into()),
            reading,
            held.id.clone(),
            Some(headers.signed_at),
        ))
    }

    fn verify_v2(&self, notification: &Notification) -> Result<Verified, Refusal> {
        let opened = v2::open(v2::parse(&notification.body)?, self.v2.as_ref())?;
        let key = v2::event_key(&self.scope.account, &opened.content, &opened.fingerprint);
        let event_type = facts_v2::event_type(&opened.content).to_owned();
        let content = serde_json::Value::Object(opened.content).to_string();
        let reading = self.reading(content.as_bytes(), &event_type);
        let content = Some(Bytes::from(content));
        Ok(Verified::new(
            key,
            opened.fingerprint,
            content,
            reading,
            keys::V2_KEY_ID.to_owned(),
            None,
        ))
    }

    fn reading(&self, content: &[u8], event_type: &str) -> Reading {
        // As it will be stored, so that every later reading begins with the same words.
        let event_type = scope::event_type(event_type);
        let read = if facts_v2::is_v2(content, &event_type) {
            facts_v2::read(&self.scope, content)
        } else {
            facts::read(&self.scope, content, &event_type)
        };
        read.unwrap_or_else(|why| Reading::unreadable(event_type, why))
    }
}

/// The generation a body belongs to.
fn is_xml(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'<')
}

impl Provider for WechatPay {
    fn verify(&self, notification: &Notification) -> Result<Verified, Refusal> {
        if is_xml(&notification.body) {
            self.verify_v2(notification)
        } else {
            self.verify_v3(notification)
        }
    }

    fn read(&self, content: &[u8], provider_event_type: &str) -> Result<Reading, String> {
        Ok(self.reading(content, provider_event_type))
    }

    fn ack(&self, verdict: Verdict, body: &[u8]) -> Ack {
        let (content_type, body) = if is_xml(body) {
            ("text/xml", match verdict {
                Verdict::Accepted => &b"<xml><return_code><![CDATA[SUCCESS]]></return_code><return_msg><![CDATA[OK]]></return_msg></xml>"[..],
                Verdict::Refused | Verdict::Malformed | Verdict::Unavailable => {
                    b"<xml><return_code><![CDATA[FAIL]]></return_code><return_msg><![CDATA[refused]]></return_msg></xml>"
                }
            })
        } else {
            (
                "application/json",
                match verdict {
                    Verdict::Accepted => "{\"code\":\"SUCCESS\",\"message\":\"成功\"}".as_bytes(),
                    Verdict::Refused | Verdict::Malformed => br#"{"code":"FAIL","message":"refused"}"#,
                    Verdict::Unavailable => br#"{"code":"FAIL","message":"unavailable"}"#,
                },
            )
        };
        Ack {
            content_type: Some(content_type),
            body,
        }
    }

    fn explain(&self, notification: &Notification) -> Explanation {
        if is_xml(&notification.body) {
            explain_v2::explain(self, notification)
        } else {
            explain::explain(self, notification)
        }
    }

    fn keys(&self) -> Vec<KeyInfo> {
        let v3 = self.v3.iter().flat_map(V3Keys::info);
        v3.chain(self.v2.iter().map(V2Key::info)).collect()
    }

    fn unchecked(&self) -> Vec<&'static str> {
        if self.scope.app_ids.is_empty() {
            vec!["app_ids: not given, so the appid of a message is not checked"]
        } else {
            Vec::new()
        }
    }
}
