//! Orders through the API: found under any id that a merchant may have given, and never by another merchant.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::*;

/// Ids that a careless router would split, normalise or lose.
const IDS: [&str; 7] = [
    "A/../B?c#d",
    "..",
    "a%2Fb",
    "测试 订单",
    "tab\there",
    "ORDER-1",
    "\u{1b}[2J",
];

async fn plant(fresh: &FreshStore, merchant: &str, order_id: &str, at: usize) {
    fresh
        .by_hand(&format!(
            "insert into orders (merchant, order_id, status, created_at, updated_at)
             values ('{merchant}', '{order_id}', 'pending', {at}, {at})"
        ))
        .await
        .unwrap();
}

async fn planted(fresh: &FreshStore) -> Api {
    for (n, id) in IDS.into_iter().enumerate() {
        plant(fresh, "default", id, n).await;
    }
    plant(fresh, "other", "ORDER-1", 0).await;
    plant(fresh, "default", "WAITS", 99).await;
    fresh
        .by_hand("update orders set parked_until = micros(9) where order_id = 'WAITS'")
        .await
        .unwrap();
    fresh
        .by_hand(
            "update orders set status = 'paid', paid = 8888, currency = 'CNY', version = 1
              where merchant = 'default' and order_id = 'ORDER-1'",
        )
        .await
        .unwrap();
    Api::over(fresh)
}

fn path(order_id: &str) -> String {
    format!("/v1/orders/{}", utf8_percent_encode(order_id, NON_ALPHANUMERIC))
}

on_both_stores! {
    async fn an_id_is_one_segment_whatever_it_holds(fresh) {
        let api = planted(&fresh).await;
        for id in IDS {
            assert_eq!(api.json(OPS, &path(id)).await["order_id"], id);
        }
        for path in ["/v1/orders/nobody", "/v1/orders/A/../B", "/v1/orders/%2E"] {
            api.refuses(OPS, path, 404, "not_found").await;
        }
        api.refuses(OPS, "/v1/orders/%ff", 400, "validation").await;
    }

    async fn pages_lead_through_every_order_once_newest_first(fresh) {
        let api = planted(&fresh).await;
        let expected: Vec<_> = IDS.into_iter().rev().collect();
        for limit in [1, 3, 500] {
            assert_eq!(api.walk(OPS, "/v1/orders", limit, "order_id").await, expected);
        }
        let paid = api.json(OPS, "/v1/orders?state=paid").await;
        assert_eq!(paid["items"].as_array().unwrap().len(), 1);
        assert_eq!(paid["items"][0]["order_id"], "ORDER-1");
        assert_eq!(paid["items"][0]["paid"], 8888);
        api.refuses(OPS, "/v1/orders?state=lost", 400, "validation").await;
    }

    async fn a_parked_order_is_listed_only_when_asked_for(fresh) {
        let api = planted(&fresh).await;
        api.refuses(OPS, "/v1/orders/WAITS", 404, "not_found").await;
        let parked = api.json(OPS, "/v1/orders?state=parked").await;
        assert_eq!(parked["items"].as_array().unwrap().len(), 1);
        assert_eq!(parked["items"][0]["order_id"], "WAITS");
    }

    async fn another_merchants_order_is_another_order(fresh) {
        let api = planted(&fresh).await;
        assert_eq!(api.json(OPS, "/v1/orders/ORDER-1").await["status"], "paid");
        assert_eq!(api.json(OTHER, "/v1/orders/ORDER-1").await["status"], "pending");
        api.refuses(OTHER, &path("测试 订单"), 404, "not_found").await;
        assert_eq!(api.walk(OTHER, "/v1/orders", 1, "order_id").await, ["ORDER-1"]);
    }

    async fn an_order_tells_what_happened_and_why(fresh) {
        let api = planted(&fresh).await;
        for sql in [
            "insert into trades (merchant, provider, trade_id, account, order_id, status, amount, currency, created_at, updated_at)
             values ('default', 'alipay', 'T1', 'shop', 'ORDER-1', 'paid', 8888, 'CNY', 1, 1)",
            "insert into order_history (merchant, order_id, at, event_id, fact, outcome, reason, status_before, status_after)
             values ('default', 'ORDER-1', 7, 'e1', 'payment_succeeded', 'applied', 'paid in full', 'pending', 'paid')",
            "insert into ledger_entries (merchant, provider, source, entry_type, trade_id, order_id, amount, currency, event_id, at)
             values ('default', 'alipay', 'T1', 'payment', 'T1', 'ORDER-1', 8888, 'CNY', 'e1', 7)",
            "insert into attention (id, code, source, merchant, order_id, explanation, created_at)
             values ('a1', 'paid_twice', 's', 'default', 'ORDER-1', 'in words', 8)",
        ] {
            fresh.by_hand(sql).await.unwrap();
        }
        let order = api.json(VIEWER, "/v1/orders/ORDER-1").await;
        for field in ["merchant", "order_id", "status", "closed_by", "currency", "amount", "paid", "refunded", "reversed", "version"] {
            assert!(order.get(field).is_some(), "{field} in {order}");
        }
        assert_eq!(order["trades"][0]["trade_id"], "T1");
        assert_eq!(order["history"][0]["reason"], "paid in full");
        assert_eq!((&order["history"][0]["before"], &order["history"][0]["after"]), (&"pending".into(), &"paid".into()));
        assert_eq!(order["ledger"][0]["amount"], 8888);
        assert_eq!(order["attention"][0]["code"], "paid_twice");
    }
}
