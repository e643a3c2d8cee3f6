//! What bit receivers of Alipay and Antom notifications elsewhere: verification and acks, one test per case.
//!
//! Order states of A17, A18 and A23 are the order tests' business; here it is seen that each notification is
//! taken, is an event of its own where it is one, and says the right facts.

use http::Method;
use payhook::config::{Config, ConfigErrors, Environment};
use payhook::event::Notification;
use payhook::provider::{Reason, Registry, Verdict, Verified};
use payhook::time::Timestamp;
use serde_json::Value;

use crate::support::listener::Listener;
use crate::support::signed::{self, Senders, accounts, alipay_paid, form, notification, registry_of, scheme};
use crate::support::{recorded, signed::key_file};

const ALIPAY: &str = "alipay/shop-cn";

fn judge(notification: &Notification) -> Result<Verified, Reason> {
    let registry = registry_of(&accounts());
    let verdict = scheme(&registry, ALIPAY).verify(notification);
    verdict.map_err(|refusal| refusal.reason)
}

fn judge_recorded(name: &str) -> Result<Verified, Reason> {
    let registry = registry_of(&recorded::accounts());
    let verdict = scheme(&registry, "alipay/recorded").verify(&recorded::one(name));
    verdict.map_err(|refusal| refusal.reason)
}

fn content(verified: &Verified) -> Value {
    serde_json::from_slice(verified.content.as_ref().unwrap()).unwrap()
}

/// A usual one with some parameters in place of others.
fn with<'a>(other: &[(&'a str, &'a [u8])]) -> Notification {
    let mut all = alipay_paid();
    all.retain(|(name, _)| other.iter().all(|(replaced, _)| replaced != name));
    let all: Vec<(&str, &[u8])> = all.into_iter().chain(other.iter().copied()).collect();
    Senders::new().alipay(&all)
}

/// The same request with its body changed as text.
fn changed(sent: &Notification, from: &str, to: &str) -> Notification {
    let body = String::from_utf8(sent.body.to_vec()).unwrap();
    assert!(body.contains(from), "{from} is not in the body");
    Notification {
        body: body.replace(from, to).into(),
        ..sent.clone()
    }
}

fn fact_keys(verified: &Verified) -> Vec<&str> {
    verified
        .reading
        .facts
        .iter()
        .map(|fact| fact.key.as_str())
        .collect()
}

/// E11 too: a form is bytes.
#[test]
fn a01_gbk_is_verified_over_bytes_and_stored_as_text() {
    let verified = judge_recorded("der02_gbk_body").unwrap();
    assert_eq!(content(&verified)["subject"], "测试商品");
}

#[test]
fn a02_the_signed_charset_wins_over_the_header() {
    let mut sent = recorded::one("der02_gbk_body");
    let claims = "application/x-www-form-urlencoded; charset=utf-8"
        .parse()
        .unwrap();
    sent.headers.insert("content-type", claims);
    let registry = registry_of(&recorded::accounts());
    let verified = scheme(&registry, "alipay/recorded").verify(&sent).unwrap();
    assert_eq!(content(&verified)["subject"], "测试商品");
}

#[test]
fn a03_the_charset_label_has_any_case_and_an_unknown_one_changes_no_verdict() {
    for (label, text) in [
        ("GBK", "测"),
        ("gbk", "测"),
        ("GB2312", "测"),
        ("no-such", "\u{fffd}\u{fffd}"),
    ] {
        let sent = with(&[("charset", label.as_bytes()), ("subject", b"\xb2\xe2")]);
        assert_eq!(content(&judge(&sent).unwrap())["subject"], text, "{label}");
    }
}

#[tokio::test]
async fn a04_the_text_in_the_database_is_right_too() {
    Listener::with(&recorded::accounts(), async |listener| {
        let sent = recorded::one("der02_gbk_body");
        listener.clock.set(sent.received_at);
        assert_eq!(listener.post(&sent).await.seen(), (200, "success"));
        let stored = listener
            .fresh
            .texts("select cast(content as text) from events")
            .await;
        assert!(stored[0].contains("测试商品"), "{stored:?}");
    })
    .await;
}

#[test]
fn a05_escaped_quotes_are_refused_and_hinted_at() {
    let sent = Senders::new().alipay(&alipay_paid());
    assert!(judge(&sent).is_ok());
    let escaped = changed(&sent, "%22", "%26quot%3B");
    assert_eq!(judge(&escaped).unwrap_err(), Reason::BadSignature);
    let registry = registry_of(&accounts());
    let hint = scheme(&registry, ALIPAY).explain(&escaped).hint.unwrap();
    assert!(
        hint.contains("HTML-escaped") && hint.contains("fund_bill_list"),
        "{hint}"
    );
}

#[test]
fn a06_every_parameter_is_signed_known_or_not() {
    let verified = judge(&with(&[("brand_new_field", b"x")])).unwrap();
    assert_eq!(content(&verified)["brand_new_field"], "x");
    let sent = Senders::new().alipay(&alipay_paid());
    let added = Notification {
        body: [sent.body.as_ref(), b"&brand_new_field=x"].concat().into(),
        ..sent
    };
    assert_eq!(judge(&added).unwrap_err(), Reason::BadSignature);
}

#[test]
fn a08_a_parameter_twice_is_refused() {
    let sent = Senders::new().alipay(&alipay_paid());
    for again in ["&trade_status=TRADE_SUCCESS", "&%74rade_status=TRADE_CLOSED"] {
        let body = [sent.body.as_ref(), again.as_bytes()].concat();
        let twice = Notification {
            body: body.into(),
            ..sent.clone()
        };
        assert_eq!(judge(&twice).unwrap_err(), Reason::Malformed, "{again}");
    }
}

#[tokio::test]
async fn a09_a_sign_decoded_never_or_twice_is_a_plain_refusal() {
    Listener::with(&accounts(), async |listener| {
        let sent = Senders::new().alipay(&alipay_paid());
        for (from, to) in [
            ("%3D%3D", "%253D%253D"),
            ("&sign=", "&sign=%20!"),
            ("&sign=", "&sign=%FF"),
        ] {
            let answer = listener.post(&changed(&sent, from, to)).await;
            assert_eq!(answer.seen(), (401, "fail"), "{to}");
        }
        let broken = changed(&sent, "%3D%3D", "%3");
        assert_eq!(listener.post(&broken).await.seen(), (400, "fail"));
        assert_eq!(listener.post(&sent).await.seen(), (200, "success"));
    })
    .await;
}

#[test]
fn a11_a_real_plus_is_decoded_once() {
    let sent = with(&[("subject", b"1+1 = 100%2B")]);
    assert_eq!(content(&judge(&sent).unwrap())["subject"], "1+1 = 100%2B");
    for (from, to) in [("%2B", "+"), ("%252B", "%2B")] {
        assert_eq!(
            judge(&changed(&sent, from, to)).unwrap_err(),
            Reason::BadSignature
        );
    }
}

#[test]
fn a12_a_literal_percent_sign_is_no_error() {
    assert!(judge_recorded("der01_utf8_hard_characters").is_ok());
    let verified = judge(&with(&[("subject", b"50% off, %zz, %")])).unwrap();
    assert_eq!(content(&verified)["subject"], "50% off, %zz, %");
}

#[tokio::test]
async fn a13_a14_a15_a28_the_ack_is_seven_bytes_lower_case_written_once() {
    Listener::with(&accounts(), async |listener| {
        let sent = Senders::new().alipay(&alipay_paid());
        for _ in 0..2 {
            let answer = listener.post(&sent).await;
            assert_eq!(answer.body, *b"success");
            assert_eq!(
                (answer.status, answer.content_type.as_deref()),
                (200, Some("text/plain"))
            );
        }
        assert_eq!(listener.keys().await.len(), 1, "a repeat inserts nothing");
        let forged = changed(&sent, "88%2E88", "88%2E89");
        let answer = listener.post(&forged).await;
        assert_eq!(answer.seen(), (401, "fail"));
    })
    .await;
}

#[test]
fn a17_finished_implies_paid_and_is_an_event_of_its_own() {
    let paid = judge_recorded("der01_utf8_hard_characters").unwrap();
    let refunded = judge_recorded("der04_partial_refund").unwrap();
    let finished = judge_recorded("der08_trade_finished").unwrap();
    let trade = paid.reading.trade_id.clone().unwrap();
    assert_eq!(fact_keys(&paid), [format!("{trade}:paid")]);
    assert_eq!(
        fact_keys(&refunded),
        [format!("{trade}:paid"), format!("{trade}:refunded_total:3000")]
    );
    assert_eq!(
        fact_keys(&finished),
        [format!("{trade}:paid"), format!("{trade}:finished")]
    );
    assert!(paid.key != refunded.key && refunded.key != finished.key && paid.key != finished.key);
}

#[test]
fn a18_refunds_on_the_pay_url_are_refunds() {
    for (name, total) in [
        ("der04_partial_refund", "3000"),
        ("der06_full_refund_closed", "8888"),
    ] {
        let verified = judge_recorded(name).unwrap();
        assert_eq!(verified.reading.kind, "refund.succeeded", "{name}");
        let refunded = format!(":refunded_total:{total}");
        assert!(
            fact_keys(&verified).iter().any(|key| key.ends_with(&refunded)),
            "{name}"
        );
    }
    let closed = judge_recorded("der07_timeout_closed").unwrap();
    assert_eq!(closed.reading.kind, "payment.closed");
}

#[test]
fn a19_another_set_of_parameters_verifies_alike() {
    assert!(judge_recorded("der06_full_refund_closed").is_ok());
    assert!(judge_recorded("der07_timeout_closed").is_ok());
}

#[tokio::test]
async fn a20_a_resend_with_a_fresh_notify_time_is_a_duplicate() {
    Listener::with(&recorded::accounts(), async |listener| {
        for name in ["der01_utf8_hard_characters", "der09_retry_fresh_notify_time"] {
            let sent = recorded::one(name);
            listener.clock.set(sent.received_at);
            assert_eq!(listener.post(&sent).await.seen(), (200, "success"), "{name}");
        }
        assert_eq!(listener.keys().await.len(), 1);
        assert_eq!(listener.fresh.number("select count(*) from outbox").await, 1);
    })
    .await;
}

#[test]
fn a21_the_wrong_public_key_refuses_and_keys_are_shown_by_fingerprint() {
    let own_key = accounts().replace("alipay_public.pem", "wechatpay_public.pem");
    let registry = registry_of(&own_key);
    let alipay = scheme(&registry, ALIPAY);
    let refusal = alipay.verify(&Senders::new().alipay(&alipay_paid())).unwrap_err();
    assert_eq!(refusal.reason, Reason::BadSignature);
    let shown = alipay.keys();
    assert_eq!((shown.len(), shown[0].fingerprint.len()), (1, 16));
    let text = format!("{shown:?}{alipay:?}");
    let secret = key_file("wechatpay_public.pem");
    let line = secret.lines().nth(2).unwrap();
    assert!(!text.contains(line), "a key is shown by its fingerprint only");
}

fn refused_at_start(account: &str) -> ConfigErrors {
    let parsed = Config::parse_with(account, &signed::root(), &Environment::default(), Registry::build);
    parsed.map(|_| ()).unwrap_err()
}

#[test]
fn a22_an_empty_key_does_not_start() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let file = empty.path().display();
    for (account, key) in [
        (
            format!("provider = \"alipay\"\napp_id = \"2021\"\npublic_key_file = \"{file}\""),
            "public_key_file",
        ),
        (
            "provider = \"alipay\"\napp_id = \"2021\"".to_owned(),
            "public_key_file",
        ),
        (
            "provider = \"stripe\"\nsigning_secrets = [\"\"]".to_owned(),
            "signing_secrets",
        ),
        (
            "provider = \"stripe\"\nsigning_secrets = []".to_owned(),
            "signing_secrets",
        ),
        (
            "provider = \"2c2p\"\nmerchant_id = \"JT01\"\nsecret_key = \"\"".to_owned(),
            "secret_key",
        ),
        (
            "provider = \"wechatpay\"\nmch_id = \"19\"\napi_v2_key = \"\"".to_owned(),
            "api_v2_key",
        ),
        (
            format!("provider = \"antom\"\nclient_id = \"C\"\npublic_key_file = \"{file}\""),
            "public_key_file",
        ),
    ] {
        let errors = refused_at_start(&format!("[[accounts]]\nname = \"a\"\n{account}\n")).to_string();
        assert!(errors.contains(key), "{account}: {errors}");
    }
}

#[tokio::test]
async fn a23_eight_sends_are_eight_acks_and_one_event() {
    Listener::with(&accounts(), async |listener| {
        let senders = Senders::new();
        for minutes in [0, 4, 14, 24, 84, 204, 564, 1464] {
            let at = Timestamp::from_secs(signed::now().secs() + minutes * 60);
            listener.clock.set(at);
            let time = at.plus(std::time::Duration::from_hours(8)).to_string();
            let time = time[..19].replace('T', " ");
            let mut again = alipay_paid();
            again.retain(|(name, _)| *name != "notify_time");
            again.push(("notify_time", time.as_bytes()));
            assert_eq!(
                listener.post(&senders.alipay(&again)).await.seen(),
                (200, "success"),
                "{time}"
            );
        }
        assert_eq!(listener.keys().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a24_the_browsers_return_is_no_notification() {
    Listener::with(&accounts(), async |listener| {
        let sent = Senders::new().alipay(&alipay_paid());
        let query = String::from_utf8(sent.body.to_vec()).unwrap();
        for method in [Method::GET, Method::HEAD, Method::PUT] {
            let request = http::Request::builder()
                .method(method)
                .uri(format!("{}?{query}", sent.path))
                .body(axum::body::Body::empty())
                .unwrap();
            assert_eq!(listener.send(request).await.status, 405);
        }
        // Nor does a POST whose parameters stand in the query.
        let nothing = notification(&sent.path, &[], "");
        let answer = listener
            .post_to(&format!("{}?{query}", sent.path), &nothing)
            .await;
        assert_eq!(answer.seen(), (400, "fail"));
        assert!(listener.keys().await.is_empty());
    })
    .await;
}

#[test]
fn a25_antoms_signature_is_url_decoded_and_its_body_raw() {
    let registry = registry_of(&accounts());
    let antom = scheme(&registry, "antom/shop-sg");
    let sent = Senders::new().antom(signed::ANTOM_PAID.as_bytes());
    assert!(antom.verify(&sent).is_ok());
    let value: Value = serde_json::from_str(signed::ANTOM_PAID).unwrap();
    let rewritten = Notification {
        body: serde_json::to_vec_pretty(&value).unwrap().into(),
        ..sent
    };
    assert_eq!(antom.verify(&rewritten).unwrap_err().reason, Reason::BadSignature);
}

#[test]
fn a27_the_hosts_locale_changes_nothing() {
    crate::support::under_c_locale(&["cases_a::a01_", "cases_a::a03_", "cases_a::a12_"]);
}

#[test]
fn refusals_are_answered_in_the_providers_failure_form() {
    let registry = registry_of(&accounts());
    let ack = scheme(&registry, ALIPAY).ack(Verdict::Unavailable, &form(&alipay_paid()));
    assert_eq!(ack.body, b"fail");
}
