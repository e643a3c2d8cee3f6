//! Where a reader of the feed stands: opaque to it, URL-safe, and worth nothing but the place.
//!
//! A cursor says after what to go on, in which epoch that was given, and up to where retention had removed
//! events then: what was gone already cannot have been missed since.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// One of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Stored events.
    Events,
    /// Order and attention messages.
    Orders,
}

impl Stream {
    /// Its name in the API and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Orders => "orders",
        }
    }
}

/// A stream that does not exist.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the streams are `events` and `orders`")]
pub struct UnknownStream;

impl FromStr for Stream {
    type Err = UnknownStream;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Events, Self::Orders]
            .into_iter()
            .find(|stream| stream.as_str() == text)
            .ok_or(UnknownStream)
    }
}

/// A place between two items. At one position come first the rows stored there, by id, then the replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) position: i64,
    /// The last row passed at this position; of no meaning once `turn` is set.
    pub(super) id: String,
    /// Set when every row at this position is passed: the last replay passed, 0 for none.
    pub(super) turn: Option<i64>,
}

impl Place {
    /// Before everything.
    pub(super) const START: Self = Self {
        position: 0,
        id: String::new(),
        turn: None,
    };

    /// After the rows at `position`, before any replay there.
    pub(super) fn after_rows(position: i64) -> Self {
        Self {
            position,
            id: String::new(),
            turn: Some(0),
        }
    }

    /// Whether this is beyond [`Self::after_rows`] of `position`.
    pub(super) fn is_beyond(&self, position: i64) -> bool {
        self.position > position || self.position == position && self.turn > Some(0)
    }

    /// The one of the two that has passed more.
    pub(super) fn or_later(self, other: Self) -> Self {
        if self.passed() < other.passed() {
            other
        } else {
            self
        }
    }

    fn passed(&self) -> (i64, Option<i64>, &str) {
        (self.position, self.turn, &self.id)
    }

    /// The rows still to come are above this pair.
    pub(super) fn rows_above(&self) -> (i64, &str) {
        match self.turn {
            Some(_) => (self.position.saturating_add(1), ""),
            None => (self.position, &self.id),
        }
    }

    /// The replays still to come are above this pair.
    pub(super) fn replays_above(&self) -> (i64, i64) {
        (self.position, self.turn.unwrap_or(0))
    }
}

/// What a reader hands back to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(super) stream: Stream,
    pub(super) epoch: i64,
    pub(super) purged: i64,
    pub(super) place: Place,
}

impl Cursor {
    /// The stream that it belongs to.
    pub fn stream(&self) -> Stream {
        self.stream
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream,
            epoch,
            purged,
            place,
        } = self;
        let turn = place.turn.map(|turn| turn.to_string()).unwrap_or_default();
        let text = format!(
            "{}:{epoch}:{purged}:{}:{turn}:{}",
            stream.as_str(),
            place.position,
            place.id
        );
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(text))
    }
}

/// Text that is no cursor.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not a cursor of the feed")]
pub struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text).ok_or(NoCursor)
    }
}

fn read(text: &str) -> Option<Cursor> {
    let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let mut parts = text.splitn(6, ':');
    let stream = parts.next()?.parse().ok()?;
    let mut number = || -> Option<i64> { parts.next()?.parse().ok().filter(|number| *number >= 0) };
    let (epoch, purged, position) = (number()?, number()?, number()?);
    let turn = match parts.next()? {
        "" => None,
        turn => Some(turn.parse().ok()?),
    };
    // No id holds NUL, and Postgres takes none.
    let id = parts.next().filter(|id| !id.contains('\0'))?.to_owned();
    Some(Cursor {
        stream,
        epoch,
        purged,
        place: Place { position, id, turn },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back_and_needs_no_escape(
            epoch in 0..i64::MAX, position in 0..i64::MAX, turn in prop::option::of(0..9_i64), id in "[^\0]{0,40}",
        ) {
            for stream in [Stream::Events, Stream::Orders] {
                let place = Place { position, id: id.clone(), turn };
                let cursor = Cursor { stream, epoch, purged: 7, place };
                let text = cursor.to_string();
                prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
                prop_assert_eq!(text.parse::<Cursor>().unwrap(), cursor);
            }
        }

        #[test]
        fn any_text_is_a_cursor_or_none(text in ".{0,60}") {
            drop(text.parse::<Cursor>());
        }
    }

    #[test]
    fn forged_numbers_and_nul_are_refused() {
        for text in [
            "events:0:0:-1::",
            "events:0:0:1::a\0b",
            "events:0:0:1:",
            "facts:0:0:1::",
            "events:0:0:99999999999999999999::",
        ] {
            let cursor = BASE64_URL_SAFE_NO_PAD.encode(text);
            assert!(cursor.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
