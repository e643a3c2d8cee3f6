//! `/healthz`, `/readyz`, `/metrics`: answered without a token, and true.

use axum::http::StatusCode;
use payhook::api::{Sampler, health_router};
use payhook::telemetry::{BrokerState, Health};
use payhook::time::Timestamp;
use serde_json::Value;

use super::*;

async fn ready(api: &Api) -> (StatusCode, Value) {
    let answer = api.get("", "/readyz").await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

on_both_stores! {
    async fn ready_means_a_write_came_through_whatever_the_broker_does(fresh) {
        let api = Api::over(&fresh);
        api.state.health.set_broker(BrokerState::Unreachable, Timestamp::from_secs(1));
        let (status, body) = ready(&api).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(body["broker"], "unreachable");
        assert_eq!(body["broker_since"], "1970-01-01T00:00:01Z");
        assert_eq!(fresh.number("select count(*) from write_probe").await, 1);
        assert_eq!(api.get("", "/healthz").await.status, StatusCode::OK);
    }

    async fn a_store_that_takes_no_write_is_not_ready(fresh) {
        fresh.by_hand("drop table write_probe").await.unwrap();
        let api = Api::over(&fresh);
        let (status, body) = ready(&api).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body["store"], "unavailable");
        assert_eq!(api.get("", "/healthz").await.status, StatusCode::OK, "alive all the same");
    }

    async fn a_draining_process_is_not_ready(fresh) {
        let api = Api::over(&fresh);
        api.state.health.begin_drain();
        let (status, body) = ready(&api).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body["draining"], true);
    }

    async fn without_ingress_the_broker_decides(fresh) {
        let api = Api::with(&fresh, Health::new(false));
        assert_eq!(ready(&api).await.0, StatusCode::SERVICE_UNAVAILABLE);
        api.state.health.set_broker(BrokerState::Connected, Timestamp::from_secs(1));
        assert_eq!(ready(&api).await.0, StatusCode::OK);
    }

    async fn without_the_role_a_process_only_says_how_it_is(fresh) {
        let api = Api::over(&fresh);
        for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/v1/orders", 404), ("/openapi.json", 404)] {
            let request = Request::get(path).header(AUTHORIZATION, format!("Bearer {OPS}")).body(Body::empty()).unwrap();
            let answer = health_router(api.state.clone()).oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{path}");
        }
    }

    async fn the_sampler_looks_up_what_waits(fresh) {
        let api = Api::over(&fresh);
        fresh.by_hand("insert into attention (id, code, source, merchant, explanation, created_at)
            values ('a1', 'paid_twice', 's', 'default', 'x', 1)").await.unwrap();
        fresh.by_hand("insert into outbox (id, kind, event_id, created_at, due_at)
            values ('e1', 'event', 'e1', micros(1795953590000000), 1)").await.unwrap();
        let state = api.state.clone();
        let registry = Arc::clone(&state.registry);
        let found = state.store.gauges().await.unwrap();
        assert_eq!((found.unpublished, found.unfinished), (1, 1));
        assert_eq!(found.attention, [("paid_twice".to_owned(), 1)]);
        let mut sampler = Sampler::new(state.store, state.health, state.metrics, registry, state.keys, state.clock);
        sampler.step().await.unwrap();
        let (_, body) = ready(&api).await;
        assert_eq!(body["outbox"]["pending"], 1);
        assert_eq!(body["outbox"]["oldest_age_seconds"], 10);
        let text = api.get("", "/metrics").await.text();
        for name in ["payhook_idempotency_oldest_running_seconds", "payhook_idempotency_unknown_outcomes", "payhook_outbox_rows", "payhook_unfinished_events", "payhook_broker_up",
            "payhook_attention_open_items{code=\"dead_letter\"}"] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} in {text}");
        }
    }

    async fn calls_that_have_not_ended_are_counted(fresh) {
        // Running now, abandoned by a process that died, unknown, and ended.
        let now = if fresh.is_postgres() {
            "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
        } else {
            "cast(unixepoch('subsec') * 1000000 as integer)"
        };
        for (id, effect, state, age, lease, status) in [
            ("running", "none", "running", 30, 30, "null"), ("abandoned", "none", "running", 9000, -8000, "null"),
            ("unknown", "outside", "running", 600, -500, "null"), ("ended", "outside", "finished", 5000, -4000, "200"),
        ] {
            fresh.by_hand(&format!("insert into idempotency_keys (id, key_hash, merchant, method, path, fingerprint, effect,
                state, owner, lease_until, status, created_at, expires_at) values ('{id}', 'h', 'm', 'POST', '/', {}, '{effect}',
                '{state}', 'o', micros({now} + {lease}000000), {status}, micros({now} - {age}000000), micros({now} + 9000000000))", blob(&fresh, b"f"))).await.unwrap();
        }
        let standing = Api::over(&fresh).state.keys.standing().await.unwrap();
        assert_eq!(standing.unknown_outcomes, 1);
        assert!((600_000_000..700_000_000).contains(&standing.oldest_running), "{standing:?}");
    }
}
