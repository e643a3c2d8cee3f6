//! `[[accounts]]` as a list: what all schemes share, and no two of the same name.
//!
//! Keys: `provider`, `name`, `merchant`, `state`, `since`, `no_order`; the scheme's own are in `schemes`.

use std::collections::BTreeSet;

use super::account::{Account, AccountState};
use super::keys::Keys;
use super::{names, schemes};
use crate::event::{AccountRules, NoOrder, ProviderName};
use crate::time::Timestamp;

/// Reads the whole list. An account without a known provider is left out: nothing else can be said of it.
pub(super) fn read_all(keys: &mut Keys<'_>) -> Vec<Account> {
    let mut seen = BTreeSet::new();
    let found = keys.tables("accounts", |keys| {
        let account = read(keys)?;
        let provider = account.provider();
        if !account.name.is_empty() && !seen.insert((provider.as_str(), account.name.clone())) {
            keys.problem(
                "name",
                format!("{provider}/{} is the name of an earlier account", account.name),
            );
        }
        Some(account)
    });
    found.into_iter().flatten().collect()
}

fn read(keys: &mut Keys<'_>) -> Option<Account> {
    let known = ProviderName::ALL.map(ProviderName::as_str).join(", ");
    let by_name = |text: &str| {
        ProviderName::ALL
            .into_iter()
            .find(|provider| provider.as_str() == text)
    };
    let provider = keys.parsed("provider", &format!("one of {known}"), by_name);
    let name = names::account(keys);
    let merchant = names::merchant(keys);
    let state = state(keys);
    let rules = AccountRules {
        since: since(keys),
        no_order: no_order(keys),
    };
    let Some(provider) = provider else {
        keys.forget();
        return None;
    };
    let scheme = schemes::read(provider, keys);
    Some(Account {
        path: keys.path().to_owned(),
        name,
        merchant,
        state,
        rules,
        scheme,
    })
}

fn state(keys: &mut Keys<'_>) -> AccountState {
    if !keys.is_given("state") {
        return AccountState::default();
    }
    let state = keys.parsed("state", "\"active\" or \"retired\"", |text| match text {
        "active" => Some(AccountState::Active),
        "retired" => Some(AccountState::Retired),
        _ => None,
    });
    state.unwrap_or_default()
}

fn since(keys: &mut Keys<'_>) -> Option<Timestamp> {
    if !keys.is_given("since") {
        return None;
    }
    let expected = "a time with its offset in quotes, such as \"2026-12-01T00:00:00+08:00\"";
    keys.parsed("since", expected, Timestamp::parse_rfc3339)
}

fn no_order(keys: &mut Keys<'_>) -> NoOrder {
    if !keys.is_given("no_order") {
        return NoOrder::default();
    }
    let found = keys.parsed("no_order", "\"park\" or \"ignore\"", |text| match text {
        "park" => Some(NoOrder::Park),
        "ignore" => Some(NoOrder::Ignore),
        _ => None,
    });
    found.unwrap_or_default()
}
