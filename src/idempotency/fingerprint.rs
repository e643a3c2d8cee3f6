//! Whether two requests ask for the same thing: method, path and the body's meaning, not its spelling.
//!
//! The body is put into RFC 8785 form first, so that member order and white space do not matter. That form
//! writes numbers as IEEE doubles do; an integer beyond 2^53 would lose digits and make two different
//! requests look the same, so it is refused.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The largest integer that every JSON implementation keeps (2^53).
const EXACT: u64 = 1 << 53;

/// Why a body has no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyProblem {
    /// A number that RFC 8785 cannot write without loss.
    #[error("integers beyond 2^53 cannot be compared safely; send them as strings")]
    Inexact,
}

/// SHA-256 over method, path and canonical body. `None`: the request has no body.
pub fn fingerprint(method: &str, path: &str, body: Option<&Value>) -> Result<[u8; 32], BodyProblem> {
    let canonical = match body {
        Some(value) => {
            exact(value)?;
            serde_json_canonicalizer::to_vec(value).map_err(|_| BodyProblem::Inexact)?
        }
        None => Vec::new(),
    };
    let mut hash = Sha256::new();
    for part in [method.as_bytes(), path.as_bytes(), &canonical] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    Ok(hash.finalize().into())
}

fn exact(value: &Value) -> Result<(), BodyProblem> {
    match value {
        Value::Number(number) => {
            let integer = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            // Beyond 64 bits serde_json keeps an integer as a double, whose text then has no point.
            let too_long = integer.is_none() && !number.to_string().contains(['.', 'e', 'E', '-'])
                || integer.is_none()
                    && number
                        .as_f64()
                        .is_some_and(|f| f.abs() >= 9_007_199_254_740_992.0);
            if integer.is_some_and(|i| i > EXACT) || too_long {
                Err(BodyProblem::Inexact)
            } else {
                Ok(())
            }
        }
        Value::Array(items) => items.iter().try_for_each(exact),
        Value::Object(members) => members.values().try_for_each(exact),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(body: &str) -> Result<[u8; 32], BodyProblem> {
        fingerprint("POST", "/v1/orders", Some(&serde_json::from_str(body).unwrap()))
    }

    #[test]
    fn spelling_does_not_matter_and_meaning_does() {
        assert_eq!(
            print(r#"{"a":1,"b":[true]}"#),
            print("{ \"b\" : [true],\n\"a\":1 }")
        );
        assert_eq!(print(r#"{"a":"\u0041"}"#), print(r#"{"a":"A"}"#));
        assert_ne!(print(r#"{"a":1}"#), print(r#"{"a":2}"#));
        assert_ne!(print("null"), fingerprint("POST", "/v1/orders", None));
        assert_ne!(fingerprint("POST", "/a", None), fingerprint("POST", "/b", None));
    }

    #[test]
    fn numbers_that_would_lose_digits_are_refused() {
        assert!(print("9007199254740992").is_ok());
        for body in [
            "9007199254740993",
            "-9007199254740993",
            "18446744073709551616",
            "[{\"a\":1e300}]",
        ] {
            assert_eq!(print(body), Err(BodyProblem::Inexact), "{body}");
        }
    }
}
