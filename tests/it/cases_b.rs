//! What bit receivers of WeChat Pay notifications elsewhere: verification and acks, one test per case.
//!
//! Not here, because no verdict and no ack is in question: B17 (`paid_at` keeps the first time), B25 (two
//! channels pay one order), B26 and B27 (workers and queries on one order) are the order and worker tests'.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use payhook::event::{FactKind, Notification};
use payhook::provider::wechatpay::sign::Method;
use payhook::provider::{Reason, Verdict, Verified};
use payhook::time::Timestamp;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::support::listener::{Answer, Listener};
use crate::support::recorded;
use crate::support::signed::{
    self, Senders, WECHAT_PAID, WECHAT_REFUND, WECHAT_V2_PAID, accounts, key_file, notification, registry_of,
    scheme,
};

const WECHAT: &str = "wechatpay/shop-cn";
const ACK_V3: &str = "{\"code\":\"SUCCESS\",\"message\":\"成功\"}";
const FAIL_V3: &str = r#"{"code":"FAIL","message":"refused"}"#;
const UNAVAILABLE_V3: &str = r#"{"code":"FAIL","message":"unavailable"}"#;
const ACK_V2: &str =
    "<xml><return_code><![CDATA[SUCCESS]]></return_code><return_msg><![CDATA[OK]]></return_msg></xml>";

fn judge(notification: &Notification) -> Result<Verified, Reason> {
    let registry = registry_of(&accounts());
    let verdict = scheme(&registry, WECHAT).verify(notification);
    verdict.map_err(|refusal| refusal.reason)
}

fn judge_recorded(sent: &Notification) -> Result<Verified, Reason> {
    let registry = registry_of(&recorded::accounts());
    let verdict = scheme(&registry, "wechatpay/recorded").verify(sent);
    verdict.map_err(|refusal| refusal.reason)
}

fn paid() -> Notification {
    Senders::new().wechat_event("TRANSACTION.SUCCESS", WECHAT_PAID)
}

fn v2_paid() -> Notification {
    Senders::new().wechat_v2(&WECHAT_V2_PAID, Method::HmacSha256)
}

fn with_body(sent: Notification, body: impl Into<Bytes>) -> Notification {
    Notification {
        body: body.into(),
        ..sent
    }
}

async fn answers(sent: &[Notification]) -> Vec<Answer> {
    let mut all = Vec::new();
    Listener::with(&accounts(), async |listener| {
        for notification in sent {
            all.push(listener.post(notification).await);
        }
    })
    .await;
    all
}

#[tokio::test]
async fn b01_the_signature_probe_is_refused_and_nothing_else_comes_of_it() {
    let mut probe = paid();
    let signature = probe.header("wechatpay-signature").unwrap();
    let signature = HeaderValue::try_from(format!("WECHATPAY/SIGNTEST/{signature}")).unwrap();
    probe.headers.insert("wechatpay-signature", signature);
    assert_eq!(judge(&probe).unwrap_err(), Reason::Probe);
    assert_eq!(
        judge_recorded(&recorded::one("der10_v3_signtest")).unwrap_err(),
        Reason::Probe
    );
    assert_eq!(answers(&[probe]).await[0].seen(), (401, FAIL_V3));
}

#[test]
fn b02_a_line_end_added_or_lost_is_another_body() {
    let senders = Senders::new();
    let value: Value = serde_json::from_slice(&paid().body).unwrap();
    let indented = [serde_json::to_vec_pretty(&value).unwrap().as_slice(), b"\n"].concat();
    let genuine = senders.wechat(&indented);
    assert!(judge(&genuine).is_ok(), "line ends that were signed are no fault");
    let body = String::from_utf8(indented).unwrap();
    for changed in [
        body.replace('\n', "\r\n"),
        body.replace('\n', ""),
        body.trim_end().to_owned(),
        format!("{body}\n"),
    ] {
        assert_eq!(
            judge(&with_body(genuine.clone(), changed)).unwrap_err(),
            Reason::BadSignature
        );
    }
}

#[test]
fn b03_the_hosts_locale_changes_nothing() {
    let verified = judge(&paid()).unwrap();
    let content = std::str::from_utf8(verified.content.as_ref().unwrap()).unwrap();
    assert!(content.contains("支付成功"));
    crate::support::under_c_locale(&["cases_b::b02_", "cases_b::b12_"]);
}

#[test]
fn b04_b30_json_written_anew_is_refused_and_the_sent_bytes_are_not() {
    let sent = paid();
    assert!(judge(&sent).is_ok());
    let body = String::from_utf8(sent.body.to_vec()).unwrap();
    let value: Value = serde_json::from_str(&body).unwrap();
    let Value::Object(members) = value.clone() else {
        panic!("an object")
    };
    let reordered: serde_json::Map<String, Value> = members.into_iter().rev().collect();
    let rewritten = [
        value.to_string(),
        serde_json::to_string_pretty(&value).unwrap(),
        Value::Object(reordered).to_string(),
        body.replace(" / ok", " \\/ ok"),
    ];
    for changed in rewritten {
        assert_ne!(changed, body);
        assert_eq!(
            judge(&with_body(sent.clone(), changed)).unwrap_err(),
            Reason::BadSignature
        );
    }
    // Escaped slashes are well where they were signed.
    let escaped = Senders::new().wechat(body.replace(" / ok", " \\/ ok").as_bytes());
    assert!(judge(&escaped).is_ok());
}

#[test]
fn b06_a_key_under_another_serial_is_unknown_and_keys_are_shown_by_serial_and_subject() {
    let merchants = accounts().replace(
        signed::PUBLIC_KEY_ID,
        "PUB_KEY_ID_0000000000000000000000000000000001",
    );
    let registry = registry_of(&merchants);
    let wechat = scheme(&registry, WECHAT);
    assert_eq!(wechat.verify(&paid()).unwrap_err().reason, Reason::UnknownKey);
    let shown = wechat.keys();
    let certificate = shown.iter().find(|key| key.subject.is_some()).unwrap();
    assert!(certificate.id.bytes().all(|b| b.is_ascii_hexdigit()) && certificate.expires_at.is_some());
}

#[tokio::test]
async fn b07_a_body_in_many_pieces_is_one_body() {
    Listener::with(&accounts(), async |listener| {
        let sent = paid();
        let pieces: Vec<Result<Bytes, std::io::Error>> = sent
            .body
            .chunks(7)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)))
            .collect();
        let body = axum::body::Body::from_stream(futures_util::stream::iter(pieces));
        let mut request = http::Request::post(&sent.path).body(body).unwrap();
        *request.headers_mut() = sent.headers.clone();
        assert_eq!(listener.send(request).await.seen(), (200, ACK_V3));
        let stored = listener.fresh.texts("select hex(body) from events").await;
        assert_eq!(stored, [hex::encode_upper(&sent.body)], "byte for byte");
    })
    .await;
}

#[test]
fn b08_the_window_is_judged_on_the_header_alone() {
    // A retry, made an hour after its event and signed at that moment.
    let old_event = Senders::new().wechat_body("EV-1", "TRANSACTION.SUCCESS", WECHAT_PAID);
    let text = String::from_utf8(old_event).unwrap();
    let created_early = text.replace("2026-11-29T12:05:05+08:00", "2026-11-29T11:05:05+08:00");
    assert_ne!(created_early, text);
    assert!(judge(&Senders::new().wechat(created_early.as_bytes())).is_ok());
    assert!(judge_recorded(&recorded::one("der04b_v3_first_delivery_of_der04")).is_ok());
}

#[tokio::test]
async fn b09_a_wrong_apiv3_key_is_told_apart_and_asks_for_a_retry() {
    let v2_key_as_v3_key = accounts().replace("wechatpay_apiv3.key", "wechatpay_apiv2.key");
    Listener::with(&v2_key_as_v3_key, async |listener| {
        assert_eq!(listener.post(&paid()).await.seen(), (503, UNAVAILABLE_V3));
    })
    .await;
    let registry = registry_of(&v2_key_as_v3_key);
    let refusal = scheme(&registry, WECHAT).verify(&paid()).unwrap_err();
    assert_eq!(refusal.reason, Reason::Undecryptable);
}

#[test]
fn b10_what_a_notification_is_stands_in_it_and_not_in_the_url() {
    let senders = Senders::new();
    let kind = |sent: &Notification| judge(sent).unwrap().reading.kind;
    assert_eq!(
        kind(&senders.wechat_event("TRANSACTION.SUCCESS", WECHAT_PAID)),
        "payment.succeeded"
    );
    assert_eq!(
        kind(&senders.wechat_event("REFUND.SUCCESS", WECHAT_REFUND)),
        "refund.succeeded"
    );
}

#[test]
fn b11_a_sign_of_64_characters_is_hmac_without_being_named() {
    assert!(!WECHAT_V2_PAID.iter().any(|(name, _)| *name == "sign_type"));
    assert!(judge(&v2_paid()).is_ok());
    assert!(judge_recorded(&recorded::one("der21_v2_pay_success_hmac_without_sign_type")).is_ok());
}

#[test]
fn b12_both_generations_of_key_are_good_at_once_each_under_its_serial() {
    for name in [
        "der01_v3_transaction_success_pubkey",
        "der02_v3_transaction_success_platform_cert",
    ]
    .repeat(2)
    {
        assert!(judge_recorded(&recorded::one(name)).is_ok(), "{name}");
    }
    let crossed = recorded::one("der03_v3_serial_key_mismatch");
    assert_eq!(judge_recorded(&crossed).unwrap_err(), Reason::BadSignature);
}

#[tokio::test]
async fn b13_b14_b15_b16_each_generation_hears_its_own_bytes_with_200() {
    let refund = Senders::new().wechat_event("REFUND.SUCCESS", WECHAT_REFUND);
    let heard = answers(&[paid(), refund, v2_paid()]).await;
    for v3 in &heard[..2] {
        assert_eq!(v3.seen(), (200, ACK_V3));
        assert_eq!(v3.content_type.as_deref(), Some("application/json"));
    }
    assert_eq!(heard[2].seen(), (200, ACK_V2));
    assert_eq!(heard[2].content_type.as_deref(), Some("text/xml"));
    assert!(!ACK_V2.contains('\n') && !ACK_V3.starts_with('"'));
}

#[test]
fn b18_a_body_without_signature_is_refused() {
    let bare = notification("/notify/wechatpay/shop-cn", &[], paid().body);
    assert!(judge(&bare).is_err());
    let xml = String::from_utf8(v2_paid().body.to_vec()).unwrap();
    let (head, rest) = xml.split_once("<sign>").unwrap();
    let unsigned = head.to_owned() + rest.split_once("</sign>").unwrap().1;
    assert!(judge(&notification("/", &[], unsigned)).is_err());
    for name in [
        "wechatpay-timestamp",
        "wechatpay-nonce",
        "wechatpay-signature",
        "wechatpay-serial",
    ] {
        let mut sent = paid();
        sent.headers.remove(name);
        assert!(judge(&sent).is_err(), "{name}");
        let mut twice = paid();
        twice
            .headers
            .append(name, twice.headers.get(name).unwrap().clone());
        assert!(judge(&twice).is_err(), "{name} twice");
    }
}

#[test]
fn b19_the_timestamp_is_checked_on_both_sides_to_the_second() {
    for (off, ok) in [(300, true), (301, false), (-300, true), (-301, false)] {
        let late = Notification {
            received_at: Timestamp::from_secs(signed::now().secs() + off),
            ..paid()
        };
        let verdict = judge(&late).map(|_| ());
        assert_eq!(
            verdict,
            if ok { Ok(()) } else { Err(Reason::OutsideWindow) },
            "{off} s"
        );
    }
}

#[tokio::test]
async fn b20_a_malformed_resource_behind_a_good_signature_is_an_error_and_no_more() {
    let body: Value = serde_json::from_slice(&paid().body).unwrap();
    let mut bodies = Vec::new();
    for (member, values) in [
        (
            "nonce",
            vec![
                json!(""),
                json!("short"),
                json!("far too long for a nonce"),
                json!(7),
                Value::Null,
            ],
        ),
        (
            "ciphertext",
            vec![json!(""), json!("AAAA"), json!("***"), json!([])],
        ),
        ("algorithm", vec![json!("AEAD_SM4_GCM"), json!("")]),
        ("associated_data", vec![json!("other"), json!({})]),
    ] {
        for value in values {
            let mut broken = body.clone();
            broken["resource"][member] = value;
            bodies.push(Senders::new().wechat(broken.to_string().as_bytes()));
        }
    }
    bodies.push(paid());
    let heard = answers(&bodies).await;
    let (last, broken) = heard.split_last().unwrap();
    for answer in broken {
        assert!(
            matches!(answer.seen(), (400, FAIL_V3) | (503, UNAVAILABLE_V3)),
            "{answer:?}"
        );
    }
    assert_eq!(last.seen(), (200, ACK_V3), "and the next one is taken");
}

#[tokio::test]
async fn b23_an_external_entity_is_refused_and_never_fetched() {
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let url = format!("http://{}/x", trap.local_addr().unwrap());
    let xml = format!(
        "<?xml version=\"1.0\"?><!DOCTYPE xml [<!ENTITY x SYSTEM \"{url}\">]><xml><sign>&x;</sign></xml>"
    );
    let heard = answers(&[notification("/notify/wechatpay/shop-cn", &[], xml)]).await;
    assert_eq!(heard[0].status, 400);
    assert_eq!(
        trap.accept().unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock,
        "nobody called"
    );
}

#[tokio::test]
async fn b24_a_locked_order_delays_no_ack() {
    Listener::with_postgres(&accounts(), async |listener| {
        let mut holder = PgConnection::connect(&listener.fresh.url).await.unwrap();
        holder.execute("begin").await.unwrap();
        holder
            .execute("lock table orders, trades in access exclusive mode")
            .await
            .unwrap();
        let mut quickest = Duration::MAX;
        for _ in 0..5 {
            let began = Instant::now();
            assert_eq!(listener.post(&paid()).await.seen(), (200, ACK_V3));
            quickest = quickest.min(began.elapsed());
        }
        // All of them, but for a machine that stalls.
        assert!(quickest < Duration::from_secs(5), "WeChat waits 5 s");
        holder.execute("rollback").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn b31_what_the_url_adds_is_neither_signed_nor_believed() {
    Listener::with(&accounts(), async |listener| {
        let sent = v2_paid();
        let target = format!("{}?merchant_id=7&total_fee=1", sent.path);
        assert_eq!(listener.post_to(&target, &sent).await.seen(), (200, ACK_V2));
        assert_eq!(listener.post(&sent).await.seen(), (200, ACK_V2));
        assert_eq!(
            listener.keys().await.len(),
            1,
            "the query makes no other event of it"
        );
    })
    .await;
    let xml = String::from_utf8(v2_paid().body.to_vec()).unwrap();
    let merged = xml.replacen("<xml>", "<xml><merchant_id>7</merchant_id>", 1);
    assert_eq!(
        judge(&notification("/", &[], merged)).unwrap_err(),
        Reason::BadSignature
    );
}

#[tokio::test]
async fn b32_two_merchants_in_one_process_do_not_meet() {
    let both = accounts() + &recorded::accounts();
    Listener::with(&both, async |listener| {
        assert_eq!(listener.post(&paid()).await.status, 200);
        let mut other = recorded::one("der01_v3_transaction_success_pubkey");
        listener.clock.set(other.received_at);
        other.path = "/notify/wechatpay/recorded".to_owned();
        assert_eq!(listener.post(&other).await.status, 200);
        // Each is refused at the other's door.
        assert_eq!(
            listener.post_to("/notify/wechatpay/shop-cn", &other).await.status,
            401
        );
        listener.clock.set(signed::now());
        assert_eq!(
            listener
                .post_to("/notify/wechatpay/recorded", &paid())
                .await
                .status,
            401
        );
        assert_eq!(
            listener.post_to("/notify/wechatpay/nobody", &paid()).await.status,
            404
        );
        let keys = listener.keys().await;
        assert!(
            keys.len() == 2 && keys[0].contains(":recorded:") && keys[1].contains(":shop-cn:"),
            "{keys:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn b33_nothing_is_acked_that_is_not_stored() {
    Listener::with(&accounts(), async |listener| {
        listener
            .fresh
            .by_hand("alter table outbox rename to gone")
            .await
            .unwrap();
        assert_eq!(listener.post(&paid()).await.seen(), (503, UNAVAILABLE_V3));
        listener
            .fresh
            .by_hand("alter table gone rename to outbox")
            .await
            .unwrap();
        assert!(listener.keys().await.is_empty());
        assert_eq!(listener.post(&paid()).await.seen(), (200, ACK_V3));
    })
    .await;
}

#[tokio::test]
async fn b34_a_failed_attempt_is_an_event_and_is_acked() {
    let mut failed = WECHAT_V2_PAID.to_vec();
    failed.retain(|(name, _)| *name != "result_code");
    failed.extend([("result_code", "FAIL"), ("err_code", "NOTENOUGH")]);
    let sent = Senders::new().wechat_v2(&failed, Method::Md5);
    let facts = judge(&sent).unwrap().reading.facts;
    assert_eq!((facts.len(), facts[0].kind), (1, FactKind::PaymentFailed));
    assert_eq!(answers(&[sent]).await[0].seen(), (200, ACK_V2));
}

#[test]
fn b35_status_and_body_always_agree() {
    let registry = registry_of(&accounts());
    for account in ["alipay/shop-cn", WECHAT, "stripe/shop-intl", "antom/shop-sg"] {
        for body in [b"<xml/>".as_slice(), b"{}", b""] {
            for verdict in [
                Verdict::Accepted,
                Verdict::Refused,
                Verdict::Malformed,
                Verdict::Unavailable,
            ] {
                let ack = scheme(&registry, account).ack(verdict, body);
                let said = std::str::from_utf8(ack.body).unwrap().to_lowercase();
                let success = said.contains("success") || said.contains("true");
                assert_eq!(success, verdict.status() == 200, "{account} {verdict:?}: {said}");
            }
        }
    }
    assert_eq!(key_file("wechatpay_apiv3.key").trim().len(), 32);
}
