//! `/openapi.json` against the server that it describes: the document is walked, and every call in it is made.
//!
//! Bodies are the document's own examples, so that an example which the server refuses is a failure here.

use std::collections::BTreeSet;

use axum::http::Method;
use futures_util::FutureExt as _;
use payhook::store::quarantine::Quarantined;
use serde_json::json;

use super::redrive::bury;
use super::register::paid;
use super::*;

/// One of each noun, by the path it is under.
pub(super) struct Planted {
    pub(super) api: Api,
    ids: Vec<(&'static str, String)>,
}

/// A call that was made, for whoever compares it with the document.
#[derive(Debug, serde::Serialize)]
pub(super) struct Exchange {
    pub(super) path: String,
    pub(super) method: &'static str,
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: String,
}

impl Planted {
    pub(super) async fn new(fresh: &FreshStore) -> Self {
        let letter = bury(fresh, 1..2).await.remove(0);
        let api = Api::signed(fresh);
        // A payment of another amount than registered: an open order, and an item.
        let order = json!({"order_id": "O-1", "amount": {"minor": 100, "currency": "CNY"}});
        assert_eq!(api.done("/v1/orders", &order).await.0, 201);
        let event = api.told(&paid("O-1", 88)).await;
        api.told(&paid("O-2", 88)).await;
        let order = api.json(OPS, "/v1/orders/O-1").await;
        let item = order["attention"][0]["id"].as_str().unwrap().to_owned();
        let replay = json!({"filter": {}, "reason": "a test"});
        let (status, replay) = api.done("/v1/replays", &replay).await;
        assert_eq!(status, 202);
        let refused = refused(fresh, &api).await;
        let ids = vec![
            ("/v1/events/", event),
            ("/v1/orders/", "O-1".to_owned()),
            ("/v1/attention/", item),
            ("/v1/dead-letters/", letter),
            ("/v1/quarantine/", refused),
            ("/v1/replays/", replay["id"].as_str().unwrap().to_owned()),
        ];
        Self { api, ids }
    }

    /// The path of the thing that was planted.
    fn place(&self, path: &str) -> String {
        let Some((_, parameter)) = path.split_once('{') else {
            return path.to_owned();
        };
        let (name, _) = parameter.split_once('}').unwrap();
        path.replace(&format!("{{{name}}}"), self.id(path))
    }

    /// The id of what was planted under `path`.
    pub(super) fn id(&self, path: &str) -> &str {
        let found = self.ids.iter().find(|(prefix, _)| path.starts_with(prefix));
        &found.unwrap_or_else(|| panic!("nothing is planted for {path}")).1
    }

    async fn post(&self, path: &str, token: Option<&str>, key: Option<&str>, body: &Value) -> Answer {
        let mut request = Request::post(self.place(path));
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.api
            .ask(request.body(Body::from(body.to_string())).unwrap())
            .await
    }
}

/// A notification that came in time and was held to be late.
async fn refused(fresh: &FreshStore, api: &Api) -> String {
    let notification = paid("O-3", 88);
    let refused = Quarantined {
        provider: "wechatpay".parse().unwrap(),
        account: "shop-cn".to_owned(),
        merchant: "default".to_owned(),
        reason: "outside_window",
        detail: "as a test says".to_owned(),
        path: notification.path.clone(),
        headers: payhook::provider::kept_headers(&notification.headers),
        body: notification.body.clone(),
        received_at: notification.received_at,
        remote_addr: Some("192.0.2.7".to_owned()),
        sender: "192.0.2.7".to_owned(),
    };
    fresh.store.quarantine(&[refused]).await.unwrap();
    let list = api.json(OPS, "/v1/quarantine").await;
    list["items"][0]["id"].as_str().unwrap().to_owned()
}

/// One operation of the document.
pub(super) struct Call<'a> {
    pub(super) path: &'a str,
    pub(super) method: Method,
    pub(super) described: &'a Value,
}

/// Every operation.
pub(super) fn calls(document: &Value) -> Vec<Call<'_>> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, described) in item.as_object().unwrap() {
            let method = method.to_uppercase().parse().unwrap();
            found.push(Call {
                path,
                method,
                described,
            });
        }
    }
    found
}

impl Call<'_> {
    /// The request's examples, each with the status that answers it: that of the answer with the same name, or the
    /// only one.
    fn examples(&self) -> Vec<(Value, u16)> {
        let content = &self.described["requestBody"]["content"]["application/json"];
        let answers = self.described["responses"].as_object().unwrap();
        let good: Vec<_> = answers
            .iter()
            .filter(|(status, _)| status.starts_with('2'))
            .collect();
        let status_of = |name: Option<&str>| {
            let mut fit = good.iter().filter(|(_, answer)| match name {
                Some(name) => !answer["content"]["application/json"]["examples"][name].is_null(),
                None => true,
            });
            let (status, _) = fit
                .next()
                .unwrap_or_else(|| panic!("{}: no answer to {name:?}", self.path));
            assert!(fit.next().is_none(), "{}: two answers to {name:?}", self.path);
            status.parse::<u16>().unwrap()
        };
        if let Some(examples) = content["examples"].as_object() {
            let named = examples.iter();
            return named
                .map(|(name, example)| (example["value"].clone(), status_of(Some(name))))
                .collect();
        }
        assert!(content["example"].is_object(), "{}: no example", self.path);
        vec![(content["example"].clone(), status_of(None))]
    }

    /// The content types and codes that are documented for a status.
    fn answer(&self, status: u16) -> &Value {
        let answer = &self.described["responses"][status.to_string()];
        assert!(
            answer.is_object(),
            "{} {} answers {status}, undocumented",
            self.method,
            self.path
        );
        answer
    }

    fn exchange(&self, answer: &Answer) -> Exchange {
        let content_type = answer.headers["content-type"].to_str().unwrap().to_owned();
        let status = answer.status.as_u16();
        let content = &self.answer(status)["content"];
        assert!(
            content[&content_type].is_object(),
            "{}: {status} is {content_type}",
            self.path
        );
        Exchange {
            path: self.path.to_owned(),
            method: if self.method == Method::POST {
                "post"
            } else {
                "get"
            },
            status,
            content_type,
            body: answer.text(),
        }
    }

    /// Asserts a problem with a documented code.
    fn is_problem(&self, answer: &Answer, status: u16, code: &str) -> Exchange {
        assert_eq!(
            answer.problem(),
            (status, code.to_owned()),
            "{}: {}",
            self.path,
            answer.text()
        );
        let problem = &self.answer(status)["content"]["application/problem+json"];
        assert!(
            problem["examples"][code].is_object(),
            "{}: {code} is undocumented",
            self.path
        );
        self.exchange(answer)
    }
}

/// The same kind of body, about something else.
fn other(body: &Value) -> Value {
    let mut body = body.clone();
    for value in body.as_object_mut().unwrap().values_mut() {
        match value {
            Value::String(text) => text.push('!'),
            Value::Bool(bit) => *bit = !*bit,
            _ => continue,
        }
        return body;
    }
    panic!("{body}: nothing to change");
}

/// Makes every call; what was said.
pub(super) async fn walk(planted: &Planted) -> Vec<Exchange> {
    let document = planted.api.json(OPS, "/openapi.json").await;
    let calls = calls(&document);
    let mut said = Vec::new();
    for call in calls.iter().filter(|call| call.method == Method::GET) {
        let path = planted.place(call.path);
        let answer = planted.api.get(OPS, &path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        said.push(call.exchange(&answer));
        if call.path.contains('{') {
            let nothing = planted
                .api
                .get(OPS, &path.replace(planted.id(call.path), "nothing"))
                .await;
            said.push(call.is_problem(&nothing, 404, "not_found"));
        }
        if call.path.starts_with("/v1/") {
            let nobody = planted.api.get("nobody", &path).await;
            said.push(call.is_problem(&nobody, 401, "unauthorized"));
            let viewer = planted.api.get(VIEWER, &path).await;
            let raw = call.described["security"] == json!([{"bearer": ["raw"]}]);
            assert_eq!(viewer.status == StatusCode::FORBIDDEN, raw, "{path}");
            said.push(call.exchange(&viewer));
        }
    }
    let mut posts = 0;
    for call in calls.iter().filter(|call| call.method == Method::POST) {
        for (n, (body, status)) in call.examples().into_iter().enumerate() {
            let key = format!("key-{n}");
            let post = async |token, key: Option<&str>, body: &Value| {
                planted.post(call.path, token, key, body).await
            };
            said.push(call.is_problem(&post(None, Some(&key), &body).await, 401, "unauthorized"));
            said.push(call.is_problem(&post(Some(OPS), Some(&key), &body).await, 403, "forbidden"));
            let keyless = post(Some(OPERATOR), None, &body).await;
            said.push(call.is_problem(&keyless, 400, "idempotency_key_missing"));
            let malformed = post(Some(OPERATOR), Some("a key"), &body).await;
            said.push(call.is_problem(&malformed, 400, "idempotency_key_malformed"));

            let first = post(Some(OPERATOR), Some(&key), &body).await;
            assert_eq!(
                first.status.as_u16(),
                status,
                "{}: {body}: {}",
                call.path,
                first.text()
            );
            assert!(!first.headers.contains_key("idempotent-replayed"));
            said.push(call.exchange(&first));
            for another in [other(&body), json!({"colour": "red"})] {
                let reused = post(Some(OPERATOR), Some(&key), &another).await;
                said.push(call.is_problem(&reused, 422, "idempotency_key_reuse"));
            }
            let again = post(Some(OPERATOR), Some(&key), &body).await;
            assert_eq!(again.headers["idempotent-replayed"], "true", "{}", call.path);
            assert_eq!(
                (again.status, &again.body, &again.headers["content-type"]),
                (first.status, &first.body, &first.headers["content-type"]),
                "{}",
                call.path
            );
            posts += 1;
        }
    }
    assert!(posts > 7, "only {posts} examples");
    said
}

on_both_stores! {
    async fn every_call_in_the_document_does_what_it_says(fresh) {
        let planted = Planted::new(&fresh).await;
        walk(&planted).boxed().await;
    }

    async fn the_document_is_there_without_a_token_and_says_how_lists_and_keys_work(fresh) {
        let api = Api::over(&fresh);
        let answer = api.ask(Request::get("/openapi.json").body(Body::empty()).unwrap()).await;
        assert_eq!((answer.status, answer.headers["content-type"].to_str().unwrap()), (StatusCode::OK, "application/json"));
        let document = answer.document();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let mut ids = BTreeSet::new();
        for call in calls(&document) {
            let at = format!("{} {}", call.method, call.path);
            assert!(ids.insert(call.described["operationId"].as_str().unwrap()), "{at}: an id twice");
            assert!(call.described["summary"].is_string(), "{at}: says nothing of itself");
            let guarded = call.path.starts_with("/v1/");
            assert_eq!(call.described["security"].is_array(), guarded, "{at}");
            let names: BTreeSet<&str> = call.described["parameters"].as_array().into_iter().flatten().map(|parameter| {
                assert!(parameter["description"].is_string(), "{at}: {parameter}");
                parameter["name"].as_str().unwrap()
            }).collect();
            assert_eq!(names.contains("Idempotency-Key"), call.method == Method::POST, "{at}");
            for (status, answer) in call.described["responses"].as_object().unwrap() {
                assert!(!answer["description"].as_str().unwrap().is_empty(), "{at} {status}");
                for content in answer["content"].as_object().unwrap().values() {
                    let shown = content["examples"].as_object().is_some_and(|shown| shown.values().all(|one| !one["value"].is_null()));
                    assert!(shown || !content["example"].is_null(), "{at} {status}: no example");
                    if content["schema"]["$ref"].as_str().is_some_and(|name| name.contains("/Page_")) {
                        assert!(names.is_superset(&["limit", "cursor"].into()), "{at}");
                    }
                }
            }
        }
        assert!(ids.len() > 20, "{ids:?}");
    }
}
