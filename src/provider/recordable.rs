//! From a verified notification to the event that is stored.

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Registered, Verified};
use crate::event::text::storable;
use crate::event::{Event, EventId, Notification};

impl Registered {
    /// The event to be stored for `notification`, which this account verified. Its texts fit a column; the body
    /// is kept byte for byte.
    pub fn event(&self, notification: &Notification, verified: Verified) -> Event {
        let Verified {
            key,
            fingerprint,
            content,
            reading,
            ..
        } = verified;
        let text = |text: Option<String>| text.map(|text| storable(&text).into_owned());
        Event {
            id: EventId::new(notification.received_at),
            key,
            provider: self.provider,
            account: self.account.clone(),
            merchant: reading.merchant.unwrap_or_else(|| self.merchant.clone()),
            kind: storable(&reading.kind).into_owned(),
            provider_event_type: storable(&reading.provider_event_type).into_owned(),
            subject: text(reading.subject),
            order_id: text(reading.order_id),
            trade_id: text(reading.trade_id),
            refund_id: text(reading.refund_id),
            amount: reading.amount,
            orders: reading.orders,
            occurred_at: reading.occurred_at.unwrap_or(notification.received_at),
            received_at: notification.received_at,
            fingerprint,
            headers: kept_headers(&notification.headers),
            body: notification.body.clone(),
            content,
            remote_addr: notification.remote_addr,
        }
    }
}

/// Headers as a JSON array of `[name, value]`, in their order, without what authenticates somebody to a proxy.
/// Bytes that are no UTF-8 are replaced: no scheme signs such a header.
pub fn kept_headers(headers: &HeaderMap) -> String {
    let secret = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE, SET_COOKIE];
    let kept: Vec<(&str, String)> = headers
        .iter()
        .filter(|(name, _)| !secret.contains(name))
        .map(|(name, value)| {
            (
                name.as_str(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    // Pairs of text: nothing here can fail to be JSON.
    serde_json::to_string(&kept).unwrap_or_else(|_| "[]".to_owned())
}

/// What [`kept_headers`] kept, as headers again; `None` if it is not that.
pub fn headers_as_kept(kept: &str) -> Option<HeaderMap> {
    let pairs: Vec<(String, String)> = serde_json::from_str(kept).ok()?;
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        let name = HeaderName::try_from(name).ok()?;
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_kept_without_cookies_and_authorization() {
        let mut headers = HeaderMap::new();
        headers.append("x-two", http::HeaderValue::from_static("1"));
        headers.append("x-two", http::HeaderValue::from_static("2"));
        headers.append("cookie", http::HeaderValue::from_static("session"));
        headers.append("authorization", http::HeaderValue::from_static("Bearer"));
        headers.append("x-odd", http::HeaderValue::from_bytes(b"a\xff").unwrap());
        assert_eq!(
            kept_headers(&headers),
            "[[\"x-two\",\"1\"],[\"x-two\",\"2\"],[\"x-odd\",\"a\u{fffd}\"]]"
        );
    }
    #[test]
    fn what_was_kept_reads_back() {
        let kept = "[[\"x-two\",\"1\"],[\"x-two\",\"测\"]]";
        assert_eq!(kept_headers(&headers_as_kept(kept).unwrap()), kept);
        for none in ["", "{}", "[[\"a b\",\"\"]]", "[[\"a\",\"\\n\"]]"] {
            assert!(headers_as_kept(none).is_none(), "{none}");
        }
    }
}
