//! One call under its key: claim, work, complete, answer.
//!
//! The work runs on a task of its own, so that a caller who hangs up does not leave a claim behind. What the
//! work returns decides the key: an [`Answer`] is stored with its write in one commit, a [`Withdrawn`] gives
//! the key back. If the commit's own outcome is unknown, the claim stays: either the answer is there when
//! the caller comes again, or the lease runs out and the call starts anew.

use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, StatusCode};
use metrics::counter;

use super::claim::{Claim, Effect, Guard, KeysError, Scope, Stored};
use super::key::IDEMPOTENCY_KEY;
use super::keys::{Connection, Keys};
use crate::crash::{self, Point};
use crate::telemetry::metrics::names;

/// Set to `true` on an answer that was stored earlier.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// How the service opens and ends the transaction that its calls write in.
pub trait Transactions: Clone + Send + Sync + 'static {
    /// An open transaction; dropped, it rolls back.
    type Tx: Send;
    /// Why it could not be opened or committed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Opens one.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx, Self::Error>> + Send;
    /// Its connection.
    fn connection(tx: &mut Self::Tx) -> Connection<'_>;
    /// Commits it.
    fn commit(tx: Self::Tx) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What is asked, under which key.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whose key, for which call.
    pub scope: Scope,
    /// What the same call must equal: [`super::fingerprint()`].
    pub fingerprint: [u8; 32],
    /// Whether it does something outside the database.
    pub effect: Effect,
    /// Whether it may take seconds rather than milliseconds.
    pub is_long: bool,
}

/// The end of a call: stored with its write, replayed from then on. A final refusal is an answer too.
#[derive(Clone, Debug)]
pub struct Answer(pub Stored);

/// The call came to nothing before any effect: its answer is given but not stored, and the key is free.
#[derive(Debug)]
pub struct Withdrawn(pub Response);

/// Why there is no answer of the call's own; the service words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 409: another attempt runs; `Retry-After` is set.
    InProgress,
    /// 422: the key was used for another payload.
    Reused,
    /// 409: an outside effect may or may not have happened.
    OutcomePending,
    /// 429: keys are made too fast; `Retry-After` is set.
    TooFast,
    /// 503: the store does not answer; the same call may be repeated.
    Unavailable,
    /// 500: the answer cannot be stored, and nothing was written.
    Unstorable,
}

impl Refusal {
    /// The HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::InProgress | Self::OutcomePending => StatusCode::CONFLICT,
            Self::Reused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooFast => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unstorable => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Reused => "reused",
            Self::OutcomePending => "outcome_pending",
            Self::TooFast => "too_fast",
            Self::Unavailable => "unavailable",
            Self::Unstorable => "unstorable",
        }
    }
}

/// Runs `work` at most once for the call's key, however often and from wherever it is called. `word` makes
/// the response of a [`Refusal`]; status, `Retry-After` and the echoed key are set here.
pub async fn once<T, W>(
    keys: &Keys,
    transactions: &T,
    call: Call,
    word: fn(Refusal) -> Response,
    work: W,
) -> Response
where
    T: Transactions,
    W: for<'t> FnOnce(&'t mut T::Tx) -> BoxFuture<'t, Result<Answer, Withdrawn>> + Send + 'static,
{
    let transactions = transactions.clone();
    let carry_out = move || async move {
        let mut tx = transactions.begin().await.map_err(Undone::Unbegun)?;
        match work(&mut tx).await {
            Ok(answer) => Ok((tx, answer)),
            Err(withdrawn) => Err(Undone::Withdrawn(withdrawn)),
        }
    };
    answer::<T, _, _>(keys, call, word, carry_out).await
}

/// [`once`] for work that spans several transactions: it begins and commits all of them but the last, which it
/// leaves open for the answer. Whatever it did before may have been done by an attempt that died on the way, and
/// will then be done again: the steps must be harmless to repeat.
pub async fn once_in_steps<T, W>(keys: &Keys, call: Call, word: fn(Refusal) -> Response, work: W) -> Response
where
    T: Transactions,
    W: FnOnce() -> BoxFuture<'static, Result<(T::Tx, Answer), Withdrawn>> + Send + 'static,
{
    let carry_out = move || async move { work().await.map_err(Undone::Withdrawn) };
    answer::<T, _, _>(keys, call, word, carry_out).await
}

/// Why work left nothing to complete.
enum Undone<E> {
    Unbegun(E),
    Withdrawn(Withdrawn),
}

async fn answer<T, W, F>(keys: &Keys, call: Call, word: fn(Refusal) -> Response, carry_out: W) -> Response
where
    T: Transactions,
    W: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<(T::Tx, Answer), Undone<T::Error>>> + Send + 'static,
{
    let echo = call.scope.key.echo();
    let attempt = attempt::<T, _, _>(keys.clone(), call, carry_out);
    // Detached on purpose: dropping this future (the caller hung up) leaves the attempt running to its end.
    let (label, mut response) = match keys.tasks.spawn(attempt).await {
        Ok(Ok(Ended::First(stored))) => ("first", restore(&stored)),
        Ok(Ok(Ended::Replayed(stored))) => {
            let mut response = restore(&stored);
            response
                .headers_mut()
                .insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
            ("replayed", response)
        }
        Ok(Ok(Ended::Withdrawn(response))) => ("withdrawn", response),
        Ok(Err((refusal, wait))) => (refusal.label(), refuse(word, refusal, wait)),
        // The work panicked: its transaction rolled back and its lease runs out.
        Err(_) => (
            Refusal::Unavailable.label(),
            refuse(word, Refusal::Unavailable, Some(Duration::from_secs(1))),
        ),
    };
    counter!(names::IDEMPOTENCY, "result" => label).increment(1);
    response.headers_mut().insert(IDEMPOTENCY_KEY, echo);
    response
}

enum Ended {
    First(Stored),
    Replayed(Stored),
    Withdrawn(Response),
}

type Refused = (Refusal, Option<Duration>);

async fn attempt<T, W, F>(keys: Keys, call: Call, carry_out: W) -> Result<Ended, Refused>
where
    T: Transactions,
    W: FnOnce() -> F + Send,
    F: Future<Output = Result<(T::Tx, Answer), Undone<T::Error>>> + Send,
{
    // Before the claim: whoever gets no turn leaves nothing behind.
    let Some(_turn) = keys.turn(call.is_long).await else {
        return Err((Refusal::Unavailable, Some(Duration::from_secs(1))));
    };
    let claim = keys
        .claim(&call.scope, &call.fingerprint, call.effect)
        .await
        .map_err(unavailable)?;
    let guard = match claim {
        Claim::Won(guard) => guard,
        Claim::Finished(stored) => return Ok(Ended::Replayed(stored)),
        Claim::Running(wait) => return Err((Refusal::InProgress, Some(wait))),
        Claim::Reused => return Err((Refusal::Reused, None)),
        Claim::OutcomePending => return Err((Refusal::OutcomePending, Some(Duration::from_secs(5)))),
        Claim::TooFast(wait) => return Err((Refusal::TooFast, Some(wait))),
    };
    crash::point(Point::IdempotencyClaimed);
    let (mut tx, answer) = match carry_out().await {
        Ok((tx, Answer(answer))) => (tx, answer),
        Err(undone) => {
            give_back(&keys, &guard).await;
            return match undone {
                Undone::Unbegun(error) => Err(unavailable(error)),
                Undone::Withdrawn(Withdrawn(response)) => Ok(Ended::Withdrawn(response)),
            };
        }
    };
    crash::point(Point::IdempotencyWorked);
    if let Err(error) = keys.complete(&guard, T::connection(&mut tx), &answer).await {
        drop(tx);
        return Err(match error {
            KeysError::Lost => (Refusal::InProgress, Some(Duration::from_secs(1))),
            KeysError::TooLarge => {
                give_back(&keys, &guard).await;
                (Refusal::Unstorable, None)
            }
            other => unavailable(other),
        });
    }
    crash::point(Point::IdempotencyCompleted);
    // From here the outcome may be unknown to us; it never is to the next attempt, which reads the row.
    T::commit(tx).await.map_err(unavailable)?;
    crash::point(Point::IdempotencyCommitted);
    Ok(Ended::First(answer))
}

/// Frees the key; if that fails, the lease does it later.
async fn give_back(keys: &Keys, guard: &Guard) {
    if let Err(error) = keys.release(guard).await {
        tracing::warn!(error = %error, "idempotency key not released; its lease will run out");
    }
}

fn unavailable(error: impl std::error::Error) -> Refused {
    tracing::warn!(error = %error, "idempotent call could not be carried out");
    (Refusal::Unavailable, Some(Duration::from_secs(1)))
}

fn refuse(word: fn(Refusal) -> Response, refusal: Refusal, wait: Option<Duration>) -> Response {
    let mut response = word(refusal);
    *response.status_mut() = refusal.status();
    if let Some(wait) = wait {
        let secs = u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(1).max(1);
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, HeaderValue::from(secs));
    }
    response
}

/// The stored answer as a response, byte for byte.
fn restore(stored: &Stored) -> Response {
    let mut response = Response::new(Body::from(stored.body.clone()));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &stored.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
