//! What both generations of the scheme need to understand a message: whose account it is, and how ids,
//! amounts and types are taken out of it.

use serde_json::{Map, Value};

use crate::event::{Currency, Identity, Money, Reading, text};

/// A JSON object.
pub(super) type Object = Map<String, Value>;

/// The longest provider event type that is kept; WeChat's own stay under 40 bytes.
const MAX_TYPE: usize = 96;

/// The account that a message must be about.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// The configured account's name.
    pub(super) account: String,
    /// `mch_id`.
    pub(super) mch_id: String,
    /// `app_ids`; empty: not checked.
    pub(super) app_ids: Vec<String>,
    /// The currency of messages that name none.
    pub(super) currency: Currency,
}

impl Scope {
    /// Judges the merchant id and app id of a message, each given with its field's name; one that the message
    /// lacks is no mismatch.
    pub(super) fn identity(&self, mch_id: Option<(&str, &str)>, app_id: Option<(&str, &str)>) -> Identity {
        if let Some((field, found)) = mch_id.filter(|(_, found)| *found != self.mch_id) {
            return mismatch(field, found, &self.mch_id);
        }
        let foreign =
            |found: &str| !self.app_ids.is_empty() && !self.app_ids.iter().any(|held| held == found);
        if let Some((field, found)) = app_id.filter(|(_, found)| foreign(found)) {
            return mismatch(field, found, &self.app_ids.join(" or "));
        }
        Identity::Ok
    }
}

/// A reading that says nothing yet: `other.{type}`.
pub(super) fn other(provider_event_type: &str, identity: Identity) -> Reading {
    let provider_event_type = event_type(provider_event_type);
    Reading {
        kind: format!("other.{}", provider_event_type.to_lowercase()),
        provider_event_type,
        identity,
        ..Reading::default()
    }
}

fn mismatch(field: &str, found: &str, held: &str) -> Identity {
    let found = text::printable(text::cut(found, 64)).into_owned();
    Identity::Mismatch(format!("{field} is {found}, this account's is {held}"))
}

/// A provider's type, fit to be stored and to end a routing key.
pub(super) fn event_type(text: &str) -> String {
    text::storable(text::cut(text, MAX_TYPE)).into_owned()
}

/// The text member `name`.
pub(super) fn text_of<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

/// The first of `names` that is a text member, with its name.
pub(super) fn first_of<'a>(object: &'a Object, names: &[&'static str]) -> Option<(&'static str, &'a str)> {
    names
        .iter()
        .find_map(|name| text_of(object, name).map(|found| (*name, found)))
}

/// The id in member `name`, fit to be a key, or why it is not.
pub(super) fn id_of(object: &Object, name: &str) -> Result<Option<String>, String> {
    text::id(text_of(object, name).unwrap_or_default()).map_err(|why| format!("{name} {why}"))
}

/// `minor` as money, or why not: negative amounts do not occur.
pub(super) fn money(minor: Option<i64>, field: &str, currency: Currency) -> Result<Money, String> {
    let minor = minor
        .filter(|minor| *minor >= 0)
        .ok_or_else(|| format!("{field} is not a whole amount"))?;
    Money::bounded(minor, currency).map_err(|why| format!("{field} is {why}"))
}
