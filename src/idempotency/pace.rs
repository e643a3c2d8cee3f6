//! How fast one caller may create keys: a token bucket in memory, per process.
//!
//! It bounds the table, not the work: a replay of a known key costs nothing here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Callers remembered at most; beyond it those at rest are forgotten.
const REMEMBERED: usize = 10_000;

/// One bucket per caller.
#[derive(Debug)]
pub(super) struct Pace {
    per_second: u32,
    burst: u32,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// Thousandths of a key.
    level: u64,
    at: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        Self {
            per_second: per_second.max(1),
            burst: burst.max(1),
            buckets: Mutex::default(),
        }
    }

    /// Takes one key for `caller`, or says how long to wait for the next.
    pub(super) fn take(&self, caller: &str, now: Instant) -> Result<(), Duration> {
        let full = u64::from(self.burst).saturating_mul(1000);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= REMEMBERED && !buckets.contains_key(caller) {
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < Duration::from_mins(1));
        }
        let bucket = buckets
            .entry(caller.to_owned())
            .or_insert(Bucket { level: full, at: now });
        let waited = u64::try_from(now.saturating_duration_since(bucket.at).as_millis()).unwrap_or(u64::MAX);
        bucket.level = bucket
            .level
            .saturating_add(waited.saturating_mul(u64::from(self.per_second)))
            .min(full);
        // Only by what was credited: a caller who asks every few microseconds would never earn anything.
        bucket.at = bucket
            .at
            .checked_add(Duration::from_millis(waited))
            .unwrap_or(now);
        match bucket.level.checked_sub(1000) {
            Some(rest) => {
                bucket.level = rest;
                Ok(())
            }
            None => Err(Duration::from_millis(
                1000_u64
                    .saturating_sub(bucket.level)
                    .div_ceil(u64::from(self.per_second))
                    .max(1),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let pace = Pace::new(10, 2);
        let start = Instant::now();
        assert!(pace.take("a", start).is_ok());
        assert!(pace.take("a", start).is_ok());
        assert_eq!(pace.take("a", start), Err(Duration::from_millis(100)));
        assert!(pace.take("b", start).is_ok(), "callers do not share");
        assert!(pace.take("a", start + Duration::from_millis(100)).is_ok());
        assert!(pace.take("a", start + Duration::from_millis(100)).is_err());
        let asked = (0..200_000).filter(|n| {
            pace.take(
                "a",
                start + Duration::from_millis(100) + Duration::from_micros(n * 10),
            )
            .is_ok()
        });
        assert_eq!(
            asked.count(),
            19,
            "two seconds at ten a second, however often it is asked"
        );
    }
}
