//! The pace of a replay: at most so many in a second, in few small pages rather than many tiny ones.

use std::time::Duration;

use tokio::time::Instant;

/// What was not used of it is saved up so long.
const SAVED: Duration = Duration::from_secs(1);

/// How many the pace allows since it was last used up; what was not used in a second is not saved up.
pub(super) fn allowance(per_second: u32, moved: Instant, now: Instant) -> u32 {
    let millis =
        u64::try_from(now.saturating_duration_since(moved).min(SAVED).as_millis()).unwrap_or_default();
    let allowed = u64::from(per_second).saturating_mul(millis).div_euclid(1000);
    u32::try_from(allowed).unwrap_or(u32::MAX)
}

/// Up to when the pace has been used, if `sent` more are.
pub(super) fn used(moved: Instant, per_second: u32, sent: u64, now: Instant) -> Instant {
    let earliest = now.checked_sub(SAVED).unwrap_or(moved);
    let micros = sent
        .saturating_mul(1_000_000)
        .div_euclid(u64::from(per_second.max(1)));
    moved.max(earliest) + Duration::from_micros(micros)
}

/// What is worth a page: what a `tick` allows, or the whole of one.
pub(super) fn at_once(per_second: u32, tick: Duration, page: u32) -> u32 {
    let millis = u32::try_from(tick.as_millis()).unwrap_or(u32::MAX);
    per_second.saturating_mul(millis).div_euclid(1000).clamp(1, page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_uses_up_its_part_of_the_time() {
        let (start, later) = (Instant::now(), Duration::from_mins(1));
        let now = start + Duration::from_millis(300);
        assert_eq!(allowance(1000, start, now), 300);
        let moved = used(start, 1000, 250, now);
        assert_eq!(allowance(1000, moved, now), 50);
        assert_eq!(
            allowance(1000, moved, now + later),
            1000,
            "a second's worth is saved up"
        );
        let moved = used(moved, 1000, 1000, now + later);
        assert_eq!(allowance(1000, moved, now + later), 0);
        let tick = Duration::from_millis(100);
        assert_eq!(
            [1, 200, 10_000].map(|rate| at_once(rate, tick, 250)),
            [1, 20, 250]
        );
    }
}
