//! What commonly happens to a body between the provider and here, undone one change at a time.
//!
//! For `explain` only: a scheme tries its signature over every variant, and a hint is given when one holds,
//! so an operator is told what was done to the body and never what might have been.

use serde_json::value::RawValue;

use super::respelled::{html_unescaped, transcoded};

/// One change undone: what must have happened, in words, and the body before it.
pub(super) struct Variant {
    pub(super) happened: String,
    pub(super) body: Vec<u8>,
}

/// Variants of any body: line ends, HTML escapes and charsets.
pub(super) fn of_text(body: &[u8]) -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut add = |happened: &str, body: Vec<u8>| {
        variants.push(Variant {
            happened: happened.to_owned(),
            body,
        });
    };
    for (name, end) in [
        ("a line feed", b"\n".as_slice()),
        ("a carriage return and line feed", b"\r\n"),
    ] {
        if let Some(shorter) = body.strip_suffix(end) {
            add(&format!("{name} was added at its end"), shorter.to_vec());
        }
        add(&format!("{name} was lost at its end"), [body, end].concat());
    }
    if let Ok(text) = std::str::from_utf8(body) {
        if text.contains("\r\n") {
            add(
                "its line ends became CRLF",
                text.replace("\r\n", "\n").into_bytes(),
            );
        } else if text.contains('\n') {
            add(
                "its CRLF line ends became LF",
                text.replace('\n', "\r\n").into_bytes(),
            );
        }
        if text.contains('&') {
            add("it was HTML-escaped", html_unescaped(body));
        }
    }
    for (what, before) in transcoded(body).into_iter().filter(|(_, before)| before != body) {
        add(&format!("it was {what}"), before);
    }
    variants
}

/// Variants of a JSON body: those of any body, and every usual way to write the same value. Empty beyond the
/// first kind when it is no JSON.
pub(super) fn of_json(body: &[u8]) -> Vec<Variant> {
    let mut variants = of_text(body);
    let Some(text) = std::str::from_utf8(body)
        .ok()
        .filter(|text| serde_json::from_str::<&RawValue>(text).is_ok())
    else {
        return variants;
    };
    for layout in [
        Layout::AsIs,
        Layout::Compact,
        Layout::Spaced,
        Layout::Indent(2),
        Layout::Indent(4),
    ] {
        for slashes in [Escapes::AsIs, Escapes::Used, Escapes::Undone] {
            for letters in [Escapes::AsIs, Escapes::Used, Escapes::Undone] {
                let rendered = Renderer {
                    layout,
                    slashes,
                    letters,
                    out: String::new(),
                    depth: 0,
                }
                .render(text);
                if rendered != text {
                    let form = [
                        layout.words(),
                        slashes.words("slashes"),
                        letters.words("non-ASCII letters"),
                    ];
                    let form: Vec<_> = form.into_iter().flatten().collect();
                    let happened = format!("its JSON was written anew; it was sent {}", form.join(", "));
                    variants.push(Variant {
                        happened,
                        body: rendered.into_bytes(),
                    });
                }
            }
        }
    }
    variants
}

/// White space between the parts.
#[derive(Clone, Copy)]
enum Layout {
    AsIs,
    Compact,
    Spaced,
    Indent(usize),
}

impl Layout {
    fn words(self) -> Option<String> {
        match self {
            Self::AsIs => None,
            Self::Compact => Some("compact".to_owned()),
            Self::Spaced => Some("on one line with a space after each comma and colon".to_owned()),
            Self::Indent(by) => Some(format!("indented by {by}")),
        }
    }
}

/// Whether an escape that JSON leaves to the writer is used.
#[derive(Clone, Copy)]
enum Escapes {
    AsIs,
    Used,
    Undone,
}

impl Escapes {
    fn words(self, what: &str) -> Option<String> {
        match self {
            Self::AsIs => None,
            Self::Used => Some(format!("with {what} escaped")),
            Self::Undone => Some(format!("with {what} unescaped")),
        }
    }
}

/// Writes valid JSON text in another form, members in the same order, numbers untouched.
struct Renderer {
    layout: Layout,
    slashes: Escapes,
    letters: Escapes,
    out: String,
    depth: usize,
}

impl Renderer {
    fn render(mut self, text: &str) -> String {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if c == '"' {
                let end = string_end(rest);
                self.string(rest.get(..end).unwrap_or_default());
                rest = rest.get(end..).unwrap_or_default();
                continue;
            }
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            self.mark(c, rest.trim_start().chars().next());
        }
        self.out
    }

    fn mark(&mut self, c: char, next: Option<char>) {
        if matches!(self.layout, Layout::AsIs) {
            self.out.push(c);
            return;
        }
        match c {
            '{' | '[' => {
                self.depth += 1;
                self.out.push(c);
                if !matches!(next, Some('}' | ']')) {
                    self.line();
                }
            }
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                if !self.out.ends_with(['{', '[']) {
                    self.line();
                }
                self.out.push(c);
            }
            ',' => {
                self.out.push(c);
                self.line();
                self.space(matches!(self.layout, Layout::Spaced));
            }
            ':' => {
                self.out.push(c);
                self.space(!matches!(self.layout, Layout::Compact));
            }
            ' ' | '\t' | '\r' | '\n' => {}
            _ => self.out.push(c),
        }
    }

    fn line(&mut self) {
        if let Layout::Indent(by) = self.layout {
            self.out.push('\n');
            self.out.push_str(&" ".repeat(by.saturating_mul(self.depth)));
        }
    }

    fn space(&mut self, wanted: bool) {
        if wanted {
            self.out.push(' ');
        }
    }

    fn string(&mut self, quoted: &str) {
        let mut rest = quoted;
        while let Some(c) = rest.chars().next() {
            if c == '\\' {
                let (used, plain) = escape(rest);
                let written = rest.get(..used).unwrap_or_default();
                match plain {
                    Some('/') if matches!(self.slashes, Escapes::Undone) => self.out.push('/'),
                    Some(letter) if !letter.is_ascii() && matches!(self.letters, Escapes::Undone) => {
                        self.out.push(letter);
                    }
                    _ => self.out.push_str(written),
                }
                rest = rest.get(used..).unwrap_or_default();
                continue;
            }
            match c {
                '/' if matches!(self.slashes, Escapes::Used) => self.out.push_str("\\/"),
                c if !c.is_ascii() && matches!(self.letters, Escapes::Used) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(r"\u");
                        self.out.push_str(&hex::encode(unit.to_be_bytes()));
                    }
                }
                c => self.out.push(c),
            }
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
}

/// The length of the string literal that `text` begins with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|b| {
        let ends = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// The length of the escape that `text` begins with, a surrogate pair as one, and what it stands for.
fn escape(text: &str) -> (usize, Option<char>) {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(0) else {
        let second = text.chars().nth(1);
        return (1 + second.map_or(0, char::len_utf8), second.filter(|c| *c == '/'));
    };
    let pair = unit(6).and_then(|second| char::decode_utf16([first, second]).next()?.ok());
    match pair.filter(|_| (0xD800..0xDC00).contains(&first)) {
        Some(c) => (12, Some(c)),
        None => (6, char::decode_utf16([first]).next().and_then(Result::ok)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn before(body: &str, original: &str) -> Option<String> {
        of_json(body.as_bytes())
            .into_iter()
            .find(|v| v.body == original.as_bytes())
            .map(|v| v.happened)
    }

    #[test]
    fn usual_rewritings_are_undone() {
        let sent = "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {},\n  \"c\": \"x/y\"\n}";
        for rewritten in [
            r#"{"a":[1,2],"b":{},"c":"x/y"}"#,
            r#"{"a": [1, 2], "b": {}, "c": "x/y"}"#,
            r#"{"a":[1,2],"b":{},"c":"x\/y"}"#,
        ] {
            assert!(
                before(rewritten, sent).unwrap().contains("indented by 2"),
                "{rewritten}"
            );
        }
        assert!(
            before(r#"{"n":"\u6d4b\ud83d\ude00"}"#, "{\"n\":\"测\u{1f600}\"}")
                .unwrap()
                .contains("unescaped")
        );
        assert!(
            before("{\"n\":\"测\u{1f600}\"}", r#"{"n":"\u6d4b\ud83d\ude00"}"#)
                .unwrap()
                .contains("escaped")
        );
        assert!(before("{\"a\":1}\n", "{\"a\":1}").unwrap().contains("added"));
        assert!(before("{\"a\":1}", "{\"a\":1}\n").unwrap().contains("lost"));
        assert!(before("{&quot;a&quot;:&quot;&amp;lt;&quot;}", r#"{"a":"&lt;"}"#).is_some());
        assert!(
            before("{\"a\":\"æµ‹\"}", "{\"a\":\"测\"}")
                .unwrap()
                .contains("Latin-1")
        );
    }

    proptest! {
        #[test]
        fn every_rewriting_is_the_same_value(keys in proptest::collection::vec("\\PC{0,8}", 0..5), n in any::<i64>()) {
            let value = serde_json::json!({ "keys": keys, "n": n, "empty": [], "deep": { "a": [ { "/": "\\" } ] } });
            let text = value.to_string();
            for variant in of_json(text.as_bytes()).into_iter().filter(|v| v.happened.contains("JSON")) {
                let again: serde_json::Value = serde_json::from_slice(&variant.body).unwrap();
                prop_assert_eq!(&again, &value);
            }
        }

        #[test]
        fn any_bytes_are_taken(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(of_json(&body).len() >= 2);
        }
    }
}
