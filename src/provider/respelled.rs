//! What boxes on the way do to bytes, undone: for the hints of `explain`, never for a verdict.
//!
//! Each function gives the bytes as they may have been before; whether they were is found out by trying the
//! signature on them.

/// `bytes` with every `from` replaced by `to`.
pub(super) fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        match rest.strip_prefix(from) {
            Some(after) if !from.is_empty() => {
                out.extend_from_slice(to);
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// An HTML filter's escapes taken back.
pub(super) fn html_unescaped(bytes: &[u8]) -> Vec<u8> {
    let escapes: [(&[u8], &[u8]); 9] = [
        (b"&quot;", b"\""),
        (b"&#34;", b"\""),
        (b"&#034;", b"\""),
        (b"&#39;", b"'"),
        (b"&#039;", b"'"),
        (b"&apos;", b"'"),
        (b"&lt;", b"<"),
        (b"&gt;", b">"),
        // Last, or `&amp;lt;` would be taken back twice.
        (b"&amp;", b"&"),
    ];
    escapes
        .iter()
        .fold(bytes.to_vec(), |text, (from, to)| replaced(&text, from, to))
}

/// Texts in the charsets that proxies and frameworks convert between, each as it was before the conversion,
/// with what happened in words.
pub(super) fn transcoded(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    use encoding_rs::{Encoding, GB18030, GBK, UTF_8, WINDOWS_1252};
    let pairs: [(&str, &'static Encoding, &'static Encoding); 4] = [
        ("converted from GBK to UTF-8", UTF_8, GBK),
        ("converted from GB18030 to UTF-8", UTF_8, GB18030),
        ("converted from UTF-8 to GBK", GBK, UTF_8),
        ("read as Latin-1 and written as UTF-8", UTF_8, WINDOWS_1252),
    ];
    pairs
        .into_iter()
        .filter_map(|(what, now, before)| {
            let text = now.decode_without_bom_handling_and_without_replacement(bytes)?;
            let (bytes, _, lossy) = before.encode(&text);
            (!lossy).then(|| (what, bytes.into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_taken_back_once() {
        assert_eq!(
            html_unescaped(b"[{&quot;a&quot;:&#39;&amp;lt;&#39;}]"),
            b"[{\"a\":'&lt;'}]"
        );
        assert_eq!(replaced(b"aaa", b"aa", b"b"), b"ba");
        assert_eq!(replaced(b"aaa", b"", b"b"), b"aaa");
    }

    #[test]
    fn text_goes_back_to_the_charset_it_came_from() {
        let before = transcoded("测试".as_bytes());
        assert!(before.contains(&("converted from GBK to UTF-8", b"\xb2\xe2\xca\xd4".to_vec())));
        let before = transcoded("æµ‹".as_bytes());
        assert!(before.iter().any(|(_, bytes)| bytes == "测".as_bytes()));
    }
}
