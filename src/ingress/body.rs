//! Reading a body whole, as bytes, under a cap and a time limit.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// How much, and for how long, is read and dropped of a body that is not taken: a sender that is still writing would
/// see a reset connection instead of the answer.
const READ_ON: usize = 8 * 1024 * 1024;
const READ_ON_FOR: Duration = Duration::from_secs(1);

/// Up to this a body needs no permit. Nearly every notification fits.
const SMALL: usize = 16 * 1024;

/// The budget of large bodies for each notification that may be in flight: with the defaults 16 MiB, which are sixteen of
/// the largest or four hundred of 40 KiB.
const LARGE_BYTES_PER_PLACE: usize = 32 * 1024;

/// The bytes that all large bodies may have at once, each from its first byte over [`SMALL`] to its answer.
#[derive(Debug)]
pub(super) struct LargeBodies {
    free: Semaphore,
    budget: usize,
}

impl LargeBodies {
    pub(super) fn new(max_in_flight: usize) -> Self {
        let budget = max_in_flight.saturating_mul(LARGE_BYTES_PER_PLACE);
        Self {
            free: Semaphore::new(budget.min(Semaphore::MAX_PERMITS)),
            budget,
        }
    }

    /// A longer one than the whole budget takes all of it.
    fn take(&self, length: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(length.min(self.budget)).unwrap_or(u32::MAX);
        self.free.try_acquire_many(bytes).ok()
    }
}

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// Over the cap.
    TooLarge,
    /// The large bodies in flight have used up their budget.
    NoRoom,
    /// Not all of it came in time.
    TooSlow,
    /// The sender went away, or does not speak HTTP.
    Broken,
}

/// A body, exactly as sent.
pub(super) struct Read<'a> {
    pub(super) bytes: Bytes,
    /// Its part of the budget for large bodies; to be held as long as the bytes.
    pub(super) permit: Option<SemaphorePermit<'a>>,
}

/// Reads a body of at most `max` bytes. A large one takes its whole length from the budget `large` before more than
/// [`SMALL`] is kept of it, so that it never waits half read; small ones need nothing and are never refused for it.
pub(super) async fn read(
    mut body: Body,
    max: usize,
    time: Duration,
    large: &LargeBodies,
) -> Result<Read<'_>, NoBody> {
    let read = tokio::time::timeout(time, read_frames(&mut body, max, large));
    let read = read.await.unwrap_or(Err(NoBody::TooSlow));
    if matches!(read, Err(NoBody::TooLarge | NoBody::NoRoom)) {
        read_on(body).await;
    }
    read
}

async fn read_frames<'a>(body: &mut Body, max: usize, large: &'a LargeBodies) -> Result<Read<'a>, NoBody> {
    // `content-length`; without one it may become as long as the cap.
    let expected = body
        .size_hint()
        .exact()
        .map_or(max, |length| usize::try_from(length).unwrap_or(usize::MAX));
    if expected > max {
        return Err(NoBody::TooLarge);
    }
    // A notification usually comes in one frame: that one is passed on as it is, without a copy.
    let (mut only, mut joined) = (Bytes::new(), BytesMut::new());
    let mut permit = None;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(NoBody::Broken);
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let read = only.len().saturating_add(joined.len());
        let length = read.saturating_add(data.len());
        if length > max {
            return Err(NoBody::TooLarge);
        }
        if length > SMALL && permit.is_none() {
            permit = Some(large.take(expected).ok_or(NoBody::NoRoom)?);
        }
        if read == 0 {
            only = data;
        } else {
            if permit.is_some() {
                joined.reserve(expected.saturating_sub(joined.len()));
            }
            joined.extend_from_slice(&std::mem::take(&mut only));
            joined.extend_from_slice(&data);
        }
    }
    let bytes = if joined.is_empty() { only } else { joined.freeze() };
    Ok(Read { bytes, permit })
}

async fn read_on(mut body: Body) {
    let until = Instant::now() + READ_ON_FOR;
    let mut dropped = 0_usize;
    while dropped < READ_ON {
        match tokio::time::timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                dropped = dropped.saturating_add(frame.data_ref().map_or(1, Bytes::len));
            }
            _ => return,
        }
    }
}
