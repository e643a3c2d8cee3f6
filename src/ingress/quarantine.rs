//! Refused notifications on their way into the quarantine: kept as far as there is room, shed first.
//!
//! Nobody waits for this and no ack depends on it. A bounded queue takes what comes, one task writes what has
//! gathered, a few items at a time with a pause after each, so that a flood of forgeries has a small part of the
//! store's time whatever the machine. The room is shared by sender ([`Room`]): a flood does not crowd out what
//! somebody else is refused. What finds no room is only counted and logged.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::room::{Place, Room};
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
    queue: mpsc::Sender<(Quarantined, Place)>,
    room: Room,
    unkept: Arc<Restraint>,
}

impl Quarantine {
    /// Starts the writer on `tasks`; it ends when the last clone is dropped and the queue is empty.
    pub fn start(store: Store, tasks: &TaskTracker) -> Self {
        let (queue, kept) = mpsc::channel(ROOM);
        tasks.spawn(write(store, kept));
        Self {
            queue,
            room: Room::new(ROOM, ROOM_BYTES),
            unkept: Arc::new(Restraint::new()),
        }
    }

    /// Keeps a refused notification, if there is room. WeChat's probe is no evidence of anything.
    pub fn keep(&self, account: &Registered, notification: &Notification, refusal: &Refusal) {
        if refusal.reason == Reason::Probe {
            return;
        }
        self.put(Quarantined {
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
            sender: sender(notification.remote_addr),
        });
    }

    /// Keeps a genuine event that the database refuses.
    pub(super) fn keep_event(&self, event: &Event) {
        self.put(Quarantined {
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
            sender: sender(event.remote_addr),
        });
    }

    fn put(&self, item: Quarantined) {
        let (provider, account, reason) = (item.provider, item.account.clone(), item.reason);
        let place = self.room.take(&item.sender, item.bytes());
        let kept = place.is_some_and(|place| self.queue.try_send((item, place)).is_ok());
        if !kept && let Some(withheld) = self.unkept.pass() {
            let withheld = (withheld > 0).then_some(withheld);
            tracing::warn!(%provider, account, reason, withheld, "no room in the quarantine's queue: counted, not kept");
        }
    }
}

async fn write(store: Store, mut queue: mpsc::Receiver<(Quarantined, Place)>) {
    let mut taken = Vec::with_capacity(WRITTEN_AT_ONCE);
    while queue.recv_many(&mut taken, WRITTEN_AT_ONCE).await > 0 {
        let began = Instant::now();
        let (batch, places): (Vec<_>, Vec<_>) = taken.drain(..).unzip();
        if let Err(error) = store.quarantine(&batch).await {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(items = batch.len(), %error, cause, "refused notifications were not kept");
        }
        drop(places);
        if !queue.is_closed() {
            let rest = began.elapsed().saturating_mul(REST);
            tokio::time::sleep(rest.clamp(PAUSE, LONGEST_PAUSE)).await;
        }
    }
}

/// The network a notification came from: whoever floods has more than one address.
fn sender(addr: Option<IpAddr>) -> String {
    match addr.map(|addr| addr.to_canonical()) {
        Some(IpAddr::V4(addr)) => Ipv4Net::new(addr, 24).map(|net| net.trunc().to_string()),
        Some(IpAddr::V6(addr)) => Ipv6Net::new(addr, 48).map(|net| net.trunc().to_string()),
        None => Ok("unknown".to_owned()),
    }
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_networks() {
        let of = |addr: &str| sender(Some(addr.parse().unwrap()));
        assert_eq!(of("192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of("::ffff:192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of("2001:db8:1:2::3"), "2001:db8:1::/48");
        assert_eq!(sender(None), "unknown");
    }
}
