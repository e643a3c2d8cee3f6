//! The accounts that this process serves: `(provider, account)` → scheme with keys.
//!
//! Built whole from configuration and never changed: a reload builds a new one and swaps it in.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Provider, build};
use crate::config::{Account, AccountProblem, AccountState};
use crate::event::ProviderName;

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
    /// The scheme.
    pub scheme: Box<dyn Provider>,
}

/// Every account, by provider and name.
#[derive(Debug, Default)]
pub struct Registry(HashMap<(ProviderName, String), Arc<Registered>>);

impl Registry {
    /// Builds every account or reports every problem.
    pub fn build(accounts: &[Account]) -> Result<Self, Vec<AccountProblem>> {
        let mut registry = HashMap::with_capacity(accounts.len());
        let mut problems = Vec::new();
        for account in accounts {
            match build(account) {
                Ok(scheme) => {
                    let registered = Registered {
                        provider: account.provider(),
                        account: account.name.clone(),
                        merchant: account.merchant.clone(),
                        state: account.state,
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

    /// All accounts, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.0.values()
    }
}
