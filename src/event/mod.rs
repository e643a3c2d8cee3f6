//! The nouns that every flow speaks of: what came in, what was stored, what it says.
//!
//! A [`Notification`] is one HTTP request, bytes as received, worth nothing until a provider has verified
//! it. What verification yields is an [`Event`]: stored once under its [`EventKey`], with a [`Reading`] of
//! what it says in provider-neutral words. A reading's [`Fact`]s are what moves orders. This module has
//! no I/O and knows no provider; `Fact` lives here and not in `orders`, because providers make facts and
//! must not depend on how orders use them.

mod announcement;
mod attention;
mod cloudevent;
mod fact;
mod key;
mod money;
mod reading;
pub mod text;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use bytes::Bytes;
use http::HeaderMap;
use serde::{Deserialize, Serialize};

pub use announcement::{Announcement, replayed};
pub use attention::AttentionCode;
pub use cloudevent::{CloudEvent, Replay};
pub use fact::{Fact, FactKind};
pub use key::{EventKey, Fingerprint};
pub use money::{Currency, MAX_MINOR, Money, MoneyError};
pub use reading::{AccountRules, Identity, NoOrder, OrderPart, Reading};

use crate::time::Timestamp;

/// The providers payhook speaks to; the first segment of a notify path and the second of an event key.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
#[schema(as = Provider)]
pub enum ProviderName {
    /// Alipay open platform (mainland).
    Alipay,
    /// WeChat Pay, APIv3 JSON and the legacy v2 XML.
    Wechatpay,
    /// Stripe, snapshot and thin events.
    Stripe,
    /// 2C2P PGW v4.
    #[serde(rename = "2c2p")]
    TwoCTwoP,
    /// Antom / Alipay+ (global).
    Antom,
}

impl ProviderName {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 5] = [
        Self::Alipay,
        Self::Wechatpay,
        Self::Stripe,
        Self::TwoCTwoP,
        Self::Antom,
    ];

    /// The name in paths, keys, configuration and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alipay => "alipay",
            Self::Wechatpay => "wechatpay",
            Self::Stripe => "stripe",
            Self::TwoCTwoP => "2c2p",
            Self::Antom => "antom",
        }
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A provider name that payhook does not know.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("unknown provider")]
pub struct UnknownProvider;

impl FromStr for ProviderName {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|p| p.as_str() == text)
            .ok_or(UnknownProvider)
    }
}

/// The id of a stored event: UUID v7 in its text form, so that ids sort by arrival.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct EventId(String);

impl EventId {
    /// A new id for something that arrived at `at`.
    pub fn new(at: Timestamp) -> Self {
        Self(new_id(at))
    }

    /// What no id of an event that arrived at `at` or later is less than: its first 48 bits, the milliseconds.
    pub fn least(at: Timestamp) -> String {
        let millis = u64::try_from(at.micros().div_euclid(1000)).unwrap_or_default() & 0xffff_ffff_ffff;
        format!("{:08x}-{:04x}", millis >> 16, millis & 0xffff)
    }

    /// An id read back from the store or given by a caller; any text is allowed, it just finds nothing.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A fresh UUID v7 (RFC 9562 section 5.7) for `at`, as text. For every row that needs an id of its own.
pub fn new_id(at: Timestamp) -> String {
    let secs = u64::try_from(at.secs()).unwrap_or_default();
    let nanos = u32::try_from(at.micros().rem_euclid(1_000_000))
        .unwrap_or_default()
        .saturating_mul(1000);
    let stamp = uuid::Timestamp::from_unix(uuid::NoContext, secs, nanos);
    uuid::Uuid::new_v7(stamp).to_string()
}

/// One HTTP request to a notify endpoint, exactly as it arrived.
#[derive(Clone)]
pub struct Notification {
    /// The request target's path, percent-encoding untouched (Antom signs it).
    pub path: String,
    /// Header names are case-insensitive; a name sent twice has two values.
    pub headers: HeaderMap,
    /// The body's bytes, never decoded or normalised.
    pub body: Bytes,
    /// When the first byte arrived. Time windows are judged against this, never against "now".
    pub received_at: Timestamp,
    /// The sender, after trusted proxies; for the operator only.
    pub remote_addr: Option<IpAddr>,
}

impl Notification {
    /// The one value of header `name`, without the white space around it, which is no part of it; `None` when it
    /// is absent, sent twice or not visible ASCII/UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        std::str::from_utf8(value.as_bytes()).ok().map(text::trim_ows)
    }
}

impl fmt::Debug for Notification {
    /// Without headers and body: they hold signatures and payer data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notification")
            .field("path", &self.path)
            .field("body_len", &self.body.len())
            .field("received_at", &self.received_at)
            .finish_non_exhaustive()
    }
}

/// A verified notification, as stored. Cheap to clone where it must be shared: wrap it in an `Arc`.
#[derive(Clone)]
pub struct Event {
    /// payhook's own id.
    pub id: EventId,
    /// What makes it the same event when it comes again.
    pub key: EventKey,
    /// Who sent it.
    pub provider: ProviderName,
    /// The account (configuration name) it came to.
    pub account: String,
    /// The owner of its orders.
    pub merchant: String,
    /// payhook's type, such as `payment.succeeded` or `other.trade_closed`.
    pub kind: String,
    /// The provider's own type.
    pub provider_event_type: String,
    /// What the CloudEvent names as its subject: the order id, or a combined order's id.
    pub subject: Option<String>,
    /// The order, when the event speaks of exactly one.
    pub order_id: Option<String>,
    /// The provider's payment.
    pub trade_id: Option<String>,
    /// The provider's refund.
    pub refund_id: Option<String>,
    /// The amount the event speaks of.
    pub amount: Option<Money>,
    /// The orders of a combined event, else empty.
    pub orders: Vec<OrderPart>,
    /// When it happened, by the provider; else `received_at`.
    pub occurred_at: Timestamp,
    /// When the notification arrived.
    pub received_at: Timestamp,
    /// What must be equal for a second arrival to be a duplicate and not a conflict.
    pub fingerprint: Fingerprint,
    /// Request headers without cookies and authorization, as a JSON array of `[name, value]`.
    pub headers: String,
    /// The raw body.
    pub body: Bytes,
    /// The provider's own fields as JSON text, when the body itself is not that.
    pub content: Option<Bytes>,
    /// The sender's address, for the operator.
    pub remote_addr: Option<IpAddr>,
}

impl Event {
    /// The provider's own fields as JSON text.
    pub fn content(&self) -> &Bytes {
        self.content.as_ref().unwrap_or(&self.body)
    }

    /// How many bytes its body and content have.
    pub fn bytes(&self) -> usize {
        self.body
            .len()
            .saturating_add(self.content.as_ref().map_or(0, Bytes::len))
    }

    /// The routing key on the events exchange: `{provider}.{account}.{type}`, cut to what AMQP carries.
    pub fn routing_key(&self) -> String {
        let key = format!("{}.{}.{}", self.provider, self.account, self.kind);
        text::cut(&key, text::MAX_SHORT).to_owned()
    }
}

impl fmt::Debug for Event {
    /// Without headers, body and content: they hold signatures and payer data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("key", &self.key)
            .field("kind", &self.kind)
            .field("order_id", &self.order_id)
            .finish_non_exhaustive()
    }
}
