//! What the broker took out of the workers' queue before a worker had done it.
//!
//! Attempts count in the store alone. A message that a policy expired or dropped has used up nothing: its event keeps its
//! outbox row, and the sweep sends it again after its `reapply_after`, which doubles with each publish. Only a message
//! that came back up to the delivery limit is one failed attempt of its event, since workers that stop over it
//! cannot count it themselves. An event that has an outcome needs nothing, and a message that names no event is kept like any such.

use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::applier::Applier;
use super::consume::{Ended, PAUSE, bury_unknown, named, pause, settle, wait_for_store};
use crate::broker::{Death, Delivered, Rabbitmq, Source, Subscription};
use crate::store::StoreError;
use crate::telemetry::causes;
use crate::telemetry::metrics::names;

/// Few come, and each is a transaction.
const PREFETCH: u16 = 16;

/// At most one line in this time tells of them; the metric counts each.
const LINE_EVERY: Duration = Duration::from_mins(1);

/// Consumes the dead-letter queue until `shutdown`.
pub(super) async fn run(applier: &Applier, broker: &Rabbitmq, shutdown: &CancellationToken) {
    let mut notice = Notice::default();
    while wait_for_store(applier, shutdown).await {
        let subscribed = tokio::select! {
            () = shutdown.cancelled() => return,
            subscribed = broker.subscribe(Source::Dead, PREFETCH) => subscribed,
        };
        match subscribed {
            Ok(mut subscription) => {
                let ended = consume(applier, &mut subscription, &mut notice, shutdown).await;
                settle(subscription, ended).await;
            }
            Err(error) => tracing::debug!(%error, "dead letters cannot be consumed"),
        }
        pause(PAUSE, shutdown).await;
    }
}

async fn consume(
    applier: &Applier,
    subscription: &mut Subscription,
    notice: &mut Notice,
    shutdown: &CancellationToken,
) -> Ended {
    loop {
        let delivered = tokio::select! {
            () = shutdown.cancelled() => return Ended::Shutdown,
            delivered = subscription.next() => delivered,
        };
        let Some(delivered) = delivered else {
            return Ended::Lost;
        };
        if !delivered.redelivered {
            notice.take(delivered.death);
        }
        match record(applier, &delivered).await {
            Ok(()) => {}
            Err(error) if error.is_transient() => return Ended::StoreAway { error, at_once: true },
            Err(error) => tracing::error!(
                error = causes(&error),
                "the store refuses what this message asks for"
            ),
        }
        if subscription.ack([delivered.tag]).await.is_err() {
            return Ended::Lost;
        }
    }
}

async fn record(applier: &Applier, delivered: &Delivered) -> Result<(), StoreError> {
    let known = named(&applier.store, std::slice::from_ref(delivered)).await?;
    match known.into_values().next() {
        None => bury_unknown(applier, delivered).await,
        Some(Ok(event)) if delivered.death == Death::DeliveryLimit => {
            let reason = "workers took it again and again and stopped before they could note why";
            applier.crashed(&event, reason).await.map(drop)
        }
        // The sweep has its row; whoever takes it next counts what does not read.
        Some(Ok(_) | Err(_)) => Ok(()),
    }
}

/// What tells the operator.
#[derive(Debug, Default)]
struct Notice {
    written: Option<Instant>,
    withheld: u64,
}

impl Notice {
    fn take(&mut self, death: Death) {
        let reason = death.as_str();
        counter!(names::BROKER_DEAD, "reason" => reason).increment(1);
        if self.written.is_some_and(|at| at.elapsed() < LINE_EVERY) {
            self.withheld += 1;
            return;
        }
        tracing::warn!(
            reason,
            withheld = self.withheld,
            "the broker took a message out of the workers' queue; an event without an outcome is sent again \
             (expired, maxlen: a policy on the queue does this, see `payhook check`)"
        );
        self.written = Some(Instant::now());
        self.withheld = 0;
    }
}
