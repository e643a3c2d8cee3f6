//! The body of a message that payhook writes about its own objects: an order's new version, an attention item.
//!
//! The same CloudEvents envelope as an event's, around any data. Stored as it is sent: the relay, the feed and
//! a replay read these very bytes back.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::Replay;
use crate::time::Timestamp;

/// A CloudEvents 1.0 envelope around `data`.
#[derive(Debug, Serialize)]
pub struct Announcement<'a, T> {
    specversion: &'static str,
    id: &'a str,
    source: String,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    time: Timestamp,
    datacontenttype: &'static str,
    data: &'a T,
}

impl<'a, T: Serialize> Announcement<'a, T> {
    /// `kind` is the routing key too; `noun` (`orders`, `attention`) and the merchant make the source.
    pub fn new(
        id: &'a str,
        (noun, merchant): (&str, &str),
        kind: &'a str,
        subject: Option<&'a str>,
        time: Timestamp,
        data: &'a T,
    ) -> Self {
        Self {
            specversion: "1.0",
            id,
            source: format!("/{noun}/{merchant}"),
            kind,
            subject,
            time,
            datacontenttype: "application/json",
            data,
        }
    }

    /// The JSON bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

/// A stored announcement as a replay sends it: the same, with `data.replay`. `None` if `body` is not one.
pub fn replayed(body: &[u8], replay: &Replay) -> Option<Vec<u8>> {
    // Every value stays the text it was.
    let mut envelope: BTreeMap<&str, Box<RawValue>> = serde_json::from_slice(body).ok()?;
    let mut data: BTreeMap<&str, Box<RawValue>> = serde_json::from_str(envelope.get("data")?.get()).ok()?;
    data.insert("replay", to_raw_value(replay).ok()?);
    let data = to_raw_value(&data).ok()?;
    envelope.insert("data", data);
    serde_json::to_vec(&envelope).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_told_in_the_data_and_changes_nothing_else() {
        let body = br#"{"id":"m/o/1","data":{"order_id":"o","paid":9007199254740993}}"#;
        let replay = Replay {
            id: "r1".to_owned(),
            reason: "lost".to_owned(),
        };
        let again = replayed(body, &replay).unwrap();
        let expected = r#"{"data":{"order_id":"o","paid":9007199254740993,"replay":{"id":"r1","reason":"lost"}},"id":"m/o/1"}"#;
        assert_eq!(String::from_utf8(again).unwrap(), expected);
        assert_eq!(replayed(b"[]", &replay), None);
    }
}
