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
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer, Serialize};
use serde_json::Value;
use tokio_util::task::TaskTracker;

use super::ApiState;
use super::auth::Operator;
use super::problem::{Code, PROBLEM_JSON, Problem};
use crate::event::text::storable;
use crate::idempotency::{
    Answer, Call, Connection, Effect, IDEMPOTENCY_KEY, Key, KeyProblem, Keys, Options, Pool, Refusal, Scope,
    Stored, Transactions, Withdrawn, fingerprint, once, once_in_steps,
};
use crate::orders::apply::ApplyError;
use crate::provider::json;
use crate::store::{Store, StoreError, Tx};

/// The longest answer that is kept, in bytes: a whole order, with a history of some ten thousand lines.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// A call that changes something, before it is carried out.
#[derive(Debug)]
pub(super) struct Operation<T> {
    /// Who asks.
    pub(super) operator: Operator,
    /// What for.
    pub(super) body: T,
    call: Call,
}

impl<T: DeserializeOwned + Send> FromRequest<ApiState> for Operation<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let operator = Operator::of(&parts, state).map_err(Problem::into_response)?;
        let key =
            Key::from_headers(&parts.headers).map_err(|problem| Problem::from(problem).into_response())?;
        let echo = key.echo();
        let scope = Scope {
            merchant: operator.merchant.clone(),
            method: parts.method.as_str().to_owned(),
            path: parts.uri.path().to_owned(),
            key,
        };
        let request = Request::from_parts(parts, body);
        Self::read(operator, scope, request, state)
            .await
            .map_err(|problem| {
                let mut response = problem.into_response();
                response.headers_mut().insert(IDEMPOTENCY_KEY, echo);
                response
            })
    }
}

impl<T: DeserializeOwned + Send> Operation<T> {
    async fn read(
        operator: Operator,
        scope: Scope,
        request: Request,
        state: &ApiState,
    ) -> Result<Self, Problem> {
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| unread(rejection.status(), rejection.body_text()))?;
        let value = document(&bytes)?;
        let fingerprint = fingerprint(&scope.method, &scope.path, Some(&value))
            .map_err(|problem| Problem::validation(problem.to_string()))?;
        let body = match serde_path_to_error::deserialize(value) {
            Ok(body) => body,
            // A used key says more than what is wrong with this body: the caller has mixed up two calls.
            Err(_) if matches!(state.keys.is_reuse(&scope, &fingerprint).await, Ok(true)) => {
                return Err(worded(Refusal::Reused));
            }
            Err(error) => return Err(Problem::validation(error.to_string())),
        };
        let call = Call {
            scope,
            fingerprint,
            effect: Effect::None,
            is_long: false,
        };
        Ok(Self { operator, body, call })
    }
}

/// A body that could not be read whole: it is too large, or was cut off.
pub(super) fn unread(status: StatusCode, why: impl Into<String>) -> Problem {
    Problem::new(status, Code::Validation, why)
}

/// A filter, in which nothing is left empty: a variable that was not set must not come to mean "everything".
pub(super) fn filter<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let members = serde_json::Map::<String, Value>::deserialize(deserializer)?;
    if let Some((name, _)) = members.iter().find(|(_, value)| value.is_null()) {
        return Err(D::Error::custom(format!(
            "`filter.{name}` is null: say what, or leave it out"
        )));
    }
    T::deserialize(Value::Object(members)).map_err(D::Error::custom)
}

/// No body is an empty document: a call may have nothing to say. A member named twice is refused: two readers of
/// one body must not see two prices.
fn document(bytes: &[u8]) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    json::object(bytes)
        .map(Value::Object)
        .map_err(|error| Problem::validation(format!("the body: {error}")))
}

impl<T> Operation<T> {
    /// Carries it out in one transaction: what `work` writes and the answer are committed together, or neither.
    pub(super) async fn once<W>(self, state: &ApiState, work: W) -> Response
    where
        W: for<'t> FnOnce(&'t mut Tx, Operator, T) -> BoxFuture<'t, Result<Answer, Withdrawn>>
            + Send
            + 'static,
        T: Send + 'static,
    {
        let Self { operator, body, call } = self;
        let response = once(&state.keys, &state.store, call, word, move |tx| {
            work(tx, operator, body)
        })
        .await;
        // The work may have written messages. Nobody rings for a caller who hung up: the next sweep finds them.
        state.bell.ring();
        response
    }

    /// It may take seconds: it waits for its turn among others of that kind.
    pub(super) fn long(mut self) -> Self {
        self.call.is_long = true;
        self
    }

    /// Carries it out in several transactions, each harmless to repeat; the work leaves the last one open.
    pub(super) async fn once_in_steps<W>(self, state: &ApiState, work: W) -> Response
    where
        W: FnOnce(Operator, T) -> BoxFuture<'static, Result<(Tx, Answer), Withdrawn>> + Send + 'static,
        T: Send + 'static,
    {
        let Self { operator, body, call } = self;
        let work = || work(operator, body);
        let response = once_in_steps::<Store, _>(&state.keys, call, word, work).await;
        state.bell.ring();
        response
    }
}

/// The keys of calls on `store`, in the same database as what the calls write; answers are kept for `expiry`. Calls
/// take at most half of the store's connections.
pub fn keys(store: &Store, expiry: Duration, tasks: &TaskTracker) -> Keys {
    let mut options = Options {
        expiry,
        max_answer: MAX_ANSWER,
        ..Options::default()
    };
    let pool = match store {
        Store::Postgres(pool) => {
            let most = pool.options().get_max_connections();
            options.at_once = usize::try_from(most / 2).unwrap_or(options.at_once);
            options.long_at_once = options.at_once.div_euclid(4);
            Pool::Postgres(pool.clone())
        }
        Store::Sqlite(pools) => Pool::Sqlite(pools.writer.clone()),
    };
    Keys::new(pool, options, tasks.clone())
}

/// Reads a `reason`: whoever changes something says why, for the audit.
pub(super) fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.chars().all(|c| c.is_whitespace() || c.is_control()) {
        return Err(D::Error::custom("`reason` must say why, for the audit"));
    }
    Ok(storable(&text).into_owned())
}

/// A final answer, kept under the key.
pub(super) fn answer(status: StatusCode, value: &impl Serialize) -> Result<Answer, Problem> {
    stored(status, "application/json", value)
}

/// A final refusal, kept under the key like any answer: whoever comes again hears the same.
pub(super) fn refusal(problem: &Problem) -> Result<Answer, Problem> {
    stored(problem.status(), PROBLEM_JSON, &problem.document())
}

fn stored(status: StatusCode, content_type: &str, value: &impl Serialize) -> Result<Answer, Problem> {
    let body = serde_json::to_vec(value).map_err(|_| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::Internal,
            "the answer cannot be written",
        )
    })?;
    Ok(Answer(Stored {
        status: status.as_u16(),
        headers: vec![(CONTENT_TYPE.to_string(), content_type.to_owned())],
        body,
    }))
}

impl From<Problem> for Withdrawn {
    /// Before any effect: the key is free again.
    fn from(problem: Problem) -> Self {
        Self(problem.into_response())
    }
}

impl From<ApplyError> for Withdrawn {
    fn from(error: ApplyError) -> Self {
        Problem::from(error).into()
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
    worded(refusal).into_response()
}

pub(super) fn worded(refusal: Refusal) -> Problem {
    let (code, detail) = match refusal {
        Refusal::InProgress => (Code::RequestInProgress, "the same call is still running"),
        Refusal::Reused => (Code::IdempotencyKeyReuse, "the key was used for another payload"),
        Refusal::OutcomePending => (Code::OutcomePending, "whether it was done is being found out"),
        Refusal::TooFast => (Code::RateLimited, "too many new keys"),
        Refusal::Unavailable => (Code::Unavailable, "the store does not answer"),
        Refusal::Unstorable => (Code::Internal, "the answer cannot be stored; nothing was done"),
    };
    Problem::new(refusal.status(), code, detail)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_each_thing_once() {
        assert!(document(b"").is_ok());
        assert!(document(br#"{"amount": {"minor": 1}}"#).is_ok());
        for bad in [
            r#"{"a": 1, "a": 2}"#,
            r#"{"amount": {"minor": 1, "minor": 2}}"#,
            "[]",
            "{} {}",
        ] {
            assert!(document(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
