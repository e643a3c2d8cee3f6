//! Events that need no provider: for tests of what comes after verification.

use std::sync::Arc;

use bytes::Bytes;
use payhook::event::{Currency, Event, EventId, EventKey, Fingerprint, Money, ProviderName};
use payhook::time::Timestamp;

/// When the events of these tests arrive.
pub(crate) const ARRIVAL: i64 = 1_796_000_000_000_000;

/// A Stripe event `id` whose signed content is `content`; its body is that content.
pub(crate) fn event(id: &str, content: &[u8]) -> Event {
    let received_at = Timestamp::from_micros(ARRIVAL);
    let fingerprint = Fingerprint::over([content]);
    Event {
        id: EventId::new(received_at),
        key: EventKey::new(ProviderName::Stripe, "shop", Some(id), &fingerprint),
        provider: ProviderName::Stripe,
        account: "shop".to_owned(),
        merchant: "default".to_owned(),
        kind: "payment.succeeded".to_owned(),
        provider_event_type: "payment_intent.succeeded".to_owned(),
        subject: None,
        order_id: Some(format!("order-{id}")),
        trade_id: Some(format!("trade-{id}")),
        refund_id: None,
        amount: Some(Money::new(8888, Currency::CNY)),
        orders: Vec::new(),
        occurred_at: received_at,
        received_at,
        fingerprint,
        headers: r#"[["content-type","application/json"]]"#.to_owned(),
        body: Bytes::copy_from_slice(content),
        content: None,
        remote_addr: Some([192, 0, 2, 7].into()),
    }
}

/// Events `1`, `2`, … with contents of their own.
pub(crate) fn events(count: usize) -> Vec<Arc<Event>> {
    (1..=count)
        .map(|n| Arc::new(event(&n.to_string(), format!("content {n}").as_bytes())))
        .collect()
}
