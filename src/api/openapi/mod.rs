//! `/openapi.json`: what may be called and what is answered, generated from the code that does it.
//!
//! A call is described where it is handled, and what stands in an answer where it is made: `ToSchema` is derived
//! beside `Serialize`, also in modules below this one, because a second list of fields would not stay equal to the
//! first. They know no more of it than the word. A call is bound by its description (`routes!`), so there is none
//! without. What is true of all calls is added here: who may, what a key is, which problems there can be
//! ([`refusals`]); and what an answer looks like ([`answers`]).

mod answers;
mod refusals;

use std::fmt;
use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bytes::Bytes;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Info, License, OpenApi, RefOr, Required, Schema};

use super::page::{DEFAULT_LIMIT, MAX_LIMIT};
use super::problem::Problem;
use crate::config::Scope;

pub(super) use refusals::{CursorExpired, NotAllowed, NotFound, OrderExists};

/// How the token is called.
const BEARER: &str = "bearer";

/// The document; written when it is first asked for, and kept.
#[derive(Clone)]
pub(super) struct Document {
    described: Arc<OpenApi>,
    written: Arc<OnceLock<Bytes>>,
}

impl Document {
    /// Of the calls as they describe themselves.
    pub(super) fn new(described: OpenApi) -> Self {
        Self {
            described: Arc::new(described),
            written: Arc::default(),
        }
    }

    fn text(&self) -> Bytes {
        let write = || {
            let whole = completed(OpenApi::clone(&self.described));
            serde_json::to_vec(&whole).unwrap_or_default().into()
        };
        self.written.get_or_init(write).clone()
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").finish_non_exhaustive()
    }
}

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "process",
    responses((
        status = 200,
        description = "OpenAPI 3.1.",
        body = serde_json::Map<String, serde_json::Value>,
        example = json!({ "openapi": "3.1.0", "paths": {} }),
    ))
)]
pub(super) async fn show(Extension(document): Extension<Document>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], document.text())
}

/// A text that is one of these; `about` describes the parameter.
pub(super) fn one_of(about: &str, texts: impl IntoIterator<Item = &'static str>) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(about))
        .enum_values(Some(texts))
        .build()
}

/// With what is true of all calls.
fn completed(mut document: OpenApi) -> OpenApi {
    let mut info = Info::new("payhook", env!("CARGO_PKG_VERSION"));
    info.description = Some(env!("CARGO_PKG_DESCRIPTION").to_owned());
    info.license = Some(License::new(env!("CARGO_PKG_LICENSE")));
    document.info = info;
    for (path, item) in &mut document.paths.paths {
        let PathItem { get, post, .. } = item;
        if let Some(operation) = get {
            complete(operation, path, false);
        }
        if let Some(operation) = post {
            complete(operation, path, true);
        }
    }
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "A token of the configuration; a call names the scope that it asks for.",
        ));
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer.build()));
    refusals::define(components);
    answers::show(&mut document);
    document
}

fn complete(operation: &mut Operation, path: &str, changes: bool) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            bound(parameter);
        }
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        leave_out(body);
    }
    if !path.starts_with("/v1/") {
        return;
    }
    let scope = match operation.security {
        Some(_) => Scope::Raw,
        None if changes => Scope::Operate,
        None => Scope::Read,
    };
    operation.security = Some(vec![SecurityRequirement::new(BEARER, [scope.as_str()])]);
    if changes {
        operation.parameters.get_or_insert_default().push(RefOr::T(key()));
        refusals::add_of_keys(operation);
    }
    if path.contains('{') {
        refusals::add(operation, &Problem::not_found("no such thing"));
    }
    refusals::add_of_all(operation, scope);
}

/// A body that may be left out is absent then, and not null.
fn leave_out(body: &mut RequestBody) {
    for content in body.content.values_mut() {
        let RefOr::T(content) = content else { continue };
        let Some(RefOr::T(Schema::OneOf(either))) = &content.schema else {
            continue;
        };
        let named = either.items.iter().find(|item| matches!(item, RefOr::Ref(_)));
        content.schema = named.cloned();
        body.required = Some(Required::False);
    }
}

/// Says what the parameter is, and of `limit` what [`super::page::Span`] takes.
fn bound(parameter: &mut Parameter) {
    if let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema
        && parameter.description.is_none()
    {
        parameter.description = schema.description.take();
    }
    if parameter.name == "limit" {
        let limit = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(usize::from(MAX_LIMIT)))
            .default(Some(DEFAULT_LIMIT.into()));
        parameter.schema = Some(RefOr::T(Schema::Object(limit.build())));
    }
}

fn key() -> Parameter {
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(r#"^(?:[A-Za-z0-9._:-]{1,255}|"[A-Za-z0-9._:-]{1,255}")$"#));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some(
            "One for each thing to be done, kept over retries: whatever is sent again under it is done once and \
             answered alike. Bare or in double quotes.",
        ))
        .schema(Some(text))
        .example(Some("0198f0c2-6e1a-7c34-9a52-3f1d2b7c9e10".into()))
        .build()
}
