//! The only place that knows what time it is.
//!
//! [`Timestamp`] is what the whole program, both databases and every message use: microseconds since
//! 1970 UTC. [`Clock`] is passed to whoever needs "now", so that a test can set it. Provider texts without
//! a zone are read here too ([`parse_local`]), because each of them means a fixed offset.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z. May be negative; never outside what RFC 3339 can print.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-11-29T04:05:07.123456Z")]
pub struct Timestamp(i64);

/// -9999-01-02 … 9999-12-30, what `jiff` can print.
const MIN: i64 = -377_705_023_201_000_000;
const MAX: i64 = 253_402_207_200_000_000;

impl Timestamp {
    /// From microseconds since 1970 UTC; values beyond the printable range are drawn to its edge.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(MIN, MAX))
    }

    /// From whole seconds since 1970 UTC, the form WeChat and Stripe sign.
    pub fn from_secs(secs: i64) -> Self {
        Self::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since 1970 UTC, as stored.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970 UTC, rounded down.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This moment, `by` later.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(by)))
    }

    /// This moment, `by` earlier.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(micros(by)))
    }

    /// Microseconds from `earlier` to this moment; negative if `earlier` is in fact later.
    pub fn micros_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads an RFC 3339 time. A time without an offset is refused: nobody knows what it means.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>()
            .ok()
            .map(|t| Self::from_micros(t.as_microsecond()))
    }
}

/// A duration in whole microseconds, saturating.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Reads a provider's local time by a `strptime` pattern (`%Y-%m-%d %H:%M:%S`, `%Y%m%d%H%M%S`; `%.f` for a
/// fraction) at a fixed offset from UTC in whole hours and minutes (Alipay and WeChat v2: +08:00).
pub fn parse_local(pattern: &str, text: &str, offset_minutes: i32) -> Option<Timestamp> {
    let local = jiff::civil::DateTime::strptime(pattern, text).ok()?;
    let offset = jiff::tz::Offset::from_seconds(offset_minutes.checked_mul(60)?).ok()?;
    let at = offset.to_timestamp(local).ok()?;
    Some(Timestamp::from_micros(at.as_microsecond()))
}

impl Timestamp {
    /// This moment as a provider's local text: the reverse of [`parse_local`]. Empty if the pattern is none.
    pub fn local_text(self, pattern: &str, offset_minutes: i32) -> String {
        let offset = jiff::tz::Offset::from_seconds(offset_minutes.saturating_mul(60))
            .unwrap_or(jiff::tz::Offset::UTC);
        let local = jiff::Timestamp::from_microsecond(self.0).map(|at| offset.to_datetime(at));
        local
            .ok()
            .and_then(|local| jiff::fmt::strtime::format(pattern, local).ok())
            .unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with as many fraction digits as needed: `2026-11-29T04:05:07.123456Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => at.fmt(f),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse_rfc3339(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 time"))
    }
}

/// Where "now" comes from: the system, or a hand that a test moves.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands still at `at` until [`Clock::set`]. Clones share the hand.
    pub fn fixed(at: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicI64::new(at.micros()))))
    }

    /// Moves a fixed clock; no effect on the system's.
    pub fn set(&self, at: Timestamp) {
        if let Some(hand) = &self.0 {
            hand.store(at.micros(), Ordering::SeqCst);
        }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        if let Some(hand) = &self.0 {
            return Timestamp::from_micros(hand.load(Ordering::SeqCst));
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place that reads the clock"
        )]
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(micros(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beijing_time_is_eight_hours_ahead() {
        let at = parse_local("%Y-%m-%d %H:%M:%S", "2024-03-01 10:00:06", 480).unwrap();
        assert_eq!(at.to_string(), "2024-03-01T02:00:06Z");
        assert_eq!(at.local_text("%Y-%m-%d %H:%M:%S", 480), "2024-03-01 10:00:06");
        assert_eq!(Timestamp::parse_rfc3339("2024-03-01T10:00:06+08:00"), Some(at));
    }

    #[test]
    fn out_of_range_times_are_still_printable() {
        for micros in [i64::MIN, i64::MAX] {
            assert!(Timestamp::from_micros(micros).to_string().ends_with('Z'));
        }
    }
}
