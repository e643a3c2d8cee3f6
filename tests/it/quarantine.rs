//! The quarantine stays within its bounds, and no sender drives out another's evidence.

use bytes::Bytes;
use payhook::event::ProviderName;
use payhook::store::known_senders::KnownSender;
use payhook::store::quarantine::{BYTES, ITEMS, Quarantined};
use payhook::time::Timestamp;

use crate::support::events::ARRIVAL;
use crate::support::store::{FreshStore, on_both_stores};

/// `count` refusals of `bytes` each from `sender`, the n-th received `from + n` milliseconds on.
fn refusals(sender: &str, from: i64, count: i64, bytes: usize) -> Vec<Quarantined> {
    (from..from + count)
        .map(|n| Quarantined {
            provider: ProviderName::Stripe,
            account: "shop".to_owned(),
            merchant: "default".to_owned(),
            reason: "bad_signature",
            detail: "no key fits".to_owned(),
            path: String::new(),
            headers: "[]".to_owned(),
            // With the headers `bytes` in all.
            body: Bytes::from(vec![b'x'; bytes.saturating_sub(2)]),
            received_at: Timestamp::from_micros(ARRIVAL + n * 1000),
            remote_addr: None,
            sender: sender.to_owned(),
        })
        .collect()
}

async fn kept(fresh: &FreshStore, sender: &str) -> i64 {
    fresh
        .number(&format!(
            "select count(*) from quarantine where sender = '{sender}'"
        ))
        .await
}

on_both_stores! {
    async fn one_sender_has_a_tenth_and_keeps_its_newest(fresh) {
        fresh.store.quarantine(&refusals("quiet", 0, 2, 10)).await.unwrap();
        for round in 0..6 {
            fresh.store.quarantine(&refusals("flood", 10 + round * 200, 200, 10)).await.unwrap();
        }
        assert_eq!(kept(&fresh, "flood").await, ITEMS / 10);
        assert_eq!(kept(&fresh, "quiet").await, 2);
        let oldest = "select as_micros(min(received_at)) from quarantine where sender = 'flood'";
        assert_eq!(fresh.number(oldest).await, ARRIVAL + (10 + 200) * 1000);
    }

    async fn one_sender_has_a_tenth_of_the_bytes(fresh) {
        fresh.store.quarantine(&refusals("flood", 0, 10, 1 << 20)).await.unwrap();
        assert_eq!(kept(&fresh, "flood").await, 6);
        // One that is larger than the share alone is kept all the same: it is the newest.
        fresh.store.quarantine(&refusals("flood", 20, 1, 7 << 20)).await.unwrap();
        assert_eq!(kept(&fresh, "flood").await, 1);
    }

    async fn a_full_account_lets_go_of_its_largest_sender_first(fresh) {
        for sender in 0..12 {
            fresh.store.quarantine(&refusals(&format!("s{sender}"), sender * 10, 6, 1 << 20)).await.unwrap();
        }
        let bytes = fresh.number("select cast(sum(bytes) as bigint) from quarantine").await;
        assert!(bytes <= BYTES && bytes > BYTES - (1 << 20), "{bytes}");
        // Nobody lost more than the largest had to give.
        for sender in 0..12 {
            assert!(kept(&fresh, &format!("s{sender}")).await >= 5);
        }
        fresh.store.quarantine(&refusals("small", 500, 1, 10)).await.unwrap();
        assert_eq!(kept(&fresh, "small").await, 1);
    }

    async fn a_flood_from_many_networks_leaves_half_to_known_senders(fresh) {
        let known = |network: &str, at: i64| KnownSender {
            provider: ProviderName::Stripe,
            account: "shop".to_owned(),
            network: network.to_owned(),
            seen_at: Timestamp::from_micros(at),
        };
        fresh.store.save_known_senders(vec![known("provider", 1)]).await.unwrap();
        fresh.store.quarantine(&refusals("provider", 0, 20, 1 << 20)).await.unwrap();
        for network in 0..20 {
            for part in 0..4 {
                let sender = format!("f{network}-{part}");
                fresh.store.quarantine(&refusals(&sender, 100 + network * 10 + part, 1, 1 << 20)).await.unwrap();
            }
        }
        assert_eq!(kept(&fresh, "provider").await, 20, "all of it");
        assert_eq!(kept(&fresh, "f0-0").await, 0, "the oldest of equals");
        assert_eq!(kept(&fresh, "f19-3").await, 1);

        // More than a tenth, and in the end its half.
        fresh.store.quarantine(&refusals("provider", 1000, 60, 1 << 20)).await.unwrap();
        let half = BYTES / 2 / (1 << 20);
        assert_eq!(kept(&fresh, "provider").await, half);
        let all = "select count(*) from quarantine";
        assert_eq!(fresh.number(all).await, 2 * half);

        let more = (0..100).map(|n| known(&format!("n{n}"), 10 + n)).collect();
        fresh.store.save_known_senders(more).await.unwrap();
        let left = fresh.store.known_senders().await.unwrap();
        assert_eq!(left.len(), 64);
        assert!(left.iter().all(|sender| sender.seen_at >= Timestamp::from_micros(46)), "{left:?}");
    }

    async fn accounts_do_not_share_their_room(fresh) {
        let mut other = refusals("s", 0, 1, 10);
        "other".clone_into(&mut other[0].account);
        fresh.store.quarantine(&other).await.unwrap();
        for round in 0..6 {
            fresh.store.quarantine(&refusals("s", round * 200, 200, 10)).await.unwrap();
        }
        assert_eq!(fresh.number("select count(*) from quarantine where account = 'other'").await, 1);
    }
}
