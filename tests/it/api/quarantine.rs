//! What was refused, through the API: who may see it, why it failed, and another judgement of it.

use axum::http::Method;
use payhook::provider::kept_headers;
use payhook::store::quarantine::{ITEMS, Quarantined};
use serde_json::json;

use super::*;
use crate::support::signed::Senders;

/// Nine hours: a clock that was set to local time.
const OFF: i64 = 9 * 3600;

fn api(fresh: &FreshStore, accounts: &str) -> Api {
    with_registry(fresh, signed::registry_of(accounts))
}

fn with_registry(fresh: &FreshStore, registry: Registry) -> Api {
    let clock = Clock::fixed(signed::now());
    Api::with_accounts(
        fresh,
        Health::new(true),
        clock,
        Metrics::install().unwrap(),
        registry,
    )
}

/// Refused when our clock was `off` seconds ahead.
fn refused(account: &str, notification: &Notification, off: i64, sender: &str) -> Quarantined {
    let (provider, account) = account.split_once('/').unwrap();
    Quarantined {
        provider: provider.parse().unwrap(),
        account: account.to_owned(),
        merchant: "default".to_owned(),
        reason: "outside_window",
        detail: "as a test says".to_owned(),
        path: notification.path.clone(),
        headers: kept_headers(&notification.headers),
        body: notification.body.clone(),
        received_at: Timestamp::from_secs(notification.received_at.secs() + off),
        remote_addr: Some("192.0.2.7".to_owned()),
        sender: sender.to_owned(),
    }
}

fn genuine(senders: &Senders, number: usize) -> Notification {
    let resource = json!({
        "mchid": "1900000001", "appid": "wx0000000000000001", "out_trade_no": format!("O-{number}"),
        "transaction_id": format!("4200{number}"), "trade_type": "JSAPI", "trade_state": "SUCCESS",
        "success_time": "2026-11-29T12:05:04+08:00", "payer": {"openid": "o"},
        "amount": {"total": 100, "payer_total": 100, "currency": "CNY"},
    });
    senders.wechat(&senders.wechat_body(
        &format!("EV-{number}"),
        "TRANSACTION.SUCCESS",
        &resource.to_string(),
    ))
}

async fn post(api: &Api, token: &str, key: Option<&str>, body: &Value) -> Answer {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri("/v1/quarantine/reverify")
        .header(AUTHORIZATION, format!("Bearer {token}"));
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    api.ask(request.body(Body::from(body.to_string())).unwrap()).await
}

async fn reverify(api: &Api, key: &str, body: &Value) -> Value {
    let answer = post(api, OPERATOR, Some(key), body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

on_both_stores! {
    async fn a_night_of_a_wrong_clock_costs_nothing(fresh) {
        let (api, senders) = (api(&fresh, &signed::accounts()), Senders::new());
        // More than one batch, and one of them twice: the provider tried again.
        let mut night: Vec<_> = (0..300).map(|n| refused("wechatpay/shop-cn", &genuine(&senders, n), OFF, "s")).collect();
        night.push(night[7].clone());
        for part in night.chunks(100) {
            fresh.store.quarantine(part).await.unwrap();
        }
        let as_it_was = json!({"provider": "wechatpay", "account": "shop-cn", "reason": "a try"});
        assert_eq!(reverify(&api, "k1", &as_it_was).await, json!({"verified": 0, "refused": 301}));
        let corrected = json!({"clock_correction": -OFF, "reason": "the clock was in local time"});
        assert_eq!(reverify(&api, "k2", &corrected).await, json!({"verified": 301, "refused": 0}));
        assert_eq!(reverify(&api, "k3", &corrected).await, json!({"verified": 0, "refused": 0}));

        let at = signed::now().micros();
        assert_eq!(fresh.number(&format!("select count(*) from events where received_at = micros({at})")).await, 300);
        assert_eq!(fresh.number("select count(*) from outbox where claimed_by is null").await, 300);
        assert_eq!(fresh.number("select count(*) from deliveries").await, 1);
        assert_eq!(fresh.number("select count(*) from quarantine").await, 0);
        let audit = fresh.texts("select actor || ' ' || action || ' ' || reason || ' ' || replace(cast(details as text), ' ', '') from audit order by id").await;
        assert_eq!(audit.len(), 6);
        assert!(audit[2].starts_with("operator quarantine.reverify the clock was in local time {"), "{audit:?}");
        assert!(audit[2].contains("\"clock_correction\":-32400"), "{audit:?}");
        assert!(audit[3].contains("quarantine.reverified") && audit[3].contains("\"verified\":301"), "{audit:?}");
    }

    async fn of_calls_at_once_each_row_counts_for_one(fresh) {
        let (api, senders) = (api(&fresh, &signed::accounts()), Senders::new());
        let night: Vec<_> = (0..300).map(|n| refused("wechatpay/shop-cn", &genuine(&senders, n), 0, "s")).collect();
        for part in night.chunks(100) {
            fresh.store.quarantine(part).await.unwrap();
        }
        let wish = json!({"reason": "the key is there now"});
        let keys = ["k1", "k2", "k3", "k4"];
        let tallies = futures_util::future::join_all(keys.map(|key| reverify(&api, key, &wish))).await;
        let sum = |name: &str| tallies.iter().map(|tally| tally[name].as_i64().unwrap()).sum::<i64>();
        assert_eq!((sum("verified"), sum("refused")), (300, 0), "{tallies:?}");
        assert_eq!(fresh.number("select count(*) from events").await, 300);
        assert_eq!(fresh.number("select count(*) from quarantine").await, 0);
    }

    async fn one_key_is_one_run(fresh) {
        let (api, senders) = (api(&fresh, &signed::accounts()), Senders::new());
        fresh.store.quarantine(&[refused("wechatpay/shop-cn", &genuine(&senders, 1), 0, "s")]).await.unwrap();
        let wish = json!({"reason": "first"});
        let first = post(&api, OPERATOR, Some("k"), &wish).await;
        let again = post(&api, OPERATOR, Some("\"k\""), &wish).await;
        assert_eq!(first.text(), r#"{"verified":1,"refused":0}"#);
        assert_eq!((again.status, again.text()), (first.status, first.text()));
        assert_eq!(again.headers["idempotent-replayed"], "true");
        assert_eq!(fresh.number("select count(*) from audit").await, 2);

        for (token, key, wish, status, code) in [
            (OPERATOR, Some("k"), json!({"reason": "second"}), 422, "idempotency_key_reuse"),
            (OPERATOR, None, wish.clone(), 400, "idempotency_key_missing"),
            (OPERATOR, Some("a b"), wish.clone(), 400, "idempotency_key_malformed"),
            (OPERATOR, Some("k4"), json!({}), 400, "validation"),
            (OPERATOR, Some("k5"), json!({"reason": " "}), 400, "validation"),
            (OPERATOR, Some("k6"), json!({"reason": "r", "colour": "red"}), 400, "validation"),
            (OPERATOR, Some("k7"), json!({"reason": "r", "account": "elsewhere"}), 404, "not_found"),
            (OPS, Some("k8"), wish.clone(), 403, "forbidden"),
            ("wrong", Some("k9"), wish.clone(), 401, "unauthorized"),
        ] {
            let answer = post(&api, token, key, &wish).await;
            let problem: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!((answer.status.as_u16(), problem["code"].as_str().unwrap()), (status, code), "{wish}");
        }
        assert_eq!(fresh.number("select count(*) from audit").await, 2);
    }

    async fn a_flood_of_forgeries_evicts_no_genuine_refusal(fresh) {
        let (api, senders) = (api(&fresh, &signed::accounts()), Senders::new());
        let night: Vec<_> = (0..40).map(|n| refused("wechatpay/shop-cn", &genuine(&senders, n), OFF, "203.0.113.0/24")).collect();
        fresh.store.quarantine(&night).await.unwrap();
        let mut forged = genuine(&senders, 0);
        forged.body = b"{}".to_vec().into();
        let flood: Vec<_> = (0..100).map(|_| refused("wechatpay/shop-cn", &forged, 0, "198.51.100.0/24")).collect();
        for _ in 0..15 {
            fresh.store.quarantine(&flood).await.unwrap();
        }
        let wish = json!({"clock_correction": -OFF, "reason": "r"});
        assert_eq!(reverify(&api, "k", &wish).await, json!({"verified": 40, "refused": ITEMS / 10}));
    }

    async fn the_list_is_the_merchants_and_shows_no_bodies(fresh) {
        let (api, senders) = (api(&fresh, &signed::accounts()), Senders::new());
        let mut kept: Vec<_> = (0..5).map(|n| refused("wechatpay/shop-cn", &genuine(&senders, n), OFF, "s")).collect();
        "bad_signature".clone_into(&mut kept[4].detail);
        kept[4].reason = "bad_signature";
        let mut foreign = kept[0].clone();
        "other".clone_into(&mut foreign.merchant);
        fresh.store.quarantine(&kept).await.unwrap();
        fresh.store.quarantine(&[foreign]).await.unwrap();
        let ids = api.walk(OPS, "/v1/quarantine", 2, "id").await;
        assert_eq!(ids.len(), 5);
        assert!(ids.is_sorted_by(|a, b| a > b));
        for (query, found) in [("provider=wechatpay&account=shop-cn", 5), ("account=elsewhere", 0), ("reason=bad_signature", 1),
            ("since=2026-11-29T13:05:06Z", 5), ("until=2026-11-29T13:05:06Z", 0)] {
            let page = api.json(OPS, &format!("/v1/quarantine?{query}")).await;
            assert_eq!(page["items"].as_array().unwrap().len(), found, "{query}");
        }
        let (one, others) = (format!("/v1/quarantine/{}", ids[0]), api.walk(OTHER, "/v1/quarantine", 9, "id").await);
        assert_eq!(others.len(), 1);
        api.refuses(OPS, &format!("/v1/quarantine/{}", others[0]), 404, "not_found").await;
        for path in ["/v1/quarantine", one.as_str()] {
            api.refuses(VIEWER, path, 403, "forbidden").await;
        }
        api.refuses(OPS, "/v1/quarantine?reason=fine", 400, "validation").await;
        let page = api.json(OPS, "/v1/quarantine").await;
        assert!(!page.to_string().contains("ciphertext"), "{page}");
    }

    async fn one_is_explained_by_todays_keys(fresh) {
        let (api, senders) = (api(&fresh, &signed::accounts()), Senders::new());
        let notification = genuine(&senders, 1);
        fresh.store.quarantine(&[refused("wechatpay/shop-cn", &notification, OFF, "s")]).await.unwrap();
        let id = api.walk(OPS, "/v1/quarantine", 9, "id").await.remove(0);
        let path = format!("/v1/quarantine/{id}");
        let shown = api.json(OPS, &path).await;
        assert_eq!(shown["reason"], "outside_window");
        assert_eq!(shown["today"]["verdict"], "refused");
        assert_eq!(shown["today"]["reason"], "outside_window");
        let failed: Vec<_> = shown["today"]["steps"].as_array().unwrap().iter().filter(|step| step["ok"] == false).collect();
        assert_eq!(failed.len(), 1, "{shown}");
        assert!(failed[0]["found"].as_str().unwrap().contains("32400"), "{shown}");
        assert!(shown["today"]["signed"].as_str().unwrap().contains('\u{240a}'), "{shown}");
        assert!(shown["today"]["hint"].as_str().unwrap().contains("clock"), "{shown}");
        let body = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, shown["body"].as_str().unwrap()).unwrap();
        assert_eq!(body, notification.body);
        assert!(shown["headers"].as_array().unwrap().iter().any(|pair| pair[0] == "wechatpay-serial"));
        let gone = with_registry(&fresh, Registry::default());
        assert_eq!(gone.json(OPS, &path).await["today"], Value::Null);
    }
}
