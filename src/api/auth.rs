//! Who is asking: bearer tokens from the configuration, each with scopes and one merchant.
//!
//! A token is compared by its SHA-256, all of them in constant time, so that an answer's timing says nothing
//! about a token. A handler takes [`Reader`] or [`RawReader`] as an argument: asking for the scope and getting
//! the merchant are one thing, and a handler without either cannot confine a query.

use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::ApiState;
use super::problem::Problem;

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything that lists and shows.
    Read,
    /// Bodies, content, quarantine.
    Raw,
    /// Everything that changes something.
    Operate,
}

impl Scope {
    /// Its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Raw => "raw",
            Self::Operate => "operate",
        }
    }
}

/// One configured token, without its secret.
#[derive(Clone)]
struct Token {
    name: String,
    hash: [u8; 32],
    scopes: Vec<Scope>,
    merchant: String,
}

/// Every token of the configuration; clones share them.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Vec<Token>>);

impl Tokens {
    /// With no tokens nobody gets in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a token: its name for the audit, its secret, what it may do and whose data it sees.
    #[must_use]
    pub fn with(self, name: &str, secret: &SecretString, scopes: &[Scope], merchant: &str) -> Self {
        let mut tokens = Arc::unwrap_or_clone(self.0);
        tokens.push(Token {
            name: name.to_owned(),
            hash: Sha256::digest(secret.expose_secret()).into(),
            scopes: scopes.to_vec(),
            merchant: merchant.to_owned(),
        });
        Self(Arc::new(tokens))
    }

    fn find(&self, presented: &[u8]) -> Option<&Token> {
        let hash: [u8; 32] = Sha256::digest(presented).into();
        // No early exit: every token is compared whatever the others gave.
        self.0.iter().fold(None, |found, token| {
            let same = bool::from(token.hash.ct_eq(&hash));
            if same { Some(token) } else { found }
        })
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|t| &t.name)).finish()
    }
}

/// A known token's holder, before any scope was asked for.
#[derive(Clone, Debug)]
struct Caller {
    merchant: String,
    scopes: Vec<Scope>,
}

impl Caller {
    fn of(parts: &Parts, tokens: &Tokens) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(Problem::unauthorized());
        };
        let presented = bearer(value.as_bytes()).ok_or_else(Problem::unauthorized)?;
        let token = tokens.find(presented).ok_or_else(Problem::unauthorized)?;
        Ok(Self {
            merchant: token.merchant.clone(),
            scopes: token.scopes.clone(),
        })
    }

    fn allowed(self, scope: Scope) -> Result<String, Problem> {
        if self.scopes.contains(&scope) {
            Ok(self.merchant)
        } else {
            Err(Problem::forbidden(scope.as_str()))
        }
    }
}

/// The token in `Bearer <token>`; the scheme's name is case-insensitive (RFC 9110 section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return None;
    }
    Some(rest.trim_ascii()).filter(|token| !token.is_empty())
}

/// A caller who may read; sees only what belongs to this merchant.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Whose data.
    pub merchant: String,
}

/// A caller who may read bodies; sees only what belongs to this merchant.
#[derive(Clone, Debug)]
pub struct RawReader {
    /// Whose data.
    pub merchant: String,
}

impl FromRequestParts<ApiState> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let merchant = Caller::of(parts, &state.tokens)?.allowed(Scope::Read)?;
        Ok(Self { merchant })
    }
}

impl FromRequestParts<ApiState> for RawReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let merchant = Caller::of(parts, &state.tokens)?.allowed(Scope::Raw)?;
        Ok(Self { merchant })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;
    use crate::api::problem::Code;

    fn tokens() -> Tokens {
        Tokens::new()
            .with("ops", &"first".into(), &[Scope::Read, Scope::Raw], "default")
            .with("shop", &"second".into(), &[Scope::Read], "other")
    }

    fn ask(values: &[&str]) -> Result<Caller, Problem> {
        let mut request = Request::builder();
        for value in values {
            request = request.header(AUTHORIZATION, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Caller::of(&parts, &tokens())
    }

    #[test]
    fn a_token_carries_its_own_merchant_and_scopes() {
        let caller = ask(&["bEaReR second"]).unwrap();
        assert_eq!(caller.clone().allowed(Scope::Read).unwrap(), "other");
        assert_eq!(caller.allowed(Scope::Raw).unwrap_err().code(), Code::Forbidden);
    }

    #[test]
    fn anything_else_is_nobody() {
        let wrong: [&[&str]; 8] = [
            &[],
            &["second"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer third"],
            &["Basic second"],
            &["Bearer second first"],
            &["Bearer second", "Bearer second"],
        ];
        for values in wrong {
            assert_eq!(ask(values).unwrap_err().code(), Code::Unauthorized, "{values:?}");
        }
        assert!(Tokens::new().find(b"").is_none());
    }

    #[test]
    fn debug_shows_names_only() {
        assert_eq!(format!("{:?}", tokens()), r#"["ops", "shop"]"#);
    }
}
