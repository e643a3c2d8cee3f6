//! `payhook verify` and the public listener are one code path: every sample, signed for now, is posted to the real
//! binary and judged by its command line, and what the daemon answered, stored and applied is what was named.

use std::collections::BTreeSet;
use std::fs;

use payhook::event::Notification;
use payhook::provider::request_file::RequestFile;
use payhook::samples::{self, Sample};
use payhook::time::Clock;
use serde_json::Value;

use crate::support::daemon::{Daemon, Setup};
use crate::support::rabbit::until;
use crate::support::store::{FreshStore, on_both_stores};

/// A daemon with the samples' own accounts.
fn daemon(fresh: &FreshStore) -> Daemon {
    let daemon = Daemon::new(&Setup {
        store: Some(&fresh.url),
        ..Setup::default()
    });
    let own = fs::read_to_string(daemon.config()).unwrap();
    // The samples' configuration has the daemon's own name, and its key files lie beside it.
    samples::unpack(daemon.folder()).unwrap();
    let accounts = fs::read_to_string(daemon.config()).unwrap();
    fs::write(daemon.config(), own + &accounts).unwrap();
    daemon
}

/// What `payhook verify --json` says of `notification`.
fn verify(daemon: &Daemon, sample: &Sample, notification: &Notification) -> Value {
    let file = daemon.folder().join("request.http");
    let request = RequestFile {
        path: notification.path.clone(),
        headers: notification.headers.clone(),
        body: notification.body.clone(),
        ..sample.request.clone()
    };
    fs::write(&file, request.to_bytes()).unwrap();
    let account = format!("{}/{}", sample.provider, sample.account);
    let (file, at) = (file.display().to_string(), notification.received_at.to_string());
    let (code, out, err) = daemon.run(&[
        "verify",
        "--account",
        &account,
        "--request",
        &file,
        "--at",
        &at,
        "--json",
    ]);
    let judged: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert_eq!(code, i32::from(judged["verdict"] != "verified"), "{out}{err}");
    judged
}

/// A fact as both sides write it: provider, key, kind, trade, refund, amount, currency. Not its order: of two
/// events that tell it, one may know the trade only.
fn fact(provider: &str, fact: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let amount = &fact["amount"];
    let minor = amount["minor"]
        .as_i64()
        .map_or("-".to_owned(), |minor| minor.to_string());
    [
        provider.to_owned(),
        text(&fact["key"]),
        text(&fact["fact"]),
        text(&fact["trade_id"]),
        text(&fact["refund_id"]),
        minor,
        text(&amount["currency"]),
    ]
    .join("|")
}

const FACTS: &str = "select provider || '|' || replace(key, ':unsigned', '') || '|' || kind || '|' \
    || coalesce(trade_id, '-') || '|' || coalesce(refund_id, '-') || '|' \
    || coalesce(cast(amount as text), '-') || '|' || coalesce(currency, '-') from facts";

on_both_stores! {
    async fn every_sample_comes_to_what_verify_names(fresh) {
        let mut daemon = daemon(&fresh);
        daemon.start().await;
        let client = reqwest::Client::new();
        let nowhere = daemon.notify_url("/");
        until("the public listener", async || client.get(&nowhere).send().await.is_ok()).await;

        let (mut events, mut facts, mut orders, mut refused) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), Vec::new());
        for sample in samples::all().unwrap() {
            let name = format!("{}/{}", sample.provider, sample.case);
            let notification = sample.sent_now(Clock::system().now()).unwrap();
            let post = client.post(daemon.notify_url(&notification.path)).headers(notification.headers.clone());
            let answer = post.body(notification.body.clone()).send().await.unwrap();
            let judged = verify(&daemon, &sample, &notification);

            let ack = &sample.expected.ack;
            assert_eq!(answer.status().as_u16(), ack.status, "{name}");
            let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
            assert_eq!(kind, ack.content_type, "{name}");
            assert_eq!(answer.bytes().await.unwrap(), ack.body, "{name}");

            let provider = sample.provider.as_str();
            if judged["verdict"] == "verified" {
                assert_eq!(ack.status, 200, "{name}");
                let text = |member: &str| judged[member].as_str().unwrap_or("-").to_owned();
                events.insert([provider.to_owned(), text("event_key"), text("type"), text("order_id")].join("|"));
                if judged["identity"] == "ok" {
                    let told = judged["facts"].as_array().unwrap();
                    facts.extend(told.iter().map(|told| fact(provider, told)));
                    orders.extend(told.iter().filter_map(|told| told["order_id"].as_str().map(str::to_owned)));
                }
            } else {
                assert_ne!(ack.status, 200, "{name}");
                let reason = judged["reason"].as_str().unwrap();
                if reason != "probe" {
                    refused.push(format!("{provider}|{reason}"));
                }
            }
        }
        assert!(events.len() > 30 && facts.len() > 30 && refused.len() > 5, "{events:?}");

        let all = i64::try_from(events.len()).unwrap();
        until("every event to end", async || fresh.number("select count(*) from event_outcomes").await == all).await;
        let stored = "select provider || '|' || event_key || '|' || type || '|' || coalesce(order_id, '-') from events";
        assert_eq!(fresh.texts(stored).await.into_iter().collect::<BTreeSet<_>>(), events);
        assert_eq!(fresh.texts(FACTS).await.into_iter().collect::<BTreeSet<_>>(), facts);
        let stored: BTreeSet<_> = fresh.texts("select order_id from orders").await.into_iter().collect();
        assert!(orders.len() > 10 && orders.is_subset(&stored), "{orders:?} {stored:?}");
        let kept = i64::try_from(refused.len()).unwrap();
        until("every refusal to be kept", async || fresh.number("select count(*) from quarantine").await == kept).await;
        let mut reasons = fresh.texts("select provider || '|' || reason from quarantine").await;
        reasons.sort();
        refused.sort();
        assert_eq!(reasons, refused);
    }
}
