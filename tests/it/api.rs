//! The private listener, asked through its router over real stores: who may see what, and in which words.

mod attention;
mod client;
mod dead_letters;
mod event_filters;
mod events;
mod feed;
mod health;
mod openapi;
mod openapi_fuzz;
mod orders;
mod quarantine;
mod redrive;
mod register;
pub(crate) mod replays;
mod resolve;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt as _;
use payhook::api::{ApiState, Readiness, Tokens, router};
use payhook::config::{Exchange, Queue, Scope, Token};
use payhook::event::Notification;
use payhook::orders::apply::{Item, Policy, Unknown, apply};
use payhook::provider::Registry;
use payhook::replay::Replays;
use payhook::store::outbox::Bell;
use payhook::telemetry::{Health, Metrics};
use payhook::time::{Clock, Timestamp};
use serde_json::Value;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::support::signed;
use crate::support::store::{FreshStore, on_both_stores};

/// Reads and raw, merchant `default`.
const OPS: &str = "ops-secret";
/// Reads only, merchant `default`.
const VIEWER: &str = "viewer-secret";
/// Everything, merchant `default`.
const OPERATOR: &str = "operator-secret";
/// Reads and raw, merchant `other`.
const OTHER: &str = "other-secret";
/// Everything, merchant `other`.
const OTHER_OPERATOR: &str = "other-operator-secret";

/// A router over one store, asked without a socket.
pub(crate) struct Api {
    state: ApiState,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Api {
    pub(crate) fn over(fresh: &FreshStore) -> Self {
        Self::with(fresh, Health::new(true))
    }

    fn with(fresh: &FreshStore, health: Health) -> Self {
        let clock = Clock::fixed(Timestamp::parse_rfc3339("2026-11-29T12:00:00Z").unwrap());
        let metrics = Metrics::install().unwrap();
        Self::with_accounts(fresh, health, clock, metrics, Registry::default())
    }

    fn with_accounts(
        fresh: &FreshStore,
        health: Health,
        clock: Clock,
        metrics: Metrics,
        registry: Registry,
    ) -> Self {
        let keys = payhook::api::keys(&fresh.store, Duration::from_hours(1), &TaskTracker::new());
        let registry = Arc::new(ArcSwap::from_pointee(registry));
        let store = fresh.store.clone();
        let policy = Policy {
            unknown: Unknown::Create,
            park_deadline: Duration::from_hours(24),
        };
        let replays = Replays::new(
            store.clone(),
            Arc::clone(&registry),
            &queues(),
            policy,
            clock.clone(),
        );
        Self {
            state: ApiState {
                readiness: Readiness::new(store.clone(), clock.clone()),
                replays,
                store,
                tokens: tokens(),
                health: Arc::new(health),
                metrics,
                registry,
                keys,
                policy,
                bell: Bell::default(),
                clock,
            },
        }
    }

    /// With the accounts of every provider, at the moment at which their notifications are signed.
    fn signed(fresh: &FreshStore) -> Self {
        let (clock, metrics) = (Clock::fixed(signed::now()), Metrics::install().unwrap());
        let registry = signed::registry_of(&signed::accounts());
        Self::with_accounts(fresh, Health::new(true), clock, metrics, registry)
    }

    /// The same, where orders wait for their registration.
    fn parking(fresh: &FreshStore) -> Self {
        let mut api = Self::signed(fresh);
        api.state.policy.unknown = Unknown::Park;
        api
    }

    /// Verifies, stores and applies a notification, as the flows do one after the other; its event's id.
    async fn told(&self, notification: &Notification) -> String {
        let registry = self.state.registry.load();
        let mut segments = notification.path.split('/').skip(2);
        let (provider, name) = (segments.next().unwrap(), segments.next().unwrap());
        let account = registry.get(provider.parse().unwrap(), name).unwrap();
        let event = Arc::new(account.event(notification, account.judge(notification).unwrap()));
        self.state
            .store
            .insert_fresh(std::slice::from_ref(&event), None)
            .await
            .unwrap();
        let reading = registry.read(&event).unwrap();
        let mut tx = self.state.store.begin().await.unwrap();
        let (policy, now) = (&self.state.policy, self.state.clock.now());
        let items = [Item {
            event: &event,
            reading: &reading,
        }];
        apply(&mut tx, &items, policy, now).await.unwrap();
        tx.commit().await.unwrap();
        event.id.to_string()
    }

    async fn post(&self, token: &str, path: &str, key: &str, body: &Value) -> Answer {
        let request = Request::post(path)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header("idempotency-key", key);
        self.ask(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    /// A POST by `operator` under a key of its own: status and document.
    async fn done(&self, path: &str, body: &Value) -> (u16, Value) {
        let key = hex::encode(rand::random::<[u8; 8]>());
        let answer = self.post(OPERATOR, path, &key, body).await;
        assert_eq!(answer.headers["idempotency-key"], key);
        (answer.status.as_u16(), answer.document())
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> Answer {
        let response: Response = router(self.state.clone()).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> Answer {
        let request = Request::get(path).header(AUTHORIZATION, format!("Bearer {token}"));
        self.ask(request.body(Body::empty()).unwrap()).await
    }

    /// The JSON of a 200.
    pub(crate) async fn json(&self, token: &str, path: &str) -> Value {
        let answer = self.get(token, path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Every page of a list, `limit` at a time, as the values of `field`.
    async fn walk(&self, token: &str, path: &str, limit: u32, field: &str) -> Vec<String> {
        let mut seen = Vec::new();
        let and = if path.contains('?') { '&' } else { '?' };
        let mut next = format!("{path}{and}limit={limit}");
        loop {
            let page = self.json(token, &next).await;
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= usize::try_from(limit).unwrap());
            seen.extend(items.iter().map(|item| item[field].as_str().unwrap().to_owned()));
            match page["next_cursor"].as_str() {
                Some(cursor) => next = format!("{path}{and}limit={limit}&cursor={cursor}"),
                None => return seen,
            }
        }
    }

    /// Asserts a problem document.
    async fn refuses(&self, token: &str, path: &str, status: u16, code: &str) {
        let answer = self.get(token, path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text());
        assert_eq!(
            answer.headers["content-type"], "application/problem+json",
            "{path}"
        );
        let problem: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(problem["code"], code, "{path}");
        assert_eq!(problem["status"], status, "{path}");
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn document(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}: {}", self.status, self.text()))
    }

    /// Status and code of a problem document.
    fn problem(&self) -> (u16, String) {
        let code = self.document()["code"].as_str().unwrap_or_default().to_owned();
        (self.status.as_u16(), code)
    }
}

/// The queues that a replay may be sent to alone.
fn queues() -> Vec<Queue> {
    let queue = |name: &str, exchange, bind: &str| Queue {
        name: name.to_owned(),
        exchange,
        bind: vec![bind.to_owned()],
    };
    vec![
        queue("fulfilment", Exchange::Orders, "order.paid"),
        queue("evidence", Exchange::Events, "#"),
    ]
}

fn tokens() -> Tokens {
    let token = |name: &str, secret: &str, scopes: &[Scope], merchant: &str| Token {
        name: name.to_owned(),
        secret: secret.into(),
        scopes: scopes.iter().copied().collect(),
        merchant: merchant.to_owned(),
    };
    Tokens::new(&[
        token("ops", OPS, &[Scope::Read, Scope::Raw], "default"),
        token("operator", OPERATOR, &Scope::ALL, "default"),
        token("viewer", VIEWER, &[Scope::Read], "default"),
        token("other", OTHER, &[Scope::Read, Scope::Raw], "other"),
        token("other-operator", OTHER_OPERATOR, &Scope::ALL, "other"),
    ])
}

/// SQL for bytes: `x'…'` on SQLite, `'\x…'::bytea` on Postgres.
fn blob(fresh: &FreshStore, bytes: &[u8]) -> String {
    let hex = hex::encode(bytes);
    if fresh.is_postgres() {
        format!("'\\x{hex}'::bytea")
    } else {
        format!("x'{hex}'")
    }
}

on_both_stores! {
    async fn everything_under_v1_asks_for_a_token(fresh) {
        let api = Api::over(&fresh);
        let paths = ["/v1/events", "/v1/events/x", "/v1/events/x/raw", "/v1/orders", "/v1/orders/x", "/v1/attention", "/v1/dead-letters", "/v1/dead-letters/x",
            "/v1/quarantine", "/v1/quarantine/x"];
        for path in paths {
            for header in [None, Some("Bearer wrong"), Some("Basic b3BzOm9wcw==")] {
                let mut request = Request::get(path);
                if let Some(header) = header {
                    request = request.header(AUTHORIZATION, header);
                }
                let answer = api.ask(request.body(Body::empty()).unwrap()).await;
                assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {header:?}");
                assert_eq!(answer.headers["www-authenticate"], "Bearer");
                assert!(answer.text().contains(r#""code":"unauthorized""#));
            }
        }
    }

    async fn what_is_not_there_is_said_in_the_same_words(fresh) {
        let api = Api::over(&fresh);
        api.refuses(OPS, "/v1/nothing", 404, "not_found").await;
        api.refuses(OPS, "/", 404, "not_found").await;
        let request = Request::delete("/v1/events").body(Body::empty()).unwrap();
        let answer = api.ask(request).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }

    async fn lists_refuse_what_they_do_not_understand(fresh) {
        let api = Api::over(&fresh);
        for list in ["/v1/events", "/v1/orders", "/v1/attention", "/v1/dead-letters"] {
            for query in ["limit=0", "limit=501", "limit=-1", "limit=x", "limit=1&limit=2", "cursor=%25", "cursor=AAAA",
                "colour=red", "order_id=%00", "cursor="] {
                api.refuses(OPS, &format!("{list}?{query}"), 400, "validation").await;
            }
            let empty = api.json(OPS, &format!("{list}?limit=500")).await;
            assert_eq!(empty, serde_json::json!({"items": [], "next_cursor": null}));
        }
        for query in ["provider=paypal", "outcome=fine", "since=yesterday", "until=2026-11-29T12:00:00"] {
            api.refuses(OPS, &format!("/v1/events?{query}"), 400, "validation").await;
        }
        api.refuses(OPS, "/v1/attention?state=closed", 400, "validation").await;
    }
}
