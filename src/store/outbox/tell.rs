//! What the way out has to tell a human: dead letters, messages the broker refuses, queues that vanished.
//!
//! Told once per code and source, so that a queue that is found missing by two daemons is one item.

use crate::event::{AttentionCode, Event, EventId, text};
use crate::store::attention::{self, NewAttention};
use crate::store::{StoreError, Tx};
use crate::time::Timestamp;

/// One thing a human has to know.
#[derive(Clone, Debug)]
pub(crate) struct Alarm<'a> {
    code: AttentionCode,
    source: &'a str,
    explanation: String,
    event: Option<&'a Event>,
    event_id: Option<&'a EventId>,
    merchant: &'a str,
}

impl<'a> Alarm<'a> {
    /// `source` is what it is about: an event, a row, a queue.
    pub(crate) fn new(code: AttentionCode, source: &'a str, explanation: String) -> Self {
        Self {
            code,
            source,
            explanation,
            event: None,
            event_id: None,
            merchant: "default",
        }
    }

    /// The event it is about; its merchant is the one to be told.
    pub(crate) fn about(mut self, event: Option<&'a Event>) -> Self {
        self.event = event;
        if let Some(event) = event {
            self.merchant = &event.merchant;
            self.event_id = Some(&event.id);
        }
        self
    }

    /// The event it is about, where only its id is known.
    pub(crate) fn event(mut self, event: &'a EventId) -> Self {
        self.event_id = Some(event);
        self
    }

    /// Who is to be told, where there is no event.
    pub(crate) fn merchant(mut self, merchant: &'a str) -> Self {
        self.merchant = merchant;
        self
    }

    /// What is known of a row without its event.
    pub(crate) fn concerning(mut self, merchant: Option<&'a str>, event: Option<&'a EventId>) -> Self {
        self.merchant = merchant.unwrap_or(self.merchant);
        self.event_id = event;
        self
    }
}

/// Puts it on the list, unless it is there.
pub(crate) async fn tell(tx: &mut Tx, alarm: &Alarm<'_>, now: Timestamp) -> Result<(), StoreError> {
    let event = alarm.event;
    let item = NewAttention {
        code: alarm.code,
        source: alarm.source.to_owned(),
        merchant: alarm.merchant.to_owned(),
        provider: event.map(|event| event.provider),
        account: event.map(|event| event.account.clone()),
        order_id: event.and_then(|event| event.order_id.clone()),
        trade_id: event.and_then(|event| event.trade_id.clone()),
        event_id: alarm.event_id.cloned(),
        explanation: text::storable(&alarm.explanation).into_owned(),
    };
    attention::raise(tx, &item, now).await?;
    Ok(())
}
