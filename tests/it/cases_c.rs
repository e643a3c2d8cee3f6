//! What bit receivers of Stripe (and of tokens) elsewhere: verification and acks, one test per case.
//!
//! How facts move orders (C12, C15, C17, C18, C23) is the rules' own table; crashes, poison and two relays are the
//! storm's, the worker's and the relay's. `cases` says that each is named somewhere.

use futures_util::future::join_all;
use payhook::event::{FactKind, Notification};
use payhook::provider::{Reason, Verified, stripe};
use payhook::store::Recorded;
use payhook::time::Timestamp;
use payhook::worker::Tally;
use serde_json::Value;

use crate::support::listener::{Listener, record};
use crate::support::signed::{
    self, STRIPE_PAID, STRIPE_SECRET, Senders, TWOCTWOP_PAID, TWOCTWOP_SECRET, accounts, notification, now,
    registry_of, scheme,
};
use crate::support::store::on_both_stores;
use crate::worker::{embedded, make_due, paid as worker_paid};

const STRIPE: &str = "stripe/shop-intl";
const ACK: &str = r#"{"received":true}"#;
const FAIL: &str = r#"{"error":"refused"}"#;

fn judge_with(accounts: &str, notification: &Notification) -> Result<Verified, Reason> {
    let registry = registry_of(accounts);
    let verdict = scheme(&registry, STRIPE).verify(notification);
    verdict.map_err(|refusal| refusal.reason)
}

fn judge(notification: &Notification) -> Result<Verified, Reason> {
    judge_with(&accounts(), notification)
}

fn paid() -> Notification {
    Senders::stripe(STRIPE_PAID.as_bytes())
}

fn headed(header: &str) -> Notification {
    notification(
        "/notify/stripe/shop-intl",
        &[("stripe-signature", header)],
        STRIPE_PAID,
    )
}

/// The v1 of `body` at the present under `secret`.
fn v1(secret: &str) -> String {
    let header = stripe::sign(secret.as_bytes(), now(), STRIPE_PAID.as_bytes());
    header.split_once(",v1=").unwrap().1.to_owned()
}

fn off_by(seconds: i64) -> Notification {
    Notification {
        received_at: Timestamp::from_secs(now().secs() + seconds),
        ..paid()
    }
}

#[tokio::test]
async fn c01_c02_only_the_raw_bytes_verify() {
    Listener::with(&accounts(), async |listener| {
        let value: Value = serde_json::from_str(STRIPE_PAID).unwrap();
        for rewritten in [
            value.to_string(),
            serde_json::to_string_pretty(&value).unwrap() + "\n",
        ] {
            let changed = Notification {
                body: rewritten.into(),
                ..paid()
            };
            assert_eq!(listener.post(&changed).await.seen(), (401, FAIL));
        }
        let answer = listener.post(&paid()).await;
        assert_eq!(answer.seen(), (200, ACK));
        assert_eq!(answer.content_type.as_deref(), Some("application/json"));
    })
    .await;
}

#[test]
fn c03_a_skewed_clock_refuses_and_the_skew_can_be_read() {
    assert_eq!(judge(&off_by(-301)).unwrap_err(), Reason::OutsideWindow);
    // What the clock offset metric is made of.
    let verified = judge(&off_by(120)).unwrap();
    assert_eq!(
        off_by(120).received_at.micros_since(verified.signed_at.unwrap()),
        120_000_000
    );
}

#[test]
fn c04_the_verdict_hangs_on_the_arrival_and_not_on_when_it_is_asked_for() {
    let long_ago = Timestamp::from_secs(1_000_000_000);
    let header = stripe::sign(STRIPE_SECRET.as_bytes(), long_ago, STRIPE_PAID.as_bytes());
    let kept = Notification {
        received_at: long_ago,
        ..headed(&header)
    };
    let verified = judge(&kept).unwrap();
    // And the worker reads the stored content, with no signature to judge.
    let registry = registry_of(&accounts());
    let again = scheme(&registry, STRIPE)
        .read(&kept.body, "payment_intent.succeeded")
        .unwrap();
    assert_eq!(again, verified.reading);
}

#[test]
fn c05_the_tolerance_is_the_accounts_own_and_300_s_at_first() {
    assert!(judge(&off_by(300)).is_ok());
    let secrets = format!("signing_secrets = [\"{STRIPE_SECRET}\"]");
    let narrow = accounts().replace(&secrets, &format!("{secrets}\ntolerance = \"10s\""));
    assert_eq!(
        judge_with(&narrow, &off_by(15)).unwrap_err(),
        Reason::OutsideWindow
    );
    assert!(judge_with(&narrow, &off_by(10)).is_ok());
}

#[test]
fn c06_the_window_has_two_sides() {
    for off in [301, -301, 100_000, -100_000] {
        assert_eq!(judge(&off_by(off)).unwrap_err(), Reason::OutsideWindow, "{off}");
    }
}

#[test]
fn c07_any_v1_will_do_wherever_it_stands() {
    let (t, good, bad) = (now().secs(), v1(STRIPE_SECRET), v1("whsec_other"));
    for header in [
        format!("t={t},v1={good},v1={bad}"),
        format!("t={t},v1={bad},v1={good}"),
        format!("t={t},v1=,v1=zz,v1={good},v0={bad}"),
    ] {
        assert!(judge(&headed(&header)).is_ok(), "{header}");
    }
    for header in [
        format!("t={t},v0={good}"),
        format!("t={t},v1={bad}"),
        String::new(),
    ] {
        assert!(judge(&headed(&header)).is_err(), "{header}");
    }
}

#[test]
fn c09_a_thin_event_is_told_by_its_object() {
    let thin = r#"{"id":"evt_thin","object":"v2.core.event","type":"v1.payment_intent.succeeded","created":"2026-11-29T04:05:06.123Z","livemode":false,"related_object":{"id":"pi_1","type":"payment_intent"}}"#;
    let verified = judge(&Senders::stripe(thin.as_bytes())).unwrap();
    assert!(
        verified.reading.facts.is_empty(),
        "nothing is fetched, nothing is applied"
    );
    assert!(verified.key.as_str().ends_with(":evt_thin"));
}

#[test]
fn c10_another_api_version_is_read_as_far_as_it_goes() {
    let old = STRIPE_PAID
        .replace("2024-06-20", "2019-12-03")
        .replace("\"status\"", "\"brand_new\": {}, \"status\"");
    let verified = judge(&Senders::stripe(old.as_bytes())).unwrap();
    assert_eq!(verified.reading.facts[0].kind, FactKind::PaymentSucceeded);
}

#[test]
fn c11_every_secret_of_the_list_is_good() {
    let two = accounts().replace(
        &format!("[\"{STRIPE_SECRET}\"]"),
        &format!("[\"whsec_of_the_command_line\", \"{STRIPE_SECRET}\"]"),
    );
    let t = now().secs();
    for secret in ["whsec_of_the_command_line", STRIPE_SECRET] {
        let sent = headed(&format!("t={t},v1={}", v1(secret)));
        assert!(judge_with(&two, &sent).is_ok(), "{secret}");
    }
    assert!(judge_with(&two, &headed(&format!("t={t},v1={}", v1("whsec_third")))).is_err());
}

#[tokio::test]
async fn c22_fifty_identical_posts_at_once_are_one_event_and_fifty_acks() {
    Listener::with(&accounts(), async |listener| {
        let sent = paid();
        let heard = join_all((0..50).map(|_| listener.post(&sent))).await;
        assert!(
            heard.iter().all(|answer| answer.seen() == (200, ACK)),
            "{heard:?}"
        );
        assert_eq!(listener.keys().await.len(), 1);
        assert_eq!(listener.fresh.number("select count(*) from outbox").await, 1);
    })
    .await;
}

#[tokio::test]
async fn c24_an_event_that_names_no_order_is_taken() {
    Listener::with(&accounts(), async |listener| {
        let nameless = STRIPE_PAID.replace("{\"order_id\": \"ORDER-1004\"}", "{}");
        assert_ne!(nameless, STRIPE_PAID);
        assert_eq!(
            listener.post(&Senders::stripe(nameless.as_bytes())).await.seen(),
            (200, ACK)
        );
    })
    .await;
}

#[tokio::test]
async fn c25_a_database_that_fails_means_503_and_a_retry_is_taken() {
    Listener::with(&accounts(), async |listener| {
        listener
            .fresh
            .by_hand("alter table events rename to gone")
            .await
            .unwrap();
        assert_eq!(listener.post(&paid()).await.seen(), (503, FAIL));
        listener
            .fresh
            .by_hand("alter table gone rename to events")
            .await
            .unwrap();
        assert_eq!(listener.post(&paid()).await.seen(), (200, ACK));
    })
    .await;
}

#[test]
fn c32_the_token_never_chooses_its_algorithm() {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let registry = registry_of(&accounts());
    let judge = |token: String| {
        let body = format!("{{\"payload\":\"{token}\"}}");
        let verdict = scheme(&registry, "2c2p/shop-th").verify(&notification("/", &[], body));
        verdict.map(|_| ()).map_err(|refusal| refusal.reason)
    };
    let claims = encode(TWOCTWOP_PAID.as_bytes());
    let signed_by = |header: &str, secret: &str| {
        let message = format!("{}.{claims}", encode(header.as_bytes()));
        let mac = payhook::provider::signature::mac::hmac_sha256(secret.as_bytes(), &[message.as_bytes()]);
        format!("{message}.{}", encode(&mac))
    };
    assert_eq!(
        judge(signed_by(r#"{"alg":"HS256","typ":"JWT"}"#, TWOCTWOP_SECRET)),
        Ok(())
    );
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":"HS512"}"#,
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"typ":"JWT"}"#,
        r"{}",
    ] {
        assert!(judge(signed_by(header, TWOCTWOP_SECRET)).is_err(), "{header}");
        assert!(
            judge(format!("{}.{claims}.", encode(header.as_bytes()))).is_err(),
            "{header}, unsigned"
        );
    }
}

#[tokio::test]
async fn c33_a_duplicate_is_no_error() {
    Listener::with_postgres(&accounts(), async |listener| {
        let sent = paid();
        let heard = join_all((0..8).map(|_| listener.post(&sent))).await;
        assert!(
            heard.iter().all(|answer| answer.seen() == (200, ACK)),
            "{heard:?}"
        );
        assert_eq!(listener.post(&sent).await.seen(), (200, ACK));
        assert_eq!(listener.keys().await.len(), 1);
        // The transaction of the one does not fail the other.
        let other = signed::STRIPE_PAID.replace("evt_1PtestPaid", "evt_2");
        assert_eq!(
            listener.post(&Senders::stripe(other.as_bytes())).await.seen(),
            (200, ACK)
        );
        assert_eq!(listener.keys().await.len(), 2);
    })
    .await;
}

on_both_stores! {
    /// Everything that an event does is one transaction with the word that it was done.
    async fn c20_a_write_that_fails_leaves_nothing_and_the_next_try_does_it_all(fresh) {
        let (mut worker, _handoffs) = embedded(&fresh.store, "one", 8);
        fresh.store.insert_fresh(&[worker_paid(1)], None).await.unwrap();
        fresh.by_hand("alter table ledger_entries rename to away").await.unwrap();
        let failed = Tally { retried: 1, ..Tally::default() };
        assert_eq!(worker.step().await.unwrap(), failed);
        for table in ["orders", "trades", "facts", "order_history", "messages", "event_outcomes"] {
            assert_eq!(fresh.number(&format!("select count(*) from {table}")).await, 0, "{table}");
        }
        fresh.by_hand("alter table away rename to ledger_entries").await.unwrap();
        make_due(&fresh).await;
        let applied = Tally { applied: 1, ..Tally::default() };
        assert_eq!(worker.step().await.unwrap(), applied);
        assert_eq!(fresh.texts("select status from orders").await, ["paid"]);
        assert_eq!(fresh.number("select count(*) from ledger_entries").await, 1);
    }

    /// A duplicate of what is not done yet is acked and changes nothing about its being done.
    async fn c21_a_duplicate_of_an_unfinished_event_does_not_finish_it(fresh) {
        let (mut worker, _handoffs) = embedded(&fresh.store, "one", 8);
        let (event, again) = (worker_paid(1), worker_paid(1));
        let recorded = record(&fresh.store, &[event.clone(), again]).await;
        assert_eq!(recorded[1], Recorded::Duplicate { event_id: event.id.clone() });
        let applied = Tally { applied: 1, ..Tally::default() };
        assert_eq!(worker.step().await.unwrap(), applied);
        record(&fresh.store, &[worker_paid(1)]).await;
        assert_eq!(worker.step().await.unwrap(), Tally::default());
        assert_eq!(fresh.number("select count(*) from messages where routing_key = 'order.paid'").await, 1);
    }
}
