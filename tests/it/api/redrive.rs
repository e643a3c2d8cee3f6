//! Dead letters to the workers again: one, or all that match, each entered in the audit.

use std::collections::BTreeSet;

use payhook::event::EventId;
use payhook::store::dead_letters::succeeded;
use payhook::store::outbox::{FailurePolicy, Scope};
use serde_json::json;

use super::replays::{paid, post};
use super::*;
use crate::support::signed::Senders;

fn default_merchant() -> BTreeSet<String> {
    BTreeSet::from(["default".to_owned()])
}

pub(super) async fn bury(fresh: &FreshStore, numbers: std::ops::Range<usize>) -> Vec<String> {
    let senders = Senders::new();
    for number in numbers {
        let event = paid(&senders, number);
        fresh
            .store
            .insert_fresh(&[Arc::new(event.clone())], None)
            .await
            .unwrap();
        let policy = FailurePolicy::new(1, true);
        fresh
            .store
            .record_failure(&event, "no account", &policy)
            .await
            .unwrap();
    }
    fresh.texts("select id from dead_letters order by id").await
}

on_both_stores! {
    async fn one_is_redriven_once(fresh) {
        let letters = bury(&fresh, 1..2).await;
        fresh.store.bury_unknown(&default_merchant(), "x", "unknown", b"{}").await.unwrap();
        let nobodys = fresh.texts("select id from dead_letters where event_id is null").await.remove(0);
        fresh.by_hand("delete from outbox").await.unwrap();
        let api = Api::over(&fresh);
        let path = |id: &str| format!("/v1/dead-letters/{id}/redrive");
        let answer = post(&api, OPERATOR, "k1", &path(&letters[0]), &json!({"reason": "the account is there now"})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let letter: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(letter["redriven_at"].is_string(), "{letter}");
        let due = fresh.store.claim_due(Scope::Again, "one", 10).await.unwrap();
        assert_eq!(due.len(), 1);
        for (key, id, status, words) in [
            ("k2", letters[0].as_str(), 409, "redriven before"),
            ("k3", nobodys.as_str(), 409, "names no event"),
            ("k4", "nothing", 404, "no such dead letter"),
        ] {
            let answer = post(&api, OPERATOR, key, &path(id), &json!({})).await;
            assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
            assert!(answer.text().contains(words), "{}", answer.text());
        }
        let actions = fresh.texts("select action || ' ' || reason from audit order by id").await;
        assert_eq!(actions, ["dead_letter.redrive the account is there now", "dead_letter.refuse ", "dead_letter.refuse "]);
    }

    async fn dismissing_the_item_about_unknown_messages_closes_them_and_the_next_raises_one_anew(fresh) {
        let letters = bury(&fresh, 1..2).await;
        let api = Api::over(&fresh);
        let open = async || fresh.texts("select id from attention where state = 'open' and source like 'unknown%'").await;
        for round in ["1", "2", "3"] {
            for name in ["x", "y"] {
                fresh.store.bury_unknown(&default_merchant(), name, "unknown", b"{}").await.unwrap();
            }
            assert_eq!(open().await.len(), 1, "one item, in round {round}");
            assert_eq!(fresh.store.gauges().await.unwrap().dead_letters, 3);
            let path = format!("/v1/attention/{}/resolve", open().await[0]);
            let decision = json!({"action": "dismiss", "reason": "the provider sent them again"});
            let answer = post(&api, OPERATOR, round, &path, &decision).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            assert!(open().await.is_empty());
            assert_eq!(fresh.store.gauges().await.unwrap().dead_letters, 1);
            assert_eq!(api.walk(OPS, "/v1/dead-letters", 10, "id").await, letters, "the event's own stays open");
        }
    }

    async fn an_event_that_was_given_up_twice_is_redriven_from_either(fresh) {
        let letters = bury(&fresh, 1..2).await;
        let event = fresh.store.event(&EventId::from_text(fresh.texts("select event_id from dead_letters").await.remove(0))).await.unwrap().unwrap();
        fresh.store.record_failure(&event, "again", &FailurePolicy::new(1, true)).await.unwrap();
        let api = Api::over(&fresh);
        let answer = post(&api, OPERATOR, "k1", &format!("/v1/dead-letters/{}/redrive", letters[0]), &json!({})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(fresh.number("select count(*) from dead_letters where redriven_at is null").await, 0);
        assert_eq!(fresh.number("select count(*) from event_outcomes").await, 0);
    }

    async fn by_filter_all_that_match_are_redriven_and_no_others(fresh) {
        bury(&fresh, 0..205).await;
        fresh.by_hand("delete from outbox").await.unwrap();
        let middle = fresh.number("select as_micros(created_at) from dead_letters order by id limit 1 offset 100").await;
        let late = format!("select count(*) from dead_letters where created_at >= micros({middle}) and redriven_at is null");
        let api = Api::over(&fresh);
        let redrive = async |key: &str, filter: Value| -> Value {
            let answer = post(&api, OPERATOR, key, "/v1/dead-letters/redrive", &json!({"filter": filter})).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            let mut answer: Value = serde_json::from_slice(&answer.body).unwrap();
            let until = answer.as_object_mut().unwrap().remove("until");
            assert!(until.unwrap().is_string());
            answer
        };
        let done = |redriven: i64| json!({"redriven": redriven, "remaining": 0});
        assert_eq!(redrive("k1", json!({"account": "another"})).await, done(0));
        assert_eq!(redrive("k2", json!({"order_id": "O-204"})).await, done(1));
        let (since, late) = (Timestamp::from_micros(middle).to_string(), fresh.number(&late).await);
        assert!((90..204).contains(&late), "{late}");
        let filter = json!({"provider": "wechatpay", "type": "payment.succeeded", "since": since});
        assert_eq!(redrive("k3", filter.clone()).await, done(late));
        assert_eq!(redrive("k3", filter).await, done(late), "the stored answer");
        assert_eq!(redrive("k4", json!({})).await, done(204 - late));
        assert_eq!(fresh.number("select count(*) from dead_letters where redriven_at is null").await, 0);
        assert_eq!(fresh.number("select count(*) from outbox where kind = 'event' and attempts = 0").await, 205);
        assert_eq!(fresh.number("select count(*) from event_outcomes").await, 0);
        let answer = post(&api, OPERATOR, "k5", "/v1/dead-letters/redrive", &json!({})).await;
        assert_eq!(answer.status.as_u16(), 400, "a filter must be given, if only an empty one");
        assert_eq!(fresh.number("select count(*) from audit where action = 'dead_letter.redriven'").await, 4);
    }

    async fn an_event_that_fails_again_after_its_redrive_is_told_of_again(fresh) {
        let letters = bury(&fresh, 1..2).await;
        let api = Api::over(&fresh);
        let items = async || fresh.texts("select source || ' ' || state from attention where code = 'dead_letter' order by id").await;
        assert_eq!(items().await, [format!("{} open", letters[0])]);
        let answer = post(&api, OPERATOR, "k1", &format!("/v1/dead-letters/{}/redrive", letters[0]), &json!({})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(items().await, [format!("{} resolved", letters[0])], "its dead letter is settled");
        let id = EventId::from_text(fresh.texts("select event_id from dead_letters").await.remove(0));
        let event = fresh.store.event(&id).await.unwrap().unwrap();
        fresh.store.record_failure(&event, "still bad", &FailurePolicy::new(1, true)).await.unwrap();
        let second = fresh.texts("select id from dead_letters where redriven_at is null").await.remove(0);
        assert_eq!(items().await, [format!("{} resolved", letters[0]), format!("{second} open")]);
        let mut tx = fresh.store.begin().await.unwrap();
        succeeded(&mut tx, &[id]).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(items().await, [format!("{} resolved", letters[0]), format!("{second} resolved")]);
        assert_eq!(fresh.number("select count(*) from dead_letters where redriven_at is null").await, 0);
    }

    async fn one_call_redrives_a_bounded_part_and_says_what_remains(fresh) {
        bury(&fresh, 0..1).await;
        let columns = "provider, account, merchant, type, provider_event_type, occurred_at, received_at, fingerprint, headers, body";
        fresh.by_hand(&format!("insert into events (id, event_key, {columns})
            with recursive many (n) as (select 1 union all select n + 1 from many where n < 1105)
            select 'many-' || n, 'many-' || n, {columns} from many, events")).await.unwrap();
        fresh.by_hand("insert into dead_letters (id, event_id, merchant, error, attempts, created_at)
            select '00' || e.id, e.id, e.merchant, 'bad', 8, 1 from events e where e.id like 'many-%'").await.unwrap();
        fresh.by_hand("update dead_letters set redriven_at = micros(1) where id not like '00many-%'").await.unwrap();
        let api = Api::over(&fresh);
        let mut filter = json!({"provider": "wechatpay"});
        let mut all = Vec::new();
        for key in ["k1", "k2"] {
            let answer = post(&api, OPERATOR, key, "/v1/dead-letters/redrive", &json!({"filter": filter})).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            let answer: Value = serde_json::from_slice(&answer.body).unwrap();
            filter["until"] = answer["until"].clone();
            all.push((answer["redriven"].as_i64().unwrap(), answer["remaining"].as_i64().unwrap()));
        }
        assert_eq!(all, [(1000, 105), (105, 0)]);
        assert_eq!(fresh.number("select count(*) from outbox where event_id like 'many-%'").await, 1105);
    }
}
