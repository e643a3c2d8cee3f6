//! The three signed headers, `signature`, `client-id` and `request-time`, read without trusting them.
//!
//! Each must stand there once: of two values, two readers could take different ones. The texts go into the
//! signed bytes exactly as they stand.

use percent_encoding::percent_decode_str;

use crate::event::{Notification, text};
use crate::provider::signature::mac;
use crate::provider::{Reason, Refusal};
use crate::time::Timestamp;

/// What the headers say.
#[derive(Debug)]
pub(super) struct SignedHeaders<'a> {
    /// Whose notification it claims to be.
    pub(super) client_id: &'a str,
    /// As it stands, for the signed bytes.
    pub(super) request_time: &'a str,
    /// The same, understood.
    pub(super) sent: Timestamp,
    /// Raw bytes.
    pub(super) signature: Vec<u8>,
}

impl<'a> SignedHeaders<'a> {
    pub(super) fn of(notification: &'a Notification) -> Result<Self, Refusal> {
        let malformed = |detail: &str| Refusal::new(Reason::Malformed, detail);
        let client_id = one(notification, "client-id")?.ok_or_else(|| malformed("client-id is missing"))?;
        let request_time =
            one(notification, "request-time")?.ok_or_else(|| malformed("request-time is missing"))?;
        let sent = time(request_time).ok_or_else(|| malformed("request-time is not a time with a zone"))?;
        let signature = one(notification, "signature")?
            .ok_or_else(|| Refusal::new(Reason::BadSignature, "the signature header is missing"))?;
        Ok(Self {
            client_id,
            request_time,
            sent,
            signature: decode(signature_text(signature)?)?,
        })
    }
}

/// The header's one value; none is `None`, two or one that is no text is a refusal.
fn one<'a>(notification: &'a Notification, name: &str) -> Result<Option<&'a str>, Refusal> {
    match notification.headers.get_all(name).iter().count() {
        0 => Ok(None),
        1 => match notification.header(name) {
            Some(value) => Ok(Some(value)),
            None => Err(Refusal::new(Reason::Malformed, format!("{name} is no text"))),
        },
        _ => Err(Refusal::new(
            Reason::Malformed,
            format!("{name} stands there twice"),
        )),
    }
}

/// What follows `signature=` in `algorithm=RSA256, keyVersion=1, signature=…`, with or without white space around the
/// elements. Its base64 may itself end in
/// `=`, so the text is cut once, from the left. The algorithm is Antom's only one; a message that names
/// another is refused, and none is ever taken from it.
pub(super) fn signature_text(header: &str) -> Result<&str, Refusal> {
    let refuse = |detail: &str| Refusal::new(Reason::BadSignature, detail);
    let (before, after) = header
        .split_once("signature=")
        .ok_or_else(|| refuse("the signature header holds no signature"))?;
    for part in before.split(',').map(text::trim_ows) {
        if let Some(algorithm) = part.strip_prefix("algorithm=")
            && !algorithm.eq_ignore_ascii_case("RSA256")
        {
            return Err(refuse("the signature header names another algorithm than RSA256"));
        }
    }
    if after.contains("signature=") || after.contains("algorithm=") {
        return Err(refuse("the signature header names a part twice or out of order"));
    }
    Ok(text::trim_ows(after.split(',').next().unwrap_or_default()))
}

/// Percent escapes only: a `+` is base64's, not a space, so that both the encoded form and the plain one hold.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, Refusal> {
    let base64: Vec<u8> = percent_decode_str(text).collect();
    mac::decode_base64(&base64)
        .filter(|signature| !signature.is_empty())
        .ok_or_else(|| Refusal::new(Reason::BadSignature, "the signature is not base64"))
}

/// ISO 8601 with a zone, or milliseconds since 1970.
fn time(text: &str) -> Option<Timestamp> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Timestamp::from_micros(
            text.parse::<i64>().ok()?.checked_mul(1000)?,
        ));
    }
    Timestamp::parse_rfc3339(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_a_time_are_read() {
        let at = Timestamp::parse_rfc3339("2024-03-01T02:00:06Z");
        for text in [
            "2024-03-01T10:00:06+08:00",
            "2024-03-01T10:00:06+0800",
            "1709258406000",
            "2024-03-01T02:00:06Z",
        ] {
            assert_eq!(time(text), at, "{text}");
        }
        for text in [
            "",
            "2024-03-01T10:00:06",
            "-1709258406000",
            "99999999999999999999",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn the_signature_is_cut_once_from_the_left() {
        let text = |header| signature_text(header).map_err(|refusal| refusal.reason);
        assert_eq!(
            text("algorithm=RSA256, keyVersion=1, signature=ab%2B%3D%3D"),
            Ok("ab%2B%3D%3D")
        );
        assert_eq!(text("algorithm=RSA256,keyVersion=1,signature=ab+=="), Ok("ab+=="));
        assert_eq!(text("signature=ab=="), Ok("ab=="));
        assert_eq!(
            text("algorithm=RSA256\t,\tkeyVersion=1 ,  signature=ab \t, x=1"),
            Ok("ab")
        );
        for refused in [
            "",
            "algorithm=RSA256",
            "algorithm=none, signature=ab",
            "signature=a,signature=b",
            "signature=a,algorithm=x",
        ] {
            assert_eq!(text(refused), Err(Reason::BadSignature), "{refused}");
        }
    }
}
