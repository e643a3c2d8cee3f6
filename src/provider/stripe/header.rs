//! `Stripe-Signature: t=<unix seconds>,v1=<hex>[,v1=<hex>][,v0=…]`, and the MAC that it carries.
//!
//! Exactly one `t`, taken as the digits that were sent, since those are signed; any number of `v1`, one per
//! secret that the sender holds. Other schemes (`v0` on test events) prove nothing and are passed over. Spaces and
//! tabs around the elements are allowed, as in any list (RFC 9110, 5.6.1): proxies and frameworks that join header
//! values put them there.

use crate::event::{Notification, text};
use crate::provider::signature::mac;
use crate::provider::{Reason, Refusal};
use crate::time::Timestamp;

/// The header's name.
pub(super) const NAME: &str = "stripe-signature";

/// A parsed header; nothing in it is believed yet.
pub(super) struct SignatureHeader<'a> {
    /// The digits of `t`, as signed.
    pub(super) t: &'a str,
    /// What they say.
    pub(super) signed_at: Timestamp,
    /// Every `v1`.
    pub(super) v1: Vec<&'a str>,
}

impl<'a> SignatureHeader<'a> {
    /// The notification's one header.
    pub(super) fn of(notification: &'a Notification) -> Result<Self, Refusal> {
        if notification.headers.get_all(NAME).iter().count() > 1 {
            return Err(Refusal::new(
                Reason::Malformed,
                "the header Stripe-Signature stands twice",
            ));
        }
        match notification.header(NAME) {
            Some(value) => Self::parse(value),
            None => Err(Refusal::new(Reason::BadSignature, "no header Stripe-Signature")),
        }
    }

    /// Of a header's value.
    pub(super) fn parse(value: &'a str) -> Result<Self, Refusal> {
        let mut t = None;
        let mut v1 = Vec::new();
        for item in value.split(',').map(text::trim_ows) {
            match item.split_once('=') {
                Some(("t", digits)) if t.is_none() => t = Some(digits),
                Some(("t", _)) => {
                    return Err(Refusal::new(Reason::Malformed, "the header has more than one t"));
                }
                Some(("v1", hex)) => v1.push(hex),
                _ => {}
            }
        }
        let unsigned = |detail: &str| Refusal::new(Reason::BadSignature, detail);
        let t = t.ok_or_else(|| unsigned("the header has no t"))?;
        if !t.bytes().all(|b| b.is_ascii_digit()) {
            return Err(unsigned("the header's t is not plain digits"));
        }
        let secs = t
            .parse::<i64>()
            .map_err(|_| unsigned("the header's t is no time"))?;
        if v1.is_empty() {
            return Err(unsigned("the header has no v1"));
        }
        Ok(Self {
            t,
            signed_at: Timestamp::from_secs(secs),
            v1,
        })
    }

    /// Whether any `v1` is the MAC of `body` under `secret`; every one is compared, in constant time.
    pub(super) fn is_signed_with(&self, secret: &[u8], body: &[u8]) -> bool {
        let expected = v1(secret, self.t, body);
        self.v1.iter().fold(false, |held, sent| {
            mac::ct_eq(sent.as_bytes(), expected.as_bytes()) | held
        })
    }

    /// The exact bytes that were signed.
    pub(super) fn signed(&self, body: &[u8]) -> Vec<u8> {
        [self.t.as_bytes(), b".", body].concat()
    }
}

fn v1(secret: &[u8], t: &str, body: &[u8]) -> String {
    hex::encode(mac::hmac_sha256(secret, &[t.as_bytes(), b".", body]))
}

/// The header's value for `body` sent at `at`, for samples.
pub fn sign(secret: &[u8], at: Timestamp, body: &[u8]) -> String {
    let t = at.secs().to_string();
    format!("t={t},v1={}", v1(secret, &t, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_other_than_v1_and_odd_items_are_passed_over() {
        let header = SignatureHeader::parse("t=1700000000,v0=aa,v1=bb,v1=cc,word,v2=dd,=,x=").unwrap();
        assert_eq!((header.t, header.v1), ("1700000000", vec!["bb", "cc"]));
    }

    #[test]
    fn white_space_around_elements_is_allowed() {
        for value in [
            "t=1, v1=a, v1=b",
            "t=1 ,v1=a ,v1=b",
            "\tt=1\t,\t v1=a,\tv1=b ",
            "t=1,, v1=a, ,v1=b,",
        ] {
            let header = SignatureHeader::parse(value).unwrap();
            assert_eq!((header.t, header.v1), ("1", vec!["a", "b"]), "{value:?}");
        }
    }

    #[test]
    fn a_header_without_exact_digits_or_any_v1_is_no_signature() {
        for odd in [
            "",
            "t=,v1=a",
            "v1=a",
            "t=1",
            "t=1,v0=a",
            "t=+1,v1=a",
            "t=-1,v1=a",
            "t= 1,v1=a",
            "t =1,v1=a",
            "t=1 1,v1=a",
            "\u{a0}t=1,v1=a",
        ] {
            assert_eq!(
                SignatureHeader::parse(odd).err().map(|r| r.reason),
                Some(Reason::BadSignature),
                "{odd:?}"
            );
        }
        let far = SignatureHeader::parse("t=99999999999999999999,v1=a").err();
        assert_eq!(far.map(|r| r.reason), Some(Reason::BadSignature));
        let twice = SignatureHeader::parse("t=1,t=1,v1=a").err();
        assert_eq!(twice.map(|r| r.reason), Some(Reason::Malformed));
    }

    #[test]
    fn the_mac_is_lower_case_hex_to_the_letter() {
        let value = sign(b"whsec_x", Timestamp::from_secs(1_700_000_000), b"{}");
        assert!(
            SignatureHeader::parse(&value)
                .unwrap()
                .is_signed_with(b"whsec_x", b"{}")
        );
        let (t, mac) = value.split_once(",v1=").unwrap();
        let upper = format!("{t},v1={}", mac.to_uppercase());
        assert!(
            !SignatureHeader::parse(&upper)
                .unwrap()
                .is_signed_with(b"whsec_x", b"{}")
        );
    }
}
