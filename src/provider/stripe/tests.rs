//! The scheme as a whole: signatures over real bytes, windows, keys, facts; ids such as C07 name reports.

mod charges;

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::{AccountState, KeyMaterial, Scheme};
use crate::event::{Fact, FactKind, Identity, Money};
use crate::time::Timestamp;

const SECRET: &[u8] = b"whsec_test_secret";
const NOW: i64 = 1_700_000_000;

fn settings(secrets: &[&str]) -> StripeAccount {
    let material = |text: &&str| KeyMaterial {
        origin: "test".to_owned(),
        bytes: text.as_bytes().to_vec().into(),
    };
    StripeAccount {
        signing_secrets: secrets.iter().map(material).collect(),
        tolerance: Duration::from_mins(5),
        order_id_from: vec!["metadata.order_id".to_owned(), "client_reference_id".to_owned()],
        ..StripeAccount::default()
    }
}

fn account(settings: &StripeAccount) -> Account {
    Account {
        path: "accounts[0]".to_owned(),
        name: "a".to_owned(),
        merchant: "default".to_owned(),
        state: AccountState::Active,
        rules: crate::event::AccountRules::default(),
        scheme: Scheme::Stripe(settings.clone()),
    }
}

fn scheme(settings: &StripeAccount) -> Stripe {
    Stripe::new(&account(settings), settings).unwrap()
}
fn stripe() -> Stripe {
    scheme(&settings(&["whsec_test_secret"]))
}

fn sent(header: &str, body: &[u8], at: i64) -> Notification {
    let mut headers = HeaderMap::new();
    headers.insert(header::NAME, HeaderValue::from_str(header).unwrap());
    Notification {
        path: "/notify/stripe/a".to_owned(),
        headers,
        body: Bytes::copy_from_slice(body),
        received_at: Timestamp::from_secs(at),
        remote_addr: None,
    }
}

fn signed(body: &[u8]) -> Notification {
    sent(&sign(SECRET, Timestamp::from_secs(NOW), body), body, NOW)
}

fn reason(notification: &Notification) -> Option<Reason> {
    stripe().verify(notification).err().map(|refusal| refusal.reason)
}

fn verified(body: &Value) -> Verified {
    stripe().verify(&signed(body.to_string().as_bytes())).unwrap()
}

fn event(kind: &str, object: &Value) -> Value {
    json!({ "id": "evt_1", "object": "event", "type": kind, "created": NOW, "livemode": false,
            "api_version": "2019-12-03", "data": { "object": object } })
}

fn says(kind: &str, object: &Value) -> Reading {
    verified(&event(kind, object)).reading
}

fn intent(extra: &Value) -> Value {
    let mut object = json!({ "id": "pi_1", "object": "payment_intent", "amount": 8888, "amount_received": 8888,
                             "currency": "cny", "metadata": { "order_id": "ORDER-1" } });
    for (name, value) in extra.as_object().unwrap() {
        object[name] = value.clone();
    }
    object
}

fn charge(extra: &Value) -> Value {
    let mut object = json!({ "id": "ch_1", "object": "charge", "amount": 1000, "amount_captured": 1000,
                             "amount_refunded": 0, "captured": true, "currency": "usd", "created": NOW - 60,
                             "payment_intent": "pi_1" });
    for (name, value) in extra.as_object().unwrap() {
        object[name] = value.clone();
    }
    object
}

fn kinds(reading: &Reading) -> Vec<(FactKind, &str, Option<i64>)> {
    let line = |fact: &'_ Fact| (fact.kind, fact.amount.map(|money| money.minor));
    reading
        .facts
        .iter()
        .map(|fact| (line(fact).0, fact.key.as_str(), line(fact).1))
        .collect()
}

#[test]
fn c01_c02_only_the_bytes_that_were_signed_verify() {
    let body = b"{\n  \"id\": \"evt_1\",\n  \"type\": \"a\"\n}";
    assert!(stripe().verify(&signed(body)).is_ok());
    let reserialised = sent(
        &sign(SECRET, Timestamp::from_secs(NOW), body),
        b"{\"id\":\"evt_1\",\"type\":\"a\"}",
        NOW,
    );
    assert_eq!(reason(&reserialised), Some(Reason::BadSignature));
    let explanation = stripe().explain(&reserialised);
    assert!(explanation.hint.unwrap().contains("indented by 2"));
    assert!(explanation.signed.unwrap().starts_with(b"1700000000.{"));
}

#[test]
fn c03_c06_the_window_has_two_sides_and_its_limits_belong_to_it() {
    let header = sign(SECRET, Timestamp::from_secs(NOW), b"{}");
    for off in [-300, 0, 300] {
        assert_eq!(reason(&sent(&header, b"{}", NOW + off)), None, "{off}");
    }
    for off in [-301, 301] {
        let outside = sent(&header, b"{}", NOW + off);
        assert_eq!(reason(&outside), Some(Reason::OutsideWindow), "{off}");
        assert!(stripe().explain(&outside).hint.unwrap().contains("301 s"));
    }
    let mut just = sent(&header, b"{}", NOW);
    just.received_at = Timestamp::from_micros((NOW + 300) * 1_000_000 + 1);
    assert_eq!(reason(&just), Some(Reason::OutsideWindow));
}

#[test]
fn c03_the_send_time_is_known_so_that_skew_is_seen() {
    let verified = stripe()
        .verify(&sent(
            &sign(SECRET, Timestamp::from_secs(NOW), b"{}"),
            b"{}",
            NOW + 200,
        ))
        .unwrap();
    assert_eq!(verified.signed_at, Some(Timestamp::from_secs(NOW)));
}

#[test]
fn c05_the_tolerance_is_the_accounts() {
    let narrow = scheme(&StripeAccount {
        tolerance: Duration::from_secs(10),
        ..settings(&["whsec_test_secret"])
    });
    let header = sign(SECRET, Timestamp::from_secs(NOW), b"{}");
    assert!(narrow.verify(&sent(&header, b"{}", NOW + 10)).is_ok());
    assert!(narrow.verify(&sent(&header, b"{}", NOW + 15)).is_err());
}

#[test]
fn c07_any_v1_will_do_wherever_it_stands() {
    let good = sign(SECRET, Timestamp::from_secs(NOW), b"{}");
    let (t, v1) = good.split_once(',').unwrap();
    for header in [
        format!("{t},{v1},v1=potato"),
        format!("{t},v1=potato,{v1}"),
        format!("v0=x,{v1},{t}"),
    ] {
        assert_eq!(reason(&sent(&header, b"{}", NOW)), None, "{header}");
    }
    let only_v0 = good.replace("v1=", "v0=");
    assert_eq!(reason(&sent(&only_v0, b"{}", NOW)), Some(Reason::BadSignature));
    assert!(
        stripe()
            .explain(&sent(&only_v0, b"{}", NOW))
            .hint
            .unwrap()
            .contains("v0")
    );
}

#[test]
fn c09_a_thin_event_is_told_by_its_object_and_moves_nothing() {
    let thin = json!({ "id": "evt_2", "object": "v2.core.event", "type": "v1.payment_intent.succeeded",
                       "created": "2022-02-15T00:27:45.330Z", "livemode": false,
                       "related_object": { "id": "pi_1", "type": "payment_intent", "url": "/v1/x" } });
    let verified = verified(&thin);
    assert_eq!(verified.key.as_str(), "webhook:stripe:a:evt_2");
    assert_eq!(verified.reading.kind, "other.v1.payment_intent.succeeded");
    assert!(verified.reading.facts.is_empty() && verified.reading.links.is_empty());
    assert_eq!(
        verified.reading.occurred_at.unwrap().to_string(),
        "2022-02-15T00:27:45.33Z"
    );
    let steps = stripe().explain(&signed(thin.to_string().as_bytes())).steps;
    assert!(steps.iter().any(|step| step.found.contains("thin event")));
}

#[test]
fn c10_no_api_version_is_required_and_unknown_members_are_kept() {
    let mut body = event(
        "payment_intent.succeeded",
        &intent(&json!({ "new_field": { "x": [1] } })),
    );
    body["api_version"] = json!("2019-12-03");
    let verified = verified(&body);
    assert_eq!(verified.reading.kind, "payment.succeeded");
    assert!(verified.content.is_none(), "the body is the content");
}

#[test]
fn c11_several_secrets_and_which_of_them_signed() {
    let both = scheme(&settings(&["whsec_new", "whsec_test_secret"]));
    assert_eq!(both.verify(&signed(b"{}")).unwrap().key_id, "#2");
    assert_eq!(both.keys().len(), 2);
}

#[test]
fn secrets_that_cannot_be_are_a_problem_with_their_path() {
    let bad = StripeAccount {
        tolerance: Duration::ZERO,
        ..settings(&["", "whsec a", "whsec_ok\n"])
    };
    let problems = Stripe::new(&account(&bad), &bad).unwrap_err();
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "accounts[0].signing_secrets[0]",
            "accounts[0].signing_secrets[1]",
            "accounts[0].tolerance"
        ]
    );
    let none = settings(&[]);
    assert_eq!(Stripe::new(&account(&none), &none).unwrap_err().len(), 1);
}

#[test]
fn a_missing_or_doubled_header_is_refused() {
    let mut bare = signed(b"{}");
    bare.headers.clear();
    assert_eq!(reason(&bare), Some(Reason::BadSignature));
    let mut twice = signed(b"{}");
    let value = twice.headers.get(header::NAME).unwrap().clone();
    twice.headers.append(header::NAME, value);
    assert_eq!(reason(&twice), Some(Reason::Malformed));
}

#[test]
fn a_secret_taken_for_something_else_is_named() {
    let header = sign(b"test_secret", Timestamp::from_secs(NOW), b"{}");
    assert!(
        stripe()
            .explain(&sent(&header, b"{}", NOW))
            .hint
            .unwrap()
            .contains("without its prefix")
    );
    let forged = sign(b"whsec_other", Timestamp::from_secs(NOW), b"{}");
    assert_eq!(stripe().explain(&sent(&forged, b"{}", NOW)).hint, None);
}

#[test]
fn answers_are_exact() {
    assert_eq!(stripe().ack(Verdict::Accepted, b"").body, br#"{"received":true}"#);
    for verdict in [Verdict::Refused, Verdict::Malformed, Verdict::Unavailable] {
        assert_eq!(stripe().ack(verdict, b"").body, br#"{"error":"refused"}"#);
    }
}

#[test]
fn payment_intents() {
    let paid = says("payment_intent.succeeded", &intent(&json!({})));
    assert_eq!(
        kinds(&paid),
        [(FactKind::PaymentSucceeded, "pi_1:paid", Some(8888))]
    );
    assert_eq!(paid.facts[0].at, Some(Timestamp::from_secs(NOW)));
    assert_eq!(paid.facts[0].order_id.as_deref(), Some("ORDER-1"));
    assert_eq!(paid.links, [("pi_1".to_owned(), "ORDER-1".to_owned())]);
    assert_eq!(
        (paid.order_id.as_deref(), paid.trade_id.as_deref()),
        (Some("ORDER-1"), Some("pi_1"))
    );

    let error = json!({ "code": "card_declined", "decline_code": "insufficient_funds" });
    let failed = says(
        "payment_intent.payment_failed",
        &intent(&json!({ "latest_charge": "ch_9", "last_payment_error": error })),
    );
    assert_eq!(
        (failed.kind.as_str(), kinds(&failed)[0].1),
        ("payment.failed", "pi_1:failed:ch_9")
    );
    assert_eq!(failed.facts[0].reason.as_deref(), Some("insufficient_funds"));
    let no_charge = says(
        "payment_intent.payment_failed",
        &intent(&json!({ "latest_charge": null })),
    );
    assert_eq!(kinds(&no_charge)[0].1, "pi_1:failed:evt_1");

    for kind in [
        "payment_intent.processing",
        "payment_intent.amount_capturable_updated",
    ] {
        assert_eq!(says(kind, &intent(&json!({}))).kind, "payment.processing");
    }
    let closed = says(
        "payment_intent.canceled",
        &intent(&json!({ "cancellation_reason": "abandoned" })),
    );
    assert_eq!(kinds(&closed), [(FactKind::TradeClosed, "pi_1:closed", None)]);

    let created = says("payment_intent.created", &intent(&json!({})));
    assert_eq!(
        (created.kind.as_str(), created.facts.len(), created.links.len()),
        ("other.payment_intent.created", 0, 1)
    );
}

#[test]
fn a_session_is_paid_only_if_it_says_so_and_is_never_the_payments_message() {
    let session = |status: &str| {
        json!({ "id": "cs_1", "object": "checkout.session", "amount_total": 1234, "currency": "eur",
                "payment_intent": "pi_2", "payment_status": status, "client_reference_id": "ORDER-2" })
    };
    let unpaid = says("checkout.session.completed", &session("unpaid"));
    assert_eq!((unpaid.facts.len(), unpaid.links.len()), (0, 1));
    for kind in [
        "checkout.session.completed",
        "checkout.session.async_payment_succeeded",
    ] {
        let paid = says(kind, &session("paid"));
        assert_eq!(
            kinds(&paid),
            [(FactKind::PaymentSucceeded, "pi_2:paid", Some(1234))]
        );
        assert_eq!(
            (paid.kind, paid.order_id.as_deref()),
            (format!("other.{kind}"), Some("ORDER-2"))
        );
    }
    let failed = says("checkout.session.async_payment_failed", &session("unpaid"));
    assert_eq!(failed.facts[0].kind, FactKind::PaymentFailed);
    assert!(
        says("checkout.session.expired", &session("unpaid"))
            .facts
            .is_empty()
    );
    let mut subscription = session("paid");
    subscription["payment_intent"] = Value::Null;
    assert!(says("checkout.session.completed", &subscription).facts.is_empty());
}

#[test]
fn disputes() {
    let dispute = |status: &str| {
        json!({ "id": "dp_1", "object": "dispute", "amount": 1000, "currency": "usd", "charge": "ch_1",
                "payment_intent": "pi_1", "status": status, "reason": "fraudulent" })
    };
    let fact = |kind: &str, status: &str| says(kind, &dispute(status));
    let opened = fact("charge.dispute.created", "needs_response");
    assert_eq!(
        kinds(&opened),
        [(FactKind::DisputeOpened, "dp_1:dispute_opened", Some(1000))]
    );
    assert_eq!(
        (opened.kind.as_str(), opened.trade_id.as_deref()),
        ("dispute.opened", Some("pi_1"))
    );
    assert_eq!(
        fact("charge.dispute.closed", "won").facts[0].kind,
        FactKind::DisputeWon
    );
    assert_eq!(
        fact("charge.dispute.closed", "warning_closed").facts[0].kind,
        FactKind::DisputeWon
    );
    let lost = fact("charge.dispute.closed", "lost");
    assert_eq!(
        (lost.facts[0].kind, lost.kind.as_str()),
        (FactKind::DisputeLost, "dispute.closed")
    );
    assert_eq!(
        fact("charge.dispute.funds_withdrawn", "x").facts[0].kind,
        FactKind::DisputeFundsWithdrawn
    );
    assert_eq!(
        fact("charge.dispute.funds_reinstated", "x").facts[0].kind,
        FactKind::DisputeFundsReinstated
    );
    assert!(fact("charge.dispute.updated", "x").facts.is_empty());
}

#[test]
fn amounts_leave_in_iso_units() {
    let paid = |units: Value, currency: &str| {
        says(
            "payment_intent.succeeded",
            &intent(&json!({ "amount_received": units, "currency": currency })),
        )
    };
    for (units, currency, minor) in [
        (500, "jpy", 500),
        (500, "ugx", 5),
        (500, "isk", 5),
        (1230, "kwd", 1230),
        (7, "mga", 700),
        (1999, "usd", 1999),
        (100, "huf", 100),
    ] {
        assert_eq!(
            paid(json!(units), currency).amount,
            Some(Money {
                minor,
                ..paid(json!(units), currency).amount.unwrap()
            })
        );
        assert_eq!(
            paid(json!(units), currency).facts[0].amount.unwrap().minor,
            minor,
            "{currency}"
        );
    }
    for (units, currency) in [
        (json!(501), "ugx"),
        (json!(1.5), "usd"),
        (json!("100"), "usd"),
        (json!(-1), "usd"),
        (Value::Null, "usd"),
        (json!(1), "dollars"),
    ] {
        let reading = paid(units.clone(), currency);
        assert!(
            reading.amount_unreadable.is_some() && reading.facts.is_empty(),
            "{units} {currency}"
        );
        assert_eq!(reading.links.len(), 1, "the link is taught all the same");
    }
}

#[test]
fn the_order_id_is_the_first_present_of_the_paths() {
    let named = |object: Value| says("payment_intent.created", &object).order_id;
    assert_eq!(
        named(json!({ "metadata": { "order_id": "A" }, "client_reference_id": "B" })).as_deref(),
        Some("A")
    );
    assert_eq!(
        named(json!({ "metadata": { "order_id": "" }, "client_reference_id": "B" })).as_deref(),
        Some("B")
    );
    assert_eq!(
        named(json!({ "metadata": null, "client_reference_id": null })),
        None
    );
    assert_eq!(named(json!({ "metadata.order_id": 17 })).as_deref(), Some("17"));
}

#[test]
fn an_id_that_cannot_be_used_is_said_and_nothing_else_is() {
    let long = "x".repeat(256);
    for (change, why) in [
        (
            json!({ "metadata": { "order_id": long } }),
            "metadata.order_id is longer than 255 bytes",
        ),
        (
            json!({ "metadata": { "order_id": "a\u{0}b" } }),
            "metadata.order_id holds a character",
        ),
        (
            json!({ "metadata": { "order_id": "a\u{fffd}b" }, "client_reference_id": "B" }),
            "metadata.order_id holds",
        ),
        (json!({ "id": long }), "id is longer"),
    ] {
        let body = event("payment_intent.succeeded", &intent(&change)).to_string();
        let verified = stripe().verify(&signed(body.as_bytes())).unwrap();
        let reading = verified.reading;
        assert!(
            reading
                .unreadable
                .as_ref()
                .is_some_and(|said| said.starts_with(why)),
            "{reading:?}"
        );
        assert!(reading.facts.is_empty() && reading.links.is_empty() && reading.order_id.is_none());
        assert_eq!(reading.provider_event_type, "payment_intent.succeeded");
        assert_eq!(verified.content, None, "the body itself is readable");
        assert_eq!(stripe().read(body.as_bytes(), "").unwrap(), reading);
    }
}

#[test]
fn ids_that_are_no_text_do_not_meet_in_one_event() {
    let body = event("payment_intent.created", &json!({ "id": "pi_1" })).to_string();
    let id = body.find("evt_").unwrap();
    let with = |byte: u8| {
        let mut body = body.clone().into_bytes();
        body[id] = byte;
        stripe().verify(&signed(&body)).unwrap()
    };
    let (one, other) = (with(0xfe), with(0xff));
    assert!(one.key.as_str().contains(":sha256:"), "{}", one.key);
    assert_ne!(one.key, other.key);
    assert_eq!(one.key, with(0xfe).key, "the same again is the same event");
    assert!(!one.fingerprint.agrees_with(&other.fingerprint));
}

#[test]
fn the_mode_is_checked_where_the_account_names_one() {
    let live = scheme(&StripeAccount {
        livemode: Some(true),
        ..settings(&["whsec_test_secret"])
    });
    let body = event("payment_intent.succeeded", &intent(&json!({}))).to_string();
    let verified = live.verify(&signed(body.as_bytes())).unwrap();
    assert_eq!(verified.reading.kind, "other.identity_mismatch");
    assert!(matches!(verified.reading.identity, Identity::Mismatch(_)));
    assert!(live.unchecked().is_empty() && !stripe().unchecked().is_empty());
}

#[test]
fn a_resent_event_agrees_and_a_changed_one_does_not() {
    let first = event("payment_intent.succeeded", &intent(&json!({})));
    let print = |body: &Value| verified(body).fingerprint;
    let mut resent = first.clone();
    resent["pending_webhooks"] = json!(3);
    assert!(print(&first).agrees_with(&print(&resent)));
    let indented = serde_json::to_vec_pretty(&first).unwrap();
    assert!(print(&first).agrees_with(&stripe().verify(&signed(&indented)).unwrap().fingerprint));
    let mut changed = first.clone();
    changed["data"]["object"]["amount_received"] = json!(1);
    assert!(!print(&first).agrees_with(&print(&changed)));
    changed["api_version"] = json!("2025-01-01");
    assert!(
        print(&first).agrees_with(&print(&changed)),
        "another rendering of the same event"
    );
    changed["data"]["object"]["id"] = json!("pi_2");
    assert!(!print(&first).agrees_with(&print(&changed)));
}

#[test]
fn a_signed_body_that_cannot_be_understood_is_kept() {
    let deep = format!(
        "{{\"id\":\"evt_9\",\"type\":\"x\",\"a\":{}{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let cases: [(&[u8], bool); 7] = [
        (b"", false),
        (b"hello", false),
        (b"{\"id\":\"evt_9\",\"type\":\"a\",\"type\":\"b\"}", true),
        (b"{\"id\":\"evt_9\",\"id\":\"evt_8\",\"type\":\"a\"}", false),
        (
            br#"{"id":"evt_9","type":"payment_intent.created","data":{"object":{"id":"a","id":"b"}}}"#,
            true,
        ),
        (b"{\"id\":\"evt_9\"}", true),
        (deep.as_bytes(), false),
    ];
    for (body, id_is_clear) in cases {
        let verified = stripe().verify(&signed(body)).unwrap();
        let shown = String::from_utf8_lossy(body).into_owned();
        assert_eq!(verified.reading.kind, "other.unreadable", "{shown}");
        assert_eq!(verified.content.as_deref(), Some(b"null".as_slice()), "{shown}");
        assert_eq!(
            verified.key.as_str() == "webhook:stripe:a:evt_9",
            id_is_clear,
            "{shown}"
        );
        assert_eq!(stripe().read(b"null", "").unwrap(), verified.reading);
    }
}

#[test]
fn half_a_surrogate_pair_in_a_description_loses_no_payment() {
    let body = event(
        "payment_intent.succeeded",
        &intent(&json!({ "description": "HERE" })),
    )
    .to_string();
    let body = body.replace("HERE", "\\ud800");
    let verified = stripe().verify(&signed(body.as_bytes())).unwrap();
    assert_eq!(verified.reading.kind, "payment.succeeded");
    let content = verified.content.unwrap();
    assert!(serde_json::from_slice::<Value>(&content).is_ok());
    assert_eq!(stripe().read(&content, "").unwrap(), verified.reading);
}

proptest! {
    #[test]
    fn any_change_of_signed_bytes_is_refused(bit in 0_u8..8, at in any::<prop::sample::Index>()) {
        let mut notification = signed(b"{\"id\":\"evt_1\",\"type\":\"payment_intent.succeeded\"}");
        let mut body = notification.body.to_vec();
        let at = at.index(body.len());
        body[at] ^= 1 << bit;
        notification.body = body.into();
        prop_assert_eq!(reason(&notification), Some(Reason::BadSignature));
    }

    #[test]
    fn any_signed_bytes_are_verified_and_any_header_is_taken(body in proptest::collection::vec(any::<u8>(), 0..200), header in "[ -~]{0,80}") {
        prop_assert!(stripe().verify(&signed(&body)).is_ok());
        let odd = sent(&header, &body, NOW);
        prop_assert!(stripe().verify(&odd).is_err());
        prop_assert!(!stripe().explain(&odd).steps.is_empty());
    }
}
