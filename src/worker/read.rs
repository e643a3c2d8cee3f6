//! What an event says, by the account's own scheme, from its stored content.
//!
//! A reason it cannot be read is that event's failure: its account is not configured here, its content is not
//! understood, or the scheme's code panicked over it.

use std::panic::AssertUnwindSafe;

use crate::event::{Event, Reading};
use crate::provider::Registry;

/// Reads `event`; an error is a reason in words.
pub(super) fn read(registry: &Registry, event: &Event) -> Result<Reading, String> {
    let Some(registered) = registry.get(event.provider, &event.account) else {
        return Err(format!(
            "account {}/{} is not configured",
            event.provider, event.account
        ));
    };
    let read = AssertUnwindSafe(|| {
        registered
            .scheme
            .read(event.content(), &event.provider_event_type)
    });
    match std::panic::catch_unwind(read) {
        Ok(reading) => reading,
        Err(_) => Err("reading it panicked".to_owned()),
    }
}
