//! Events that the database refuses: kept in the quarantine, with an attention item.

use std::time::Duration;

use super::pending::{Pending, Unrecorded, cause, in_time};
use crate::event::{AttentionCode, Event};
use crate::ingress::quarantine::Quarantine;
use crate::store::attention::{self, NewAttention};
use crate::store::{Store, StoreError};
use crate::time::Clock;

/// Where such events go.
#[derive(Debug)]
pub(super) struct Unrecordable {
    pub(super) store: Store,
    pub(super) quarantine: Quarantine,
    pub(super) clock: Clock,
    pub(super) deadline: Duration,
}

impl Unrecordable {
    /// Keeps the event of `pending`, which the database refused with `error`, and answers.
    pub(super) async fn keep(&self, pending: Pending, error: &StoreError) {
        let event = &pending.event;
        tracing::error!(event.key = %event.key, cause = cause(error), "event refused by the database, quarantined");
        self.quarantine.keep_event(event);
        if let Err(error) = in_time(self.deadline, self.raise(event)).await {
            tracing::error!(event.key = %event.key, cause = cause(&error), "attention not raised");
        }
        pending.answer(Err(Unrecorded::Unrecordable));
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
        let mut tx = self.store.begin().await?;
        attention::raise(&mut tx, &item, self.clock.now()).await?;
        tx.commit().await
    }
}
