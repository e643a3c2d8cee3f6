//! Lines that a stranger can cause stay few: a flood of forgeries must not fill the disk with the log of it.
//!
//! Only lines are held back. What they would have told is counted in the metrics and, with room, kept whole.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lines in one second.
const MOST: u64 = 10;

/// At most ten lines in a second.
#[derive(Debug)]
pub struct Restraint {
    began: Instant,
    /// The second that is counted.
    second: AtomicU64,
    asked: AtomicU64,
    withheld: AtomicU64,
}

impl Restraint {
    /// Nothing held back yet.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            second: AtomicU64::default(),
            asked: AtomicU64::default(),
            withheld: AtomicU64::default(),
        }
    }

    /// Whether one more line may be written now: then how many were held back before it. Two threads at the turn
    /// of a second may write a line too many.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(self.began.elapsed())
    }

    fn pass_at(&self, elapsed: Duration) -> Option<u64> {
        let second = elapsed.as_secs();
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.asked.store(0, Ordering::Relaxed);
        }
        if self.asked.fetch_add(1, Ordering::Relaxed) < MOST {
            Some(self.withheld.swap(0, Ordering::Relaxed))
        } else {
            self.withheld.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

impl Default for Restraint {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_and_the_next_says_how_many_are_missing() {
        let restraint = Restraint::new();
        let at = |millis: u64| restraint.pass_at(Duration::from_millis(millis));
        let written = (0..1000).filter_map(at).count();
        assert_eq!(written, 10);
        assert_eq!(at(1000), Some(990));
        assert_eq!(at(1001), Some(0));
        assert_eq!(at(9000), Some(0));
    }
}
