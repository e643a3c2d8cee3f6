//! Refused notifications on their way into the quarantine: kept as far as there is room, shed first.
//!
//! Nobody waits for this and no ack depends on it. A bounded queue takes what comes, one task writes what has
//! gathered, a few items at a time with a pause after each, so that a flood of forgeries has a small part of the
//! store's time whatever the machine. Half of the queue is for known senders ([`Senders`]): a flood from elsewhere
//! does not crowd out what a provider is refused. What finds no room is only counted and logged.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::senders::{Senders, network};
use crate::event::text::storable;
use crate::event::{Event, Notification};
use crate::provider::{Reason, Refusal, Registered, kept_headers};
use crate::store::Store;
use crate::store::quarantine::Quarantined;
use crate::telemetry::Restraint;

/// Most items between a refusal and the store.
const ROOM: usize = 1024;

/// Most bytes between a refusal and the store.
const ROOM_BYTES: usize = 16 * 1024 * 1024;

/// What an item takes of them at least, so that there are never more than [`ROOM`].
const LEAST_BYTES: usize = ROOM_BYTES.div_euclid(ROOM);

/// Most items of one write.
const WRITTEN_AT_ONCE: usize = 64;

/// The least between two writes.
const PAUSE: Duration = Duration::from_millis(50);

/// The most, however slow the write was: what is refused meanwhile is evidence, and has only the queue.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often as long as the write took the pause is at least: on SQLite the recorder waits for the same writer.
const REST: u32 = 4;

/// Takes what was refused; clones share the queue.
#[derive(Clone, Debug)]
pub struct Quarantine {
    queue: mpsc::Sender<(Quarantined, OwnedSemaphorePermit)>,
    /// Bytes free for known senders.
    known: Arc<Semaphore>,
    /// Bytes free for all others.
    others: Arc<Semaphore>,
    senders: Senders,
    unkept: Arc<Restraint>,
}

impl Quarantine {
    /// Starts the writer on `tasks`; it ends when the last clone is dropped and the queue is empty.
    pub fn start(store: Store, tasks: &TaskTracker) -> Self {
        let (queue, kept) = mpsc::channel(ROOM);
        tasks.spawn(write(store, kept));
        let half = || Arc::new(Semaphore::new(ROOM_BYTES.div_euclid(2)));
        Self {
            queue,
            known: half(),
            others: half(),
            senders: Senders::default(),
            unkept: Arc::new(Restraint::new()),
        }
    }

    /// The known senders that it goes by; their owner runs [`Senders::run`].
    pub fn senders(&self) -> &Senders {
        &self.senders
    }

    /// Keeps a refused notification, if there is room. WeChat's probe is no evidence of anything.
    pub fn keep(&self, account: &Registered, notification: &Notification, refusal: &Refusal) {
        if refusal.reason == Reason::Probe {
            return;
        }
        let known = self.senders.knows(account, notification.remote_addr);
        let item = Quarantined {
            provider: account.provider,
            account: account.account.clone(),
            merchant: account.merchant.clone(),
            reason: refusal.reason.as_str(),
            detail: storable(&refusal.detail).into_owned(),
            path: notification.path.clone(),
            headers: kept_headers(&notification.headers),
            body: notification.body.clone(),
            received_at: notification.received_at,
            remote_addr: notification.remote_addr.map(|addr| addr.to_string()),
            sender: network(notification.remote_addr),
        };
        self.put(item, if known { &self.known } else { &self.others });
    }

    /// Keeps a genuine event that the database refuses.
    pub(super) fn keep_event(&self, event: &Event) {
        let item = Quarantined {
            provider: event.provider,
            account: event.account.clone(),
            merchant: event.merchant.clone(),
            reason: Reason::Unrecordable.as_str(),
            detail: "the database refuses this event".to_owned(),
            path: format!("/notify/{}/{}", event.provider, event.account),
            headers: event.headers.clone(),
            body: event.body.clone(),
            received_at: event.received_at,
            remote_addr: event.remote_addr.map(|addr| addr.to_string()),
            sender: network(event.remote_addr),
        };
        self.put(item, &self.known);
    }

    fn put(&self, item: Quarantined, room: &Arc<Semaphore>) {
        let (provider, account, reason) = (item.provider, item.account.clone(), item.reason);
        let bytes = u32::try_from(item.bytes().max(LEAST_BYTES)).unwrap_or(u32::MAX);
        let permit = Arc::clone(room).try_acquire_many_owned(bytes);
        let kept = permit.is_ok_and(|permit| self.queue.try_send((item, permit)).is_ok());
        if !kept && let Some(withheld) = self.unkept.pass() {
            let withheld = (withheld > 0).then_some(withheld);
            tracing::warn!(%provider, account, reason, withheld, "no room in the quarantine's queue: counted, not kept");
        }
    }
}

async fn write(store: Store, mut queue: mpsc::Receiver<(Quarantined, OwnedSemaphorePermit)>) {
    let mut taken = Vec::with_capacity(WRITTEN_AT_ONCE);
    while queue.recv_many(&mut taken, WRITTEN_AT_ONCE).await > 0 {
        let began = Instant::now();
        let (batch, permits): (Vec<_>, Vec<_>) = taken.drain(..).unzip();
        if let Err(error) = store.quarantine(&batch).await {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(items = batch.len(), %error, cause, "refused notifications were not kept");
        }
        drop(permits);
        if !queue.is_closed() {
            let rest = began.elapsed().saturating_mul(REST);
            tokio::time::sleep(rest.clamp(PAUSE, LONGEST_PAUSE)).await;
        }
    }
}
