//! JSON from a provider, read so that two readers can't disagree about it: a member named twice is refused.
//!
//! For judging and reading only. What is stored and passed on is always the provider's own bytes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why bytes are not a JSON object that can be relied on.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, nested over 128 levels, or a member twice; where, without what stood there.
    #[error("not sound JSON at line {line}, column {column}")]
    Broken {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// JSON, but not an object.
    #[error("not a JSON object")]
    NotAnObject,
}

/// The one object that `bytes` hold, and nothing behind it.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, JsonError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    match value {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(JsonError::NotAnObject),
        // serde_json's own text may quote the input.
        Err(e) => Err(JsonError::Broken {
            line: e.line(),
            column: e.column(),
        }),
    }
}

/// Builds a [`Value`], refusing a member's second coming.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(Self)?;
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("a member twice"));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_second_member_is_refused_at_any_depth() {
        assert!(object(br#"{"a":{"b":1,"c":[{"d":null,"e":"x"}]}}"#).is_ok());
        for twice in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#] {
            assert!(
                matches!(object(twice.as_bytes()), Err(JsonError::Broken { .. })),
                "{twice}"
            );
        }
    }

    #[test]
    fn only_a_whole_object_counts() {
        assert!(matches!(object(b"[]"), Err(JsonError::NotAnObject)));
        for broken in ["", "{", "{}{}", "{} x", "\u{feff}{}"] {
            assert!(
                matches!(object(broken.as_bytes()), Err(JsonError::Broken { .. })),
                "{broken}"
            );
        }
        assert!(object(format!("{}1{}", r#"{"a":"#.repeat(500), "}".repeat(500)).as_bytes()).is_err());
        assert!(object(b" {} \n").is_ok());
    }

    proptest! {
        #[test]
        fn sound_json_reads_as_serde_json_reads_it(text in r#"\{"a":(-?[1-9][0-9]{0,19}|0|[0-9]\.[0-9]{1,3}|"[a-z]*"|\[true,null\])\}"#) {
            let Value::Object(want) = serde_json::from_str(&text).unwrap() else { panic!() };
            prop_assert_eq!(object(text.as_bytes()).unwrap(), want);
        }
    }
}
