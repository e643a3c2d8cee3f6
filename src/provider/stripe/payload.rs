//! The event object, borrowed from the body: the members that payhook reads, each as it was written.
//!
//! No API version's shape is required (endpoints are pinned to old ones): a member that is missing or of
//! another type is just not there. One that stands twice spoils the whole, because readers would differ.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::event::{Fingerprint, text};
use crate::provider::raw_json::{self, Members};

/// `event` or, when thin, `v2.core.event`.
pub(super) struct Payload<'a> {
    id: Option<&'a RawValue>,
    object: Option<&'a RawValue>,
    kind: Option<Cow<'a, str>>,
    kind_as_written: Option<&'a RawValue>,
    pub(super) created: Option<&'a RawValue>,
    pub(super) livemode: Option<&'a RawValue>,
    account: Option<&'a RawValue>,
    context: Option<&'a RawValue>,
    api_version: Option<&'a RawValue>,
    data: Option<&'a RawValue>,
    about: Result<About<'a>, String>,
    related_object: Option<&'a RawValue>,
}

/// What `data.object` is.
enum About<'a> {
    Nothing,
    Resource(Members<'a>),
    /// No object; why it has no members, in words.
    Other(String),
}

impl<'a> About<'a> {
    fn read(data: Option<&'a RawValue>) -> Result<Self, String> {
        let object = data.map_or(Ok(None), |data| raw_json::member(data, "object"))?;
        Ok(object.map_or(Self::Nothing, |object| {
            Members::of(object.get()).map_or_else(Self::Other, Self::Resource)
        }))
    }
}

impl<'a> Payload<'a> {
    /// Reads `body`; an error is a reason in words.
    pub(super) fn read(body: &'a str) -> Result<Self, String> {
        let members = Members::of(body)?;
        let kind_as_written = members.get("type")?;
        let data = members.get("data")?;
        let payload = Self {
            id: members.get("id")?,
            object: members.get("object")?,
            kind: raw_json::text(kind_as_written),
            kind_as_written,
            created: members.get("created")?,
            livemode: members.get("livemode")?,
            account: members.get("account")?,
            context: members.get("context")?,
            api_version: members.get("api_version")?,
            data,
            about: About::read(data),
            related_object: members.get("related_object")?,
        };
        match payload.kind() {
            "" => Err("no event type".to_owned()),
            _ => Ok(payload),
        }
    }

    /// The event id.
    pub(super) fn id(&self) -> Option<Cow<'a, str>> {
        raw_json::text(self.id)
    }

    /// Whether the endpoint's API version lets a partial capture or a cancellation make a Refund of what is
    /// released; versions since 2025-03-31 (basil) don't.
    pub(super) fn releases_are_refunds(&self) -> bool {
        raw_json::text(self.api_version)
            .and_then(|version| Some(version.get(..10)? < "2025-03-31"))
            .unwrap_or(false)
    }

    /// The provider's type; never empty.
    pub(super) fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }

    /// Whether it only points at what happened. Told by `object` alone: `type` may be `v1.…` here too.
    pub(super) fn is_thin(&self) -> bool {
        raw_json::text(self.object).is_some_and(|object| object == "v2.core.event")
    }

    /// The connected account that it is about; a thin event calls it its context.
    pub(super) fn account(&self) -> Option<Cow<'a, str>> {
        let context = self.context.filter(|_| self.is_thin());
        raw_json::text(self.account.or(context)).filter(|account| !account.is_empty())
    }

    /// The members of `data.object`; an error, in words, when that is no object.
    pub(super) fn resource(&self) -> Result<Option<&Members<'a>>, String> {
        match self.about.as_ref().map_err(Clone::clone)? {
            About::Nothing => Ok(None),
            About::Resource(members) => Ok(Some(members)),
            About::Other(why) => Err(why.clone()),
        }
    }

    /// What must be equal for a duplicate (design section 5.3): how `data` is rendered depends on
    /// `api_version`, so it is compared only where that is equal.
    pub(super) fn fingerprint(&self) -> Result<Fingerprint, String> {
        let about = match self.about.as_ref().map_err(Clone::clone)? {
            About::Resource(members) => members.get("id")?,
            About::Other(_) => None,
            About::Nothing => self
                .related_object
                .map_or(Ok(None), |object| raw_json::member(object, "id"))?,
        };
        let parts = [
            self.kind_as_written,
            self.created,
            self.livemode,
            self.account,
            about,
        ];
        Ok(Fingerprint::versioned(
            parts.map(|part| raw_json::raw(part).as_bytes()),
            raw_json::raw(self.api_version).as_bytes(),
            &raw_json::compact(raw_json::raw(self.data)),
        ))
    }
}

/// The members of a resource that payhook reads, whatever it is.
pub(super) struct Object<'a> {
    id: Option<&'a RawValue>,
    pub(super) amount: Option<&'a RawValue>,
    pub(super) amount_captured: Option<&'a RawValue>,
    pub(super) amount_received: Option<&'a RawValue>,
    pub(super) amount_refunded: Option<&'a RawValue>,
    pub(super) amount_total: Option<&'a RawValue>,
    pub(super) balance_transactions: Option<&'a RawValue>,
    pub(super) cancellation_reason: Option<&'a RawValue>,
    pub(super) captured: Option<&'a RawValue>,
    charge: Option<&'a RawValue>,
    pub(super) created: Option<&'a RawValue>,
    pub(super) currency: Option<&'a RawValue>,
    pub(super) failure_balance_transaction: Option<&'a RawValue>,
    pub(super) failure_reason: Option<&'a RawValue>,
    pub(super) last_payment_error: Option<&'a RawValue>,
    latest_charge: Option<&'a RawValue>,
    pub(super) mode: Option<&'a RawValue>,
    payment_intent: Option<&'a RawValue>,
    payment_method_details: Option<&'a RawValue>,
    pub(super) payment_status: Option<&'a RawValue>,
    pub(super) reason: Option<&'a RawValue>,
    refunds: Option<&'a RawValue>,
    pub(super) status: Option<&'a RawValue>,
}

impl<'a> Object<'a> {
    /// Reads a resource; an error is a reason in words.
    pub(super) fn read(members: &Members<'a>) -> Result<Self, String> {
        let object = Self {
            id: members.get("id")?,
            amount: members.get("amount")?,
            amount_captured: members.get("amount_captured")?,
            amount_received: members.get("amount_received")?,
            amount_refunded: members.get("amount_refunded")?,
            amount_total: members.get("amount_total")?,
            balance_transactions: members.get("balance_transactions")?,
            cancellation_reason: members.get("cancellation_reason")?,
            captured: members.get("captured")?,
            charge: members.get("charge")?,
            created: members.get("created")?,
            currency: members.get("currency")?,
            failure_balance_transaction: members.get("failure_balance_transaction")?,
            failure_reason: members.get("failure_reason")?,
            last_payment_error: members.get("last_payment_error")?,
            latest_charge: members.get("latest_charge")?,
            mode: members.get("mode")?,
            payment_intent: members.get("payment_intent")?,
            payment_method_details: members.get("payment_method_details")?,
            payment_status: members.get("payment_status")?,
            reason: members.get("reason")?,
            refunds: members.get("refunds")?,
            status: members.get("status")?,
        };
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

    /// Whether a charge may be captured several times.
    pub(super) fn has_multicapture(&self) -> bool {
        let status = self.payment_method_details.and_then(|details| {
            let details = Members::of(details.get()).ok()?;
            let paths = ["card.multicapture.status", "card_present.multicapture.status"];
            paths
                .into_iter()
                .find_map(|path| raw_json::text(details.at(path).ok()?))
        });
        status.is_some_and(|status| status == "available")
    }

    /// The refunds that a charge lists: versions before 2022-11-15 send the latest ten of them with it.
    pub(super) fn refunds(&self) -> Result<Vec<Members<'a>>, String> {
        let list = self
            .refunds
            .map_or(Ok(None), |list| raw_json::member(list, "data"))?;
        let Some(list) = list else { return Ok(Vec::new()) };
        let listed: Vec<&'a RawValue> =
            serde_json::from_str(list.get()).map_err(|_| "refunds.data is no list".to_owned())?;
        listed
            .into_iter()
            .map(|refund| Members::of(refund.get()))
            .collect()
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

/// The event id of a body that cannot be read otherwise, if that much is clear.
pub(super) fn id_alone(body: &str) -> Option<String> {
    let whole: &RawValue = serde_json::from_str(body).ok()?;
    raw_json::text(raw_json::member(whole, "id").ok()?).map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_that_is_no_object_has_a_fingerprint_and_no_members() {
        for object in ["\"text\"", "[1, 2]", "7"] {
            let body = format!("{{\"type\":\"a\",\"data\":{{\"object\":{object}}}}}");
            let kept = Payload::read(&body).unwrap();
            let print = kept.fingerprint().unwrap();
            assert_eq!(print.to_bytes().len(), 96, "{object}");
            assert!(kept.resource().is_err(), "{object}");
            let body = body.replace("{\"type", "{\"related_object\":{\"id\":\"x\"},\"type");
            let same = Payload::read(&body).unwrap().fingerprint().unwrap();
            assert!(print.agrees_with(&same), "{object}");
        }
    }
}
