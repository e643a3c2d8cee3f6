//! Events that the database refuses: kept in the quarantine, and a human is told.

use std::time::Duration;

use super::quarantine::Quarantine;
use super::recorder::{Unrecorded, Waiting, cause, in_time};
use crate::event::{AttentionCode, Event};
use crate::store::attention::{self, NewAttention};
use crate::store::{Store, StoreError};
use crate::time::Clock;

/// Where such events go.
#[derive(Debug)]
pub(super) struct Unrecordable {
    /// Not the connections that everybody needs.
    pub(super) aside: Store,
    pub(super) quarantine: Quarantine,
    pub(super) clock: Clock,
    pub(super) ack_deadline: Duration,
}

impl Unrecordable {
    /// Keeps the event of `waiting` for a human, and answers.
    pub(super) async fn keep(&self, waiting: Waiting, error: &StoreError) {
        let event = &waiting.event;
        tracing::error!(event.key = %event.key, cause = cause(error), "the database refuses this event");
        self.quarantine.keep_event(event);
        let raised = in_time(self.ack_deadline, self.raise(event)).await;
        if let Err(error) = raised {
            tracing::error!(event.key = %event.key, cause = cause(&error), "attention could not be raised");
        }
        waiting.tell(Err(Unrecorded::Unrecordable));
    }

    async fn raise(&self, event: &Event) -> Result<(), StoreError> {
        let item = NewAttention {
            code: AttentionCode::Unrecordable,
            source: event.key.as_str().to_owned(),
            merchant: event.merchant.clone(),
            provider: Some(event.provider),
            account: Some(event.account.clone()),
            order_id: None,
            trade_id: None,
            event_id: None,
            explanation:
                "The database refuses a genuine event of this account. It is kept in the quarantine; \
                          the provider was told to send it again."
                    .to_owned(),
        };
        let mut tx = self.aside.begin().await?;
        attention::raise(&mut tx, &item, self.clock.now()).await?;
        tx.commit().await
    }
}
