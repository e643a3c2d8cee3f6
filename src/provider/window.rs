//! How far the signed send time may lie from the arrival, where a provider's retries last for a day.
//!
//! Alipay and Antom state no tolerance; Alipay's last resend comes after 24 h 24 m and nobody promises that a
//! resend carries a fresh time. So: 25 hours back, 10 minutes ahead, both limits inclusive, always judged
//! against the arrival. Repetition inside the window is the event key's business, not this one's.

use super::{Reason, Refusal};
use crate::time::Timestamp;

const PAST: i64 = 25 * 3600 * 1_000_000;
const FUTURE: i64 = 10 * 60 * 1_000_000;

/// Refuses a send time that is too far from the arrival.
pub(super) fn check(sent: Timestamp, received: Timestamp) -> Result<(), Refusal> {
    let age = received.micros_since(sent);
    if (-FUTURE..=PAST).contains(&age) {
        return Ok(());
    }
    let seconds = age.unsigned_abs().div_euclid(1_000_000);
    let found = if age > 0 {
        format!("sent {seconds} s before it arrived, 25 h are allowed")
    } else {
        format!("sent {seconds} s after it arrived by this clock, 10 min are allowed")
    };
    Err(Refusal::new(Reason::OutsideWindow, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_belong_to_the_window() {
        let sent = Timestamp::from_secs(1_709_258_406);
        let at = |micros| check(sent, Timestamp::from_micros(sent.micros() + micros)).is_ok();
        assert!(at(0) && at(PAST) && at(-FUTURE));
        assert!(!at(PAST + 1) && !at(-FUTURE - 1));
    }
}
