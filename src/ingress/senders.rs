//! Which networks an account's events come from, for the quarantine: what is refused from one of them has a share of
//! its own there.
//!
//! Only an event that was new makes its network known: a copy of a captured notification is a duplicate, whoever sends
//! it. The task behind it saves what was noted, a network that is new within a second, and reads once a minute what
//! other daemons have saved.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::event::ProviderName;
use crate::provider::Registered;
use crate::store::known_senders::KnownSender;
use crate::store::{Store, StoreError};
use crate::time::Timestamp;

/// Between two exchanges with the store.
const EVERY: Duration = Duration::from_mins(1);

/// The least between two, however many networks are new.
const PAUSE: Duration = Duration::from_secs(1);

/// Provider, account and network.
type Sender = (ProviderName, String, String);

/// The known networks; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Senders {
    known: Arc<Mutex<Known>>,
    /// A network that is not stored was noted.
    new: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Known {
    /// As the store had them last.
    stored: HashSet<Sender>,
    /// Seen since the last save, and when.
    noted: HashMap<Sender, Timestamp>,
}

impl Senders {
    /// Notes that a new event of `account` came from `addr`.
    pub(super) fn note(&self, account: &Registered, addr: Option<IpAddr>, at: Timestamp) {
        if addr.is_some() {
            let sender = sender(account, addr);
            self.with(|known| {
                if !known.stored.contains(&sender) {
                    self.new.notify_one();
                }
                let last = known.noted.entry(sender).or_insert(at);
                *last = at.max(*last);
            });
        }
    }

    /// Whether new events of `account` have come from the network of `addr`.
    pub(super) fn knows(&self, account: &Registered, addr: Option<IpAddr>) -> bool {
        let sender = sender(account, addr);
        self.with(|known| known.stored.contains(&sender) || known.noted.contains_key(&sender))
    }

    /// Exchanges what is known with the store until `stop`, and then once more.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        loop {
            if let Err(error) = self.exchange(&store).await {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "known senders not saved, will retry");
            }
            if stop.is_cancelled() {
                return;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(EVERY) => {}
                () = async { tokio::join!(self.new.notified(), tokio::time::sleep(PAUSE)); } => {}
            }
        }
    }

    /// Saves what was noted and reads what others have; what could not be saved stays noted.
    pub async fn exchange(&self, store: &Store) -> Result<(), StoreError> {
        let noted = self.with(|known| known.noted.clone());
        if !noted.is_empty() {
            let senders = noted
                .iter()
                .map(|((provider, account, network), at)| KnownSender {
                    provider: *provider,
                    account: account.clone(),
                    network: network.clone(),
                    seen_at: *at,
                });
            store.save_known_senders(senders.collect()).await?;
        }
        let stored = store.known_senders().await?;
        let stored = stored
            .into_iter()
            .map(|sender| (sender.provider, sender.account, sender.network));
        self.with(|known| {
            known.stored = stored.collect();
            known.noted.retain(|sender, at| noted.get(sender) != Some(at));
        });
        Ok(())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn sender(account: &Registered, addr: Option<IpAddr>) -> Sender {
    (account.provider, account.account.clone(), network(addr))
}

/// Returns the network of `addr`, a /24 or a /48 of IPv6: one sender has more than one address.
pub(super) fn network(addr: Option<IpAddr>) -> String {
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
    fn addresses_of_one_network_are_one_sender() {
        let of = |addr: &str| network(Some(addr.parse().unwrap()));
        assert_eq!(of("192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of("::ffff:192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of("2001:db8:1:2::3"), "2001:db8:1::/48");
        assert_eq!(network(None), "unknown");
    }
}
