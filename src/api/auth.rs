//! Who is asking: bearer tokens from the configuration, each with scopes and one merchant.
//!
//! A token is compared by its SHA-256, all of them in constant time, so that an answer's timing says nothing
//! about a token. A handler takes [`Reader`], [`RawReader`] or an operation's [`Operator`]: asking for the scope and getting
//! the merchant are one thing, and a handler without either cannot confine a query.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::ApiState;
use super::problem::Problem;
use crate::config::{Scope, Token};

/// Every token of the configuration, without the secrets; clones share them.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Vec<Known>>);

struct Known {
    name: String,
    hash: [u8; 32],
    scopes: BTreeSet<Scope>,
    merchant: String,
}

impl Tokens {
    /// These and no others; with none, nobody gets in.
    pub fn new(tokens: &[Token]) -> Self {
        let known = tokens.iter().map(|token| Known {
            name: token.name.clone(),
            hash: Sha256::digest(token.secret.expose_secret()).into(),
            scopes: token.scopes.clone(),
            merchant: token.merchant.clone(),
        });
        Self(Arc::new(known.collect()))
    }

    fn find(&self, presented: &[u8]) -> Option<&Known> {
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
    name: String,
    merchant: String,
    scopes: BTreeSet<Scope>,
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
            name: token.name.clone(),
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
    /// Whether bodies and content too.
    pub raw: bool,
}

/// A caller who may read bodies; sees only what belongs to this merchant.
#[derive(Clone, Debug)]
pub struct RawReader {
    /// Whose data.
    pub merchant: String,
}

/// A caller who may change something; does it to this merchant's data, under the token's name.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Whose data.
    pub merchant: String,
    /// Who, for the audit.
    pub name: String,
}

impl Operator {
    /// Read by [`super::operation::Operation`], so that nothing is changed without a key.
    pub(super) fn of(parts: &Parts, state: &ApiState) -> Result<Self, Problem> {
        let caller = Caller::of(parts, &state.tokens)?;
        let name = caller.name.clone();
        let merchant = caller.allowed(Scope::Operate)?;
        Ok(Self { merchant, name })
    }
}

impl FromRequestParts<ApiState> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let caller = Caller::of(parts, &state.tokens)?;
        let raw = caller.scopes.contains(&Scope::Raw);
        let merchant = caller.allowed(Scope::Read)?;
        Ok(Self { merchant, raw })
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
        let token = |name: &str, secret: &str, scopes: &[Scope], merchant: &str| Token {
            name: name.to_owned(),
            secret: secret.into(),
            scopes: scopes.iter().copied().collect(),
            merchant: merchant.to_owned(),
        };
        Tokens::new(&[
            token("ops", "first", &[Scope::Read, Scope::Raw], "default"),
            token("shop", "second", &[Scope::Read], "other"),
        ])
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
        assert!(Tokens::default().find(b"").is_none());
    }

    #[test]
    fn debug_shows_names_only() {
        assert_eq!(format!("{:?}", tokens()), r#"["ops", "shop"]"#);
    }
}
