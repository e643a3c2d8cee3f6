//! The scheme as a whole, on recorded requests (`tests/data/antom`) and on requests signed here.

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use secrecy::SecretSlice;

use super::*;
use crate::config::{AccountState, KeyMaterial, Scheme};
use crate::event::FactKind;
use crate::provider::signature::RsaSigner;
use crate::time::Timestamp;

const PRIVATE: &str = include_str!("../../../provider-samples/keys/antom_private.pem");
const PUBLIC: &str = include_str!("../../../provider-samples/keys/antom_public.pem");
const PATH: &str = "/notify/antom/shop-global";
const SENT: &str = "2024-03-01T10:00:06+08:00";
const BODY: &str = r#"{"notifyType":"PAYMENT_RESULT","result":{"resultCode":"SUCCESS","resultStatus":"S"},"paymentRequestId":"O1","paymentId":"T1","paymentAmount":{"currency":"SGD","value":"8888"},"paymentTime":"2024-03-01T10:00:05+08:00"}"#;

fn settings(key: &[u8]) -> AntomAccount {
    AntomAccount {
        client_id: "SANDBOX_5Y0000000000000001".into(),
        public_key: Some(KeyMaterial {
            origin: "key".into(),
            bytes: SecretSlice::from(key.to_vec()),
        }),
        notify_path: None,
        capture: Capture::Auto,
    }
}

fn build(settings: &AntomAccount) -> Result<Antom, Vec<AccountProblem>> {
    let account = Account {
        path: "accounts[0]".into(),
        name: "shop-global".into(),
        merchant: "default".into(),
        state: AccountState::Active,
        rules: crate::event::AccountRules::default(),
        scheme: Scheme::Antom(settings.clone()),
    };
    Antom::new(&account, settings)
}

fn scheme() -> Antom {
    build(&settings(PUBLIC.as_bytes())).unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).unwrap()
}

/// A request as Antom would send it.
fn sent(path: &str, client_id: &str, time: &str, body: &str) -> Notification {
    let signer = RsaSigner::from_pem(PRIVATE).unwrap();
    let signature = sign(&signer, path, client_id, time, body.as_bytes()).unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("client-id", client_id.to_owned()),
        ("request-time", time.to_owned()),
        ("signature", signature),
    ] {
        headers.insert(name, HeaderValue::from_str(&value).unwrap());
    }
    Notification {
        path: path.to_owned(),
        headers,
        body: Bytes::copy_from_slice(body.as_bytes()),
        received_at: at(SENT),
        remote_addr: None,
    }
}

fn usual() -> Notification {
    sent(PATH, "SANDBOX_5Y0000000000000001", SENT, BODY)
}

fn judge(notification: &Notification) -> Result<Verified, Reason> {
    scheme().verify(notification).map_err(|refusal| refusal.reason)
}

fn recorded(name: &str) -> Result<Verified, Reason> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/antom");
    let read = |file: &str| std::fs::read(format!("{folder}/{file}")).unwrap();
    let case: serde_json::Value = serde_json::from_slice(&read(&format!("{name}.json"))).unwrap();
    let mut headers = HeaderMap::new();
    for name in ["client-id", "request-time", "signature"] {
        headers.insert(
            name,
            HeaderValue::from_str(case["headers"][name].as_str().unwrap()).unwrap(),
        );
    }
    let notification = Notification {
        path: case["path"].as_str().unwrap().to_owned(),
        headers,
        body: Bytes::from(read(&format!("{name}.body"))),
        received_at: at(SENT),
        remote_addr: None,
    };
    let scheme = build(&settings(&read("derived_pub.pem"))).unwrap();
    scheme.verify(&notification).map_err(|refusal| refusal.reason)
}

#[test]
fn recorded_requests_get_their_verdict_and_facts() {
    let said = |name: &str| {
        let verified = recorded(name).unwrap();
        (verified.reading.kind, verified.reading.facts[0].key.clone())
    };
    let trade = "202403011940108001001880000000001";
    assert_eq!(
        said("der01_notify_payment_success"),
        ("payment.succeeded".into(), format!("{trade}:paid"))
    );
    assert_eq!(
        said("der02_notify_payment_fail"),
        ("payment.failed".into(), format!("{trade}:failed:{trade}"))
    );
    let refund = "202403021940108001001880000000002:refunded";
    assert_eq!(
        said("der03_notify_refund_success"),
        ("refund.succeeded".into(), refund.into())
    );
    assert_eq!(recorded("der05_body_edited").unwrap_err(), Reason::BadSignature);
}

#[test]
fn a_genuine_one_is_read_and_keyed() {
    let verified = judge(&usual()).unwrap();
    assert_eq!(
        verified.key.as_str(),
        "webhook:antom:shop-global:PAYMENT_RESULT:T1:S"
    );
    assert!(verified.content.is_none(), "the body itself is the content");
    assert_eq!(verified.signed_at, Some(at(SENT)));
    let reading = scheme().read(BODY.as_bytes(), "PAYMENT_RESULT").unwrap();
    assert_eq!(reading, verified.reading);
    assert_eq!(reading.amount.unwrap().to_string(), "88.88 SGD");
    assert_eq!(reading.links, [("T1".to_owned(), "O1".to_owned())]);
}

#[test]
fn a25_a_plain_signature_holds_like_an_encoded_one() {
    let mut plain = usual();
    let encoded = plain.header("signature").unwrap().to_owned();
    let decoded = percent_encoding::percent_decode_str(&encoded)
        .decode_utf8()
        .unwrap()
        .into_owned();
    assert_ne!(encoded, decoded);
    plain.headers.insert("signature", decoded.parse().unwrap());
    judge(&plain).unwrap();
}

#[test]
fn white_space_around_header_values_and_list_elements_is_allowed() {
    let usual = usual();
    let padded = |name: &'static str, value: String| {
        let mut padded = usual.clone();
        padded
            .headers
            .insert(name, HeaderValue::from_str(&value).unwrap());
        padded
    };
    for name in ["client-id", "request-time", "signature"] {
        let value = usual.header(name).unwrap();
        judge(&padded(name, format!("\t {value} \t"))).unwrap();
    }
    let signature = usual.header("signature").unwrap();
    for spread in [
        signature.replace(", ", ","),
        signature.replace(", ", " ,\t"),
        format!("{signature} , x=1"),
    ] {
        judge(&padded("signature", spread)).unwrap();
    }
}

#[test]
fn the_path_is_signed_without_its_query_and_may_be_configured() {
    let mut queried = usual();
    queried.path.push_str("?source=antom");
    judge(&queried).unwrap();
    let mut rewritten = usual();
    "/inner/antom".clone_into(&mut rewritten.path);
    assert_eq!(judge(&rewritten).unwrap_err(), Reason::BadSignature);
    let settings = AntomAccount {
        notify_path: Some(PATH.into()),
        ..settings(PUBLIC.as_bytes())
    };
    build(&settings).unwrap().verify(&rewritten).unwrap();
}

#[test]
fn headers_must_stand_there_once() {
    for name in ["client-id", "request-time", "signature"] {
        let mut twice = usual();
        let value = twice.headers.get(name).unwrap().clone();
        twice.headers.append(http::HeaderName::from_static(name), value);
        assert_eq!(judge(&twice).unwrap_err(), Reason::Malformed);
        let mut missing = usual();
        missing.headers.remove(name);
        let want = if name == "signature" {
            Reason::BadSignature
        } else {
            Reason::Malformed
        };
        assert_eq!(judge(&missing).unwrap_err(), want);
    }
    let other = sent(PATH, "SANDBOX_OTHER", SENT, BODY);
    assert_eq!(judge(&other).unwrap_err(), Reason::UnknownKey);
}

#[test]
fn the_window_is_a_day_and_an_hour_back_and_ten_minutes_ahead() {
    let arriving = |text: &str| {
        judge(&Notification {
            received_at: at(text),
            ..usual()
        })
        .map(|_| ())
    };
    assert_eq!(arriving("2024-03-02T11:00:06+08:00"), Ok(()));
    assert_eq!(arriving("2024-03-02T11:00:07+08:00"), Err(Reason::OutsideWindow));
    assert_eq!(arriving("2024-03-01T09:50:06+08:00"), Ok(()));
    assert_eq!(arriving("2024-03-01T09:50:05+08:00"), Err(Reason::OutsideWindow));
    judge(&sent(PATH, "SANDBOX_5Y0000000000000001", "1709258406000", BODY)).unwrap();
}

#[test]
fn a_signed_body_that_is_no_sound_json_is_kept() {
    for body in ["", "not json", r#"{"paymentId":"a","paymentId":"b"}"#, "[]"] {
        let verified = judge(&sent(PATH, "SANDBOX_5Y0000000000000001", SENT, body)).unwrap();
        assert_eq!(verified.reading.kind, "other.unreadable");
        assert!(verified.key.as_str().contains(":sha256:"));
        let content = verified.content.unwrap();
        assert_eq!(scheme().read(&content, "").unwrap(), verified.reading);
    }
}

#[test]
fn keys_and_acks_are_as_they_must_be() {
    let path = |settings: &AntomAccount| build(settings).unwrap_err()[0].path.clone();
    assert_eq!(path(&settings(b"")), "accounts[0].public_key_file");
    assert_eq!(path(&settings(PRIVATE.as_bytes())), "accounts[0].public_key_file");
    assert_eq!(
        path(&AntomAccount {
            public_key: None,
            ..settings(b"")
        }),
        "accounts[0].public_key_file"
    );
    let bad = AntomAccount {
        notify_path: Some("x".into()),
        ..settings(PUBLIC.as_bytes())
    };
    assert_eq!(path(&bad), "accounts[0].notify_path");
    let body = br#"{"result":{"resultCode":"SUCCESS","resultStatus":"S","resultMessage":"success"}}"#;
    assert_eq!(
        scheme().ack(Verdict::Accepted, b""),
        Ack {
            content_type: Some("application/json"),
            body
        }
    );
    assert_eq!(
        scheme().ack(Verdict::Malformed, b"").body,
        br#"{"error":"refused"}"#
    );
    assert_eq!(scheme().keys()[0].kind, "rsa-2048 public key");
}

fn hint(notification: &Notification) -> String {
    let explanation = scheme().explain(notification);
    assert!(explanation.steps.iter().any(|step| !step.ok));
    explanation.hint.unwrap_or_default()
}

#[test]
fn a_hint_names_the_change_that_made_it_hold() {
    let with_body = |body: String| Notification {
        body: Bytes::from(body),
        ..usual()
    };
    assert!(hint(&with_body(format!("{BODY}\n"))).contains("added at its end"));
    let value: serde_json::Value = serde_json::from_str(BODY).unwrap();
    assert_eq!(
        hint(&with_body(value.to_string())),
        "",
        "members in another order cannot be put back"
    );
    let spaced = BODY.replace("\":", "\": ");
    assert!(hint(&with_body(spaced)).contains("compact"));
    let prefixed = Notification {
        path: format!("/proxy{PATH}"),
        ..usual()
    };
    assert!(hint(&prefixed).contains(&format!("notify_path = \"{PATH}\"")));
    let queried = sent("/x?a=b", "SANDBOX_5Y0000000000000001", SENT, BODY);
    assert!(hint(&queried).contains("/x?a=b"));
    let other = sent(PATH, "SANDBOX_OTHER", SENT, BODY);
    assert!(hint(&other).contains("only client-id"));
    let late = Notification {
        received_at: at("2024-03-05T10:00:06+08:00"),
        ..usual()
    };
    assert!(hint(&late).contains("-345600 s"));
    let mut twice = usual();
    let encoded = twice.header("signature").unwrap().replace('%', "%25");
    twice.headers.insert("signature", encoded.parse().unwrap());
    assert!(hint(&twice).contains("percent-encoded twice"));
    assert_eq!(hint(&with_body(BODY.replace("8888", "1"))), "");
}

#[test]
fn a_verified_one_is_explained_with_its_signed_bytes() {
    let explanation = scheme().explain(&usual());
    assert!(explanation.hint.is_none() && explanation.steps.iter().all(|step| step.ok));
    let want = format!("POST {PATH}\nSANDBOX_5Y0000000000000001.{SENT}.{BODY}");
    assert_eq!(explanation.signed.unwrap(), want.into_bytes());
}

fn capture(status: &str, ids: &str, mode: Capture) -> Reading {
    let body = format!(
        r#"{{"notifyType":"CAPTURE_RESULT","result":{{"resultStatus":"{status}","resultCode":"C"}},{ids}
           "captureRequestId":"Q","captureAmount":{{"currency":"SGD","value":"600"}},
           "captureTime":"2026-03-02T10:00:00+08:00"}}"#
    );
    Body::read(body.as_bytes()).unwrap().reading(mode)
}

#[test]
fn authorisation_is_no_payment_where_captures_are_manual() {
    let payment = Body::read(
        r#"{"notifyType":"PAYMENT_RESULT","result":{"resultStatus":"S"},"paymentRequestId":"O","paymentId":"T",
           "paymentAmount":{"currency":"SGD","value":"8888"},"paymentTime":"2026-03-02T10:00:00+08:00"}"#
            .as_bytes(),
    )
    .unwrap();
    let reading = payment.reading(Capture::Manual);
    let fact = &reading.facts[0];
    assert_eq!(
        (&*reading.kind, fact.kind, fact.amount),
        ("payment.processing", FactKind::PaymentProcessing, None)
    );
    assert_eq!(reading.amount.unwrap().minor, 8888);
    assert_eq!(reading.links.len(), 1);
}

#[test]
fn capture_pays_its_amount_only_where_captures_are_manual() {
    let ids = r#""paymentId":"T","captureId":"C1","#;
    let reading = capture("S", ids, Capture::Manual);
    let fact = &reading.facts[0];
    assert_eq!(
        (&*reading.kind, fact.kind, &*fact.key),
        ("payment.succeeded", FactKind::PaymentSucceeded, "T:paid:C1")
    );
    assert!(fact.is_capture());
    assert_eq!((fact.amount.unwrap().minor, reading.refund_id), (600, None));
    let reading = capture("S", ids, Capture::Auto);
    assert_eq!(
        (&*reading.kind, reading.facts.len(), reading.links.len()),
        ("other.capture_result", 0, 0)
    );
}

#[test]
fn failed_capture_is_a_fact_in_either_mode() {
    for mode in [Capture::Auto, Capture::Manual] {
        let reading = capture("F", r#""paymentId":"T","captureId":"C1","#, mode);
        let fact = &reading.facts[0];
        assert_eq!(
            (&*reading.kind, fact.kind, &*fact.key, fact.reason.as_deref()),
            (
                "other.capture_result",
                FactKind::CaptureFailed,
                "T:capture_failed:C1",
                Some("C")
            )
        );
    }
}

#[test]
fn capture_without_its_ids_is_left_to_a_human() {
    for ids in [r#""paymentId":"T","#, r#""captureId":"C1","#] {
        let reading = capture("S", ids, Capture::Manual);
        assert!(reading.unreadable.is_some() && reading.facts.is_empty(), "{ids}");
        assert!(capture("S", ids, Capture::Auto).unreadable.is_none(), "{ids}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_flipped_bit_of_the_body_is_refused(at in 0..BODY.len() * 8) {
        let mut notification = usual();
        let mut body = notification.body.to_vec();
        body[at / 8] ^= 1 << (at % 8);
        notification.body = Bytes::from(body);
        prop_assert_eq!(judge(&notification).unwrap_err(), Reason::BadSignature);
    }

    #[test]
    fn a_flipped_bit_of_a_signed_header_is_refused(name in 0_usize..3, at in 0_usize..60 * 8) {
        let mut notification = usual();
        let name = ["client-id", "request-time", "signature"][name];
        let mut value = notification.headers[name].as_bytes().to_vec();
        prop_assume!(at / 8 < value.len());
        // The algorithm's name and keyVersion come first in `signature` and are not signed.
        let at = if name == "signature" { at + 44 * 8 } else { at };
        value[at / 8] ^= 1 << (at % 8);
        let Ok(flipped) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        // A hex digit in the other case spells the same byte.
        let same = notification.headers[name].as_bytes().eq_ignore_ascii_case(&value) && name == "signature";
        notification.headers.insert(name, flipped);
        if !same {
            prop_assert!(judge(&notification).is_err());
        }
    }

    #[test]
    fn any_bytes_get_a_verdict(
        signature in proptest::collection::vec(any::<u8>(), 0..80),
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut notification = usual();
        if let Ok(value) = HeaderValue::from_bytes(&signature) {
            notification.headers.insert("signature", value);
        }
        notification.body = Bytes::from(body);
        prop_assert!(judge(&notification).is_err());
        scheme().explain(&notification);
        prop_assert!(scheme().read(&notification.body, "").map_or(true, |reading| reading.facts.is_empty()));
    }
}
