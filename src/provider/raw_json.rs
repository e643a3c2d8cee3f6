//! JSON from a signed body, read where it stands: raw members, no tree, no number through a float.
//!
//! A signature that holds over a body that JSON readers choke on must not lose the event. [`readable`] mends
//! what can be mended without changing a field payhook reads, and says why for the rest; the caller then
//! keeps the event as [`unreadable`]. What is read through here refuses a name that stands twice.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::event::Reading;

/// The deepest nesting passed on. Readers commonly stop at 128, and a message wraps the content.
const MAX_DEPTH: usize = 120;

/// The content kept for a body that is not understood.
pub(super) const NO_CONTENT: &[u8] = b"null";

/// The reading of a verified body that is not understood: kept, published, shown to a human.
pub(super) fn unreadable() -> Reading {
    Reading::unreadable(
        String::new(),
        "the body is no JSON that reads in one way only; its bytes are kept",
    )
}

/// The content to store for `body`, whose readable text is `text`: none where they are the same bytes.
pub(super) fn content(body: &Bytes, text: &str) -> Option<Bytes> {
    (body != text.as_bytes()).then(|| Bytes::copy_from_slice(text.as_bytes()))
}

/// `body` as text that every JSON reader takes as far as its strings go: bytes that are no UTF-8 and half
/// surrogate pairs become U+FFFD. Too deep a nesting is refused; the syntax is left to the reader.
pub(super) fn readable(body: &[u8]) -> Result<Cow<'_, str>, &'static str> {
    let text = String::from_utf8_lossy(body);
    Ok(match mend(&text)? {
        Some(mended) => Cow::Owned(mended),
        None => text,
    })
}

fn mend(text: &str) -> Result<Option<String>, &'static str> {
    let bytes = text.as_bytes();
    // Nearly every body: no escapes, and too few brackets to be deep. Two counts are much less than a walk.
    let opening = bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if opening <= MAX_DEPTH && !bytes.contains(&b'\\') {
        return Ok(None);
    }
    let (mut depth, mut in_string, mut at) = (0_usize, false, 0_usize);
    let (mut mended, mut copied) = (String::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                let Some(unit) = escaped_unit(bytes, at) else {
                    at += 2;
                    continue;
                };
                at += 6;
                match unit {
                    0xD800..=0xDBFF if matches!(escaped_unit(bytes, at), Some(0xDC00..=0xDFFF)) => at += 6,
                    0xD800..=0xDFFF => {
                        mended.push_str(text.get(copied..at - 4).unwrap_or_default());
                        mended.push_str("fffd");
                        copied = at;
                    }
                    _ => {}
                }
                continue;
            }
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err("nested too deeply");
        }
        at += 1;
    }
    if copied == 0 {
        return Ok(None);
    }
    mended.push_str(text.get(copied..).unwrap_or_default());
    Ok(Some(mended))
}

/// The UTF-16 unit of an escape `\uXXXX` that begins at `at`.
fn escaped_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at.checked_add(6)?)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

/// JSON text without the white space between its parts: equal for two renderings of one value that differ
/// in layout only.
pub(super) fn compact(text: &str) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(quote) = rest.iter().position(|byte| *byte == b'"') {
        let (between, string) = rest.split_at(quote);
        kept.extend(between.iter().filter(|byte| is_significant(**byte)));
        let (string, behind) = string.split_at(string_len(string));
        kept.extend_from_slice(string);
        rest = behind;
    }
    kept.extend(rest.iter().filter(|byte| is_significant(**byte)));
    kept
}

fn is_significant(byte: u8) -> bool {
    !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// How long the string is that `text` begins with, quotes included; all of it, if it does not end.
fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    loop {
        let left = text.get(at..).unwrap_or_default();
        match left.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
            Some(quote) if left.get(quote) == Some(&b'"') => return at + quote + 1,
            Some(escape) => at += escape + 2,
            None => return text.len(),
        }
    }
}

/// A string, borrowed where it has no escapes.
#[derive(Deserialize, PartialEq, Eq)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The value as a string; `None` when it is absent or no string.
pub(super) fn text<'a>(value: Option<&'a RawValue>) -> Option<Cow<'a, str>> {
    serde_json::from_str::<Text<'a>>(value?.get())
        .ok()
        .map(|text| text.0)
}

/// The value as a whole number; `None` when it is absent, has a fraction or an exponent, or is too large.
pub(super) fn integer(value: Option<&RawValue>) -> Option<i64> {
    value?.get().parse().ok()
}

/// The value as a boolean.
pub(super) fn boolean(value: Option<&RawValue>) -> Option<bool> {
    value?.get().parse().ok()
}

/// The value as it was written; empty when it is absent.
pub(super) fn raw(value: Option<&RawValue>) -> &str {
    value.map_or("", RawValue::get)
}

/// The member `name` of `object`; `None` when it has none or is no object.
pub(super) fn member<'a>(object: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, String> {
    if !object.get().starts_with('{') {
        return Ok(None);
    }
    Members::of(object.get())?.get(name)
}

/// The members of an object, each as it was written: one pass over its text, however many are asked for.
pub(super) struct Members<'a>(Vec<(Text<'a>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads `text`, which holds one object and nothing else; an error says where it cannot be read, without a word
    /// of what stands there.
    pub(super) fn of(text: &'a str) -> Result<Self, String> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = reader.deserialize_map(All).and_then(|members| {
            reader.end()?;
            Ok(members)
        });
        read.map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("the JSON cannot be read at line {line} column {column}")
        })
    }

    /// The member `name`; `None` when there is none or it is null. A second one of that name is an error, in
    /// words: two readers could take two different ones.
    pub(super) fn get(&self, name: &str) -> Result<Option<&'a RawValue>, String> {
        let mut of_that_name = self.0.iter().filter(|(known, _)| known.0 == name);
        let found = of_that_name.next().map(|(_, value)| *value);
        if of_that_name.next().is_some() {
            return Err(format!("the member {name} stands twice"));
        }
        Ok(found.filter(|value| value.get() != "null"))
    }

    /// What a dotted path leads to; a name may itself hold dots.
    pub(super) fn at(&self, path: &str) -> Result<Option<&'a RawValue>, String> {
        if let Some(value) = self.get(path)? {
            return Ok(Some(value));
        }
        let Some((first, rest)) = path.split_once('.') else {
            return Ok(None);
        };
        match self.get(first)? {
            Some(inner) if inner.get().starts_with('{') => Self::of(inner.get())?.at(rest),
            _ => Ok(None),
        }
    }
}

struct All;

impl<'de> Visitor<'de> for All {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(32);
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw_value(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn half_pairs_are_mended_and_whole_ones_kept() {
        let mended = |body: &str| readable(body.as_bytes()).unwrap().into_owned();
        assert_eq!(mended(r#"{"a":"\ud83d\ude00 ok"}"#), r#"{"a":"\ud83d\ude00 ok"}"#);
        assert_eq!(
            mended(r#"{"a":"x\ud800y","b":"\udc00"}"#),
            r#"{"a":"x\ufffdy","b":"\ufffd"}"#
        );
        assert_eq!(mended(r#"{"a":"\\ud800"}"#), r#"{"a":"\\ud800"}"#);
        assert_eq!(mended(r#"["\ud800\ud800\udc00"]"#), r#"["\ufffd\ud800\udc00"]"#);
        assert_eq!(readable(b"\"\xff\"").unwrap(), "\"\u{fffd}\"");
        assert!(matches!(readable(b"{}"), Ok(Cow::Borrowed("{}"))));
    }

    #[test]
    fn depth_is_counted_outside_strings() {
        assert!(readable("[".repeat(121).as_bytes()).is_err());
        assert!(readable(format!("\"{}\"", "[".repeat(500)).as_bytes()).is_ok());
        assert!(readable("[]".repeat(500).as_bytes()).is_ok());
    }

    #[test]
    fn layout_does_not_matter_and_strings_do() {
        assert_eq!(compact("{ \"a b\" :\n [1, 2] }"), b"{\"a b\":[1,2]}");
        assert_eq!(compact(r#" "a\" b" "#), br#""a\" b""#);
        assert_eq!(compact(r#"["\\", " "]"#), br#"["\\"," "]"#);
        assert_eq!(compact(r#" "open \" "#), br#""open \" "#);
        assert_eq!(compact(" [ \"\\"), b"[\"\\");
    }

    #[test]
    fn a_member_is_found_once_or_refused() {
        let object = raw_value(r#"{"a":1,"b":null,"c":{"a":2},"\u0064":"x"}"#);
        assert_eq!(integer(member(object, "a").unwrap()), Some(1));
        assert!(member(object, "b").unwrap().is_none());
        assert_eq!(text(member(object, "d").unwrap()).as_deref(), Some("x"));
        assert!(member(raw_value(r#"{"a":1,"\u0061":2}"#), "a").is_err());
        assert!(member(raw_value("[1]"), "a").unwrap().is_none());
    }

    #[test]
    fn members_are_found_once_or_refused() {
        let members = Members::of(r#" {"a":1,"b":null,"\u0063":"x","d":1,"d":1} "#).unwrap();
        assert_eq!(integer(members.get("a").unwrap()), Some(1));
        assert!(members.get("b").unwrap().is_none());
        assert!(members.get("x").unwrap().is_none());
        assert_eq!(text(members.get("c").unwrap()).as_deref(), Some("x"));
        assert!(members.get("d").is_err());
        for none in ["", "[1]", "{}{}", "{\"a\"}", "null"] {
            assert!(Members::of(none).is_err(), "{none}");
        }
    }

    #[test]
    fn numbers_that_are_not_whole_are_no_integers() {
        for odd in ["1.0", "1e3", "99999999999999999999", "\"1\"", "true"] {
            assert_eq!(integer(Some(raw_value(odd))), None);
        }
        assert_eq!(integer(Some(raw_value("-5"))), Some(-5));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(readable(&body).is_ok_and(|text| compact(&text).len() <= text.len()));
        }

        #[test]
        fn any_escapes_become_a_string_that_reads(body in "(\\\\u[dD][89a-fA-F][0-9a-f]{2}|\\\\\\\\|[a-z\u{e9}]){0,12}") {
            let text = format!("\"{body}\"");
            let mended = readable(text.as_bytes()).unwrap();
            prop_assert!(serde_json::from_str::<String>(&mended).is_ok(), "{mended}");
        }
    }
}
