//! Replays through the API: what is refused, what a dry run shows, and that either leaves its trace in the audit.

use axum::http::Method;
use payhook::event::Event;
use payhook::orders::apply::{Item, apply};
use payhook::store::quarantine::Quarantined;
use serde_json::json;

use super::*;
use crate::support::signed::{self, Senders};

fn api(fresh: &FreshStore) -> Api {
    Api::with_accounts(
        fresh,
        Health::new(true),
        Clock::fixed(signed::now()),
        Metrics::install().unwrap(),
        signed::registry_of(&signed::accounts()),
    )
}

pub(super) async fn post(api: &Api, token: &str, key: &str, path: &str, body: &Value) -> Answer {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header("idempotency-key", key);
    api.ask(request.body(Body::from(body.to_string())).unwrap()).await
}

fn said(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// A genuine WeChat payment of order `O-{number}`, verified.
pub(crate) fn paid(senders: &Senders, number: usize) -> Event {
    let resource = json!({
        "mchid": "1900000001", "appid": "wx0000000000000001", "out_trade_no": format!("O-{number}"),
        "transaction_id": format!("4200{number}"), "trade_type": "JSAPI", "trade_state": "SUCCESS",
        "success_time": "2026-11-29T12:05:04+08:00", "payer": {"openid": "o"},
        "amount": {"total": 100, "payer_total": 100, "currency": "CNY"},
    });
    let body = senders.wechat_body(
        &format!("EV-{number}"),
        "TRANSACTION.SUCCESS",
        &resource.to_string(),
    );
    let notification = senders.wechat(&body);
    let registry = signed::registry_of(&signed::accounts());
    let account = registry.get("wechatpay".parse().unwrap(), "shop-cn").unwrap();
    account.event(&notification, account.judge(&notification).unwrap())
}

/// Stores `event` as today's version would, applied.
async fn store_applied(fresh: &FreshStore, event: &Event) {
    fresh
        .store
        .insert_fresh(&[Arc::new(event.clone())], None)
        .await
        .unwrap();
    let reading = signed::registry_of(&signed::accounts()).read(event).unwrap();
    let policy = Policy {
        unknown: Unknown::Create,
        park_deadline: Duration::from_hours(24),
    };
    let mut tx = fresh.store.begin().await.unwrap();
    let item = Item {
        event,
        reading: &reading,
    };
    apply(&mut tx, &[item], &policy, signed::now()).await.unwrap();
    tx.commit().await.unwrap();
    fresh.by_hand("delete from outbox").await.unwrap();
}

/// Stores `event` as a version would that did not know its type.
async fn store_unmapped(fresh: &FreshStore, mut event: Event) -> Event {
    "other.transaction.success".clone_into(&mut event.kind);
    fresh
        .store
        .insert_fresh(&[Arc::new(event.clone())], None)
        .await
        .unwrap();
    let outcome = format!(
        "insert into event_outcomes values ('{}', 'unmapped', 'it says nothing', 1)",
        event.id
    );
    fresh.by_hand(&outcome).await.unwrap();
    fresh.by_hand("delete from outbox").await.unwrap();
    event
}

/// What every table but the audit and the keys holds, as far as a replay could touch it.
async fn everything(fresh: &FreshStore) -> Vec<i64> {
    let mut counts = Vec::new();
    for table in [
        "events",
        "event_outcomes",
        "orders",
        "trades",
        "facts",
        "ledger_entries",
        "order_history",
        "messages",
        "outbox",
        "attention",
        "replays",
        "replays_sent",
        "event_orders",
    ] {
        counts.push(fresh.number(&format!("select count(*) from {table}")).await);
    }
    counts
}

async fn audit(fresh: &FreshStore) -> Vec<String> {
    fresh
        .texts("select actor || ' ' || action || ' ' || reason || ' ' || details from audit order by id")
        .await
}

on_both_stores! {
    async fn a_dry_run_goes_on_past_what_the_database_refuses(fresh) {
        let (api, senders) = (api(&fresh), Senders::new());
        for n in 1..=5 {
            store_unmapped(&fresh, paid(&senders, n)).await;
        }
        let refusing = if fresh.is_postgres() {
            fresh.by_hand("create function refuse() returns trigger language plpgsql as \
                $$ begin raise exception 'odd' using errcode = 'check_violation'; end $$").await.unwrap();
            "create trigger odd before insert on facts for each row when (new.order_id = 'O-3') execute function refuse()"
        } else {
            "create trigger odd before insert on facts when new.order_id = 'O-3' begin select raise(abort, 'odd'); end"
        };
        fresh.by_hand(refusing).await.unwrap();
        let plan = said(&post(&api, OPERATOR, "k1", "/v1/replays", &json!({"filter": {}, "dry_run": true})).await);
        assert_eq!((&plan["examined"], &plan["orders_changed"]), (&json!(5), &json!(4)), "{plan}");
        assert_eq!(plan["outcomes"], json!({"applied": 4, "failing": 1}));
        assert_eq!(plan["failing"][0]["reason"], "store refuses the data");
    }

    async fn a_dry_run_shows_what_a_new_mapping_would_change_and_writes_nothing(fresh) {
        let (api, senders) = (api(&fresh), Senders::new());
        store_applied(&fresh, &paid(&senders, 1)).await;
        let older = store_unmapped(&fresh, paid(&senders, 2)).await;
        let elsewhere = crate::support::events::event("x", b"{}");
        fresh.store.insert_fresh(&[Arc::new(elsewhere)], None).await.unwrap();
        fresh.by_hand("delete from outbox").await.unwrap();
        let before = everything(&fresh).await;

        let answer = post(&api, OPERATOR, "k1", "/v1/replays", &json!({"filter": {}, "dry_run": true})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let plan = said(&answer);
        assert_eq!((&plan["dry_run"], &plan["matched"], &plan["would_publish"]), (&json!(true), &json!(3), &json!(2)));
        assert_eq!(plan["refused"][0]["count"], 1);
        assert_eq!(plan["refused"][0]["reason"], "account stripe/shop is not configured: no worker could read it");
        assert_eq!(plan["examined"], 2);
        assert_eq!(plan["outcomes"], json!({"already_applied": 1, "applied": 1}));
        assert_eq!((&plan["orders_changed"], plan["orders"].as_array().unwrap().len()), (&json!(1), 1));
        assert_eq!(plan["orders"][0], json!({"order_id": "O-2", "order_paid": true, "attention": [],
            "before": {"status": "pending", "paid": 0, "refunded": 0, "reversed": 0},
            "after": {"status": "paid", "paid": 100, "refunded": 0, "reversed": 0}}));
        assert_eq!(everything(&fresh).await, before, "written");

        // To one queue alone the workers see nothing, and nothing changes.
        let body = json!({"filter": {"outcome": "unmapped"}, "dry_run": true, "to": "evidence"});
        let plan = said(&post(&api, OPERATOR, "k2", "/v1/replays", &body).await);
        assert_eq!((&plan["would_publish"], &plan["examined"], &plan["what"]), (&json!(1), &json!(0), &json!("events")));
        let path = format!("/v1/events/{}/replay", older.id);
        let plan = said(&post(&api, OPERATOR, "k3", &path, &json!({"dry_run": true})).await);
        assert_eq!((&plan["would_publish"], &plan["orders"][0]["order_id"]), (&json!(1), &json!("O-2")));
        // Of one event what was told of its order.
        let first = fresh.texts("select id from events where order_id = 'O-1'").await.remove(0);
        let body = json!({"dry_run": true, "to": "fulfilment"});
        let plan = said(&post(&api, OPERATOR, "k5", &format!("/v1/events/{first}/replay"), &body).await);
        assert_eq!((&plan["what"], &plan["would_publish"], &plan["filter"]), (&json!("orders"), &json!(1), &json!({"order_id": "O-1"})));
        // Order messages: one, and the queue asks for it.
        let body = json!({"filter": {"order_id": "O-1"}, "dry_run": true, "to": "fulfilment"});
        let plan = said(&post(&api, OPERATOR, "k4", "/v1/replays", &body).await);
        assert_eq!((&plan["what"], &plan["would_publish"]), (&json!("orders"), &json!(1)));

        assert_eq!(everything(&fresh).await, before, "written");
        let audit = audit(&fresh).await;
        assert_eq!(audit.len(), 5);
        assert!(audit.iter().all(|deed| deed.starts_with("operator replay.dry_run ")), "{audit:?}");
    }

    async fn what_is_refused_is_refused_with_its_reason_and_entered(fresh) {
        let (api, senders) = (api(&fresh), Senders::new());
        let elsewhere = crate::support::events::event("x", b"{}");
        fresh.store.insert_fresh(&[Arc::new(elsewhere.clone())], None).await.unwrap();
        let mut others = paid(&senders, 3);
        "other".clone_into(&mut others.merchant);
        fresh.store.insert_fresh(&[Arc::new(others.clone())], None).await.unwrap();
        let refused = Quarantined {
            provider: "wechatpay".parse().unwrap(),
            account: "shop-cn".to_owned(),
            merchant: "default".to_owned(),
            reason: "bad_signature",
            detail: "as a test says".to_owned(),
            path: "/notify/wechatpay/shop-cn".to_owned(),
            headers: "[]".to_owned(),
            body: b"{}".as_slice().into(),
            received_at: signed::now(),
            remote_addr: None,
            sender: "s".to_owned(),
        };
        fresh.store.quarantine(&[refused]).await.unwrap();
        let quarantined = fresh.texts("select id from quarantine").await.remove(0);

        let replays = "/v1/replays".to_owned();
        let one = |id: &str| format!("/v1/events/{id}/replay");
        let why = json!({"reason": "lost"});
        let cases: Vec<(String, Value, u16, &str, &str)> = vec![
            (replays.clone(), json!({"filter": {}}), 400, "validation", "`reason` must say why"),
            (replays.clone(), json!({"filter": {}, "reason": "  "}), 400, "validation", "`reason` must say why"),
            (replays.clone(), json!({"filter": {}, "reason": "x", "to": "payhook.apply"}), 400, "validation", "fulfilment, evidence"),
            (replays.clone(), json!({"filter": {}, "reason": "x", "to": "fulfilment", "what": "events"}), 400, "validation", "other exchange"),
            (replays.clone(), json!({"filter": {"outcome": "fine"}, "reason": "x"}), 400, "validation", "`outcome` must be one of"),
            (replays.clone(), json!({"filter": {"outcome": "dead"}, "reason": "x", "what": "orders"}), 400, "validation", "no `outcome`"),
            (replays.clone(), json!({"filter": {"order_id": "a\u{0}"}, "reason": "x"}), 400, "validation", "NUL"),
            (replays.clone(), json!({"filter": {}, "reason": "x", "rate": 0}), 400, "validation", "`rate`"),
            (one("nothing"), why.clone(), 404, "not_found", "no such event"),
            (one(others.id.as_str()), why.clone(), 404, "not_found", "no such event"),
            (one(&quarantined), why.clone(), 409, "not_allowed", "never verified"),
            (one(elsewhere.id.as_str()), why.clone(), 409, "not_allowed", "not configured"),
        ];
        for (n, (path, body, status, code, words)) in cases.iter().enumerate() {
            let answer = post(&api, OPERATOR, &format!("k{n}"), path, body).await;
            assert_eq!(answer.status.as_u16(), *status, "{body}: {}", answer.text());
            let problem = said(&answer);
            assert_eq!(problem["code"], *code, "{body}");
            assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
        }
        let audit = audit(&fresh).await;
        assert_eq!(audit.len(), cases.len());
        assert!(audit.iter().all(|deed| deed.starts_with("operator replay.refuse ")), "{audit:?}");
        assert!(audit[10].contains("never verified"), "{}", audit[10]);

        // These never get as far as to be a replay.
        for (n, (token, body, status)) in [
            (VIEWER, json!({"filter": {}, "reason": "x"}), 403),
            (OPERATOR, json!({"reason": "x"}), 400),
            (OPERATOR, json!({"filter": null, "reason": "x"}), 400),
            (OPERATOR, json!({"filter": [], "reason": "x"}), 400),
            (OPERATOR, json!({"filter": {"order_id": null}, "reason": "x"}), 400),
            (OPERATOR, json!({"filter": {"colour": "red"}, "reason": "x"}), 400),
            (OPERATOR, json!({"filter": {}, "reason": "x", "colour": "red"}), 400),
        ].into_iter().enumerate() {
            let answer = post(&api, token, &format!("m{n}"), "/v1/replays", &body).await;
            assert_eq!(answer.status.as_u16(), status, "{body}: {}", answer.text());
        }
        assert_eq!(fresh.number("select count(*) from replays").await, 0);
        assert_eq!(fresh.number("select count(*) from audit").await, i64::try_from(cases.len()).unwrap());
    }

    async fn a_replay_is_begun_once_shown_and_cancelled_once(fresh) {
        let (api, senders) = (api(&fresh), Senders::new());
        store_applied(&fresh, &paid(&senders, 1)).await;
        let body = json!({"filter": {"type": "payment.succeeded"}, "reason": "the queue was lost", "rate": 7});
        let first = post(&api, OPERATOR, "k", "/v1/replays", &body).await;
        assert_eq!(first.status, StatusCode::ACCEPTED, "{}", first.text());
        let again = post(&api, OPERATOR, "k", "/v1/replays", &body).await;
        assert_eq!((again.status, again.text()), (first.status, first.text()));
        assert_eq!(again.headers["idempotent-replayed"], "true");
        let begun = said(&first);
        let id = begun["id"].as_str().unwrap().to_owned();
        assert_eq!(begun, api.json(VIEWER, &format!("/v1/replays/{id}")).await);
        assert_eq!(begun["state"], "running");
        assert_eq!((&begun["rate"], &begun["actor"], &begun["to"], &begun["total"]), (&json!(7), &json!("operator"), &Value::Null, &Value::Null));
        assert_eq!(begun["filter"], json!({"type": "payment.succeeded"}));
        assert_eq!(api.walk(VIEWER, "/v1/replays", 1, "id").await, std::slice::from_ref(&id));
        api.refuses(OTHER, &format!("/v1/replays/{id}"), 404, "not_found").await;

        let path = format!("/v1/replays/{id}/cancel");
        let cancelled = post(&api, OPERATOR, "c1", &path, &json!({"reason": "not needed"})).await;
        assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text());
        assert_eq!(said(&cancelled)["state"], "cancelled");
        let second = post(&api, OPERATOR, "c2", &path, &json!({})).await;
        assert_eq!((second.status.as_u16(), said(&second)["code"].clone()), (409, json!("not_allowed")));
        let nowhere = post(&api, OPERATOR, "c3", "/v1/replays/nothing/cancel", &json!({})).await;
        assert_eq!(nowhere.status.as_u16(), 404);
        let actions = fresh.texts("select action from audit order by id").await;
        assert_eq!(actions, ["replay.begin", "replay.cancel", "replay.refuse"]);
        for change in ["update replays set reason = 'other'", "update replays set state = 'running', ended_at = null", "delete from replays"] {
            assert!(fresh.by_hand(change).await.is_err(), "{change} was taken");
        }
    }
}
