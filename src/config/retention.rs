//! `[retention]`: how long things are kept that are not kept for good.
//!
//! Keys: `events`, `idempotency`. An event forgotten while its provider may still send it again would come
//! back as new, so `events` is never shorter than the longest horizon of the configured accounts.

use std::time::Duration;

use super::account::Account;
use super::keys::Keys;
use super::problem::Problem;
use super::spell::spell;
use crate::event::ProviderName;

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// The `[retention]` section.
#[derive(Clone, Debug)]
pub struct RetentionConfig {
    /// Of events with their bodies; facts and ledger stay.
    pub events: Duration,
    /// Of answers to an Idempotency-Key.
    pub idempotency: Duration,
}

impl RetentionConfig {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        let century = DAY.saturating_mul(36_525);
        Self {
            events: keys.duration("events", HOUR..=century),
            // Shorter than a claim's lease and its retries, a key would protect nobody.
            idempotency: keys.duration("idempotency", Duration::from_mins(1)..=century),
        }
    }

    /// What speaks against keeping events for so short a time with these accounts.
    pub(super) fn against(&self, accounts: &[Account]) -> Option<Problem> {
        let longest = accounts
            .iter()
            .max_by_key(|account| horizon(account.provider()))?;
        let horizon = horizon(longest.provider());
        (self.events < horizon).then(|| {
            let message = format!(
                "must be at least {}: {} may send a notification again for so long ({})",
                spell(horizon),
                longest.provider(),
                longest.path,
            );
            Problem::new("retention.events", message)
        })
    }
}

/// How long after an event its provider may send it again, by itself or on demand.
pub fn horizon(provider: ProviderName) -> Duration {
    match provider {
        // By hand from the dashboard or the CLI.
        ProviderName::Stripe => DAY.saturating_mul(30),
        ProviderName::Alipay | ProviderName::Wechatpay | ProviderName::TwoCTwoP | ProviderName::Antom => {
            HOUR.saturating_mul(25)
        }
    }
}
