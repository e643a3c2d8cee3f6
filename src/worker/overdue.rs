//! Looks now and then for events that have waited too long for their order, and shows them to a human.
//!
//! Every daemon with a worker looks; the attention item is unique, so two that look at once raise it once. One that counts events is closed here, when none of them waits any more.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::applier::Applier;
use crate::store::{StoreError, parked};

/// How often: the deadline is counted in hours.
const EVERY: Duration = Duration::from_secs(30);

/// Until `shutdown`.
pub(super) async fn run(applier: &Applier, shutdown: &CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        match round(applier).await {
            Ok(0) => {}
            Ok(raised) => {
                tracing::warn!(raised, "events have waited too long for their orders");
                applier.bell.ring();
            }
            Err(error) => tracing::warn!(%error, "overdue events could not be looked for"),
        }
    }
}

async fn round(applier: &Applier) -> Result<usize, StoreError> {
    let now = applier.clock.now();
    let mut tx = applier.store.begin().await?;
    let raised = parked::raise_overdue(&mut tx, now.minus(applier.policy.park_deadline), now).await?;
    tx.commit().await?;
    Ok(raised)
}
