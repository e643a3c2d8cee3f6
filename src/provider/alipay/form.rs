//! The form body as the signature sees it: names and values as bytes, decoded exactly once.
//!
//! No text exists here. A body may be in any charset, and whatever turns bytes into text before the signature
//! is checked (every common form parser does) loses GBK for good. `+` is a space, `%XX` a byte, a broken
//! escape is refused rather than guessed. Turning values into text is `content`'s work, after the signature.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// A body within these is orders of magnitude above what Alipay sends, and cheap to refuse beyond.
const MAX_PARAMETERS: usize = 256;
const MAX_NAME: usize = 128;

/// Why a body is not a form of the kind Alipay sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    /// No parameter at all.
    #[error("the body holds no parameter")]
    Empty,
    /// More than [`MAX_PARAMETERS`].
    #[error("the body holds more than 256 parameters")]
    TooMany,
    /// A name that is empty, overlong or not plain ASCII.
    #[error("a parameter's name is empty, overlong or not made of letters, digits, '_', '-' and '.'")]
    Name,
    /// `%` without two hex digits.
    #[error("a percent escape is broken")]
    Escape,
    /// The same name twice: two readers could take different ones.
    #[error("a parameter occurs twice")]
    Twice,
}

/// Decoded parameters, sorted by name in byte order.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Form(Vec<(String, Vec<u8>)>);

impl Form {
    /// Splits and decodes `body`. Empty segments (`a=1&&b=2`) say nothing and are passed over.
    pub(super) fn parse(body: &[u8]) -> Result<Self, FormError> {
        let mut parameters = Vec::new();
        for segment in body.split(|b| *b == b'&').filter(|s| !s.is_empty()) {
            if parameters.len() == MAX_PARAMETERS {
                return Err(FormError::TooMany);
            }
            let mut halves = segment.splitn(2, |b| *b == b'=');
            let name = name(decode(halves.next().unwrap_or_default())?)?;
            parameters.push((name, decode(halves.next().unwrap_or_default())?));
        }
        Self::of(parameters)
    }

    /// From parameters in any order.
    pub(super) fn of(mut parameters: Vec<(String, Vec<u8>)>) -> Result<Self, FormError> {
        parameters.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut names = parameters.iter().map(|(name, _)| name);
        let mut before = names.next().ok_or(FormError::Empty)?;
        for name in names {
            if name == before {
                return Err(FormError::Twice);
            }
            before = name;
        }
        Ok(Self(parameters))
    }

    /// The value of `name`, decoded once.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let at = self
            .0
            .binary_search_by(|(known, _)| known.as_str().cmp(name))
            .ok()?;
        self.0.get(at).map(|(_, value)| value.as_slice())
    }

    /// All parameters, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The bytes that are signed: `name=value` by name, joined with `&`, nothing re-encoded, empty values
    /// and those that begin with `@` included; without `sign`, and without `sign_type` unless it is kept.
    pub(super) fn signed(&self, keep_sign_type: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.iter().map(|(n, v)| n.len() + v.len() + 2).sum());
        for (name, value) in self.iter() {
            if name == "sign" || (name == "sign_type" && !keep_sign_type) {
                continue;
            }
            if !out.is_empty() {
                out.push(b'&');
            }
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            out.extend_from_slice(value);
        }
        out
    }
}

impl std::fmt::Debug for Form {
    /// Names only: values hold payer data and the signature.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// One pass: `+` to space, `%XX` to its byte, all else as it is.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, FormError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => hex_digit(bytes.next())? << 4 | hex_digit(bytes.next())?,
            other => other,
        });
    }
    Ok(out)
}

/// What a form leaves as it is; the space becomes `+`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'*')
    .remove(b' ');

/// One pass the other way, as the sender does it.
pub(super) fn encode(value: &[u8]) -> String {
    percent_encode(value, ESCAPED).to_string().replace(' ', "+")
}

fn hex_digit(byte: Option<u8>) -> Result<u8, FormError> {
    match byte {
        Some(b @ b'0'..=b'9') => Ok(b - b'0'),
        Some(b @ b'a'..=b'f') => Ok(b - b'a' + 10),
        Some(b @ b'A'..=b'F') => Ok(b - b'A' + 10),
        _ => Err(FormError::Escape),
    }
}

fn name(bytes: Vec<u8>) -> Result<String, FormError> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if bytes.is_empty() || bytes.len() > MAX_NAME || !bytes.iter().all(plain) {
        return Err(FormError::Name);
    }
    String::from_utf8(bytes).map_err(|_| FormError::Name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(body: &str) -> Result<Form, FormError> {
        Form::parse(body.as_bytes())
    }

    #[test]
    fn values_are_decoded_once_and_stay_bytes() {
        let form = parse("b=%B2%E2+x%2By&a=a%253D1&c=&d&sign=s&sign_type=RSA2").unwrap();
        assert_eq!(form.get("b"), Some(b"\xb2\xe2 x+y".as_slice()));
        assert_eq!(form.get("a"), Some(b"a%3D1".as_slice()));
        assert_eq!(form.signed(false), b"a=a%3D1&b=\xb2\xe2 x+y&c=&d=");
        assert_eq!(form.signed(true), b"a=a%3D1&b=\xb2\xe2 x+y&c=&d=&sign_type=RSA2");
        assert_eq!(parse("x=@file").unwrap().signed(false), b"x=@file");
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for (body, error) in [
            ("", FormError::Empty),
            ("&&", FormError::Empty),
            ("a=1&b=2&a=1", FormError::Twice),
            ("a=1&%61=1", FormError::Twice),
            ("a=%", FormError::Escape),
            ("a=%4", FormError::Escape),
            ("a=%zz", FormError::Escape),
            ("a=%+1", FormError::Escape),
            ("=1", FormError::Name),
            ("a%3Db=1", FormError::Name),
            ("%E6%B5%8B=1", FormError::Name),
        ] {
            assert_eq!(parse(body), Err(error), "{body}");
        }
        let many = (0..257).map(|i| format!("p{i}=")).collect::<Vec<_>>().join("&");
        assert_eq!(parse(&many), Err(FormError::TooMany));
        assert_eq!(parse(&format!("{}=", "x".repeat(129))), Err(FormError::Name));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(form) = Form::parse(&body) {
                prop_assert!(form.signed(true).len() <= body.len() + form.iter().count());
            }
        }

        #[test]
        fn any_value_comes_back_as_sent(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let encoded = value.iter().map(|b| format!("%{b:02x}")).collect::<Vec<_>>().concat();
            let form = parse(&format!("v={encoded}")).unwrap();
            prop_assert_eq!(form.get("v"), Some(value.as_slice()));
        }
    }
}
