//! The accounts that this process serves: `(provider, account)` → scheme with keys.
//!
//! Built whole from configuration and never changed: a reload builds a new one and swaps it in.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use super::{Explanation, Provider, Reason, Refusal, Step, Verified, build};
use crate::config::{Account, AccountProblem, AccountState};
use crate::event::{AccountRules, Event, Notification, ProviderName, Reading};
use crate::telemetry::AccountMeters;

/// One account with its scheme.
#[derive(Debug)]
pub struct Registered {
    /// Which provider.
    pub provider: ProviderName,
    /// The account's name, a path segment.
    pub account: String,
    /// The owner of its orders.
    pub merchant: String,
    /// A retired account refuses everything.
    pub state: AccountState,
    /// What the account says about its payments.
    pub rules: AccountRules,
    /// The scheme.
    pub scheme: Box<dyn Provider>,
    /// What is counted of its notifications.
    pub meters: AccountMeters,
}

/// Every account, by provider and name.
#[derive(Debug, Default)]
pub struct Registry(HashMap<(ProviderName, String), Arc<Registered>>);

impl Registered {
    /// Judges one notification for this account: the one way in, for ingress, `verify` and quarantine alike.
    pub fn judge(&self, notification: &Notification) -> Result<Verified, Refusal> {
        match self.state {
            AccountState::Retired => Err(Refusal::new(Reason::RetiredAccount, "the account is retired")),
            AccountState::Active => self.scheme.verify(notification),
        }
    }
}

impl FromIterator<Registered> for Registry {
    /// Of accounts whose schemes are built already.
    fn from_iter<I: IntoIterator<Item = Registered>>(accounts: I) -> Self {
        let by_name = accounts.into_iter().map(|registered| {
            (
                (registered.provider, registered.account.clone()),
                Arc::new(registered),
            )
        });
        Self(by_name.collect())
    }
}

impl Registry {
    /// Builds every account or reports every problem.
    pub fn build(accounts: &[Account]) -> Result<Self, Vec<AccountProblem>> {
        let mut registry = HashMap::with_capacity(accounts.len());
        let mut problems = Vec::new();
        for account in accounts {
            match build(account) {
                Ok(scheme) => {
                    let key_ids = scheme.keys().into_iter().map(|key| key.id);
                    let registered = Registered {
                        meters: AccountMeters::new(account.provider(), &account.name, key_ids),
                        provider: account.provider(),
                        account: account.name.clone(),
                        merchant: account.merchant.clone(),
                        state: account.state,
                        rules: account.rules,
                        scheme,
                    };
                    registry.insert(
                        (registered.provider, registered.account.clone()),
                        Arc::new(registered),
                    );
                }
                Err(found) => problems.extend(found),
            }
        }
        if problems.is_empty() {
            Ok(Self(registry))
        } else {
            Err(problems)
        }
    }

    /// The account, if it is configured.
    pub fn get(&self, provider: ProviderName, account: &str) -> Option<&Arc<Registered>> {
        self.0.get(&(provider, account.to_owned()))
    }

    /// What `event` says, by its account's own scheme, from its stored content. An error is that event's failure,
    /// in words: its account is not configured here, its content is not understood, or the scheme's code panicked
    /// over it.
    pub fn read(&self, event: &Event) -> Result<Reading, String> {
        let Some(registered) = self.get(event.provider, &event.account) else {
            let (provider, account) = (event.provider, &event.account);
            return Err(format!("account {provider}/{account} is not configured"));
        };
        let read = AssertUnwindSafe(|| {
            registered
                .scheme
                .read(event.content(), &event.provider_event_type)
        });
        let reading =
            std::panic::catch_unwind(read).unwrap_or_else(|_| Err("reading it panicked".to_owned()))?;
        Ok(Reading {
            rules: registered.rules,
            ..reading
        })
    }

    /// The judgement of `account` step by step, for an operator; never on the request path. What
    /// verifies as it stands with the keys of another account needs no other hint.
    pub fn explain(&self, account: &Registered, notification: &Notification) -> Explanation {
        let mut explanation = account.scheme.explain(notification);
        if account.state == AccountState::Retired {
            let found = "is retired: refused whatever follows".to_owned();
            explanation.steps.insert(
                0,
                Step {
                    check: "account".to_owned(),
                    ok: false,
                    found,
                },
            );
        }
        if account.scheme.verify(notification).is_err() {
            let mut others: Vec<_> = self
                .iter()
                .filter(|other| other.provider == account.provider && other.account != account.account)
                .collect();
            others.sort_by(|a, b| a.account.cmp(&b.account));
            let held = others
                .into_iter()
                .find(|other| other.scheme.verify(notification).is_ok());
            let swapped = held.map(|other| {
                format!("It verifies with the keys of {}/{}: it was sent to the wrong path, or the keys are swapped.",
                    other.provider, other.account)
            });
            explanation.hint = swapped.or(explanation.hint);
        }
        explanation
    }

    /// All accounts, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.0.values()
    }
}
