//! Every account's keys: what they are, by fingerprint, serial and expiry, never the key itself.
//!
//! And when each last verified something, so that a rotation can be closed: an old key that has verified nothing
//! since the provider uses the new one can go. A key that verifies nothing is usually another key than was meant (the merchant's own instead of the
//! provider's), so what was loaded is shown for comparison with the provider's console.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Finding;
use crate::config::AccountState;
use crate::provider::{KeyInfo, Registered, Registry};
use crate::store::accounts::{AccountKey, UNDER_WAY};
use crate::store::key_uses::KeyUse;
use crate::time::Timestamp;

/// How long before its end a certificate is warned of.
const SOON: Duration = Duration::from_hours(30 * 24);

/// What the store knows of accounts and keys; `None` where it cannot tell.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// When each key last verified something.
    pub(super) uses: Option<Vec<KeyUse>>,
    /// When the store first knew each account.
    pub(super) accounts: Option<BTreeMap<AccountKey, Timestamp>>,
}

/// All findings of the accounts, in the order of their names.
pub(super) fn findings(registry: &Registry, known: &Known, now: Timestamp) -> Vec<Finding> {
    let mut accounts: Vec<_> = registry.iter().collect();
    accounts.sort_by_key(|account| (account.provider.as_str(), account.account.clone()));
    accounts
        .into_iter()
        .flat_map(|account| of_account(account, known, now))
        .collect()
}

fn of_account(account: &Registered, known: &Known, now: Timestamp) -> Vec<Finding> {
    let what = format!("{}/{}", account.provider, account.account);
    let mut found: Vec<_> = account
        .scheme
        .keys()
        .iter()
        .map(|key| {
            of_key(
                &what,
                key,
                last_use(account, key, known.uses.as_deref()).as_deref(),
                now,
            )
        })
        .collect();
    if account.state == AccountState::Retired {
        found.push(Finding::warning(
            &what,
            "is retired: its notifications are refused and kept in quarantine",
        ));
    }
    found.push(since(&what, account, known, now));
    found.extend(
        account
            .scheme
            .unchecked()
            .into_iter()
            .map(|open| Finding::warning(&what, open)),
    );
    found
}

/// From when on the account's payments are shipped.
fn since(what: &str, account: &Registered, known: &Known, now: Timestamp) -> Finding {
    let shipped = |at: Timestamp| format!("payments made before {at} are not shipped");
    let key = (account.provider.as_str().to_owned(), account.account.clone());
    let first = known.accounts.as_ref().and_then(|accounts| accounts.get(&key));
    match (account.rules.since, first) {
        (Some(since), _) if since > now => Finding::warning(
            what,
            format!(
                "{}, and that is in the future: nothing is shipped until then",
                shipped(since)
            ),
        ),
        (Some(since), _) => Finding::ok(what, shipped(since)),
        (None, Some(first)) => {
            let first = first.minus(UNDER_WAY);
            Finding::ok(what, format!("{}: since is not given", shipped(first)))
        }
        (None, None) => Finding::ok(
            what,
            "payments made over 5 minutes before the store first knows the account are not shipped: since is not given",
        ),
    }
}

/// When `key` last verified something, in words; `None` if that is not known or not what it is for.
fn last_use(account: &Registered, key: &KeyInfo, uses: Option<&[KeyUse]>) -> Option<String> {
    let found = uses?.iter().find(|used| {
        used.provider == account.provider
            && used.account == account.account
            && used.fingerprint == key.fingerprint
    });
    match found {
        Some(used) => Some(format!("last verified {}", used.verified_at)),
        None if key.verifies => Some("has verified nothing yet".to_owned()),
        None => None,
    }
}

fn of_key(what: &str, key: &KeyInfo, last_use: Option<&str>, now: Timestamp) -> Finding {
    let mut message = format!("{} {}, fingerprint {}", key.kind, key.id, key.fingerprint);
    if let Some(subject) = &key.subject {
        message.push_str(", subject ");
        message.push_str(subject);
    }
    if let Some(last_use) = last_use {
        message.push_str(", ");
        message.push_str(last_use);
    }
    if let Some(doubt) = key.doubt {
        return Finding::warning(what, format!("{message}; {doubt}"));
    }
    match key.expires_at {
        // An expired certificate still verifies: what it signed is no less genuine.
        Some(end) if end <= now => Finding::warning(what, format!("{message}, expired {end}")),
        Some(end) if end <= now.plus(SOON) => {
            Finding::warning(what, format!("{message}, expires soon: {end}"))
        }
        Some(end) => Finding::ok(what, format!("{message}, expires {end}")),
        None => Finding::ok(what, message),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn an_ending_certificate_is_warned_of_and_never_a_problem() {
        let now = Timestamp::from_secs(1_800_000_000);
        let day = Duration::from_hours(24);
        let ending = |expires_at| KeyInfo {
            id: "5157F09E".to_owned(),
            kind: "platform certificate".to_owned(),
            fingerprint: "0123456789abcdef".to_owned(),
            verifies: true,
            subject: Some("CN=Tenpay.com".to_owned()),
            expires_at,
            doubt: None,
        };
        for (expires_at, level) in [
            (None, Level::Ok),
            (Some(now.plus(day * 31)), Level::Ok),
            (Some(now.plus(day * 29)), Level::Warning),
            (Some(now.minus(day)), Level::Warning),
        ] {
            let finding = of_key("wechatpay/shop", &ending(expires_at), Some("last verified"), now);
            assert_eq!(finding.level, level, "{finding:?}");
            for part in [
                "5157F09E",
                "platform certificate",
                "0123456789abcdef",
                "CN=Tenpay.com",
                "last verified",
            ] {
                assert!(finding.message.contains(part), "{finding:?}");
            }
        }
    }
}
