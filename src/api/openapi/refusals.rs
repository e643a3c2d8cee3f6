//! The problems of each call, by status, with their codes and an example of each.
//!
//! The examples are made by the very functions that make the problems. A call's own are named among its
//! `responses`; those of every call are added.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::Value;
use utoipa::openapi::content::Content;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{AllOfBuilder, Components, ObjectBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema as _, ToSchema as _};

use crate::api::operation::{unread, worded};
use crate::api::problem::{Code, Document, PROBLEM_JSON, Problem};
use crate::config::Scope;
use crate::idempotency::{KeyProblem, Refusal};

/// The schema that all of them share.
const NAME: &str = "Problem";

/// Problems of a call's own.
macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident => $problem:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(in crate::api) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    let mut operation = Operation::new();
                    add(&mut operation, &$problem);
                    operation.responses.responses
                }
            }
        )*
    };
}

problems! {
    /// As things stand it may not be done.
    NotAllowed => Problem::not_allowed("as things stand it may not be done");
    /// Registered before, at another amount.
    OrderExists => Problem::new(StatusCode::CONFLICT, Code::OrderExists, "the order is registered at 88.88 CNY");
    /// Nothing there that the body names.
    NotFound => Problem::not_found("no such account");
    /// Retention was faster than the reader.
    CursorExpired => Problem::new(StatusCode::GONE, Code::CursorExpired, "events after this cursor were removed by age");
}

/// What every call with a token may answer.
pub(super) fn add_of_all(operation: &mut Operation, scope: Scope) {
    let wrong = match (&operation.request_body, &operation.parameters) {
        (Some(_), _) => "the body must be a JSON object",
        (None, Some(parameters)) if parameters.len() > 1 => "`limit` must be from 1 to 500",
        _ => "Invalid UTF-8 in `id`",
    };
    for problem in [
        Problem::validation(wrong),
        Problem::unauthorized(),
        Problem::forbidden(scope.as_str()),
        Problem::internal(),
        Problem::unavailable("the store does not answer"),
    ] {
        add(operation, &problem);
    }
}

/// What every call with a key may answer.
pub(super) fn add_of_keys(operation: &mut Operation) {
    for problem in [KeyProblem::Missing, KeyProblem::Malformed] {
        add(operation, &problem.into());
    }
    add(
        operation,
        &unread(StatusCode::PAYLOAD_TOO_LARGE, "length limit exceeded"),
    );
    for refusal in [
        Refusal::InProgress,
        Refusal::Reused,
        Refusal::TooFast,
        Refusal::Unavailable,
        Refusal::Unstorable,
    ] {
        add(operation, &worded(refusal));
    }
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        let text = |description: &str| HeaderBuilder::new().description(Some(description)).build();
        let mut head = |name: &str, description: &str| {
            response
                .headers
                .insert(name.to_owned(), RefOr::T(text(description)));
        };
        if status.starts_with('2') {
            head("Idempotency-Key", "The key, as it was sent.");
            head(
                "Idempotent-Replayed",
                "`true`: this is the answer of an earlier call.",
            );
        }
    }
}

/// Adds one more problem to the answers.
pub(super) fn add(operation: &mut Operation, problem: &Problem) {
    let document = serde_json::to_value(problem.document()).unwrap_or_default();
    let Some(code) = document.get("code").and_then(Value::as_str).map(str::to_owned) else {
        return;
    };
    let status = problem.status();
    let response = operation
        .responses
        .responses
        .entry(status.as_str().to_owned())
        .or_insert_with(|| Response::new(status.canonical_reason().unwrap_or_default()).into());
    let RefOr::T(response) = response else { return };
    if let StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE = status {
        let seconds = HeaderBuilder::new()
            .schema(Some(ObjectBuilder::new().schema_type(Type::Integer)))
            .description(Some("Seconds after which to come again."));
        response
            .headers
            .insert("Retry-After".to_owned(), RefOr::T(seconds.build()));
    }
    let content = response
        .content
        .entry(PROBLEM_JSON.to_owned())
        .or_insert_with(|| RefOr::T(Content::default()));
    let RefOr::T(content) = content else { return };
    let example = ExampleBuilder::new().value(Some(document)).build();
    content.examples.insert(code, RefOr::T(example));
    let codes: Vec<String> = content.examples.keys().cloned().collect();
    content.schema = Some(RefOr::T(with_codes(codes)));
}

/// A problem whose code is one of these.
fn with_codes(codes: Vec<String>) -> Schema {
    let code = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(codes));
    let narrowed = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("code", code);
    AllOfBuilder::new()
        .item(Ref::from_schema_name(NAME))
        .item(narrowed)
        .build()
        .into()
}

/// Puts the shared schema among the components.
pub(super) fn define(components: &mut Components) {
    components.schemas.insert(NAME.to_owned(), Document::schema());
    let mut needed = Vec::new();
    Document::schemas(&mut needed);
    components.schemas.extend(needed);
}
