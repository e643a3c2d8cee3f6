//! What a human decides: each way out once, with a reason, under the token's name, and nothing twice.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::json;

use super::register::{messages, paid};
use super::*;
use crate::support::signed::Senders;

fn path(id: &str) -> String {
    format!("/v1/attention/{id}/resolve")
}

fn decide(action: &str) -> Value {
    json!({"action": action, "reason": format!("{action}, said the shop")})
}

/// Registered at 100, paid 88: the held payment's item.
async fn held(api: &Api, order_id: &str) -> String {
    let body = json!({"order_id": order_id, "amount": {"minor": 100, "currency": "CNY"}});
    assert_eq!(api.done("/v1/orders", &body).await.0, 201);
    api.told(&paid(order_id, 88)).await;
    let order = api.json(OPS, &format!("/v1/orders/{order_id}")).await;
    assert_eq!(
        (&order["status"], &order["paid"], &order["trades"][0]["status"]),
        (&json!("pending"), &json!(88), &json!("held"))
    );
    assert_eq!(order["attention"][0]["code"], "amount_mismatch");
    order["attention"][0]["id"].as_str().unwrap().to_owned()
}

/// An open item of `code`, as whatever finds such a thing raises it.
async fn plant(fresh: &FreshStore, id: &str, code: &str) {
    let sql = format!(
        "insert into attention (id, code, source, merchant, explanation, created_at)
         values ('{id}', '{code}', '{id}', 'default', 'in words', 1)"
    );
    fresh.by_hand(&sql).await.unwrap();
}

/// A genuine payment of `order_id`, but to another merchant's WeChat number than the account's.
fn of_another(order_id: &str) -> Notification {
    of_number("1900000099", "X", order_id)
}

fn of_number(mchid: &str, event: &str, order_id: &str) -> Notification {
    let senders = Senders::new();
    let resource = json!({
        "mchid": mchid, "appid": "wx0000000000000001", "out_trade_no": order_id,
        "transaction_id": format!("4299{order_id}"), "trade_type": "JSAPI", "trade_state": "SUCCESS",
        "success_time": "2026-11-29T12:05:04+08:00", "payer": {"openid": "o"},
        "amount": {"total": 88, "payer_total": 88, "currency": "CNY"},
    });
    let body = senders.wechat_body(
        &format!("EV-{event}-{order_id}"),
        "TRANSACTION.SUCCESS",
        &resource.to_string(),
    );
    senders.wechat(&body)
}

on_both_stores! {
    async fn an_accepted_payment_is_announced_once(fresh) {
        let api = Api::signed(&fresh);
        let item = held(&api, "O-1").await;
        assert_eq!(messages(&fresh, "O-1").await, BTreeMap::from([("attention.amount_mismatch".to_owned(), 1), ("order.updated".to_owned(), 1)]));
        let first = api.post(OPERATOR, &path(&item), "k", &decide("accept_payment")).await;
        assert_eq!(first.status, StatusCode::OK, "{}", first.text());
        let closed = first.document();
        assert_eq!((&closed["id"], &closed["state"], &closed["actions"]), (&json!(item), &json!("resolved"), &json!([])));
        let resolution = &closed["resolution"];
        assert_eq!((&resolution["action"], &resolution["reason"], &resolution["resolved_by"]),
            (&json!("accept_payment"), &json!("accept_payment, said the shop"), &json!("operator")));
        assert_eq!(api.json(OPS, &format!("/v1/attention/{item}")).await, closed);

        let order = api.json(OPS, "/v1/orders/O-1").await;
        assert_eq!((&order["status"], &order["paid"], &order["amount"], &order["trades"][0]["status"]), (&json!("paid"), &json!(88), &json!(100), &json!("paid")));
        assert_eq!(order["ledger"].as_array().unwrap().len(), 1);
        assert_eq!(messages(&fresh, "O-1").await["order.paid"], 1);
        // The same call, another call, the notification once more: nothing happens twice.
        let again = api.post(OPERATOR, &path(&item), "k", &decide("accept_payment")).await;
        assert_eq!((again.text(), &again.headers["idempotent-replayed"]), (first.text(), &"true".parse().unwrap()));
        for action in ["accept_payment", "dismiss", "fly"] {
            assert_eq!(api.done(&path(&item), &decide(action)).await.1["code"], "not_allowed");
        }
        api.told(&paid("O-1", 88)).await;
        assert_eq!(messages(&fresh, "O-1").await["order.paid"], 1);
        assert_eq!(api.json(OPS, "/v1/attention").await["items"], json!([]));
        let audit = fresh.texts("select actor || '|' || reason || '|' || details from audit where action = 'attention.resolve'").await;
        assert_eq!(audit.len(), 1);
        let (who, details) = audit[0].rsplit_once('|').unwrap();
        assert_eq!(who, "operator|accept_payment, said the shop");
        let details: Value = serde_json::from_str(details).unwrap();
        assert_eq!((&details["id"], &details["code"], &details["order_id"]), (&json!(item), &json!("amount_mismatch"), &json!("O-1")));
    }

    async fn what_was_registered_too_late_is_accepted_without_another_message(fresh) {
        let api = Api::signed(&fresh);
        api.told(&paid("O-1", 88)).await;
        let (_, order) = api.done("/v1/orders", &json!({"order_id": "O-1", "amount": {"minor": 100, "currency": "USD"}})).await;
        assert_eq!((&order["status"], &order["attention"][0]["code"]), (&json!("paid"), &json!("currency_mismatch")));
        let (status, closed) = api.done(&path(order["attention"][0]["id"].as_str().unwrap()), &decide("accept_payment")).await;
        assert_eq!((status, &closed["resolution"]["action"]), (200, &json!("accept_payment")));
        assert_eq!(messages(&fresh, "O-1").await["order.paid"], 1);
        assert_eq!(api.json(OPS, "/v1/orders/O-1").await["status"], "paid");
    }

    async fn a_payment_of_a_closed_order_does_not_open_it(fresh) {
        let api = Api::signed(&fresh);
        let item = held(&api, "O-1").await;
        assert_eq!(api.done("/v1/orders/O-1/close", &json!({})).await.0, 200);
        assert_eq!(api.done(&path(&item), &decide("accept_payment")).await.0, 200);
        let order = api.json(OPS, "/v1/orders/O-1").await;
        assert_eq!((&order["status"], &order["closed_by"], &order["paid"]), (&json!("closed"), &json!("merchant"), &json!(88)));
        let open = api.json(OPS, "/v1/attention").await;
        assert_eq!((open["items"].as_array().unwrap().len(), &open["items"][0]["code"]), (1, &json!("paid_after_close")), "its money is owed back");
        assert!(!messages(&fresh, "O-1").await.contains_key("order.paid"));
    }

    async fn an_event_about_another_account_is_applied_once(fresh) {
        let api = Api::signed(&fresh);
        let event = api.told(&of_another("O-1")).await;
        let shown = api.json(OPS, &format!("/v1/events/{event}")).await;
        assert_eq!((&shown["outcome"], &shown["type"]), (&json!("attention"), &json!("other.identity_mismatch")));
        api.refuses(OPS, "/v1/orders/O-1", 404, "not_found").await;
        let open = api.json(OPS, "/v1/attention").await;
        let item = open["items"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!((&open["items"][0]["code"], &open["items"][0]["actions"]), (&json!("identity_mismatch"), &json!(["apply_once", "dismiss"])));

        let (status, closed) = api.done(&path(&item), &decide("apply_once")).await;
        assert_eq!((status, &closed["resolution"]["action"]), (200, &json!("apply_once")), "{closed}");
        let order = api.json(OPS, "/v1/orders/O-1").await;
        assert_eq!((&order["status"], &order["paid"]), (&json!("paid"), &json!(88)));
        assert_eq!(api.json(OPS, &format!("/v1/events/{event}")).await["outcome"], "applied");
        assert_eq!(messages(&fresh, "O-1").await["order.paid"], 1);
        // Once for this event, not for whatever comes from there.
        api.told(&of_another("O-1")).await;
        api.told(&of_another("O-2")).await;
        assert_eq!(messages(&fresh, "O-1").await["order.paid"], 1);
        api.refuses(OPS, "/v1/orders/O-2", 404, "not_found").await;
        assert_eq!(api.json(OPS, "/v1/attention").await["items"].as_array().unwrap().len(), 1);
    }

    async fn an_event_that_is_applied_once_needs_nobody_even_if_all_of_it_was_known(fresh) {
        let api = Api::signed(&fresh);
        let event = api.told(&of_another("O-1")).await;
        api.told(&of_number("1900000001", "Y", "O-1")).await;
        let shown = api.json(OPS, &format!("/v1/events/{event}")).await;
        assert_eq!(shown["outcome"], "attention");
        let item = api.json(OPS, "/v1/attention").await["items"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(api.done(&path(&item), &decide("apply_once")).await.0, 200);
        let shown = api.json(OPS, &format!("/v1/events/{event}")).await;
        assert_eq!(shown["outcome"], "already_applied", "{shown}");
        assert_eq!(messages(&fresh, "O-1").await["order.paid"], 1);
    }

    async fn what_cannot_be_applied_any_more_stays_on_the_list(fresh) {
        let mut api = Api::signed(&fresh);
        api.told(&of_another("O-1")).await;
        let item = api.json(OPS, "/v1/attention").await["items"][0]["id"].as_str().unwrap().to_owned();
        api.state.registry = Arc::new(ArcSwap::from_pointee(Registry::default()));
        let answer = api.post(OPERATOR, &path(&item), "k", &decide("apply_once")).await;
        assert_eq!(answer.problem(), (409, "not_allowed".to_owned()));
        assert_eq!(api.json(OPS, &format!("/v1/attention/{item}")).await["state"], "open");
        assert_eq!(fresh.number("select count(*) from audit").await, 0);
        // The account is configured again: the same call goes through.
        let api = Api::signed(&fresh);
        assert_eq!(api.post(OPERATOR, &path(&item), "k", &decide("apply_once")).await.status, StatusCode::OK);
    }

    async fn every_way_out_closes_its_item_once(fresh) {
        let api = Api::signed(&fresh);
        let mut closed = 0;
        for (code, text) in payhook::event::AttentionCode::ALL {
            for action in code.actions() {
                let id = format!("{text}-{action}");
                if matches!(*action, "accept_payment" | "apply_once") {
                    continue;
                }
                plant(&fresh, &id, text).await;
                let (status, item) = api.done(&path(&id), &decide(action)).await;
                assert_eq!((status, &item["state"], &item["resolution"]["action"]), (200, &json!("resolved"), &json!(action)), "{id}");
                closed += 1;
            }
        }
        assert_eq!(fresh.number("select count(*) from audit").await, closed);
        assert_eq!(fresh.number("select count(*) from facts").await, 0);
        assert_eq!(fresh.number("select count(*) from attention where state = 'open'").await, 0);
        // No code has another's.
        plant(&fresh, "a", "paid_twice").await;
        for action in ["accept_payment", "apply_once", "acknowledge", "resolved_itself", "Keep", "keep "] {
            assert_eq!(api.done(&path("a"), &decide(action)).await.1["code"], "not_allowed", "{action}");
        }
    }

    async fn real_needs_end_as_they_are_answered(fresh) {
        let api = Api::signed(&fresh);
        for (n, action) in ["refunded_outside", "dismiss"].into_iter().enumerate() {
            let order_id = format!("H-{n}");
            let item = held(&api, &order_id).await;
            assert_eq!(api.done(&path(&item), &decide(action)).await.0, 200);
            let order = api.json(OPS, &format!("/v1/orders/{order_id}")).await;
            assert_eq!((&order["status"], &order["trades"][0]["status"]), (&json!("pending"), &json!("held")), "the item is closed, and no more");
            assert_eq!(order["attention"][0]["resolution"]["action"], action);
            assert!(!messages(&fresh, &order_id).await.contains_key("order.paid"));
        }
    }

    async fn keep_of_a_late_payment_writes_order_paid_once(fresh) {
        let api = Api::signed(&fresh);
        let body = json!({"order_id": "O-1", "amount": {"minor": 88, "currency": "CNY"}});
        assert_eq!(api.done("/v1/orders", &body).await.0, 201);
        assert_eq!(api.done("/v1/orders/O-1/close", &json!({})).await.0, 200);
        api.told(&paid("O-1", 88)).await;
        let order = api.json(OPS, "/v1/orders/O-1").await;
        assert_eq!((&order["status"], &order["attention"][0]["code"]), (&json!("closed"), &json!("paid_after_close")));
        let item = order["attention"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(api.done(&path(&item), &decide("keep")).await.0, 200);
        let order = api.json(OPS, "/v1/orders/O-1").await;
        assert_eq!((&order["status"], &order["closed_by"], &order["paid"]), (&json!("paid"), &Value::Null, &json!(88)));
        assert_eq!(order["history"].as_array().unwrap().last().unwrap()["fact"], "payment_kept");
        api.told(&paid("O-1", 88)).await;
        assert_eq!(api.done(&path(&item), &decide("keep")).await.1["code"], "not_allowed");
        assert_eq!(messages(&fresh, "O-1").await["order.paid"], 1);
        assert_eq!(fresh.number("select count(*) from ledger_entries").await, 1);
        assert_eq!(fresh.number("select count(*) from attention where state = 'open'").await, 0);
    }

    async fn either_way_out_of_paid_twice_books_nothing(fresh) {
        for action in ["keep", "refunded_outside"] {
            let api = Api::signed(&fresh);
            api.told(&paid(action, 88)).await;
            api.told(&of_number("1900000001", "X", action)).await;
            let order = api.json(OPS, &format!("/v1/orders/{action}")).await;
            assert_eq!((&order["status"], &order["attention"][0]["code"]), (&json!("paid"), &json!("paid_twice")));
            let item = order["attention"][0]["id"].as_str().unwrap().to_owned();
            assert_eq!(api.done(&path(&item), &decide(action)).await.0, 200);
            let order = api.json(OPS, &format!("/v1/orders/{action}")).await;
            assert_eq!((&order["status"], &order["paid"], &order["refunded"]), (&json!("paid"), &json!(176), &json!(0)));
            assert_eq!(order["ledger"].as_array().unwrap().len(), 2, "a refund books itself when it is reported");
            assert_eq!(messages(&fresh, action).await["order.paid"], 1);
        }
    }

    async fn a_decision_is_the_merchants_own_and_has_a_reason(fresh) {
        let api = Api::signed(&fresh);
        plant(&fresh, "a", "paid_twice").await;
        let theirs = api.post(OTHER_OPERATOR, &path("a"), "k", &decide("keep")).await;
        assert_eq!(theirs.problem(), (404, "not_found".to_owned()));
        assert_eq!(api.done(&path("b"), &decide("keep")).await.0, 404);
        api.refuses(OTHER, "/v1/attention/a", 404, "not_found").await;
        for body in [json!({}), json!({"action": "keep"}), json!({"reason": "r"}), json!({"action": "keep", "reason": " \n"}),
            json!({"action": 1, "reason": "r"}), json!({"action": "keep", "reason": "r", "colour": "red"})] {
            let (status, problem) = api.done(&path("a"), &body).await;
            assert_eq!((status, &problem["code"]), (400, &json!("validation")), "{body}");
        }
        assert_eq!(api.post(VIEWER, &path("a"), "k", &decide("keep")).await.problem(), (403, "forbidden".to_owned()));
        assert_eq!(api.json(OPS, "/v1/attention/a").await["state"], "open");
        let odd = json!({"action": "keep", "reason": "测试 \u{0} '; drop table audit; --"});
        assert_eq!(api.done(&path("a"), &odd).await.0, 200);
        assert_eq!(fresh.texts("select reason from audit").await, ["测试 \u{2400} '; drop table audit; --"]);
    }

    async fn of_many_who_decide_at_once_one_does(fresh) {
        let api = Api::signed(&fresh);
        let item = held(&api, "O-1").await;
        let decisions = (0..12).map(async |n| api.done(&path(&item), &decide(if n % 2 == 0 { "accept_payment" } else { "dismiss" })).await);
        let answers = join_all(decisions).await;
        assert_eq!(answers.iter().filter(|(status, _)| *status == 200).count(), 1, "{answers:?}");
        assert!(answers.iter().all(|(status, answer)| *status == 200 || answer["code"] == "not_allowed"), "{answers:?}");
        let accepted = answers.iter().any(|(_, answer)| answer["resolution"]["action"] == "accept_payment");
        let order = api.json(OPS, "/v1/orders/O-1").await;
        assert_eq!(order["status"], if accepted { "paid" } else { "pending" });
        assert_eq!(fresh.number("select count(*) from audit where action = 'attention.resolve'").await, 1);
    }
}
