//! The message body for a stored event: a CloudEvents 1.0 JSON object (design section 5.4).
//!
//! Built from the stored event alone, so that a publication from memory, from the outbox after a crash, in
//! the feed or in a replay is the same bytes but for `data.replay`. `content` is carried over as raw JSON
//! text: numbers stay as the provider sent them.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Event, Money, OrderPart};
use crate::time::Timestamp;

/// Marks a message that an operator re-sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// The replay's id; (event id, this) identifies the re-sent message.
    pub id: String,
    /// Why, in the operator's words.
    pub reason: String,
}

/// A CloudEvents 1.0 envelope around an event.
#[derive(Debug, Serialize)]
pub struct CloudEvent<'a> {
    specversion: &'static str,
    id: &'a str,
    source: String,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    time: Timestamp,
    datacontenttype: &'static str,
    data: Data<'a>,
}

#[derive(Debug, Serialize)]
struct Data<'a> {
    event_id: &'a str,
    provider: &'static str,
    account: &'a str,
    merchant: &'a str,
    provider_event_type: &'a str,
    order_id: Option<&'a str>,
    trade_id: Option<&'a str>,
    refund_id: Option<&'a str>,
    amount: Option<Money>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    orders: &'a [OrderPart],
    received_at: Timestamp,
    replay: Option<&'a Replay>,
    content: Option<&'a RawValue>,
}

impl<'a> CloudEvent<'a> {
    /// The message for `event`; `with_content = false` leaves `content` null (a feed reader without scope
    /// `raw`). Content that is not JSON text is null too: the raw body is there for who needs it.
    pub fn new(event: &'a Event, replay: Option<&'a Replay>, with_content: bool) -> Self {
        let content = with_content
            .then(|| serde_json::from_slice::<&RawValue>(event.content()).ok())
            .flatten();
        Self {
            specversion: "1.0",
            id: event.key.as_str(),
            source: format!("/notify/{}/{}", event.provider, event.account),
            kind: &event.kind,
            subject: event.subject.as_deref().or(event.order_id.as_deref()),
            time: event.occurred_at,
            datacontenttype: "application/json",
            data: Data {
                event_id: event.id.as_str(),
                provider: event.provider.as_str(),
                account: &event.account,
                merchant: &event.merchant,
                provider_event_type: &event.provider_event_type,
                order_id: event.order_id.as_deref(),
                trade_id: event.trade_id.as_deref(),
                refund_id: event.refund_id.as_deref(),
                amount: event.amount,
                orders: &event.orders,
                received_at: event.received_at,
                replay,
                content,
            },
        }
    }

    /// The JSON bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Every field serialises without failure: strings, integers and text that was parsed as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
