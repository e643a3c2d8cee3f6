//! Orders as their merchant registers and closes them: before or after their notifications, once for each key.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use payhook::store::parked::raise_overdue;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::*;
use crate::support::signed::Senders;

/// A registration of `order_id` at `minor` CNY.
fn at(order_id: &str, minor: i64) -> Value {
    json!({"order_id": order_id, "amount": {"minor": minor, "currency": "CNY"}})
}

/// A verified WeChat payment of `order_id` at `minor` CNY.
pub(super) fn paid(order_id: &str, minor: i64) -> Notification {
    let senders = Senders::new();
    let resource = json!({
        "mchid": "1900000001", "appid": "wx0000000000000001", "out_trade_no": order_id,
        "transaction_id": format!("4200{order_id}"), "trade_type": "JSAPI", "trade_state": "SUCCESS",
        "success_time": "2026-11-29T12:05:04+08:00", "payer": {"openid": "o"},
        "amount": {"total": minor, "payer_total": minor, "currency": "CNY"},
    });
    let body = senders.wechat_body(
        &format!("EV-{order_id}"),
        "TRANSACTION.SUCCESS",
        &resource.to_string(),
    );
    senders.wechat(&body)
}

/// One payment of several orders.
fn combined(orders: &[&str], minor: i64) -> Notification {
    let senders = Senders::new();
    let part = |order_id: &&str| {
        json!({
            "mchid": "1900000001", "trade_state": "SUCCESS", "transaction_id": format!("4200{order_id}"),
            "out_trade_no": order_id, "success_time": "2026-11-29T12:05:04.000+08:00",
            "amount": {"total_amount": minor, "payer_amount": minor, "currency": "CNY"},
        })
    };
    let resource = json!({
        "combine_appid": "wx0000000000000001", "combine_mchid": "1900000001",
        "combine_out_trade_no": orders.join("+"), "sub_orders": orders.iter().map(part).collect::<Vec<_>>(),
    });
    let id = format!("EV-{}", orders.join("-"));
    senders.wechat(&senders.wechat_body(&id, "TRANSACTION.SUCCESS", &resource.to_string()))
}

/// How often each routing key was written for an order, in whatever order.
pub(super) async fn messages(fresh: &FreshStore, order_id: &str) -> BTreeMap<String, usize> {
    let sql = format!("select routing_key from messages where order_id = '{order_id}'");
    let mut count = BTreeMap::new();
    for key in fresh.texts(&sql).await {
        *count.entry(key).or_default() += 1;
    }
    count
}

fn close_path(order_id: &str) -> String {
    format!(
        "/v1/orders/{}/close",
        utf8_percent_encode(order_id, NON_ALPHANUMERIC)
    )
}

on_both_stores! {
    async fn registered_first_and_paid_then(fresh) {
        let api = Api::signed(&fresh);
        let first = api.post(OPERATOR, "/v1/orders", "k", &at("O-1", 8888)).await;
        assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
        let order = first.document();
        for (field, value) in [("merchant", json!("default")), ("order_id", json!("O-1")), ("status", json!("pending")),
            ("currency", json!("CNY")), ("amount", json!(8888)), ("paid", json!(0)), ("version", json!(0))] {
            assert_eq!(order[field], value, "{field}");
        }
        assert_eq!(order["history"][0]["fact"], "order_registered");
        assert_eq!(api.json(OPS, "/v1/orders/O-1").await, order, "what was answered is how it stands");

        let replayed = api.post(OPERATOR, "/v1/orders", "\"k\"", &at("O-1", 8888)).await;
        assert_eq!((replayed.status, replayed.text()), (first.status, first.text()));
        assert_eq!(replayed.headers["idempotent-replayed"], "true");
        assert_eq!((&replayed.headers["idempotency-key"], &first.headers["idempotency-key"]), (&"\"k\"".parse().unwrap(), &"k".parse().unwrap()));
        assert_eq!(api.done("/v1/orders", &at("O-1", 8888)).await.0, 200);

        api.told(&paid("O-1", 8888)).await;
        assert_eq!(api.json(OPS, "/v1/orders/O-1").await["status"], "paid");
        assert_eq!(messages(&fresh, "O-1").await, BTreeMap::from([("order.paid".to_owned(), 1)]));
        assert_eq!(fresh.number("select count(*) from attention").await, 0);
        assert_eq!(fresh.texts("select actor || ' ' || action from audit").await, ["operator order.register"]);
    }

    async fn paid_first_and_registered_then(fresh) {
        let api = Api::signed(&fresh);
        for (order_id, registered) in [("SAME", 8888), ("OTHER", 9999)] {
            api.told(&paid(order_id, 8888)).await;
            let (status, order) = api.done("/v1/orders", &at(order_id, registered)).await;
            assert_eq!((status, &order["status"], &order["amount"]), (201, &json!("paid"), &json!(registered)));
            assert_eq!(messages(&fresh, order_id).await["order.paid"], 1);
        }
        let raised = api.json(OPS, "/v1/attention").await;
        assert_eq!(raised["items"].as_array().unwrap().len(), 1, "{raised}");
        assert_eq!((&raised["items"][0]["code"], &raised["items"][0]["order_id"]), (&json!("amount_mismatch"), &json!("OTHER")));
    }

    async fn another_amount_is_refused_for_good(fresh) {
        let api = Api::signed(&fresh);
        assert_eq!(api.done("/v1/orders", &at("O-1", 100)).await.0, 201);
        let dollars = json!({"order_id": "O-1", "amount": {"minor": 100, "currency": "USD"}});
        for (n, other) in [at("O-1", 101), dollars].into_iter().enumerate() {
            let key = format!("k{n}");
            let first = api.post(OPERATOR, "/v1/orders", &key, &other).await;
            assert_eq!(first.problem(), (409, "order_exists".to_owned()));
            assert_eq!(first.headers["content-type"], "application/problem+json");
            assert!(first.text().contains("1.00 CNY"), "{}", first.text());
            let again = api.post(OPERATOR, "/v1/orders", &key, &other).await;
            assert_eq!((again.text(), &again.headers["idempotent-replayed"]), (first.text(), &"true".parse().unwrap()));
            assert_eq!(again.headers["content-type"], "application/problem+json");
        }
        assert_eq!(fresh.number("select count(*) from attention").await, 0, "the caller was told; nobody else need be");
        assert_eq!(fresh.number("select count(*) from facts").await, 1);
        // Another merchant's order of that id is another order.
        let theirs = api.post(OTHER_OPERATOR, "/v1/orders", "k", &at("O-1", 7)).await;
        assert_eq!(theirs.status, StatusCode::CREATED);
    }

    async fn what_cannot_be_an_order_frees_the_key(fresh) {
        let api = Api::signed(&fresh);
        let good = json!({"minor": 1, "currency": "CNY"});
        for body in [json!({}), json!({"order_id": "O", "amount": 5}), json!({"order_id": "", "amount": good}),
            json!({"order_id": "x".repeat(256), "amount": good}), json!({"order_id": "O", "amount": good, "colour": 1}),
            json!({"order_id": "O", "amount": {"minor": -1, "currency": "CNY"}}),
            json!({"order_id": "O", "amount": {"minor": 1.5, "currency": "CNY"}}),
            json!({"order_id": "O", "amount": {"minor": 1, "currency": "RMB!"}}),
            json!({"order_id": "O", "amount": {"minor": 1, "currency": "XYZ"}}),
            json!({"order_id": "O\u{0}", "amount": good}),
            json!({"order_id": "O", "amount": {"minor": 1, "currency": "CNY", "exponent": 3}}),
            json!({"order_id": "O", "amount": {"minor": 9_007_199_254_740_993_i64, "currency": "CNY"}})] {
            let answer = api.post(OPERATOR, "/v1/orders", "one", &body).await;
            assert_eq!(answer.problem(), (400, "validation".to_owned()), "{body}");
            assert_eq!(answer.headers["idempotency-key"], "one");
        }
        let long = api.post(OPERATOR, "/v1/orders", "one", &at(&"x".repeat(65 * 1024), 1)).await;
        assert_eq!(long.problem(), (413, "validation".to_owned()));
        assert_eq!(fresh.number("select count(*) from orders").await, 0);
        assert_eq!(api.post(OPERATOR, "/v1/orders", "one", &at("O", 1)).await.status, StatusCode::CREATED);
        // Used from now on: whatever else it is sent with, that is what is wrong.
        for body in [at("O", 2), json!({}), json!({"order_id": ""})] {
            let answer = api.post(OPERATOR, "/v1/orders", "one", &body).await;
            assert_eq!(answer.problem(), (422, "idempotency_key_reuse".to_owned()), "{body}");
        }
        for (token, status, code) in [("wrong", 401, "unauthorized"), (VIEWER, 403, "forbidden"), (OPS, 403, "forbidden")] {
            let answer = api.post(token, "/v1/orders", "two", &at("O", 1)).await;
            assert_eq!(answer.problem(), (status, code.to_owned()));
        }
    }

    async fn what_is_parked_waits_for_its_own_registration(fresh) {
        let api = Api::parking(&fresh);
        let event = api.told(&paid("O-1", 100)).await;
        api.told(&paid("O-2", 100)).await;
        api.refuses(OPS, "/v1/orders/O-1", 404, "not_found").await;
        let said = async |order_id: &str| api.get(OPS, &format!("/v1/orders/{order_id}")).await.text();
        assert!(said("O-1").await.contains("wait for its registration"), "{}", said("O-1").await);
        assert!(!said("O-3").await.contains("wait"), "{}", said("O-3").await);
        assert_eq!(api.json(OPS, "/v1/orders?state=parked").await["items"].as_array().unwrap().len(), 2);
        assert_eq!(fresh.number("select count(*) from messages").await, 0);

        let (status, order) = api.done("/v1/orders", &at("O-1", 100)).await;
        assert_eq!((status, &order["status"], &order["paid"]), (201, &json!("paid"), &json!(100)));
        let told: Vec<_> = order["history"].as_array().unwrap().iter().map(|line| line["fact"].as_str().unwrap()).collect();
        assert_eq!(told, ["payment_succeeded", "order_registered", "payment_succeeded"], "parked, let go, applied");
        assert_eq!(messages(&fresh, "O-1").await, BTreeMap::from([("order.paid".to_owned(), 1)]));
        assert_eq!(api.json(OPS, &format!("/v1/events/{event}")).await["outcome"], "applied");
        api.refuses(OPS, "/v1/orders/O-2", 404, "not_found").await;
        assert_eq!(overdue(&api).await, ["O-2"]);
        // Too long is not too late.
        assert_eq!(api.done("/v1/orders", &at("O-2", 100)).await.1["status"], "paid");
        assert!(open(&api, "parked_too_long").await.is_empty(), "nobody need look any more");
        assert_eq!(fresh.texts("select resolution || ' ' || resolved_by from attention").await, ["resolved_itself payhook"]);
    }

    async fn registered_in_the_very_moment_of_its_payment(fresh) {
        let api = Api::signed(&fresh);
        for round in 0..24_u32 {
            let order_id = format!("M{round}");
            let (payment, wish) = (paid(&order_id, 100), at(&order_id, 100));
            let registering = async {
                tokio::time::sleep(Duration::from_millis(u64::from(round % 6))).await;
                api.done("/v1/orders", &wish).await
            };
            let (_, (status, order)) = tokio::join!(api.told(&payment), registering);
            assert_eq!(status, 201, "{order}");
            assert_eq!(api.json(OPS, &format!("/v1/orders/{order_id}")).await["status"], "paid");
            assert_eq!(messages(&fresh, &order_id).await["order.paid"], 1);
        }
    }

    async fn a_combined_payment_waits_until_the_last_of_its_orders_is_registered(fresh) {
        let api = Api::parking(&fresh);
        let event = api.told(&combined(&["A-1", "A-2", "A-3"], 100)).await;
        let outcome = async || api.json(OPS, &format!("/v1/events/{event}")).await["outcome"].clone();
        for (order_id, then) in [("A-2", "parked"), ("A-3", "parked"), ("A-1", "applied")] {
            assert_eq!(outcome().await, "parked");
            let (_, order) = api.done("/v1/orders", &at(order_id, 100)).await;
            assert_eq!(order["status"], "paid", "{order}");
            assert_eq!(outcome().await, then, "{order_id}");
            if order_id == "A-3" {
                assert_eq!(overdue(&api).await, ["A-1"], "it still waits, and is named");
            }
            let open = open(&api, "parked_too_long").await;
            assert_eq!(open.is_empty(), order_id != "A-3", "{order_id}: {open:?}");
        }
        // What was told twice waits twice.
        let again = api.told(&combined(&["B-1", "B-2"], 100)).await;
        api.told(&paid("B-1", 100)).await;
        api.done("/v1/orders", &at("B-1", 100)).await;
        assert_eq!(api.json(OPS, &format!("/v1/events/{again}")).await["outcome"], "parked");
        api.done("/v1/orders", &at("B-2", 100)).await;
        assert_eq!(api.json(OPS, &format!("/v1/events/{again}")).await["outcome"], "applied");
    }

    async fn a_combined_payment_that_needs_a_human_goes_on_saying_so(fresh) {
        let api = Api::parking(&fresh);
        let event = api.told(&combined(&["A-1", "A-2"], 100)).await;
        for order_id in ["A-1", "A-2"] {
            api.done("/v1/orders", &at(order_id, if order_id == "A-1" { 99 } else { 100 })).await;
        }
        assert_eq!(api.json(OPS, &format!("/v1/events/{event}")).await["outcome"], "attention");
        assert_eq!(api.json(OPS, "/v1/orders/A-2").await["status"], "paid");
    }

    async fn two_that_are_registered_at_once_leave_nothing_parked(fresh) {
        let api = Api::parking(&fresh);
        for round in 0..8 {
            let orders: Vec<String> = (0..4).map(|n| format!("R{round}-{n}")).collect();
            let names: Vec<&str> = orders.iter().map(String::as_str).collect();
            let event = api.told(&combined(&names, 100)).await;
            let answers = join_all(names.iter().map(async |name| api.done("/v1/orders", &at(name, 100)).await)).await;
            for (status, order) in answers {
                assert_eq!((status, &order["status"]), (201, &json!("paid")), "{order}");
            }
            assert_eq!(api.json(OPS, &format!("/v1/events/{event}")).await["outcome"], "applied", "round {round}");
        }
    }

    async fn a_close_is_final_and_only_for_what_is_not_paid(fresh) {
        let api = Api::signed(&fresh);
        let odd = "A/../B?c#d 测试";
        api.done("/v1/orders", &at(odd, 100)).await;
        let (status, order) = api.done(&close_path(odd), &json!({"reason": "the shelf is empty"})).await;
        assert_eq!((status, &order["status"], &order["closed_by"]), (200, &json!("closed"), &json!("merchant")));
        assert_eq!(order["order_id"], odd);
        let (status, again) = api.done(&close_path(odd), &json!({})).await;
        assert_eq!((status, &again["version"], again["history"].as_array().unwrap().len()), (200, &order["version"], 2));
        assert_eq!(messages(&fresh, odd).await, BTreeMap::from([("order.closed".to_owned(), 1)]));

        api.told(&paid("P", 100)).await;
        let first = api.post(OPERATOR, &close_path("P"), "k", &json!({})).await;
        assert_eq!(first.problem(), (409, "not_allowed".to_owned()));
        let stored = api.post(OPERATOR, &close_path("P"), "k", &json!({})).await;
        assert_eq!((stored.text(), &stored.headers["idempotent-replayed"]), (first.text(), &"true".parse().unwrap()));
        assert_eq!(api.json(OPS, "/v1/orders/P").await["status"], "paid");

        // Paid after its close: booked, and a human decides.
        api.done("/v1/orders", &at("L", 100)).await;
        api.done(&close_path("L"), &json!({})).await;
        api.told(&paid("L", 100)).await;
        let late = api.json(OPS, "/v1/orders/L").await;
        assert_eq!((&late["status"], &late["paid"], &late["attention"][0]["code"]), (&json!("closed"), &json!(100), &json!("paid_after_close")));

        let audit = fresh.texts("select action || ' ' || reason from audit where action = 'order.close' order by id").await;
        assert_eq!(audit, ["order.close the shelf is empty", "order.close "]);
    }

    async fn an_order_with_a_long_history_is_answered_whole(fresh) {
        let api = Api::signed(&fresh);
        api.done("/v1/orders", &at("LONG", 100)).await;
        let line = format!("('default', 'LONG', 7, 'payment_processing', 'stale', '{}', 'pending', 'pending')", "x".repeat(400));
        let lines = vec![line; 1000].join(", ");
        fresh.by_hand(&format!("insert into order_history (merchant, order_id, at, fact, outcome, reason, status_before, status_after)
            values {lines}")).await.unwrap();
        let first = api.post(OPERATOR, &close_path("LONG"), "k", &json!({})).await;
        assert_eq!(first.status, StatusCode::OK, "{}", first.text());
        assert_eq!(first.document()["history"].as_array().unwrap().len(), 1002);
        let again = api.post(OPERATOR, &close_path("LONG"), "k", &json!({})).await;
        assert_eq!((again.text() == first.text(), &again.headers["idempotent-replayed"]), (true, &"true".parse().unwrap()));
    }

    async fn nobody_closes_what_is_not_there_or_not_theirs(fresh) {
        let api = Api::parking(&fresh);
        api.told(&paid("PARKED", 100)).await;
        api.done("/v1/orders", &at("MINE", 100)).await;
        for (token, order_id) in [(OPERATOR, "nobody"), (OPERATOR, "PARKED"), (OTHER_OPERATOR, "MINE")] {
            let answer = api.post(token, &close_path(order_id), "k", &json!({})).await;
            assert_eq!(answer.problem(), (404, "not_found".to_owned()), "{order_id}");
        }
        // It may be there later: the key is free.
        api.done("/v1/orders", &at("PARKED", 50)).await;
        let held = api.post(OPERATOR, &close_path("PARKED"), "k", &json!({})).await;
        assert_eq!((held.status.as_u16(), &held.document()["status"]), (200, &json!("closed")));
        assert_eq!(fresh.number("select count(*) from orders where status = 'closed'").await, 1);
        assert_eq!(api.post(OPERATOR, "/v1/orders/%ff/close", "z", &json!({})).await.problem(), (400, "validation".to_owned()));
        assert_eq!(api.post(OPERATOR, &close_path("MINE"), "y", &json!({"why": 1})).await.problem(), (400, "validation".to_owned()));
    }

    async fn sixty_four_at_once_are_one_registration(fresh) {
        let api = Api::signed(&fresh);
        let body = at("O-1", 100);
        let answers = join_all((0..64).map(async |_| api.post(OPERATOR, "/v1/orders", "one", &body).await)).await;
        let mut first = 0;
        for answer in &answers {
            match answer.status.as_u16() {
                201 if answer.headers.contains_key("idempotent-replayed") => {}
                201 => first += 1,
                409 => {
                    assert_eq!(answer.problem().1, "request_in_progress");
                    assert!(answer.headers.contains_key("retry-after"));
                }
                other => panic!("{other}: {}", answer.text()),
            }
        }
        assert_eq!(first, 1);
        assert_eq!(fresh.number("select count(*) from orders").await, 1);
        assert_eq!(fresh.number("select count(*) from facts").await, 1);
        assert_eq!(fresh.number("select count(*) from audit").await, 1);
        let after = api.post(OPERATOR, "/v1/orders", "one", &body).await;
        assert_eq!((after.status, after.headers.contains_key("idempotent-replayed")), (StatusCode::CREATED, true));
    }

    async fn keys_that_differ_race_for_one_order(fresh) {
        let api = Api::signed(&fresh);
        let same = join_all((0..48).map(async |_| api.done("/v1/orders", &at("S", 100)).await.0)).await;
        assert_eq!(same.iter().filter(|status| **status == 201).count(), 1, "{same:?}");
        assert!(same.iter().all(|status| matches!(status, 200 | 201)), "{same:?}");
        let other = join_all((1..=48).map(async |n| api.done("/v1/orders", &at("D", n)).await)).await;
        assert_eq!(other.iter().filter(|(status, _)| *status == 201).count(), 1);
        for (status, problem) in &other {
            assert!(matches!((*status, problem["code"].as_str()), (201, None) | (409, Some("order_exists"))), "{problem}");
        }
        assert_eq!(fresh.number("select count(*) from facts where order_id = 'D'").await, 1);
        assert_eq!(fresh.number("select count(*) from attention").await, 0);
    }
}

/// The orders of the events that have waited too long by now.
async fn overdue(api: &Api) -> Vec<String> {
    let now = api.state.clock.now();
    let mut tx = api.state.store.begin().await.unwrap();
    let deadline = Duration::from_hours(24);
    raise_overdue(&mut tx, now.minus(deadline), now).await.unwrap();
    assert!(
        open(api, "parked_too_long").await.is_empty(),
        "not before the deadline"
    );
    raise_overdue(&mut tx, now.plus(Duration::from_secs(1)), now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    open(api, "parked_too_long").await
}

async fn open(api: &Api, code: &str) -> Vec<String> {
    let page = api.json(OPS, "/v1/attention").await;
    let items = page["items"].as_array().unwrap();
    let named = items.iter().filter(|item| item["code"] == code);
    named
        .map(|item| item["order_id"].as_str().unwrap_or_default().to_owned())
        .collect()
}
