//! `GET /v1/feed`: CloudEvents in order, waiting, what is refused, and nothing of another merchant.

use std::time::{Duration, Instant};

use payhook::event::{Event, Replay};
use payhook::store::feed::note_replayed_messages;
use payhook::store::messages::{self, NewMessage};

use super::*;
use crate::support::events::{ARRIVAL, event};

const CONTENT: &[u8] = br#"{"amount":1.10,"payer":"canary"}"#;

async fn record(fresh: &FreshStore, id: &str, merchant: &str) {
    let mut event: Event = event(id, CONTENT);
    merchant.clone_into(&mut event.merchant);
    fresh.store.insert_fresh(&[Arc::new(event)], None).await.unwrap();
}

/// Follows from `path` until `wanted` items are there; the last page's cursor with them.
async fn follow(api: &Api, token: &str, stream: &str, wanted: usize) -> (Vec<Value>, String) {
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut items = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/feed?stream={stream}&limit=2&wait=1{after}");
        let page = api.json(token, &path).await;
        let found = page["items"].as_array().unwrap();
        assert!(found.len() <= 2);
        items.extend(found.iter().cloned());
        let next = page["next_cursor"].as_str().unwrap().to_owned();
        if items.len() >= wanted {
            return (items, next);
        }
        after = format!("&after={next}");
        assert!(Instant::now() < deadline, "{items:?}");
    }
}

fn keys(items: &[Value]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item["id"].as_str().unwrap().rsplit(':').next().unwrap())
        .collect()
}

on_both_stores! {
    async fn events_come_in_order_and_each_merchant_has_its_own(fresh) {
        let api = Api::over(&fresh);
        for (id, merchant) in [("1", "default"), ("2", "other"), ("3", "default"), ("4", "default"), ("5", "other")] {
            record(&fresh, id, merchant).await;
        }
        let (items, next) = follow(&api, OPS, "events", 3).await;
        assert_eq!(keys(&items), ["1", "3", "4"]);
        assert_eq!(items[0]["specversion"], "1.0");
        assert_eq!(items[0]["data"]["replay"], Value::Null);
        assert_eq!(items[0]["data"]["content"]["payer"], "canary");
        let (others, _) = follow(&api, OTHER, "events", 2).await;
        assert_eq!(keys(&others), ["2", "5"]);
        // Another merchant's cursor grants nothing.
        let page = api.json(OTHER, &format!("/v1/feed?after={next}")).await;
        assert!(page["items"].as_array().unwrap().iter().all(|item| item["data"]["merchant"] == "other"));
        let (shown, _) = follow(&api, VIEWER, "events", 3).await;
        assert!(shown.iter().all(|item| item["data"]["content"].is_null()));
        assert!(!serde_json::to_string(&shown).unwrap().contains("canary"));
    }

    async fn order_messages_come_as_they_were_written(fresh) {
        let api = Api::over(&fresh);
        let now = Timestamp::from_micros(ARRIVAL);
        let message = |merchant: &str| NewMessage {
            id: format!("{merchant}/o/1"),
            merchant: merchant.to_owned(),
            order_id: Some("o".to_owned()),
            routing_key: "order.paid".to_owned(),
            body: format!(r#"{{"id":"{merchant}/o/1","data":{{"paid":1}}}}"#).into_bytes(),
        };
        let mut tx = fresh.store.begin().await.unwrap();
        messages::insert(&mut tx, &[message("default"), message("other")], now).await.unwrap();
        tx.commit().await.unwrap();
        let (items, _) = follow(&api, VIEWER, "orders", 1).await;
        assert_eq!(items, [serde_json::json!({"id": "default/o/1", "data": {"paid": 1}})]);
        let mut tx = fresh.store.begin().await.unwrap();
        let replay = Replay { id: "r1".to_owned(), reason: "lost".to_owned() };
        note_replayed_messages(&mut tx, &["default/o/1"], &replay, now).await.unwrap();
        tx.commit().await.unwrap();
        let (items, _) = follow(&api, VIEWER, "orders", 2).await;
        let again = serde_json::json!({"paid": 1, "replay": {"id": "r1", "reason": "lost"}});
        assert_eq!((&items[1]["id"], &items[1]["data"]), (&items[0]["id"], &again));
    }

    async fn a_waiting_reader_is_woken_by_what_comes(fresh) {
        let api = Api::over(&fresh);
        let page = api.json(OPS, "/v1/feed?after=end").await;
        let path = format!("/v1/feed?wait=30&after={}", page["next_cursor"].as_str().unwrap());
        let began = Instant::now();
        let (page, ()) = tokio::join!(api.json(OPS, &path), async {
            record(&fresh, "other", "other").await;
            record(&fresh, "1", "default").await;
        });
        assert_eq!(keys(page["items"].as_array().unwrap()), ["1"]);
        assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    }

    async fn a_drain_answers_those_who_wait(fresh) {
        let api = Api::over(&fresh);
        let began = Instant::now();
        let (page, ()) = tokio::join!(api.json(OPS, "/v1/feed?stream=orders&wait=30"), async {
            api.state.health.begin_drain();
        });
        assert_eq!(page["items"], serde_json::json!([]));
        assert!(page["next_cursor"].is_string());
        assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    }

    async fn a_reader_behind_the_retention_is_told_to_begin_anew(fresh) {
        let api = Api::over(&fresh);
        for id in ["1", "2", "3"] {
            record(&fresh, id, "default").await;
        }
        let (_, behind) = follow(&api, OPS, "events", 2).await;
        fresh.by_hand("insert into event_outcomes select id, 'applied', 'because', 1 from events").await.unwrap();
        fresh.by_hand("delete from outbox").await.unwrap();
        let long_after = Timestamp::from_micros(ARRIVAL).plus(Duration::from_hours(1));
        fresh.store.purge_events(long_after, None, 10).await.unwrap();
        let answer = api.get(OPS, &format!("/v1/feed?after={behind}")).await;
        assert_eq!(answer.status, StatusCode::GONE);
        let problem: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(problem["code"], "cursor_expired");
        assert_eq!(api.json(OPS, "/v1/feed").await["items"], serde_json::json!([]));
    }

    async fn what_cannot_be_meant_is_refused(fresh) {
        let api = Api::over(&fresh);
        let orders = api.json(OPS, "/v1/feed?stream=orders").await;
        let orders = orders["next_cursor"].as_str().unwrap();
        for query in ["wait=31", "wait=1.5", "wait=-1", "stream=facts", "limit=0", "limit=501", "after=x", "cursor=x",
            &format!("stream=events&after={orders}")] {
            let answer = api.get(OPS, &format!("/v1/feed?{query}")).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        }
        let nobody = api.get("nobody", "/v1/feed").await;
        assert_eq!(nobody.status, StatusCode::UNAUTHORIZED);
    }
}
