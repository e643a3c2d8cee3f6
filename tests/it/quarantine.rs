//! The quarantine stays within its bounds, and no sender drives out another's evidence.

use bytes::Bytes;
use payhook::event::ProviderName;
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
            headers: String::new(),
            body: Bytes::from(vec![b'x'; bytes]),
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
        let oldest = "select min(received_at) from quarantine where sender = 'flood'";
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
