//! Signed traffic with known ends: stories of orders at three providers, and what each must come to.
//!
//! What an order must come to is worked out here, from the story, by arithmetic that shares nothing with
//! payhook's rules; the tests compare it with what the database says after whatever they did on the way.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use payhook::provider::signature::mac::hmac_sha256;
use payhook::provider::signature::{Digest, RsaSigner};
use payhook::provider::wechatpay::sign::{V3Message, V3Signer};
use payhook::time::Timestamp;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::signed::since_long_ago;

/// The serial under which the sample WeChat key is configured.
const WECHAT_KEY_ID: &str = "PUB_KEY_ID_0100000000";
/// Stripe's throw-away signing secret.
pub(crate) const STRIPE_SECRET: &str = "whsec_traffic_throw_away";

/// Where the samples' keys are.
pub(crate) fn keys() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("provider-samples/keys")
}

/// `[[accounts]]` that take this traffic.
pub(crate) fn accounts() -> String {
    let keys = keys();
    let keys = keys.display();
    since_long_ago(&format!(
        r#"
[[accounts]]
provider = "alipay"
name = "load"
app_id = "2021000000000001"
public_key_file = "{keys}/alipay_public.pem"

[[accounts]]
provider = "wechatpay"
name = "load"
mch_id = "1900000001"
api_v3_key_file = "{keys}/wechatpay_apiv3.key"
public_keys = [{{ id = "{WECHAT_KEY_ID}", file = "{keys}/wechatpay_public.pem" }}]

[[accounts]]
provider = "stripe"
name = "load"
signing_secrets = ["{STRIPE_SECRET}"]
"#
    ))
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Sender {
    Alipay,
    Wechat,
    Stripe,
}

impl Sender {
    /// The segment of the notify path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Alipay => "/notify/alipay/load",
            Self::Wechat => "/notify/wechatpay/load",
            Self::Stripe => "/notify/stripe/load",
        }
    }

    /// The body of a success ack.
    pub(crate) fn ack(self) -> &'static [u8] {
        match self {
            Self::Alipay => b"success",
            Self::Wechat => "{\"code\":\"SUCCESS\",\"message\":\"成功\"}".as_bytes(),
            Self::Stripe => b"{\"received\":true}",
        }
    }
}

/// One thing that happens to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    Failed,
    Closed,
    Paid,
    /// This refund, the sum so far.
    Refunded {
        number: u32,
        amount: i64,
        total: i64,
    },
    Finished,
}

/// One event, not yet signed.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    pub(crate) sender: Sender,
    pub(crate) order_id: String,
    pub(crate) trade_id: String,
    pub(crate) amount: i64,
    pub(crate) number: usize,
    pub(crate) happening: Happening,
}

/// A signed request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: &'static str,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// One order's events and what it must come to.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) order_id: String,
    pub(crate) tellings: Vec<Telling>,
    pub(crate) end: End,
}

/// What an order must come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) status: &'static str,
    pub(crate) paid: i64,
    pub(crate) refunded: i64,
}

/// `count` stories from `seed`; `prefix` keeps the order ids of different tests apart.
pub(crate) fn stories(seed: u64, count: usize, prefix: &str) -> Vec<Story> {
    let mut rng = StdRng::seed_from_u64(seed);
    let few = Refunds { from: 5, most: 1..=3 };
    (0..count)
        .map(|number| story(&mut rng, prefix, number, &few))
        .collect()
}

/// The same with many refunds: some five events an order.
pub(crate) fn long_stories(seed: u64, count: usize, prefix: &str) -> Vec<Story> {
    let mut rng = StdRng::seed_from_u64(seed);
    let many = Refunds { from: 2, most: 2..=8 };
    (0..count)
        .map(|number| story(&mut rng, prefix, number, &many))
        .collect()
}

/// How much is refunded.
struct Refunds {
    /// From which fate of 0 to 9 on.
    from: i32,
    most: RangeInclusive<u32>,
}

fn story(rng: &mut StdRng, prefix: &str, number: usize, many: &Refunds) -> Story {
    let sender = match number % 3 {
        0 => Sender::Alipay,
        1 => Sender::Wechat,
        _ => Sender::Stripe,
    };
    let order_id = format!("{prefix}-{number:06}");
    let trade_id = match sender {
        Sender::Alipay => format!("2026{prefix}{number:08}"),
        Sender::Wechat => format!("4200{prefix}{number:08}"),
        Sender::Stripe => format!("pi_{prefix}{number:08}"),
    };
    let amount = rng.random_range(200..100_000_i64);
    let mut happenings = Vec::new();
    let mut end = End {
        status: "pending",
        paid: 0,
        refunded: 0,
    };
    let fate = rng.random_range(0..10);
    if sender == Sender::Stripe && fate < 4 {
        happenings.push(Happening::Failed);
        end.status = "failed";
    }
    if fate == 0 && sender != Sender::Wechat {
        happenings.push(Happening::Closed);
        end.status = "closed";
    } else {
        happenings.push(Happening::Paid);
        end.status = "paid";
        end.paid = amount;
        let refunds = if fate >= many.from {
            rng.random_range(many.most.clone())
        } else {
            0
        };
        let full = fate >= 8;
        for refund in 1..=refunds {
            let left = amount - end.refunded;
            let part = if full && refund == refunds {
                left
            } else {
                (left / 4).max(1)
            };
            end.refunded += part;
            happenings.push(Happening::Refunded {
                number: refund,
                amount: part,
                total: end.refunded,
            });
        }
        if end.refunded > 0 {
            end.status = if end.refunded == amount {
                "refunded"
            } else {
                "partially_refunded"
            };
        }
        if sender == Sender::Alipay && !full && rng.random_bool(0.3) {
            happenings.push(Happening::Finished);
            end.status = "finished";
        }
    }
    let tellings = happenings
        .into_iter()
        .enumerate()
        .map(|(number, happening)| Telling {
            sender,
            order_id: order_id.clone(),
            trade_id: trade_id.clone(),
            amount,
            number,
            happening,
        })
        .collect();
    Story {
        order_id,
        tellings,
        end,
    }
}

/// All tellings of `stories`, `again` out of 100 of them twice, in random order.
pub(crate) fn shuffled(stories: &[Story], again: u32, seed: u64) -> Vec<Telling> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut all = Vec::new();
    for telling in stories.iter().flat_map(|story| &story.tellings) {
        all.push(telling.clone());
        if rng.random_range(0..100) < again {
            all.push(telling.clone());
        }
    }
    all.shuffle(&mut rng);
    all
}

/// Signs for all three providers.
pub(crate) struct Signers {
    alipay: RsaSigner,
    wechat: V3Signer,
}

impl Signers {
    pub(crate) fn new() -> Self {
        let read = |name: &str| std::fs::read_to_string(keys().join(name)).unwrap();
        let rsa = |name: &str| RsaSigner::from_pem(&read(name)).unwrap();
        let wechat = V3Signer::new(
            rsa("wechatpay_private.pem"),
            WECHAT_KEY_ID,
            read("wechatpay_apiv3.key").as_bytes(),
        )
        .unwrap();
        Self {
            alipay: rsa("alipay_private.pem"),
            wechat,
        }
    }

    /// The request as its provider would send it at `at`; a retry has the same identity and a fresh signature.
    pub(crate) fn sign(&self, telling: &Telling, at: Timestamp) -> Request {
        match telling.sender {
            Sender::Alipay => self.alipay(telling, at),
            Sender::Wechat => self.wechat(telling, at),
            Sender::Stripe => stripe(telling, at),
        }
    }

    fn alipay(&self, telling: &Telling, at: Timestamp) -> Request {
        let yuan = |minor: i64| format!("{}.{:02}", minor / 100, minor % 100);
        let moment = happened(telling);
        let mut fields = vec![
            ("app_id", "2021000000000001".to_owned()),
            ("charset", "utf-8".to_owned()),
            ("notify_id", format!("n{}x{}", telling.trade_id, telling.number)),
            ("notify_time", beijing(at)),
            ("notify_type", "trade_status_sync".to_owned()),
            ("out_trade_no", telling.order_id.clone()),
            ("trade_no", telling.trade_id.clone()),
            ("total_amount", yuan(telling.amount)),
            ("gmt_create", moment.clone()),
            ("subject", "测试商品 100% + A&B".to_owned()),
            ("version", "1.0".to_owned()),
        ];
        match telling.happening {
            Happening::Failed => unreachable!("Alipay tells no failures"),
            Happening::Closed => fields.push(("trade_status", "TRADE_CLOSED".to_owned())),
            Happening::Paid => {
                fields.push(("trade_status", "TRADE_SUCCESS".to_owned()));
                fields.push(("gmt_payment", moment));
            }
            Happening::Finished => {
                fields.push(("trade_status", "TRADE_FINISHED".to_owned()));
                fields.push(("gmt_payment", moment));
            }
            Happening::Refunded { number, total, .. } => {
                let status = if total == telling.amount {
                    "TRADE_CLOSED"
                } else {
                    "TRADE_SUCCESS"
                };
                fields.push(("trade_status", status.to_owned()));
                fields.push(("gmt_payment", moment.clone()));
                fields.push(("gmt_refund", format!("{moment}.123")));
                fields.push(("refund_fee", yuan(total)));
                fields.push(("out_biz_no", format!("r{}x{number}", telling.trade_id)));
            }
        }
        fields.sort();
        let signed = fields
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect::<Vec<_>>()
            .join("&");
        let signature = self.alipay.sign(Digest::Sha256, signed.as_bytes()).unwrap();
        fields.push(("sign_type", "RSA2".to_owned()));
        fields.push((
            "sign",
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, signature),
        ));
        let mut body = String::new();
        for (name, value) in fields {
            let separator = if body.is_empty() { "" } else { "&" };
            let value = percent_encoding::utf8_percent_encode(&value, percent_encoding::NON_ALPHANUMERIC);
            write!(body, "{separator}{name}={value}").unwrap();
        }
        let content_type = "application/x-www-form-urlencoded; charset=utf-8".to_owned();
        Request {
            path: telling.sender.path(),
            headers: vec![("content-type".to_owned(), content_type)],
            body: body.into_bytes(),
        }
    }

    fn wechat(&self, telling: &Telling, at: Timestamp) -> Request {
        let moment = format!("{}+08:00", happened(telling).replace(' ', "T"));
        let id = format!("EV-{}-{}", telling.trade_id, telling.number);
        let (event_type, original_type, resource) = match telling.happening {
            Happening::Paid => (
                "TRANSACTION.SUCCESS".to_owned(),
                "transaction",
                json!({
                    "mchid": "1900000001", "appid": "wx0000000000000001", "out_trade_no": telling.order_id,
                    "transaction_id": telling.trade_id, "trade_type": "JSAPI", "trade_state": "SUCCESS",
                    "success_time": moment, "payer": {"openid": "oTRAFFIC"},
                    "amount": {"total": telling.amount, "payer_total": telling.amount, "currency": "CNY"},
                }),
            ),
            Happening::Refunded { number, amount, .. } => (
                "REFUND.SUCCESS".to_owned(),
                "refund",
                json!({
                    "mchid": "1900000001", "out_trade_no": telling.order_id, "transaction_id": telling.trade_id,
                    "refund_id": format!("5{}x{number}", telling.trade_id), "out_refund_no": format!("r{number}"),
                    "refund_status": "SUCCESS", "success_time": moment,
                    "amount": {"total": telling.amount, "refund": amount, "payer_total": telling.amount, "payer_refund": amount},
                }),
            ),
            other => unreachable!("WeChat tells no {other:?}"),
        };
        let message = V3Message {
            id: &id,
            create_time: &moment,
            event_type: &event_type,
            summary: "支付成功",
            original_type,
            resource: &resource.to_string(),
        };
        // The nonce must differ by text, and a retry sends the same body again.
        let nonce = &hmac_sha256(b"nonce", &[id.as_bytes()])[..12];
        let body = self.wechat.body(&message, nonce.try_into().unwrap()).unwrap();
        let headers = self
            .wechat
            .headers(&body, at, &format!("{:016x}", rand::random::<u64>()))
            .unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        Request {
            path: telling.sender.path(),
            headers,
            body,
        }
    }
}

fn stripe(telling: &Telling, at: Timestamp) -> Request {
    let Telling {
        trade_id,
        order_id,
        amount,
        ..
    } = telling;
    let metadata = json!({ "order_id": order_id });
    let charge = |refunded: i64| {
        json!({"id": format!("ch_{trade_id}"), "object": "charge", "payment_intent": trade_id, "amount": amount,
               "amount_captured": amount, "amount_refunded": refunded, "captured": true, "currency": "cny",
               "refunded": refunded == *amount, "metadata": metadata})
    };
    let intent = |status: &str| {
        json!({"id": trade_id, "object": "payment_intent", "amount": amount,
               "amount_received": if status == "succeeded" { *amount } else { 0 }, "currency": "cny",
               "latest_charge": format!("ch_{trade_id}"), "status": status, "metadata": metadata})
    };
    let (kind, object) = match telling.happening {
        Happening::Failed => ("payment_intent.payment_failed", intent("requires_payment_method")),
        Happening::Closed => ("payment_intent.canceled", intent("canceled")),
        Happening::Paid => ("payment_intent.succeeded", intent("succeeded")),
        Happening::Refunded { total, .. } => ("charge.refunded", charge(total)),
        Happening::Finished => unreachable!("Stripe tells no end"),
    };
    let event = json!({
        "id": format!("evt_{trade_id}x{}", telling.number), "object": "event", "api_version": "2024-06-20",
        "created": 1_700_000_000 + i64::try_from(telling.number).unwrap(), "type": kind, "livemode": false,
        "pending_webhooks": 1, "request": {"id": null, "idempotency_key": null}, "data": {"object": object},
    });
    let body = serde_json::to_vec_pretty(&event).unwrap();
    let time = at.secs().to_string();
    let signature = hmac_sha256(STRIPE_SECRET.as_bytes(), &[time.as_bytes(), b".", &body]);
    Request {
        path: telling.sender.path(),
        headers: vec![
            (
                "content-type".to_owned(),
                "application/json; charset=utf-8".to_owned(),
            ),
            (
                "stripe-signature".to_owned(),
                format!("t={time},v1={}", hex::encode(signature)),
            ),
        ],
        body,
    }
}

/// When it happened, in Beijing: the same however often it is told.
fn happened(telling: &Telling) -> String {
    let number = i64::try_from(telling.number).unwrap();
    beijing(Timestamp::from_secs(1_764_000_000 + number))
}

/// `yyyy-MM-dd HH:mm:ss` in Beijing.
fn beijing(at: Timestamp) -> String {
    let ahead = at.plus(std::time::Duration::from_hours(8)).to_string();
    ahead[..19].replace('T', " ")
}
