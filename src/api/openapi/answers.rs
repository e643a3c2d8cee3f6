//! What answers look like: an example of each shape, and which members are always there.
//!
//! One story runs through the examples: order `ORDER-1001`, paid with Alipay. An example belongs to a shape, so every
//! call that answers with it has it.

use serde_json::{Value, json};
use utoipa::openapi::content::Content;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::path::PathItem;
use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{Array, Object, OpenApi, Ref, RefOr, Schema};

/// Members that are left out when there is nothing to say; all others are there, and null then.
const LEFT_OUT: &[&str] = &["parked_until", "subject"];

/// How the shape of a page begins; the shape of its items follows.
const PAGE: &str = "Page_";

const EVENT: &str = "0198f0c2-6e1a-7c34-9a52-3f1d2b7c9e10";
const AT: &str = "2026-11-29T04:05:07.123456Z";
const PAID_AT: &str = "2026-11-29T04:05:06Z";

/// Completes schemas and answers.
pub(super) fn show(document: &mut OpenApi) {
    for (name, schema) in &mut document.components.get_or_insert_default().schemas {
        require(schema);
        if let Some(item) = name.strip_prefix(PAGE) {
            list(schema, item);
        }
    }
    for PathItem { get, post, .. } in document.paths.paths.values_mut() {
        let operations = [get, post].into_iter().flatten();
        for (status, response) in operations.flat_map(|operation| &mut operation.responses.responses) {
            let RefOr::T(response) = response else { continue };
            let contents = response.content.values_mut().filter(|_| !status.starts_with('4'));
            for content in contents {
                if let RefOr::T(content) = content {
                    illustrate(content);
                }
            }
        }
    }
}

/// Our answers name every member; what may be sent (and denies unknown members) says itself what it needs.
fn require(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => require_members(object),
        Schema::AllOf(all) => all.items.iter_mut().for_each(require),
        Schema::OneOf(one) => one.items.iter_mut().for_each(require),
        _ => {}
    }
}

fn require_members(object: &mut Object) {
    let sent = object.additional_properties.as_deref();
    if matches!(sent, Some(AdditionalProperties::FreeForm(false))) {
        return;
    }
    let members = object
        .properties
        .keys()
        .filter(|name| !LEFT_OUT.contains(&name.as_str()));
    object.required = members.cloned().collect();
}

/// A page names the shape of its items instead of repeating it.
fn list(page: &mut RefOr<Schema>, item: &str) {
    if let RefOr::T(Schema::Object(page)) = page {
        let items = Array::new(Ref::from_schema_name(item));
        page.properties
            .insert("items".to_owned(), RefOr::T(Schema::Array(items)));
    }
}

/// Adds the example of the shape, under the name that is there already if there is one.
fn illustrate(content: &mut Content) {
    let Some(RefOr::Ref(shape)) = &content.schema else {
        return;
    };
    let name = shape.ref_location.rsplit('/').next().unwrap_or_default();
    let Some(value) = of(name) else { return };
    if content.examples.is_empty() {
        content.example = Some(value);
        return;
    }
    for (key, example) in &mut content.examples {
        let value = with(value.clone(), after(key));
        *example = RefOr::T(ExampleBuilder::new().value(Some(value)).build());
    }
}

/// The example of a shape.
fn of(name: &str) -> Option<Value> {
    if let Some(item) = name.strip_prefix(PAGE) {
        return Some(json!({ "items": [of(item)?], "next_cursor": null }));
    }
    Some(match name {
        "Live" => json!({ "status": "ok" }),
        "Readiness" => readiness(),
        "Event" => event(),
        "EventDetail" => with(event(), json!({ "timeline": timeline() })),
        "FeedPage" => json!({ "items": [message()], "next_cursor": "ZXZlbnRzOjE6MDo0Mjo6" }),
        "OrderHead" => order(),
        "Order" => with(order(), belongings()),
        "AttentionItem" => attention(),
        "DeadLetter" => dead_letter(),
        "RedriveTally" => json!({ "redriven": 3, "remaining": 0, "until": AT }),
        "Quarantined" => quarantined(),
        "QuarantinedDetail" => with(quarantined(), whole()),
        "Reverified" => json!({ "verified": 2, "refused": 0 }),
        "Replay" => replay(),
        "ReplayPlan" => plan(),
        _ => return None,
    })
}

/// What differs in an example of this name: the thing after the call.
fn after(key: &str) -> Value {
    match key {
        "registered" | "known" => standing("pending", None, 0, &[registration()]),
        "closed" => standing("closed", Some("merchant"), 1, &[registration(), closing()]),
        "resolved" => json!({
            "state": "resolved", "actions": [],
            "resolution": {
                "action": "dismiss", "reason": "checked with the customer", "resolved_by": "ops", "resolved_at": AT,
            },
        }),
        "redriven" => json!({ "redriven_at": AT }),
        "cancelled" => json!({ "state": "cancelled", "ended_at": AT }),
        _ => json!({}),
    }
}

/// An order that nobody has paid.
fn standing(status: &str, closed_by: Option<&str>, version: u8, history: &[Value]) -> Value {
    json!({
        "status": status, "closed_by": closed_by, "paid": 0, "version": version,
        "trades": [], "history": history, "ledger": [],
    })
}

fn registration() -> Value {
    json!({
        "at": AT, "event_id": null, "fact": "order_registered", "outcome": "applied",
        "reason": "registered at 88.88 CNY", "before": "pending", "after": "pending",
    })
}

fn closing() -> Value {
    json!({
        "at": AT, "event_id": null, "fact": "merchant_closed", "outcome": "applied",
        "reason": "the order is closed by its merchant", "before": "pending", "after": "closed",
    })
}

fn with(mut value: Value, more: Value) -> Value {
    if let (Value::Object(members), Value::Object(more)) = (&mut value, more) {
        members.extend(more);
    }
    value
}

fn readiness() -> Value {
    json!({
        "ready": true, "store": "ok", "starting": false, "draining": false,
        "broker": "connected", "broker_since": AT,
        "outbox": { "pending": 0, "oldest_at": null, "oldest_age_seconds": 0 },
    })
}

fn event() -> Value {
    json!({
        "id": EVENT, "event_key": "webhook:alipay:shop-cn:2026112900222100000000000000000001",
        "provider": "alipay", "account": "shop-cn", "merchant": "default",
        "type": "payment.succeeded", "provider_event_type": "TRADE_SUCCESS",
        "order_id": "ORDER-1001", "trade_id": "2026112922001400000000000001", "refund_id": null,
        "amount": { "minor": 8888, "currency": "CNY", "exponent": 2 },
        "occurred_at": PAID_AT, "received_at": AT,
        "outcome": "applied", "outcome_reason": "88.88 CNY paid; the order is paid", "duplicates": 1,
    })
}

fn timeline() -> Value {
    json!([
        { "at": AT, "what": "received", "remote_addr": "192.0.2.7" },
        { "at": AT, "what": "outcome", "outcome": "applied", "reason": "88.88 CNY paid; the order is paid" },
    ])
}

fn message() -> Value {
    json!({
        "specversion": "1.0", "id": "webhook:alipay:shop-cn:2026112900222100000000000000000001",
        "source": "/notify/alipay/shop-cn", "type": "payment.succeeded", "subject": "ORDER-1001",
        "time": PAID_AT, "datacontenttype": "application/json",
        "data": {
            "event_id": EVENT, "provider": "alipay", "account": "shop-cn", "merchant": "default",
            "provider_event_type": "TRADE_SUCCESS",
            "order_id": "ORDER-1001", "trade_id": "2026112922001400000000000001", "refund_id": null,
            "amount": { "minor": 8888, "currency": "CNY", "exponent": 2 },
            "received_at": AT, "replay": null, "content": null,
        },
    })
}

fn order() -> Value {
    json!({
        "merchant": "default", "order_id": "ORDER-1001", "status": "paid", "closed_by": null,
        "currency": "CNY", "amount": 8888, "paid": 8888, "refunded": 0, "reversed": 0, "version": 1,
        "created_at": AT, "updated_at": AT,
    })
}

fn belongings() -> Value {
    json!({
        "trades": [{
            "provider": "alipay", "account": "shop-cn", "trade_id": "2026112922001400000000000001",
            "status": "paid", "amount": 8888, "refunded": 0, "currency": "CNY", "paid_at": PAID_AT,
        }],
        "history": [{
            "at": AT, "event_id": EVENT, "fact": "payment_succeeded", "outcome": "applied",
            "reason": "88.88 CNY paid; the order is paid", "before": "pending", "after": "paid",
        }],
        "ledger": [{
            "entry_type": "payment", "source": "2026112922001400000000000001", "amount": 8888, "currency": "CNY",
            "event_id": EVENT, "at": AT, "provider": "alipay", "trade_id": "2026112922001400000000000001",
        }],
        "attention": [],
    })
}

fn attention() -> Value {
    json!({
        "id": "0198f0c2-6e1b-7d10-8f6e-0c5a7e4b2d31", "code": "amount_mismatch",
        "order_id": "ORDER-1001", "event_id": EVENT, "state": "open",
        "explanation": "alipay trade 2026112922001400000000000001 was paid 88.88 CNY, but the order is registered at 100.00 CNY: \
            the payment is booked and held: for the order it does not count until it is accepted",
        "count": 1,
        "actions": ["accept_payment", "refunded_outside", "dismiss"], "created_at": AT, "resolution": null,
        "provider": "alipay", "account": "shop-cn", "trade_id": "2026112922001400000000000001",
    })
}

fn dead_letter() -> Value {
    json!({
        "id": "0198f0c2-6e1c-7e42-b1d8-5a9c3f7e6d20", "event_id": EVENT,
        "event_key": "webhook:alipay:shop-cn:2026112900222100000000000000000001",
        "error": "the body cannot be read", "attempts": 8, "created_at": AT, "redriven_at": null,
    })
}

fn quarantined() -> Value {
    json!({
        "id": "0198f0c2-6e1d-7a55-93c7-8b2e1d4f6a70", "provider": "alipay", "account": "shop-cn",
        "reason": "bad_signature", "detail": "the signature does not hold", "received_at": AT,
        "remote_addr": "192.0.2.7",
    })
}

fn whole() -> Value {
    json!({
        "path": "/notify/alipay/shop-cn",
        "headers": [["content-type", "application/x-www-form-urlencoded"]],
        "body": "bm90aWZ5X2lkPTE=",
        "today": {
            "verdict": "refused", "reason": "bad_signature", "detail": "the signature does not hold",
            "identity": null, "event_key": null, "type": null, "order_id": null, "facts": [],
            "hint": "another key was used", "signed": "notify_id=1",
            "steps": [{ "check": "signature", "ok": false, "found": "it does not hold" }],
        },
    })
}

fn replay() -> Value {
    json!({
        "id": "0198f0c2-6e1e-7b66-a4d9-9c3f2e5a7b81", "state": "running", "what": "events", "to": null,
        "filter": { "order_id": "ORDER-1001" }, "reason": "the shop lost its queue", "actor": "ops", "rate": 200,
        "total": 1, "sent": 0, "published": 0, "refused": 0, "refusals": [], "waiting": null,
        "created_at": AT, "updated_at": AT, "ended_at": null,
    })
}

fn plan() -> Value {
    json!({
        "dry_run": true, "what": "events", "to": null, "filter": { "order_id": "ORDER-1001" },
        "matched": 1, "matched_at_least": false, "would_publish": 1, "refused": [], "never_verified": 0, "examined": 1,
        "outcomes": { "already_applied": 1 }, "orders_changed": 0, "orders": [], "failing": [],
    })
}
