//! The scheme as a whole; ids such as C32 name reports.

use http::HeaderMap;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::{AccountState, Capture, KeyMaterial, Scheme};
use crate::event::{FactKind, Identity};
use crate::time::Timestamp;

const SECRET: &str = "ECC4E54DBA738857B84A7EBC6B5DC7187B8DA68750E88AB53AAA41F548D6F2D9";

fn account(settings: &TwoCTwoPAccount) -> Account {
    Account {
        path: "accounts[0]".to_owned(),
        name: "th".to_owned(),
        merchant: "default".to_owned(),
        state: AccountState::Active,
        rules: crate::event::AccountRules::default(),
        scheme: Scheme::TwoCTwoP(settings.clone()),
    }
}

fn settings(secret: &str) -> TwoCTwoPAccount {
    let bytes = secret.as_bytes().to_vec().into();
    TwoCTwoPAccount {
        merchant_id: "JT01".to_owned(),
        secret_key: Some(KeyMaterial {
            origin: "test".to_owned(),
            bytes,
        }),
        utc_offset_minutes: 420,
        capture: Capture::Auto,
    }
}

fn scheme() -> TwoCTwoP {
    TwoCTwoP::new(&account(&settings(SECRET)), &settings(SECRET)).unwrap()
}

fn sent(body: &[u8]) -> Notification {
    Notification {
        path: "/notify/2c2p/th".to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::copy_from_slice(body),
        received_at: Timestamp::from_secs(1_700_000_000),
        remote_addr: None,
    }
}

fn signed(claims: &str) -> Notification {
    sent(&sign(SECRET.as_bytes(), claims).unwrap())
}

fn reason(notification: &Notification) -> Option<Reason> {
    scheme().verify(notification).err().map(|refusal| refusal.reason)
}

fn claims(code: &str, amount: &Value) -> Value {
    json!({ "merchantID": "JT01", "invoiceNo": "ORDER-1", "amount": amount, "currencyCode": "THB",
            "tranRef": "2868821", "transactionDateTime": "20240301100005", "respCode": code, "respDesc": "words" })
}

fn verified(claims: &Value) -> Verified {
    scheme().verify(&signed(&claims.to_string())).unwrap()
}

fn says(code: &str) -> Reading {
    verified(&claims(code, &json!(230.87))).reading
}

#[test]
fn a_payment_is_read_whether_its_amount_is_quoted_or_not() {
    for amount in ["230.87", "\"230.87\"", "\"230.87000\"", "230.870"] {
        let text = claims("0000", &json!("AMOUNT"))
            .to_string()
            .replace("\"AMOUNT\"", amount);
        let verified = scheme().verify(&signed(&text)).unwrap();
        assert_eq!(verified.key.as_str(), "webhook:2c2p:th:ORDER-1:2868821:0000");
        let reading = &verified.reading;
        assert_eq!(reading.kind, "payment.succeeded");
        let fact = &reading.facts[0];
        assert_eq!(
            (fact.kind, fact.key.as_str()),
            (FactKind::PaymentSucceeded, "JT01:ORDER-1:2868821:paid")
        );
        assert_eq!(fact.amount.unwrap().minor, 23087);
        assert_eq!(
            fact.at.unwrap().to_string(),
            "2024-03-01T03:00:05Z",
            "its zone is the account's"
        );
        assert_eq!(
            reading.links,
            [("JT01:ORDER-1:2868821".to_owned(), "ORDER-1".to_owned())]
        );
        assert_eq!(
            scheme().read(verified.content.as_ref().unwrap(), "0000").unwrap(),
            *reading
        );
    }
}

#[test]
fn success_over_nothing_is_no_payment() {
    for code in ["0000", "4110"] {
        for amount in [json!("0.00000"), json!(0)] {
            let reading = verified(&claims(code, &amount)).reading;
            assert_eq!(
                (&*reading.kind, reading.facts.len(), reading.links.len()),
                (&*format!("other.{code}"), 0, 0)
            );
            assert_eq!(reading.order_id.as_deref(), Some("ORDER-1"));
        }
    }
}

#[test]
fn approval_is_an_authorisation_where_captures_are_manual() {
    let settings = TwoCTwoPAccount {
        capture: Capture::Manual,
        ..settings(SECRET)
    };
    let scheme = TwoCTwoP::new(&account(&settings), &settings).unwrap();
    let says = |code: &str, amount: &str| {
        let text = claims(code, &json!(amount)).to_string();
        let reading = scheme.verify(&signed(&text)).unwrap().reading;
        let facts: Vec<_> = reading
            .facts
            .iter()
            .map(|fact| (fact.kind, fact.amount))
            .collect();
        (reading.kind, facts)
    };
    assert_eq!(
        says("0000", "230.87"),
        (
            "payment.processing".to_owned(),
            vec![(FactKind::PaymentProcessing, None)]
        )
    );
    let (kind, facts) = says("4110", "100.00");
    assert_eq!(
        (&*kind, facts[0].0),
        ("payment.succeeded", FactKind::PaymentSucceeded)
    );
    assert_eq!(facts[0].1.unwrap().minor, 10000);
}

#[test]
fn amounts_that_do_not_fit_wait_for_a_human() {
    for amount in ["230.875", "1e2", "\"abc\"", "-5", "null", "true"] {
        let text = claims("0000", &json!("AMOUNT"))
            .to_string()
            .replace("\"AMOUNT\"", amount);
        let reading = scheme().verify(&signed(&text)).unwrap().reading;
        assert!(
            reading.amount_unreadable.is_some() && reading.facts.is_empty(),
            "{amount}"
        );
    }
    assert_eq!(
        verified(&claims("0001", &Value::Null)).reading.facts.len(),
        1,
        "pending moves no money"
    );
}

#[test]
fn codes_mean_what_they_mean_on_this_channel() {
    let first = |code: &str| says(code).facts.first().map(|fact| fact.kind);
    for code in ["0000", "4110"] {
        assert_eq!(first(code), Some(FactKind::PaymentSucceeded));
    }
    for code in ["0001", "0004", "2001"] {
        assert_eq!(first(code), Some(FactKind::PaymentProcessing), "{code}");
    }
    for code in ["0003", "0999", "2003", "4001", "4051", "4099", "5002", "5009"] {
        assert_eq!(first(code), Some(FactKind::PaymentFailed), "{code}");
    }
    for code in [
        "2000", "2002", "4000", "4100", "4200", "5005", "9015", "40a1", "40", "",
    ] {
        assert_eq!(first(code), None, "{code}");
    }
    assert_eq!(says("4110").kind, "other.4110", "0000 is the payment's message");
    assert_eq!(says("4051").facts[0].reason.as_deref(), Some("words"));
    let chargeback = says("4130");
    let kinds: Vec<_> = chargeback.facts.iter().map(|fact| fact.kind).collect();
    assert_eq!(kinds, [FactKind::DisputeOpened, FactKind::DisputeFundsWithdrawn]);
    assert_eq!(chargeback.kind, "dispute.opened");
}

#[test]
fn partial_refunds_have_their_own_keys_and_a_rejection_takes_none_back() {
    let refund = |code: &str, amount: f64| verified(&claims(code, &json!(amount)));
    let (first, second) = (refund("4120", 10.5), refund("4120", 20.0));
    assert_eq!(first.key.as_str(), "webhook:2c2p:th:ORDER-1:2868821:4120:10.5");
    assert_ne!(first.key, second.key);
    assert_eq!(
        first.reading.refund_id.as_deref(),
        Some("JT01:ORDER-1:2868821:1050")
    );
    let rejected = refund("4121", 10.5);
    assert_eq!(rejected.reading.kind, "refund.failed");
    assert_ne!(rejected.reading.refund_id, first.reading.refund_id);
}

#[test]
fn another_merchant_is_genuine_but_not_ours() {
    let mut other = claims("0000", &json!("1.00"));
    other["merchantID"] = json!("JT02");
    let verified = verified(&other);
    assert_eq!(verified.reading.kind, "other.identity_mismatch");
    assert!(matches!(verified.reading.identity, Identity::Mismatch(_)));
}

#[test]
fn c32_the_token_does_not_choose_its_algorithm() {
    let good = String::from_utf8(signed(&claims("0000", &json!("1.00")).to_string()).body.to_vec()).unwrap();
    let token = good.trim_start_matches("{\"payload\":\"").trim_end_matches("\"}");
    let parts: Vec<_> = token.split('.').collect();
    let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text);
    for alg in ["none", "HS384", "HS512", "RS256", "PS256", "hs256", ""] {
        let header = encode(&format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#));
        for signature in ["", parts[2]] {
            let forged = format!(r#"{{"payload":"{header}.{}.{signature}"}}"#, parts[1]);
            assert_eq!(
                reason(&sent(forged.as_bytes())),
                Some(Reason::BadSignature),
                "{alg}"
            );
        }
    }
    let padded = format!(r#"{{"payload":"{token}="}}"#);
    assert_eq!(reason(&sent(padded.as_bytes())), Some(Reason::BadSignature));
}

#[test]
fn the_secret_is_text_and_the_mistake_is_named() {
    let raw = hex::decode(SECRET).unwrap();
    let wrong = sent(&sign(&raw, &claims("0000", &json!("1.00")).to_string()).unwrap());
    assert_eq!(reason(&wrong), Some(Reason::BadSignature));
    assert!(scheme().explain(&wrong).hint.unwrap().contains("hex"));
}

#[test]
fn what_is_no_backend_notification_is_malformed() {
    let bodies = [
        "",
        "{}",
        "[]",
        "notifyResponse=abc",
        r#"{"payload":1}"#,
        r#"{"payload":"a.b"}"#,
        r#"{"payload":"a.b.c.d.e"}"#,
    ];
    for body in bodies {
        assert_eq!(reason(&sent(body.as_bytes())), Some(Reason::Malformed), "{body}");
    }
    let good = signed("{}").body;
    let twice = String::from_utf8(good.to_vec())
        .unwrap()
        .replacen('{', r#"{"payload":"x.y.z","#, 1);
    assert_eq!(reason(&sent(twice.as_bytes())), Some(Reason::Malformed));
    assert!(scheme().explain(&sent(b"notifyResponse=x")).hint.is_some());
}

#[test]
fn signed_claims_that_cannot_be_understood_are_kept() {
    for odd in ["", "hello", r#"{"invoiceNo":"a","invoiceNo":"b"}"#, "[1"] {
        let verified = scheme().verify(&signed(odd)).unwrap();
        assert_eq!(verified.reading.kind, "other.unreadable", "{odd}");
        assert!(verified.key.as_str().starts_with("webhook:2c2p:th:sha256:"));
    }
    let sample = r#"{"merchantID":"JT01","invoiceNo":"152","description":"item 1","amount":1000,"currencyCode":"SGD"}"#;
    let verified = scheme().verify(&signed(sample)).unwrap();
    assert_eq!(
        (verified.reading.kind.as_str(), verified.reading.facts.len()),
        ("other.no_resp_code", 0)
    );
    assert!(verified.key.as_str().contains(":sha256:"));
}

#[test]
fn ids_that_do_not_identify_are_said_and_give_no_key() {
    let with = |name: &str, value: &str| {
        let mut claims = claims("0000", &json!("1.00"));
        claims[name] = value.into();
        verified(&claims)
    };
    for (name, value) in [
        ("invoiceNo", "x".repeat(256)),
        ("tranRef", "1:2".to_owned()),
        ("invoiceNo", "a\0".to_owned()),
    ] {
        let verified = with(name, &value);
        assert!(
            verified
                .reading
                .unreadable
                .is_some_and(|said| said.contains(name)),
            "{name}"
        );
        assert!(verified.reading.facts.is_empty() && verified.key.as_str().contains(":sha256:"));
    }
    // Joined, both would be ORDER:1:2868821:0000.
    let (one, other) = (with("invoiceNo", "ORDER:1"), with("tranRef", "1:2868821"));
    assert!(one.reading.unreadable.is_none() && one.key != other.key);
}

#[test]
fn a_repeat_agrees_whatever_its_layout_and_other_claims_do_not() {
    let first = claims("0000", &json!("1.00"));
    let pretty = serde_json::to_string_pretty(&first).unwrap();
    let print = |text: &str| scheme().verify(&signed(text)).unwrap().fingerprint;
    assert!(print(&first.to_string()).agrees_with(&print(&pretty)));
    assert!(!print(&first.to_string()).agrees_with(&print(&claims("0000", &json!("2.00")).to_string())));
}

#[test]
fn an_account_needs_a_merchant_and_a_secret() {
    let bad = TwoCTwoPAccount {
        merchant_id: String::new(),
        secret_key: None,
        utc_offset_minutes: 420,
        capture: Capture::Auto,
    };
    assert_eq!(TwoCTwoP::new(&account(&bad), &bad).unwrap_err().len(), 2);
    assert_eq!(
        TwoCTwoP::new(&account(&settings("\n")), &settings("\n"))
            .unwrap_err()
            .len(),
        1
    );
}

proptest! {
    #[test]
    fn any_change_of_the_token_is_refused(bit in 0_u8..7, at in any::<prop::sample::Index>()) {
        let mut body = signed(r#"{"merchantID":"JT01","invoiceNo":"A","respCode":"0000"}"#).body.to_vec();
        let (first, last) = (12, body.len() - 2);
        let at = first + at.index(last - first);
        body[at] ^= 1 << bit;
        prop_assert!(scheme().verify(&sent(&body)).is_err());
    }

    #[test]
    fn any_body_and_any_claims_are_taken(body in proptest::collection::vec(any::<u8>(), 0..200), claims in "\\PC{0,60}") {
        prop_assert!(scheme().verify(&sent(&body)).is_err());
        prop_assert!(!scheme().explain(&sent(&body)).steps.is_empty());
        prop_assert!(scheme().verify(&signed(&claims)).is_ok());
    }
}
