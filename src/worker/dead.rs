//! What the broker itself gave up on: messages that came back a hundred times without an ack.
//!
//! Only a worker that dies over an event, again and again, leads here. An event that has ended in the meantime
//! needs nothing; one that has not is buried; a message that names no event is kept like any such.

use tokio_util::sync::CancellationToken;

use super::applier::Applier;
use super::consume::{Ended, PAUSE, bury_unknown, named, pause, settle, wait_for_store};
use crate::broker::{Delivered, Rabbitmq, Source, Subscription};
use crate::store::StoreError;
use crate::telemetry::causes;

/// Few come, and each is a transaction.
const PREFETCH: u16 = 16;

/// Consumes the dead-letter queue until `shutdown`.
pub(super) async fn run(applier: &Applier, broker: &Rabbitmq, shutdown: &CancellationToken) {
    while wait_for_store(applier, shutdown).await {
        let subscribed = tokio::select! {
            () = shutdown.cancelled() => return,
            subscribed = broker.subscribe(Source::Dead, PREFETCH) => subscribed,
        };
        match subscribed {
            Ok(mut subscription) => {
                let ended = consume(applier, &mut subscription, shutdown).await;
                settle(subscription, ended).await;
            }
            Err(error) => tracing::debug!(%error, "dead letters cannot be consumed"),
        }
        pause(PAUSE, shutdown).await;
    }
}

async fn consume(applier: &Applier, subscription: &mut Subscription, shutdown: &CancellationToken) -> Ended {
    loop {
        let delivered = tokio::select! {
            () = shutdown.cancelled() => return Ended::Shutdown,
            delivered = subscription.next() => delivered,
        };
        let Some(delivered) = delivered else {
            return Ended::Lost;
        };
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
    let event = match known.into_values().next() {
        None => return bury_unknown(&applier.store, delivered).await,
        Some(Err(unreadable)) => {
            let row = unreadable.id.as_str();
            return applier.fail_unreadable(&unreadable, row).await.map(drop);
        }
        Some(Ok(event)) => event,
    };
    let error = "the broker gave up: workers took it again and again and never finished";
    let buried = applier.store.bury_unfinished(&event, error).await?;
    if buried {
        tracing::warn!(event.id = %event.id, "buried: workers never finished it");
        applier.bell.ring();
    }
    Ok(())
}
