//! The event object, borrowed from the body: the members that payhook reads, each as it was written.
//!
//! No API version's shape is required (endpoints are pinned to old ones): a member that is missing or of
//! another type is just not there. One that stands twice spoils the whole, because readers would differ.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::{Fingerprint, text};
use crate::provider::raw_json;

/// `event` or, when thin, `v2.core.event`.
#[derive(Deserialize)]
pub(super) struct Payload<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) created: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) livemode: Option<&'a RawValue>,
    #[serde(borrow)]
    account: Option<&'a RawValue>,
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    related_object: Option<&'a RawValue>,
}

impl<'a> Payload<'a> {
    /// Reads `body`; an error is a reason in words.
    pub(super) fn read(body: &'a str) -> Result<Self, String> {
        let payload: Self = serde_json::from_str(body).map_err(|error| shape(&error))?;
        match payload.kind() {
            Some(kind) if !kind.is_empty() => Ok(payload),
            _ => Err("no event type".to_owned()),
        }
    }

    /// The event id.
    pub(super) fn id(&self) -> Option<Cow<'a, str>> {
        raw_json::text(self.id)
    }

    /// The provider's type.
    pub(super) fn kind(&self) -> Option<Cow<'a, str>> {
        raw_json::text(self.kind)
    }

    /// Whether it only points at what happened. Told by `object` alone: `type` may be `v1.…` here too.
    pub(super) fn is_thin(&self) -> bool {
        raw_json::text(self.object).is_some_and(|object| object == "v2.core.event")
    }

    /// `data.object` as it was written.
    pub(super) fn object(&self) -> Result<Option<&'a RawValue>, String> {
        self.data
            .map_or(Ok(None), |data| raw_json::member(data, "object"))
            .map_err(|error| shape(&error))
    }

    /// What must be equal for a duplicate (design section 5.3): how `data` is rendered depends on
    /// `api_version`, so it is compared only where that is equal.
    pub(super) fn fingerprint(&self) -> Result<Fingerprint, String> {
        let about = match self.object()? {
            Some(object) => Some(object),
            None => self.related_object,
        };
        let about = about
            .map_or(Ok(None), |object| raw_json::member(object, "id"))
            .map_err(|error| shape(&error))?;
        let parts = [self.kind, self.created, self.livemode, self.account, about];
        Ok(Fingerprint::versioned(
            parts.map(|part| raw_json::raw(part).as_bytes()),
            raw_json::raw(self.api_version).as_bytes(),
            &raw_json::compact(raw_json::raw(self.data)),
        ))
    }
}

/// The members of `data.object`, whatever resource it is.
#[derive(Default, Deserialize)]
pub(super) struct Object<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) amount: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) amount_captured: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) amount_received: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) amount_refunded: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) amount_total: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cancellation_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) captured: Option<&'a RawValue>,
    #[serde(borrow)]
    charge: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) created: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) currency: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) failure_balance_transaction: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) failure_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) last_payment_error: Option<&'a RawValue>,
    #[serde(borrow)]
    latest_charge: Option<&'a RawValue>,
    #[serde(borrow)]
    payment_intent: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) payment_status: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) status: Option<&'a RawValue>,
}

impl<'a> Object<'a> {
    /// Reads `data.object`; an error is a reason in words.
    pub(super) fn read(object: &'a RawValue) -> Result<Self, String> {
        let object: Self = serde_json::from_str(object.get()).map_err(|error| shape(&error))?;
        for (name, member) in [
            ("id", object.id),
            ("charge", object.charge),
            ("latest_charge", object.latest_charge),
            ("payment_intent", object.payment_intent),
        ] {
            text::id(&named(member).unwrap_or_default()).map_err(|why| format!("{name} {why}"))?;
        }
        Ok(object)
    }

    /// Its own id.
    pub(super) fn id(&self) -> Option<String> {
        reference(self.id)
    }

    /// The charge it belongs to.
    pub(super) fn charge(&self) -> Option<String> {
        reference(self.charge)
    }

    /// The charge of the last attempt.
    pub(super) fn latest_charge(&self) -> Option<String> {
        reference(self.latest_charge)
    }

    /// The payment intent it belongs to.
    pub(super) fn payment_intent(&self) -> Option<String> {
        reference(self.payment_intent)
    }
}

/// An id, fit to be a key: [`Object::read`] has seen to that.
fn reference(value: Option<&RawValue>) -> Option<String> {
    text::id(&named(value)?).ok().flatten()
}

/// An id, or the id of an expanded resource.
fn named(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let value = value?;
    let id = if value.get().starts_with('{') {
        raw_json::member(value, "id").ok().flatten()
    } else {
        Some(value)
    };
    raw_json::text(id)
}

/// Where the JSON cannot be read, without a word of what it says.
fn shape(error: &serde_json::Error) -> String {
    format!(
        "the JSON cannot be read at line {} column {}",
        error.line(),
        error.column()
    )
}

/// The event id of a body that cannot be read otherwise, if that much is clear.
pub(super) fn id_alone(body: &str) -> Option<String> {
    let whole: &RawValue = serde_json::from_str(body).ok()?;
    raw_json::text(raw_json::member(whole, "id").ok()?).map(Cow::into_owned)
}
