//! A POST: who asks for it, what exactly, and under which `Idempotency-Key`.
//!
//! [`Operation`] is taken as a handler's last argument. By then the token may operate, the key is one, and the
//! body reads as what the call takes; only such a call claims its key. The rest is `idempotency`'s, in the words
//! of [`Problem`].

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::task::TaskTracker;

use super::ApiState;
use super::auth::Operator;
use super::problem::{Code, Problem};
use crate::idempotency::{
    Answer, Call, Connection, Effect, Key, KeyProblem, Keys, Options, Pool, Refusal, Scope, Stored,
    Transactions, Withdrawn, fingerprint, once_in_steps,
};
use crate::store::{Store, StoreError, Tx};

/// A call that changes something, before it is carried out.
#[derive(Debug)]
pub(super) struct Operation<T> {
    /// Who asks.
    pub(super) operator: Operator,
    /// What for.
    pub(super) body: T,
    call: Call,
}

impl<T: DeserializeOwned> FromRequest<ApiState> for Operation<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let operator = Operator::of(&parts, state)?;
        let key = Key::from_headers(&parts.headers).map_err(Problem::from)?;
        let method = parts.method.as_str().to_owned();
        let path = parts.uri.path().to_owned();
        let bytes = Bytes::from_request(Request::from_parts(parts, body), state)
            .await
            .map_err(|rejection| Problem::validation(rejection.body_text()))?;
        let value = document(&bytes)?;
        let fingerprint = fingerprint(&method, &path, Some(&value))
            .map_err(|problem| Problem::validation(problem.to_string()))?;
        let body = T::deserialize(value).map_err(|error| Problem::validation(error.to_string()))?;
        let scope = Scope {
            merchant: operator.merchant.clone(),
            method,
            path,
            key,
        };
        let call = Call {
            scope,
            fingerprint,
            effect: Effect::None,
        };
        Ok(Self { operator, body, call })
    }
}

/// No body is an empty document: a call may have nothing to say.
fn document(bytes: &[u8]) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| Problem::validation(format!("the body: {error}")))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Problem::validation("the body must be a JSON object"))
    }
}

impl<T> Operation<T> {
    /// Carries it out in several transactions, each harmless to repeat; the work leaves the last one open.
    pub(super) async fn once_in_steps<W>(self, state: &ApiState, work: W) -> Response
    where
        W: FnOnce(Operator, T) -> BoxFuture<'static, Result<(Tx, Answer), Withdrawn>> + Send + 'static,
        T: Send + 'static,
    {
        let Self { operator, body, call } = self;
        let work = || work(operator, body);
        once_in_steps::<Store, _>(&state.keys, call, word, work).await
    }
}

/// The keys of calls on `store`, in the same database as what the calls write; answers are kept for `expiry`.
pub fn keys(store: &Store, expiry: Duration, tasks: &TaskTracker) -> Keys {
    let options = Options {
        expiry,
        ..Options::default()
    };
    let pool = match store {
        Store::Postgres(pool) => Pool::Postgres(pool.clone()),
        Store::Sqlite(pools) => Pool::Sqlite(pools.writer.clone()),
    };
    Keys::new(pool, options, tasks.clone())
}

/// A final answer, kept under the key.
pub(super) fn answer(status: StatusCode, value: &impl Serialize) -> Result<Answer, Problem> {
    let body = serde_json::to_vec(value).map_err(|_| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::Internal,
            "the answer cannot be written",
        )
    })?;
    Ok(Answer(Stored {
        status: status.as_u16(),
        headers: vec![(CONTENT_TYPE.to_string(), "application/json".to_owned())],
        body,
    }))
}

impl From<Problem> for Withdrawn {
    /// Before any effect: the key is free again.
    fn from(problem: Problem) -> Self {
        Self(problem.into_response())
    }
}

impl From<StoreError> for Withdrawn {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl From<KeyProblem> for Problem {
    fn from(problem: KeyProblem) -> Self {
        let code = match problem {
            KeyProblem::Missing => Code::IdempotencyKeyMissing,
            KeyProblem::Malformed => Code::IdempotencyKeyMalformed,
        };
        Self::new(StatusCode::BAD_REQUEST, code, problem.to_string())
    }
}

/// The refusals of a key, in words.
fn word(refusal: Refusal) -> Response {
    let (code, detail) = match refusal {
        Refusal::InProgress => (Code::RequestInProgress, "the same call is still running"),
        Refusal::Reused => (Code::IdempotencyKeyReuse, "the key was used for another payload"),
        Refusal::OutcomePending => (Code::OutcomePending, "whether it was done is being found out"),
        Refusal::TooFast => (Code::RateLimited, "too many new keys"),
        Refusal::Unavailable => (Code::Unavailable, "the store does not answer"),
        Refusal::Unstorable => (Code::Internal, "the answer cannot be stored; nothing was done"),
    };
    Problem::new(refusal.status(), code, detail).into_response()
}

impl Transactions for Store {
    type Tx = Tx;
    type Error = StoreError;

    async fn begin(&self) -> Result<Tx, StoreError> {
        Self::begin(self).await
    }

    fn connection(tx: &mut Tx) -> Connection<'_> {
        match tx {
            Tx::Postgres(tx) => Connection::Postgres(tx),
            Tx::Sqlite(tx) => Connection::Sqlite(tx),
        }
    }

    async fn commit(tx: Tx) -> Result<(), StoreError> {
        tx.commit().await
    }
}
