//! The body of a message that payhook writes about its own objects: an order's new version, an attention item.
//!
//! The same CloudEvents envelope as an event's, around any data. Stored as it is sent: the relay, the feed and
//! a replay read these very bytes back.

use serde::Serialize;

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
