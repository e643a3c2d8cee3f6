//! `[[tokens]]`: who may use the private API, and for what.
//!
//! Keys: `name`, `token` (or `token_file`), `scopes`, `merchant`.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use super::keys::Keys;
use super::names::{DEFAULT_MERCHANT, merchant};

/// One bearer token.
#[derive(Clone, Debug)]
pub struct Token {
    /// Who it is, for the audit.
    pub name: String,
    /// The token itself.
    pub secret: SecretString,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
    /// It sees and does only what belongs to this merchant.
    pub merchant: String,
}

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Looking at events, orders, attention.
    Read,
    /// Bodies, content, quarantine.
    Raw,
    /// Everything that changes something.
    Operate,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Raw, Self::Operate];

    /// The name in configuration and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Raw => "raw",
            Self::Operate => "operate",
        }
    }
}

/// Reads the whole list.
pub(super) fn read_all(keys: &mut Keys<'_>) -> Vec<Token> {
    let mut names = BTreeSet::new();
    let mut secrets = BTreeSet::new();
    keys.tables("tokens", |keys| {
        let token = read(keys);
        if !token.name.is_empty() && !names.insert(token.name.clone()) {
            keys.problem("name", format!("{} is the name of an earlier token", token.name));
        }
        let secret = token.secret.expose_secret();
        if !secret.is_empty() && !secrets.insert(secret.to_owned()) {
            // Whose call it was could not be told.
            keys.problem("token", "is the same as an earlier one");
        }
        token
    })
}

fn read(keys: &mut Keys<'_>) -> Token {
    let has_secret = keys.is_given("token") || keys.is_given("token_file");
    if !has_secret {
        keys.problem("token", "is missing: token or token_file");
    }
    let secret = keys.secret_text("token").unwrap_or_default();
    if !secret.expose_secret().bytes().all(|b| b.is_ascii_graphic()) {
        keys.problem(
            "token",
            "must be printable ASCII without spaces, as it stands in a header",
        );
    }
    Token {
        name: keys.text("name"),
        secret,
        scopes: scopes(keys),
        merchant: merchant(keys),
    }
}

fn scopes(keys: &mut Keys<'_>) -> BTreeSet<Scope> {
    if !keys.is_given("scopes") {
        return BTreeSet::from(Scope::ALL);
    }
    let mut scopes = BTreeSet::new();
    for item in keys.list("scopes") {
        match Scope::ALL.into_iter().find(|scope| scope.as_str() == item.text) {
            Some(scope) => {
                scopes.insert(scope);
            }
            None => keys.problem_at(item.path, "must be \"read\", \"raw\" or \"operate\""),
        }
    }
    if scopes.is_empty() {
        keys.problem("scopes", "is empty: the token could do nothing");
    }
    scopes
}

impl Token {
    /// The one that is made when none is configured: it may do all, for the default merchant.
    pub(super) fn local(secret: SecretString) -> Self {
        Self {
            name: "local".to_owned(),
            secret,
            scopes: BTreeSet::from(Scope::ALL),
            merchant: DEFAULT_MERCHANT.to_owned(),
        }
    }
}
