//! `[orders]`: what becomes of an order that nobody registered.
//!
//! Keys: `unknown`, `park_deadline`.

use std::time::Duration;

use super::keys::Keys;

/// The `[orders]` section.
#[derive(Clone, Debug)]
pub struct OrdersConfig {
    /// For an order first heard of from its notification.
    pub unknown: UnknownOrder,
    /// What is parked longer needs a human.
    pub park_deadline: Duration,
}

/// What an unknown order gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownOrder {
    /// It is created from its notification.
    #[default]
    Create,
    /// Its facts wait for its registration.
    Park,
}

impl OrdersConfig {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        let unknown = keys.parsed("unknown", "\"create\" or \"park\"", |text| match text {
            "create" => Some(UnknownOrder::Create),
            "park" => Some(UnknownOrder::Park),
            _ => None,
        });
        let year = Duration::from_hours(366 * 24);
        Self {
            unknown: unknown.unwrap_or_default(),
            park_deadline: keys.duration("park_deadline", Duration::from_secs(1)..=year),
        }
    }
}
