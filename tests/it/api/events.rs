//! Events through the API: filters, pages, timeline, exact bytes, and nothing of another merchant.

use super::*;

/// What a stranger may have sent: every byte, control characters and markup.
pub(super) const BODY: &[u8] = b"\0\xff<script>\x1b[2J";

struct Planted<'a> {
    id: &'a str,
    merchant: &'a str,
    order_id: &'a str,
    at: i64,
}

async fn plant(fresh: &FreshStore, event: Planted<'_>) {
    let Planted {
        id,
        merchant,
        order_id,
        at,
    } = event;
    let body = blob(fresh, BODY);
    fresh
        .by_hand(&format!(
            "insert into events (id, event_key, provider, account, merchant, type, provider_event_type, order_id,
               trade_id, amount, currency, occurred_at, received_at, fingerprint, headers, body)
             values ('{id}', 'webhook:stripe:shop:{id}', 'stripe', 'shop', '{merchant}', 'payment.succeeded',
               'payment_intent.succeeded', '{order_id}', 'pi_{id}', 8888, 'CNY', {at}, {at}, {body}, '[]', {body})"
        ))
        .await
        .unwrap();
}

pub(super) async fn planted(fresh: &FreshStore) -> Api {
    for (n, id) in ["e1", "e2", "e3", "e4", "e5"].into_iter().enumerate() {
        let at = i64::try_from(n).unwrap() * 1_000_000;
        plant(
            fresh,
            Planted {
                id,
                merchant: "default",
                order_id: "ORDER-1",
                at,
            },
        )
        .await;
    }
    plant(
        fresh,
        Planted {
            id: "f1",
            merchant: "other",
            order_id: "ORDER-1",
            at: 9,
        },
    )
    .await;
    Api::over(fresh)
}

on_both_stores! {
    async fn pages_lead_through_every_event_once_newest_first(fresh) {
        let api = planted(&fresh).await;
        for limit in [1, 2, 3, 5, 500] {
            assert_eq!(api.walk(OPS, "/v1/events", limit, "id").await, ["e5", "e4", "e3", "e2", "e1"]);
        }
        let first = api.json(OPS, "/v1/events?limit=1").await;
        assert_eq!(first["items"][0], serde_json::json!({
            "id": "e5", "event_key": "webhook:stripe:shop:e5", "provider": "stripe", "account": "shop",
            "merchant": "default", "type": "payment.succeeded", "provider_event_type": "payment_intent.succeeded",
            "order_id": "ORDER-1", "trade_id": "pi_e5", "refund_id": null,
            "amount": {"minor": 8888, "currency": "CNY", "exponent": 2},
            "occurred_at": "1970-01-01T00:00:04Z", "received_at": "1970-01-01T00:00:04Z",
            "outcome": null, "outcome_reason": null, "duplicates": 0
        }));
    }

    async fn another_merchants_events_do_not_exist(fresh) {
        let api = planted(&fresh).await;
        for path in ["/v1/events/f1", "/v1/events/f1/raw", "/v1/events/nowhere"] {
            api.refuses(OPS, path, 404, "not_found").await;
        }
        let stolen = api.json(OPS, "/v1/events?limit=1").await["next_cursor"].as_str().unwrap().to_owned();
        for query in ["order_id=ORDER-1".to_owned(), "event_key=webhook:stripe:shop:e5".to_owned(), format!("cursor={stolen}")] {
            let page = api.json(OTHER, &format!("/v1/events?{query}")).await;
            for item in page["items"].as_array().unwrap() {
                assert_eq!(item["merchant"], "other", "{query}");
            }
        }
        assert_eq!(api.json(OTHER, "/v1/events/f1").await["id"], "f1");
    }

    async fn bytes_ask_for_their_own_scope_and_come_back_exact(fresh) {
        let api = planted(&fresh).await;
        api.refuses(VIEWER, "/v1/events/e1/raw", 403, "forbidden").await;
        let answer = api.get(OPS, "/v1/events/e1/raw").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.body, BODY);
        assert_eq!(answer.headers["content-type"], "application/octet-stream");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["content-disposition"], "attachment");
    }

    async fn the_timeline_tells_everything_in_order(fresh) {
        let api = planted(&fresh).await;
        let body = blob(&fresh, b"other");
        for sql in [
            "insert into deliveries (event_id, received_at, remote_addr) values ('e1', 10, '192.0.2.1')".to_owned(),
            format!("insert into event_conflicts (event_id, fingerprint, received_at, headers, body) values ('e1', {body}, 20, '[]', {body})"),
            "insert into event_orders (event_id, merchant, order_id) values ('e1', 'default', 'ORDER-1')".to_owned(),
            "insert into order_history (merchant, order_id, at, event_id, fact, outcome, reason, status_before, status_after)
             values ('default', 'ORDER-1', 30, 'e1', 'payment_succeeded', 'applied', 'paid', 'pending', 'paid'),
                    ('default', 'ORDER-1', 31, 'e2', 'payment_succeeded', 'already_applied', 'again', 'paid', 'paid')".to_owned(),
            "insert into event_outcomes (event_id, outcome, reason, decided_at) values ('e1', 'applied', 'paid', 40)".to_owned(),
            "insert into dead_letters (id, event_id, merchant, error, attempts, created_at, redriven_at)
             values ('d1', 'e1', 'default', 'broke', 8, 50, 60)".to_owned(),
            "insert into outbox (id, kind, event_id, created_at, due_at, published_at, attempts, last_error)
             values ('e1', 'event', 'e1', 1, 70, 5, 2, 'broke')".to_owned(),
        ] {
            fresh.by_hand(&sql).await.unwrap();
        }
        let event = api.json(VIEWER, "/v1/events/e1").await;
        assert_eq!(event["duplicates"], 1);
        assert_eq!(event["outcome"], "applied");
        let timeline = event["timeline"].as_array().unwrap();
        let told: Vec<_> = timeline.iter().map(|moment| moment["what"].as_str().unwrap()).collect();
        assert_eq!(told, ["received", "published", "duplicate", "conflict", "history", "outcome", "dead_letter", "redriven", "failing"]);
        assert_eq!(timeline[4], serde_json::json!({
            "at": "1970-01-01T00:00:00.00003Z", "what": "history", "order_id": "ORDER-1", "fact": "payment_succeeded",
            "outcome": "applied", "reason": "paid", "before": "pending", "after": "paid"
        }));
    }
}
