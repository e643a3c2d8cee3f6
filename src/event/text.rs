//! Text from outside, made fit for a database column, a terminal or a log line.
//!
//! Raw bytes are kept as they came; what is derived from them passes through here. Postgres refuses NUL in
//! text, a btree refuses long keys, and a terminal obeys escape sequences.

use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The longest id (order, trade, refund) that is used as one, in bytes. Providers stay under 128.
pub const MAX_ID: usize = 255;

/// The longest text that AMQP carries as a message id, a message type or a routing key, in bytes.
pub const MAX_SHORT: usize = 255;

/// Why a text that names something cannot be used as an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitId {
    /// Over [`MAX_ID`] bytes: no index takes it.
    #[error("is longer than 255 bytes")]
    TooLong,
    /// NUL, which a database refuses, or U+FFFD, which stands for bytes that were not text: two different ids
    /// could have become this one.
    #[error("holds a character that does not identify anything (NUL, or U+FFFD for bytes that are no text)")]
    Ambiguous,
}

/// An id fit to be a key, unchanged; `None` if it is empty. An error is for a human: it must not pass in silence.
pub fn id(text: &str) -> Result<Option<String>, UnfitId> {
    if text.len() > MAX_ID {
        return Err(UnfitId::TooLong);
    }
    if text.contains(['\0', char::REPLACEMENT_CHARACTER]) {
        return Err(UnfitId::Ambiguous);
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Text fit for a column: NUL becomes U+2400 (␀), all else stays.
pub fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{2400}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// The longest prefix of `text` within `max` bytes that ends at a character.
pub fn cut(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// A message id that AMQP carries: `id` as it stands, or `sha256:` and 64 hex digits of it where it is over
/// [`MAX_SHORT`] bytes. No id that stands is like the latter: all of them hold a slash.
pub fn message_id(id: String) -> String {
    if id.len() <= MAX_SHORT {
        return id;
    }
    format!("sha256:{}", hex::encode(Sha256::digest(id)))
}

/// `text` without the optional white space (spaces and tabs) that HTTP allows around a field's value and around
/// the elements of a list in it.
pub fn trim_ows(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Text fit for a terminal or a log line: control and bidirectional-override characters are shown as
/// escapes (`\u{1b}`, `\n`), the rest stays readable in any script.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(hides) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if hides(c) => {
                let code = u32::from(c);
                if write!(out, "\\u{{{code:x}}}").is_err() {
                    out.push('\u{fffd}');
                }
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// JSON text fit for a terminal or a log line: the same characters as `\uXXXX`, which a JSON reader undoes.
/// The line ends of indented JSON stay; inside its strings there are none.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(|c| c != '\n' && hides(c)) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !hides(c) {
            out.push(c);
        } else if write!(out, "\\u{:04x}", u32::from(c)).is_err() {
            out.push('\u{fffd}');
        }
    }
    Cow::Owned(out)
}

/// Bytes made wholly visible, for comparing signed strings: control characters as their pictures (␊, ␍, ␀),
/// other hidden ones as `<U+200B>`, bytes that are no UTF-8 as `<B2>`. All else stays readable.
pub fn visible(bytes: &[u8]) -> String {
    let shown = |c: char| {
        let code = u32::from(c);
        match code {
            0..=0x1f => char::from_u32(0x2400 + code).unwrap_or(c).to_string(),
            0x7f => "\u{2421}".to_owned(),
            _ if hides(c) || (c.is_whitespace() && c != ' ') => format!("<U+{code:04X}>"),
            _ => c.to_string(),
        }
    };
    let chunk = |chunk: std::str::Utf8Chunk<'_>| {
        let valid = chunk.valid().chars().map(shown);
        let invalid = chunk.invalid().iter().map(|byte| format!("<{byte:02X}>"));
        valid.chain(invalid).collect::<String>()
    };
    bytes.utf8_chunks().map(chunk).collect()
}

/// Characters that move the cursor, reorder the line or cannot be seen.
fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_used_as_it_stands_or_not_at_all() {
        assert_eq!(id("测-1"), Ok(Some("测-1".to_owned())));
        assert_eq!(id(&"x".repeat(255)), Ok(Some("x".repeat(255))));
        assert_eq!(id(""), Ok(None));
        assert_eq!(id(&"x".repeat(256)), Err(UnfitId::TooLong));
        for odd in ["a\0b", "a\u{fffd}b"] {
            assert_eq!(id(odd), Err(UnfitId::Ambiguous));
        }
        assert_eq!(id("a\u{2400}b"), Ok(Some("a\u{2400}b".to_owned())));
    }

    #[test]
    fn a_terminal_sees_no_control() {
        assert_eq!(
            printable("测试\u{1b}[31m\nx\u{202e}"),
            "测试\\u{1b}[31m\\nx\\u{202e}"
        );
    }

    #[test]
    fn a_signed_string_hides_nothing() {
        let shown = visible(b"1.{\r\n\t\0\x7f \xb2\xe2}\xe2\x80\x8b\xc2\xa0\\n");
        assert_eq!(
            shown,
            "1.{\u{240d}\u{240a}\u{2409}\u{2400}\u{2421} <B2><E2>}<U+200B><U+00A0>\\n"
        );
        assert_eq!(visible("测试 a".as_bytes()), "测试 a");
    }

    #[test]
    fn hidden_characters_in_json_are_escaped_and_read_back() {
        let shown = printable_json("{\n  \"name\": \"a\u{202e}\u{9b}b\"\n}");
        assert_eq!(shown, "{\n  \"name\": \"a\\u202e\\u009bb\"\n}");
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read["name"], "a\u{202e}\u{9b}b");
    }

    #[test]
    fn message_id_hashes_only_what_amqp_does_not_carry() {
        let id = |order: &str| message_id(format!("default/{order}/1"));
        assert_eq!(id(&"x".repeat(245)), format!("default/{}/1", "x".repeat(245)));
        let long = id(&"x".repeat(246));
        assert_eq!((&long[..7], long.len()), ("sha256:", 71));
        assert_eq!(id(&"x".repeat(246)), long);
        for other in ["x".repeat(247), "测".repeat(85), format!("{}y", "x".repeat(245))] {
            assert_ne!(id(&other), long);
        }
        let message = message_id(format!("default/{}/2", "x".repeat(246)));
        assert_ne!(message, long, "each version has an id of its own");
    }

    #[test]
    fn trim_ows_takes_off_spaces_and_tabs_only() {
        assert_eq!(trim_ows(" \t a b\t"), "a b");
        assert_eq!(trim_ows("\u{a0}a\n"), "\u{a0}a\n");
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("测试", 4), "测");
    }
}
