//! Reading a body whole, as bytes, under a cap and a time limit.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

/// A sender of something too large may be read on for so long before it hears 413: one that is still writing
/// does not listen, and would see a reset connection instead of the answer.
const READ_ON: usize = 8 * 1024 * 1024;
const READ_ON_FOR: Duration = Duration::from_secs(1);

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// Over the cap.
    TooLarge,
    /// Not all of it came in time.
    TooSlow,
    /// The sender went away, or does not speak HTTP.
    Broken,
}

/// The bytes, exactly as sent.
pub(super) async fn read(mut body: Body, max: usize, time: Duration) -> Result<Bytes, NoBody> {
    let read = tokio::time::timeout(time, async {
        // A notification usually comes in one frame: that one is passed on as it is, without a copy.
        let (mut only, mut joined) = (Bytes::new(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Err(NoBody::Broken);
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let length = only.len().saturating_add(joined.len());
            if length.saturating_add(data.len()) > max {
                return Err(NoBody::TooLarge);
            }
            if length == 0 {
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
