//! Reading a body whole, as bytes, under a cap and a time limit.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A sender of something too large may be read on for so long before it hears 413: one that is still writing
/// does not listen, and would see a reset connection instead of the answer.
const READ_ON: usize = 8 * 1024 * 1024;
const READ_ON_FOR: Duration = Duration::from_secs(1);

/// Nearly every notification fits: so much is read of each without taking anybody's place.
const SMALL: usize = 16 * 1024;

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// Over the cap.
    TooLarge,
    /// Too many that are not small are being read.
    NoRoom,
    /// Not all of it came in time.
    TooSlow,
    /// The sender went away, or does not speak HTTP.
    Broken,
}

/// The bytes, exactly as sent. What is not small takes a place of those for `large` ones while it is read: who sends
/// slowly keeps no small one out.
pub(super) async fn read(
    mut body: Body,
    max: usize,
    time: Duration,
    large: &Semaphore,
) -> Result<Bytes, NoBody> {
    let read = tokio::time::timeout(time, async {
        // A notification usually comes in one frame: that one is passed on as it is, without a copy.
        let (mut only, mut joined) = (Bytes::new(), BytesMut::new());
        let mut place = None;
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
            if length > SMALL && place.is_none() {
                place = Some(large.try_acquire().map_err(|_| NoBody::NoRoom)?);
            }
            if read == 0 {
                only = data;
            } else {
                joined.extend_from_slice(&std::mem::take(&mut only));
                joined.extend_from_slice(&data);
            }
        }
        Ok(if joined.is_empty() { only } else { joined.freeze() })
    });
    let read = read.await.unwrap_or(Err(NoBody::TooSlow));
    if read == Err(NoBody::TooLarge) {
        read_on(body).await;
    }
    read
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
