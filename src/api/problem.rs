//! Errors as RFC 9457 problem documents, `application/problem+json`, with a `code` that programs act on.
//!
//! The codes are the contract's list. A store that fails is logged here, once, with its cause; the caller
//! hears only whether to come again.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::orders::apply::ApplyError;
use crate::store::StoreError;

/// What a problem document is served as.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// What went wrong, for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// No token, or one that is not known.
    Unauthorized,
    /// The token lacks the scope.
    Forbidden,
    /// Nothing there, or nothing of this token's merchant.
    NotFound,
    /// The path does not take the method.
    MethodNotAllowed,
    /// A parameter that cannot be used.
    Validation,
    /// The order was registered before, with another amount.
    OrderExists,
    /// The thing is there, and as it stands this may not be done with it.
    NotAllowed,
    /// A POST without an Idempotency-Key.
    IdempotencyKeyMissing,
    /// An Idempotency-Key that is none.
    IdempotencyKeyMalformed,
    /// The key was used for another payload.
    IdempotencyKeyReuse,
    /// The same call is still running.
    RequestInProgress,
    /// Whether the call was carried out is being found out.
    OutcomePending,
    /// Too many new keys at once.
    RateLimited,
    /// Retention removed what the cursor had not passed.
    CursorExpired,
    /// The store does not answer; come again.
    Unavailable,
    /// A fault of ours.
    Internal,
}

/// One error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    code: Code,
    detail: String,
}

/// RFC 9457.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Document<'a> {
    /// `about:blank`: the code says what it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'a str,
    /// The status.
    status: u16,
    code: Code,
    /// What is wrong, for people.
    detail: &'a str,
}

impl Problem {
    /// Any problem.
    pub fn new(status: StatusCode, code: Code, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
        }
    }

    /// 401: who is asking?
    pub fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            Code::Unauthorized,
            "a known bearer token is needed",
        )
    }

    /// 403: the token is known and may not.
    pub fn forbidden(scope: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            Code::Forbidden,
            format!("the token lacks the scope `{scope}`"),
        )
    }

    /// 404: nothing there, or nothing of this merchant.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::NotFound, detail)
    }

    /// 400: a parameter that cannot be used, and why.
    pub fn validation(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::Validation, detail)
    }

    /// 409: as things stand it may not be done.
    pub fn not_allowed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Code::NotAllowed, detail)
    }

    /// 503: come again.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, detail)
    }

    /// 500: a fault of ours.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::Internal,
            "a fault of this server; its log says more",
        )
    }

    /// What a program sees.
    pub fn code(&self) -> Code {
        self.code
    }

    /// In words.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The document itself.
    pub fn document(&self) -> impl Serialize {
        Document {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("error"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.document())).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

impl From<ApplyError> for Problem {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Store(error) => error.into(),
            ApplyError::Contended => Self::unavailable("the order was moved in the same moment"),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        if error.is_transient() {
            tracing::warn!(%error, cause, "the API could not use the store");
            Self::unavailable("the store does not answer")
        } else {
            tracing::error!(%error, cause, "the API could not use the store");
            Self::internal()
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_problem_says_its_code_and_keeps_the_cause_to_the_log() {
        let error = StoreError::corrupt("orders", "status of ORDER-1");
        let response = Problem::from(error).into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(document["code"], "internal");
        assert_eq!(document["status"], 500);
        assert!(!document.to_string().contains("ORDER-1"));
    }

    #[test]
    fn who_should_come_again_is_told_when() {
        let response = Problem::unavailable("the store does not answer").into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }
}
