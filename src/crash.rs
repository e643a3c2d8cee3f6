//! Named places where a test may kill the process: between any two steps that must not depend on each other.
//!
//! Compiled to nothing without the feature `crash-points`. With it, `PAYHOOK_CRASH_AT=recorder.committed` (or
//! `recorder.committed:3`, the third time) ends the process there as `kill -9` would: no destructor, no flush, no
//! goodbye. [`Point::ALL`] is the one table of them; a test kills at each and asserts the promise, not the path.

/// A place between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The batch is written, its commit not yet sent.
    RecorderWritten,
    /// The batch is durable, nobody has been told.
    RecorderCommitted,
    /// The answer is known, not yet sent to the provider.
    IngressBeforeAck,
    /// A row is claimed, nothing sent to the broker.
    RelayClaimed,
    /// Messages are with the broker, their confirms not yet here.
    RelayPublished,
    /// Confirms are here, the outbox does not know.
    RelayConfirmed,
    /// A delivery is taken, nothing written.
    WorkerTaken,
    /// Everything of a delivery is written, the commit not yet sent.
    WorkerWritten,
    /// The order has moved, the delivery is not acked.
    WorkerCommitted,
    /// A key is claimed, its work not begun.
    IdempotencyClaimed,
    /// The work is written, the answer not stored.
    IdempotencyWorked,
    /// Write and answer are in the transaction, its commit not yet sent.
    IdempotencyCompleted,
    /// The commit is done, the caller has heard nothing.
    IdempotencyCommitted,
}

impl Point {
    /// Every point with its name.
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::RecorderWritten, "recorder.written"),
        (Self::RecorderCommitted, "recorder.committed"),
        (Self::IngressBeforeAck, "ingress.before_ack"),
        (Self::RelayClaimed, "relay.claimed"),
        (Self::RelayPublished, "relay.published"),
        (Self::RelayConfirmed, "relay.confirmed"),
        (Self::WorkerTaken, "worker.taken"),
        (Self::WorkerWritten, "worker.written"),
        (Self::WorkerCommitted, "worker.committed"),
        (Self::IdempotencyClaimed, "idempotency.claimed"),
        (Self::IdempotencyWorked, "idempotency.worked"),
        (Self::IdempotencyCompleted, "idempotency.completed"),
        (Self::IdempotencyCommitted, "idempotency.committed"),
    ];
}

/// Ends the process here if a test asked for it.
#[cfg(not(feature = "crash-points"))]
#[inline]
pub fn point(_: Point) {}

/// Ends the process here if a test asked for it.
#[cfg(feature = "crash-points")]
pub fn point(point: Point) {
    armed::pass(point);
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Point;
    use crate::config::Environment;

    /// The point and how often it may still be passed.
    static ARMED: LazyLock<Option<(Point, AtomicU32)>> = LazyLock::new(|| {
        let environment = Environment::of_process();
        let wanted = environment.get("PAYHOOK_CRASH_AT")?;
        let (name, times) = wanted.split_once(':').unwrap_or((wanted, "1"));
        let (point, _) = Point::ALL.into_iter().find(|(_, known)| *known == name)?;
        Some((point, AtomicU32::new(times.parse().ok()?)))
    });

    pub(super) fn pass(point: Point) {
        if let Some((armed, left)) = ARMED.as_ref()
            && *armed == point
            && left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            std::process::abort();
        }
    }
}
