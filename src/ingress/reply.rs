//! What goes back: the provider's exact answer, or as little as HTTP allows.

use axum::body::Body;
use axum::response::Response;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::body::NoBody;
use crate::provider::{Registered, Verdict};

/// When to come again, in seconds. Providers keep to their own schedule; proxies may listen.
const COME_AGAIN: HeaderValue = HeaderValue::from_static("5");

/// The account's own answer for `verdict`.
pub(super) fn verdict(account: &Registered, verdict: Verdict, body: &[u8]) -> Response {
    let ack = account.scheme.ack(verdict, body);
    let mut response = Response::new(Body::from(ack.body));
    *response.status_mut() = verdict.status();
    let headers = response.headers_mut();
    if let Some(content_type) = ack.content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    if verdict == Verdict::Unavailable {
        headers.insert(RETRY_AFTER, COME_AGAIN);
    }
    response
}

/// What to answer in the form of, when the body has not been read: WeChat's two versions share a path.
pub(super) fn unread(headers: &HeaderMap) -> &'static [u8] {
    let content_type = headers
        .get(CONTENT_TYPE)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    if content_type
        .windows(3)
        .any(|part| part.eq_ignore_ascii_case(b"xml"))
    {
        b"<"
    } else {
        b""
    }
}

/// There is nothing here, whatever was asked for.
pub(super) fn not_found() -> Response {
    bare(StatusCode::NOT_FOUND)
}

/// A notify path, known or not, takes POST only.
pub(super) fn wrong_method() -> Response {
    let mut response = bare(StatusCode::METHOD_NOT_ALLOWED);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("POST"));
    response
}

/// The body could not be read; the connection is not used again.
pub(super) fn no_body(why: NoBody) -> Response {
    let mut response = bare(match why {
        NoBody::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        NoBody::TooSlow => StatusCode::REQUEST_TIMEOUT,
        NoBody::Broken => StatusCode::BAD_REQUEST,
        NoBody::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
    });
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
