//! The one shape of XML that WeChat Pay v2 sends: a root with flat text elements.
//!
//! No DTD, no entity but the five predefined, no nesting, no element twice, bounded count and size. Values
//! are kept as they stand, line ends included: they are what was signed.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// The elements' text by name, in the byte order that the signature uses.
pub(super) type Fields = BTreeMap<String, String>;

/// Real notifications stay under 4 KiB and 60 elements, however many coupons were used.
const MAX_BYTES: usize = 256 * 1024;
const MAX_FIELDS: usize = 512;

/// Why bytes are not that shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum XmlError {
    /// Over 256 KiB or 512 elements.
    #[error("larger than any notification of this kind")]
    TooLarge,
    /// Not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// A document type declaration.
    #[error("a document type declaration, which is never accepted")]
    Doctype,
    /// An entity that XML does not predefine, or a reference to no XML character.
    #[error("an entity beyond the five predefined")]
    Entity,
    /// Another root element.
    #[error("another root element than expected")]
    Root,
    /// An element inside a field.
    #[error("an element nested in another")]
    Nested,
    /// A field twice.
    #[error("an element twice")]
    Duplicate,
    /// Text, a processing instruction or a second root where none belongs.
    #[error("something between or behind the elements")]
    Stray,
    /// Not well-formed.
    #[error("not well-formed")]
    Broken,
}

/// The fields below one of `roots`.
pub(super) fn parse(body: &[u8], roots: &[&str]) -> Result<Fields, XmlError> {
    if body.len() > MAX_BYTES {
        return Err(XmlError::TooLarge);
    }
    let text = std::str::from_utf8(body).map_err(|_| XmlError::NotUtf8)?;
    let mut reader = Reader::from_str(text);
    let mut fields = Fields::new();
    let mut place = Place::Before;
    loop {
        let event = reader.read_event().map_err(|_| XmlError::Broken)?;
        place = match (place, event) {
            (_, Event::DocType(_)) => return Err(XmlError::Doctype),
            (place, Event::Comment(_)) => place,
            (Place::Before, Event::Decl(_)) => Place::Before,
            (Place::Before, Event::Start(root)) if roots.contains(&root.name().as_ref()) => Place::Root,
            (Place::Before, Event::Start(_) | Event::Empty(_)) => return Err(XmlError::Root),
            (Place::Root, Event::Start(field)) => {
                Place::Field(field.name().as_ref().to_owned(), String::new())
            }
            (Place::Root, Event::Empty(field)) => {
                keep(&mut fields, field.name().as_ref().to_owned(), String::new())?;
                Place::Root
            }
            // End tags are matched by the reader.
            (Place::Root, Event::End(_)) => Place::After,
            (Place::Field(name, value), Event::End(_)) => {
                keep(&mut fields, name, value)?;
                Place::Root
            }
            (Place::Field(..), Event::Start(_) | Event::Empty(_)) => return Err(XmlError::Nested),
            (Place::Field(name, value), Event::Text(more)) => Place::Field(name, value + &more),
            (Place::Field(name, value), Event::CData(more)) => Place::Field(name, value + &more),
            (Place::Field(name, mut value), Event::GeneralRef(reference)) => {
                match reference.resolve_char_ref().map_err(|_| XmlError::Entity)? {
                    Some(c) if is_xml_char(c) => value.push(c),
                    Some(_) => return Err(XmlError::Entity),
                    None => value.push_str(resolve_predefined_entity(&reference).ok_or(XmlError::Entity)?),
                }
                Place::Field(name, value)
            }
            (Place::After, Event::Eof) => return Ok(fields),
            (Place::Before | Place::Root | Place::Field(..), Event::Eof) => return Err(XmlError::Broken),
            (place, Event::Text(blank)) if blank.bytes().all(|b| b.is_ascii_whitespace()) => place,
            _ => return Err(XmlError::Stray),
        };
    }
}

/// How far the reader is.
enum Place {
    Before,
    Root,
    Field(String, String),
    After,
}

fn keep(fields: &mut Fields, name: String, value: String) -> Result<(), XmlError> {
    if fields.len() >= MAX_FIELDS {
        return Err(XmlError::TooLarge);
    }
    match fields.insert(name, value) {
        Some(_) => Err(XmlError::Duplicate),
        None => Ok(()),
    }
}

fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Fields, XmlError> {
        parse(text.as_bytes(), &["xml"])
    }

    #[test]
    fn plain_and_cdata_values_are_one() {
        let fields = read(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<xml>\n<a><![CDATA[1&<2]]></a><!-- x -->\n<b>3 &amp;&#x4e2d;</b>\
             <c/><d></d><e> x\r\n </e></xml>\n",
        )
        .unwrap();
        let list: Vec<_> = fields.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            list,
            [
                ("a", "1&<2"),
                ("b", "3 &中"),
                ("c", ""),
                ("d", ""),
                ("e", " x\r\n ")
            ]
        );
    }

    #[test]
    fn b23_nothing_is_declared_or_fetched() {
        let dtd = "<?xml version=\"1.0\"?><!DOCTYPE xml [<!ENTITY x SYSTEM \"http://127.0.0.1:1/\">]><xml><a>&x;</a></xml>";
        assert_eq!(read(dtd), Err(XmlError::Doctype));
        assert_eq!(read("<xml><a>&x;</a></xml>"), Err(XmlError::Entity));
        assert_eq!(read("<xml><a>&nbsp;</a></xml>"), Err(XmlError::Entity));
        assert_eq!(read("<xml><a>&#0;</a></xml>"), Err(XmlError::Entity));
        assert_eq!(read("<xml><a>&#x1b;</a></xml>"), Err(XmlError::Entity));
    }

    #[test]
    fn every_other_shape_is_refused_by_name() {
        assert_eq!(read("<xml><a>1</a><a>1</a></xml>"), Err(XmlError::Duplicate));
        assert_eq!(read("<xml><a>1</a><a/></xml>"), Err(XmlError::Duplicate));
        assert_eq!(read("<xml><a><b>1</b></a></xml>"), Err(XmlError::Nested));
        assert_eq!(read("<foo><a>1</a></foo>"), Err(XmlError::Root));
        assert_eq!(read("<xml/>"), Err(XmlError::Root));
        assert_eq!(read("<xml>x<a>1</a></xml>"), Err(XmlError::Stray));
        assert_eq!(read("<xml><a>1</a></xml><xml/>"), Err(XmlError::Stray));
        assert_eq!(read("<xml><?php 1?></xml>"), Err(XmlError::Stray));
        for broken in [
            "<xml><a>1</b></xml>",
            "<xml><a>1",
            "<xml>",
            "",
            "<",
            "<xml><a>1 & 2</a></xml>",
        ] {
            assert_eq!(read(broken), Err(XmlError::Broken), "{broken}");
        }
        assert_eq!(parse(b"<xml><a>\xff</a></xml>", &["xml"]), Err(XmlError::NotUtf8));
        let many = (0..=MAX_FIELDS).fold(String::new(), |all, i| all + &format!("<f{i}/>"));
        assert_eq!(read(&format!("<xml>{many}</xml>")), Err(XmlError::TooLarge));
        assert_eq!(
            read(&format!("<xml><a>{}</a></xml>", "x".repeat(MAX_BYTES))),
            Err(XmlError::TooLarge)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_judged_without_panic(text in "(<xml>|</xml>|<a>|</a>|&|;|#x|<!|\\[CDATA\\[|\\]\\]>|.){0,40}") {
            if let Ok(fields) = read(&text) {
                prop_assert!(fields.len() < 40);
            }
        }
    }
}
