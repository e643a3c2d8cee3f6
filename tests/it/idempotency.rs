//! The idempotency module in somebody else's service: its own transactions, its own handlers, one of which books
//! something outside the database. On Postgres and on SQLite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use payhook::idempotency::{
    Answer, Call, Connection, Effect, Key, Keys, Options, Pool, Refusal, Scope, Settlement, Stored,
    Transactions, Withdrawn, fingerprint, once,
};
use serde_json::{Value, json};
use sqlx::{Executor, PgPool, Row, SqlitePool};
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::support::store::{FreshStore, on_both_stores};

const TABLE: &str = "create table parcels (id text not null, weight bigint not null)";

/// The service's own database handle.
#[derive(Clone, Debug)]
enum Database {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

enum Open {
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

impl Transactions for Database {
    type Tx = Open;
    type Error = sqlx::Error;

    async fn begin(&self) -> Result<Open, sqlx::Error> {
        Ok(match self {
            Self::Postgres(pool) => Open::Postgres(pool.begin().await?),
            Self::Sqlite(pool) => Open::Sqlite(pool.begin_with("begin immediate").await?),
        })
    }

    fn connection(tx: &mut Open) -> Connection<'_> {
        match tx {
            Open::Postgres(tx) => Connection::Postgres(tx),
            Open::Sqlite(tx) => Connection::Sqlite(tx),
        }
    }

    async fn commit(tx: Open) -> Result<(), sqlx::Error> {
        match tx {
            Open::Postgres(tx) => tx.commit().await,
            Open::Sqlite(tx) => tx.commit().await,
        }
    }
}

impl Database {
    async fn parcels(&self) -> i64 {
        let sql = "select count(*) from parcels";
        match self {
            Self::Postgres(pool) => pool.fetch_one(sql).await.unwrap().get(0),
            Self::Sqlite(pool) => pool.fetch_one(sql).await.unwrap().get(0),
        }
    }
}

/// What the handlers share.
#[derive(Clone)]
struct Service {
    keys: Keys,
    database: Database,
    worked: Arc<AtomicUsize>,
    /// The courier outside: which parcels it has fetched.
    courier: Arc<std::sync::Mutex<BTreeMap<String, usize>>>,
    dies_after_effect: Arc<AtomicBool>,
    gate: Arc<tokio::sync::Semaphore>,
}

fn word(refusal: Refusal) -> Response {
    (refusal.status(), Json(json!({ "why": format!("{refusal:?}") }))).into_response()
}

fn stored(status: u16, body: &Value) -> Stored {
    let headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("x-parcel".to_owned(), "1".to_owned()),
    ];
    Stored {
        status,
        headers,
        body: body.to_string().into_bytes(),
    }
}

async fn parcel(
    State(service): State<Service>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let Ok(key) = Key::from_headers(&headers) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let outside = uri.path() == "/fetch";
    let Ok(print) = fingerprint(method.as_str(), uri.path(), Some(&body)) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let call = Call {
        scope: Scope {
            merchant: "m".to_owned(),
            method: method.to_string(),
            path: uri.path().to_owned(),
            key,
        },
        fingerprint: print,
        is_long: false,
        effect: if outside { Effect::Outside } else { Effect::None },
    };
    let shared = service.clone();
    once(&service.keys, &service.database, call, word, move |tx| {
        Box::pin(async move {
            let weight = body.get("weight").and_then(Value::as_i64).unwrap_or(-1);
            if weight < 0 {
                return Err(Withdrawn(StatusCode::UNPROCESSABLE_ENTITY.into_response()));
            }
            if weight > 1000 {
                return Ok(Answer(stored(409, &json!({ "too": "heavy" }))));
            }
            let id = body.get("id").and_then(Value::as_str).unwrap_or("?").to_owned();
            shared.worked.fetch_add(1, Ordering::SeqCst);
            shared.gate.acquire().await.unwrap().forget();
            if outside {
                *shared.courier.lock().unwrap().entry(id.clone()).or_default() += 1;
                assert!(
                    !shared.dies_after_effect.load(Ordering::SeqCst),
                    "killed between effect and completion"
                );
            }
            let sql = "insert into parcels (id, weight) values ($1, $2)";
            match tx {
                Open::Postgres(tx) => sqlx::query(sql)
                    .bind(&id)
                    .bind(weight)
                    .execute(&mut **tx)
                    .await
                    .map(drop),
                Open::Sqlite(tx) => sqlx::query(sql)
                    .bind(&id)
                    .bind(weight)
                    .execute(&mut **tx)
                    .await
                    .map(drop),
            }
            .unwrap();
            Ok(Answer(stored(201, &json!({ "id": id, "weight": weight }))))
        })
    })
    .await
}

/// A running service.
struct Running {
    service: Service,
    router: Router,
}

async fn start(fresh: &FreshStore, options: Options) -> Running {
    fresh.by_hand(TABLE).await.unwrap();
    let (database, pool) = if fresh.is_postgres() {
        let pool = PgPool::connect(&fresh.url).await.unwrap();
        (Database::Postgres(pool.clone()), Pool::Postgres(pool))
    } else {
        let pool = sqlx::sqlite::SqlitePoolOptions::new()
            .max_connections(1)
            .connect(&fresh.url)
            .await
            .unwrap();
        (Database::Sqlite(pool.clone()), Pool::Sqlite(pool))
    };
    let service = Service {
        keys: Keys::new(pool, options, TaskTracker::new()),
        database,
        worked: Arc::default(),
        courier: Arc::default(),
        dies_after_effect: Arc::default(),
        gate: Arc::new(tokio::sync::Semaphore::new(1_000_000)),
    };
    let router = Router::new()
        .route("/parcels", post(parcel))
        .route("/fetch", post(parcel))
        .with_state(service.clone());
    Running { service, router }
}

async fn call(router: &Router, path: &str, key: &str, body: &Value) -> (StatusCode, HeaderMap, Vec<u8>) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = http_body_util::BodyExt::collect(body)
        .await
        .unwrap()
        .to_bytes()
        .to_vec();
    (parts.status, parts.headers, bytes)
}

on_both_stores! {
async fn racers_share_one_effect(fresh) {
    let running = start(&fresh, Options::default()).await;
    let body = json!({ "id": "p1", "weight": 5 });
    let calls = (0..64).map(|_| call(&running.router, "/parcels", "k", &body));
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(running.service.database.parcels().await, 1);
    assert_eq!(running.service.worked.load(Ordering::SeqCst), 1);
    let first = answers
        .iter()
        .filter(|(s, h, _)| *s == 201 && !h.contains_key("idempotent-replayed"))
        .count();
    assert_eq!(first, 1);
    for (status, headers, bytes) in &answers {
        assert_eq!(headers.get("idempotency-key").unwrap(), "k");
        match status.as_u16() {
            201 => assert_eq!(bytes, br#"{"id":"p1","weight":5}"#),
            409 => assert!(headers.contains_key("retry-after")),
            other => panic!("{other}"),
        }
    }
}

async fn an_answer_is_replayed_byte_for_byte(fresh) {
    let running = start(&fresh, Options::default()).await;
    for body in [
        json!({ "id": "p", "weight": 5 }),
        json!({ "id": "p", "weight": 5000 }),
    ] {
        let key = format!("\"key-{}\"", body.get("weight").unwrap());
        let (status, headers, bytes) = call(&running.router, "/parcels", &key, &body).await;
        let again = call(&running.router, "/parcels", &key, &body).await;
        assert_eq!(
            (again.0, &again.2),
            (status, &bytes),
            "a final refusal is replayed like a success"
        );
        assert_eq!(again.1.get("x-parcel"), headers.get("x-parcel"));
        assert_eq!(again.1.get("idempotent-replayed").unwrap(), "true");
        assert!(!headers.contains_key("idempotent-replayed"));
    }
    assert_eq!(running.service.database.parcels().await, 1);
}

async fn a_key_means_one_payload(fresh) {
    let running = start(&fresh, Options::default()).await;
    call(
        &running.router,
        "/parcels",
        "k",
        &json!({ "id": "p", "weight": 5 }),
    )
    .await;
    let (status, ..) = call(
        &running.router,
        "/parcels",
        "k",
        &json!({ "id": "p", "weight": 6 }),
    )
    .await;
    assert_eq!(status, 422);
    let (status, ..) = call(&running.router, "/fetch", "k", &json!({ "id": "p", "weight": 6 })).await;
    assert_eq!(status, 201, "another path is another scope");
}

async fn what_came_to_nothing_frees_the_key(fresh) {
    let running = start(&fresh, Options::default()).await;
    let (status, ..) = call(
        &running.router,
        "/parcels",
        "k",
        &json!({ "id": "p", "weight": -5 }),
    )
    .await;
    assert_eq!(status, 422);
    let (status, ..) = call(
        &running.router,
        "/parcels",
        "k",
        &json!({ "id": "p", "weight": 5 }),
    )
    .await;
    assert_eq!(status, 201, "the corrected call may use the same key");
}

async fn an_unknown_outcome_waits_for_reconciliation(fresh) {
    let options = Options {
        lease: Duration::from_millis(50),
        ..Options::default()
    };
    let running = start(&fresh, options).await;
    let body = json!({ "id": "p", "weight": 5 });
    running.service.dies_after_effect.store(true, Ordering::SeqCst);
    assert_eq!(call(&running.router, "/fetch", "k", &body).await.0, 503);
    running.service.dies_after_effect.store(false, Ordering::SeqCst);
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while running.service.keys.standing().await.unwrap().unknown_outcomes == 0 {
        assert!(std::time::Instant::now() < until, "the lease never ran out");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        call(&running.router, "/fetch", "k", &body).await.0,
        409,
        "nobody may book the courier twice"
    );
    assert_eq!(running.service.courier.lock().unwrap().get("p"), Some(&1));
    assert_eq!(
        running.service.keys.purge(100).await.unwrap(),
        0,
        "an unknown outcome is never forgotten"
    );

    assert_eq!(
        running
            .service
            .keys
            .reconcile(10, async |_| Settlement::Unknown)
            .await
            .unwrap(),
        0
    );
    let courier = running.service.courier.clone();
    let settled = running
        .service
        .keys
        .reconcile(10, async |open| {
            assert_eq!((open.path.as_str(), open.merchant.as_str()), ("/fetch", "m"));
            assert!(courier.lock().unwrap().contains_key("p"));
            Settlement::Happened(stored(201, &json!({ "id": "p", "weight": 5 })))
        })
        .await
        .unwrap();
    assert_eq!(settled, 1);
    let (status, headers, _) = call(&running.router, "/fetch", "k", &body).await;
    assert_eq!(
        (status.as_u16(), headers.contains_key("idempotent-replayed")),
        (201, true)
    );
    assert_eq!(running.service.courier.lock().unwrap().get("p"), Some(&1));
}

async fn a_dead_attempt_is_taken_over(fresh) {
    let options = Options {
        lease: Duration::from_millis(1),
        ..Options::default()
    };
    let running = start(&fresh, options).await;
    let mut headers = HeaderMap::new();
    headers.insert("idempotency-key", "k".parse().unwrap());
    let body = json!({ "id": "p", "weight": 5 });
    let scope = Scope {
        merchant: "m".to_owned(),
        method: "POST".to_owned(),
        path: "/parcels".to_owned(),
        key: Key::from_headers(&headers).unwrap(),
    };
    let print = fingerprint("POST", "/parcels", Some(&body)).unwrap();
    // The attempt that claims and is never heard of again.
    running
        .service
        .keys
        .claim(&scope, &print, Effect::None)
        .await
        .unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let (status, ..) = call(&running.router, "/parcels", "k", &body).await;
        if status == 201 {
            break;
        }
        assert_eq!(status, 409);
        assert!(
            std::time::Instant::now() < until,
            "the dead attempt holds the key for ever"
        );
    }
    assert_eq!(running.service.database.parcels().await, 1);
}

async fn a_late_attempt_cannot_complete(fresh) {
    let options = Options {
        lease: Duration::from_millis(1),
        ..Options::default()
    };
    let running = start(&fresh, options).await;
    let Service { gate, worked, .. } = running.service.clone();
    // On SQLite the slow attempt holds the only write connection, so nobody can overtake it there.
    if !fresh.is_postgres() {
        return;
    }
    gate.forget_permits(1_000_000);
    let body = json!({ "id": "p", "weight": 5 });
    let slow = tokio::task::JoinSet::from_iter([{
        let (router, body) = (running.router.clone(), body.clone());
        async move { call(&router, "/parcels", "k", &body).await.0 }
    }]);
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while worked.load(Ordering::SeqCst) == 0 {
        assert!(std::time::Instant::now() < until);
        tokio::task::yield_now().await;
    }
    let second = tokio::task::JoinSet::from_iter([{
        let (router, body) = (running.router.clone(), body.clone());
        async move { call(&router, "/parcels", "k", &body).await.0 }
    }]);
    while worked.load(Ordering::SeqCst) == 1 {
        assert!(
            std::time::Instant::now() < until,
            "the second attempt never took over"
        );
        tokio::task::yield_now().await;
    }
    gate.add_permits(2);
    let mut statuses = [slow.join_all().await, second.join_all().await].concat();
    statuses.sort();
    assert_eq!(
        statuses,
        [StatusCode::CREATED, StatusCode::CONFLICT],
        "one completed, the late one rolled back"
    );
    assert_eq!(running.service.database.parcels().await, 1);
}

async fn expired_answers_are_forgotten_and_purged(fresh) {
    let options = Options {
        expiry: Duration::from_millis(20),
        ..Options::default()
    };
    let running = start(&fresh, options).await;
    let body = json!({ "id": "p", "weight": 5 });
    call(&running.router, "/parcels", "k", &body).await;
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while call(&running.router, "/parcels", "k", &body)
        .await
        .1
        .contains_key("idempotent-replayed")
    {
        assert!(std::time::Instant::now() < until, "the answer never expires");
    }
    assert!(
        running.service.database.parcels().await >= 2,
        "filtered on read, before any purge"
    );
    while running.service.keys.purge(100).await.unwrap() == 0 {
        assert!(std::time::Instant::now() < until, "nothing to purge");
    }
}
}
