//! Events are stored once, whole, with their outbox row; what comes again is noted, what conflicts is kept (I1
//! to I4, I8).

use std::sync::Arc;

use bytes::Bytes;
use payhook::event::{Event, EventId, EventKey, Fingerprint, OrderPart, ProviderName};
use payhook::store::{EventFilter, Recorded, StoreError, Tx};
use payhook::time::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use crate::support::events::{ARRIVAL, event, events};
use crate::support::listener::record;
use crate::support::rabbit::until;
use crate::support::store::{FreshStore, on_both_stores};

const HANDED_OFF: Option<&str> = Some("daemon-1");

async fn counts(fresh: &FreshStore) -> [i64; 4] {
    let mut counts = [0; 4];
    let tables = ["events", "outbox", "deliveries", "event_conflicts"];
    for (count, table) in std::iter::zip(&mut counts, tables) {
        *count = fresh.number(&format!("select count(*) from {table}")).await;
    }
    counts
}

fn again(event: &Event) -> Arc<Event> {
    let mut again = event.clone();
    again.id = EventId::new(event.received_at);
    Arc::new(again)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

on_both_stores! {
    async fn an_event_comes_back_as_it_went_in(fresh) {
        let mut odd = event("1", b"\x00\xff\xfe{\"a\":\"\\u0000\"}\r\n\x80");
        odd.subject = Some("测试\u{10ffff}\u{202e}".to_owned());
        odd.order_id = None;
        odd.amount = None;
        odd.content = Some(Bytes::from_static(br#"{"name":"\u0000\ud800"}"#));
        odd.remote_addr = Some("2001:db8::7".parse().unwrap());
        odd.fingerprint = Fingerprint::versioned([b"a".as_slice()], b"v", b"c");
        odd.orders = vec![OrderPart {
            order_id: "o1".to_owned(),
            trade_id: None,
            amount: event("2", b"").amount,
        }];
        let odd = Arc::new(odd);
        assert_eq!(record(&fresh.store, &[Arc::clone(&odd)]).await, [Recorded::Fresh]);
        let by_id = fresh.store.event(&odd.id).await.unwrap().unwrap();
        let by_key = fresh.store.event_by_key(&odd.key).await.unwrap().unwrap();
        let many = fresh.store.events_by_id(&[odd.id.clone(), EventId::from_text("none")]).await.unwrap();
        assert_eq!(many.len(), 1);
        for back in [&by_id, &by_key, many[0].as_ref().unwrap()] {
            assert_eq!(back.body, odd.body);
            assert_eq!(back.content, odd.content);
            assert_eq!(back.fingerprint, odd.fingerprint);
            assert_eq!((&back.id, &back.key, &back.subject), (&odd.id, &odd.key, &odd.subject));
            assert_eq!((&back.orders, back.amount, back.remote_addr), (&odd.orders, odd.amount, odd.remote_addr));
            assert_eq!((back.occurred_at, back.received_at), (odd.occurred_at, odd.received_at));
            assert_eq!(json(&back.headers), json(&odd.headers));
        }
        let raw = fresh.store.event_raw("default", &odd.id).await.unwrap().unwrap();
        assert_eq!((raw.body.as_slice(), json(&raw.headers)), (&odd.body[..], json(&odd.headers)));
        assert_eq!(fresh.store.event_raw("another", &odd.id).await.unwrap(), None);
    }

    /// C30, C31, E14.
    async fn repeats_within_a_batch_and_after_it_are_one_event(fresh) {
        let first = Arc::new(event("1", b"content"));
        let other = Arc::new(event("2", b"content"));
        let batch = [Arc::clone(&other), Arc::clone(&first), again(&first), again(&first)];
        let duplicate = || Recorded::Duplicate { event_id: first.id.clone() };
        let recorded = record(&fresh.store, &batch).await;
        assert_eq!(recorded, [Recorded::Fresh, Recorded::Fresh, duplicate(), duplicate()]);
        let recorded = record(&fresh.store, &[again(&first)]).await;
        assert_eq!(recorded, [duplicate()]);
        assert_eq!(counts(&fresh).await, [2, 2, 3, 0]);
    }

    async fn a_conflict_is_kept_and_told_once(fresh) {
        let first = Arc::new(event("1", b"content"));
        let forged = Arc::new(event("1", b"other content"));
        let third = Arc::new(event("1", b"third content"));
        let conflict = || Recorded::Conflict { event_id: first.id.clone() };
        let batch = [Arc::clone(&first), Arc::clone(&forged)];
        assert_eq!(record(&fresh.store, &batch).await, [Recorded::Fresh, conflict()]);
        let batch = [again(&forged), third, again(&first)];
        let recorded = record(&fresh.store, &batch).await;
        assert_eq!(recorded, [conflict(), conflict(), Recorded::Duplicate { event_id: first.id.clone() }]);
        // Nothing but the first is published: one row for the event, one for the attention message.
        assert_eq!(counts(&fresh).await, [1, 2, 1, 2]);
        assert_eq!(fresh.texts("select code from attention").await, ["event_conflict"]);
        assert_eq!(fresh.texts("select routing_key from messages").await, ["attention.event_conflict"]);
        let kept = fresh.store.event(&first.id).await.unwrap().unwrap();
        assert_eq!(kept.body, first.body);
    }

    async fn content_is_compared_within_its_version_only(fresh) {
        let mut old = event("1", b"old shape");
        old.fingerprint = Fingerprint::versioned([b"same".as_slice()], b"2024-01-01", b"old shape");
        let mut new = event("1", b"new shape");
        new.fingerprint = Fingerprint::versioned([b"same".as_slice()], b"2026-01-01", b"new shape");
        let old = Arc::new(old);
        record(&fresh.store, &[Arc::clone(&old)]).await;
        let recorded = record(&fresh.store, &[Arc::new(new)]).await;
        assert_eq!(recorded, [Recorded::Duplicate { event_id: old.id.clone() }]);
    }

    async fn an_outbox_row_is_born_due_or_claimed(fresh) {
        let batch = events(2);
        fresh.store.insert_fresh(&batch[..1], None).await.unwrap();
        fresh.store.insert_fresh(&batch[1..], HANDED_OFF).await.unwrap();
        let row = |id: &EventId, condition: &str| format!(
            "select count(*) from outbox where id = '{id}' and event_id = id and kind = 'event' and {condition}");
        let due = row(&batch[0].id, "due_at = created_at and claimed_by is null");
        assert_eq!(fresh.number(&due).await, 1);
        let claimed = row(&batch[1].id, "due_at = created_at + span(15000000) and claimed_by = 'daemon-1'");
        assert_eq!(fresh.number(&claimed).await, 1);
    }

    async fn about_a_hundred_deliveries_are_noted(fresh) {
        let first = Arc::new(event("1", b"content"));
        record(&fresh.store, &[Arc::clone(&first)]).await;
        for _ in 0..5 {
            let batch: Vec<_> = (0..40).map(|_| again(&first)).collect();
            record(&fresh.store, &batch).await;
        }
        let [_, _, deliveries, _] = counts(&fresh).await;
        assert!((100..140).contains(&deliveries), "{deliveries}");
    }

    async fn a_batch_with_a_culprit_leaves_nothing(fresh) {
        let mut batch = events(3);
        let mut culprit = event("4", b"content");
        culprit.key = EventKey::from_text("x".repeat(201));
        batch.push(Arc::new(culprit));
        let refused = fresh.store.insert_fresh(&batch, None).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        assert_eq!(counts(&fresh).await, [0; 4]);
        batch.pop();
        assert_eq!(fresh.store.insert_fresh(&batch, None).await.unwrap(), [true; 3]);
    }

    async fn daemons_with_overlapping_batches_store_each_key_once(fresh) {
        let all = events(60);
        let mut daemons = tokio::task::JoinSet::new();
        for daemon in 0..4 {
            let store = fresh.store.clone();
            let mut mine: Vec<_> = all.iter().map(|event| again(event)).collect();
            if daemon % 2 == 1 {
                mine.reverse();
            }
            daemons.spawn(async move {
                let mut fresh = 0;
                for batch in mine.chunks(20) {
                    let recorded = record(&store, batch).await;
                    fresh += recorded.iter().filter(|recorded| **recorded == Recorded::Fresh).count();
                }
                fresh
            });
        }
        let fresh_ones: usize = daemons.join_all().await.into_iter().sum();
        assert_eq!(fresh_ones, 60);
        assert_eq!(counts(&fresh).await, [60, 60, 180, 0]);
    }

    async fn daemons_with_overlapping_conflicts_keep_each_once(fresh) {
        let all = events(40);
        fresh.store.insert_fresh(&all, None).await.unwrap();
        let mut daemons = tokio::task::JoinSet::new();
        for daemon in 0..4 {
            let store = fresh.store.clone();
            let mut mine: Vec<_> = (1..=40).map(|n| Arc::new(event(&n.to_string(), b"other content"))).collect();
            if daemon % 2 == 1 {
                mine.reverse();
            }
            daemons.spawn(async move { record(&store, &mine).await });
        }
        for recorded in daemons.join_all().await {
            assert!(recorded.iter().all(|recorded| matches!(recorded, Recorded::Conflict { .. })));
        }
        assert_eq!(fresh.number("select count(*) from event_conflicts").await, 40);
        assert_eq!(fresh.number("select count(*) from attention where code = 'event_conflict'").await, 40);
    }

    async fn the_largest_batch_is_taken(fresh) {
        let batch = events(payhook::store::events::BATCH_ROWS);
        assert!(fresh.store.insert_fresh(&batch, HANDED_OFF).await.unwrap().into_iter().all(|fresh| fresh));
        assert_eq!(counts(&fresh).await[..2], [256, 256]);
    }

    async fn events_are_listed_newest_first_by_what_is_asked(fresh) {
        let mut batch = Vec::new();
        for (n, provider) in ProviderName::ALL.into_iter().enumerate() {
            let mut one = event(&n.to_string(), b"content");
            one.received_at = Timestamp::from_micros(ARRIVAL + i64::try_from(n).unwrap() * 1_000_000);
            one.id = EventId::new(one.received_at);
            one.provider = provider;
            one.key = EventKey::new(provider, "shop", Some(&n.to_string()), &one.fingerprint);
            batch.push(Arc::new(one));
        }
        let mut foreign = event("f", b"content");
        "another".clone_into(&mut foreign.merchant);
        batch.push(Arc::new(foreign));
        record(&fresh.store, &batch).await;
        record(&fresh.store, &[again(&batch[1])]).await;
        fresh.by_hand(&format!(
            "insert into event_outcomes values ('{}', 'applied', 'because', 1)", batch[1].id)).await.unwrap();
        fresh.by_hand(&format!(
            "insert into event_orders values ('{}', 'default', 'linked')", batch[2].id)).await.unwrap();
        let all = EventFilter { merchant: "default".to_owned(), ..EventFilter::default() };
        let ids = async |filter: EventFilter| -> Vec<usize> {
            let found = fresh.store.events(&filter, None, 50).await.unwrap();
            found.iter().map(|view| batch.iter().position(|event| event.id == view.id).unwrap()).collect()
        };
        assert_eq!(ids(all.clone()).await, [4, 3, 2, 1, 0]);
        let some = |text: &str| Some(text.to_owned());
        let second = ARRIVAL + 1_000_000;
        for (filter, expected) in [
            (EventFilter { provider: Some(ProviderName::Stripe), ..all.clone() }, vec![2]),
            (EventFilter { account: some("other"), ..all.clone() }, vec![]),
            (EventFilter { kind: some("payment.succeeded"), ..all.clone() }, vec![4, 3, 2, 1, 0]),
            (EventFilter { order_id: some("order-3"), ..all.clone() }, vec![3]),
            (EventFilter { order_id: some("linked"), ..all.clone() }, vec![2]),
            (EventFilter { trade_id: some("trade-4"), ..all.clone() }, vec![4]),
            (EventFilter { event_key: Some(batch[0].key.to_string()), ..all.clone() }, vec![0]),
            (EventFilter { outcome: some("applied"), ..all.clone() }, vec![1]),
            (EventFilter { since: Some(Timestamp::from_micros(second)), ..all.clone() }, vec![4, 3, 2, 1]),
            (EventFilter { until: Some(Timestamp::from_micros(second)), ..all.clone() }, vec![0]),
            (EventFilter { merchant: "another".to_owned(), ..EventFilter::default() }, vec![5]),
        ] {
            assert_eq!(ids(filter.clone()).await, expected, "{filter:?}");
        }
        let page = fresh.store.events(&all, Some(&batch[3].id), 2).await.unwrap();
        assert_eq!(page.iter().map(|view| &view.id).collect::<Vec<_>>(), [&batch[2].id, &batch[1].id]);
        let view = fresh.store.event_view("default", &batch[1].id).await.unwrap().unwrap();
        assert_eq!((view.outcome.as_deref(), view.outcome_reason.as_deref(), view.duplicates),
            (Some("applied"), Some("because"), 1));
        assert_eq!(view.amount, batch[1].amount);
        assert!(fresh.store.event_view("another", &batch[1].id).await.unwrap().is_none());
    }

    async fn any_sequence_of_deliveries_stores_exactly_the_distinct_keys(fresh) {
        // One store for all cases: each has keys of its own.
        let batches = prop::collection::vec(prop::collection::vec((0..6_u8, 0..3_u8), 1..12), 1..5);
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for case in 0..24 {
            let tree = batches.new_tree(&mut runner).unwrap();
            let mut firsts = std::collections::BTreeMap::new();
            for batch in tree.current() {
                let batch: Vec<_> = batch.iter()
                    .map(|(key, content)| Arc::new(event(&format!("{case}-{key}"), &[*content])))
                    .collect();
                let recorded = record(&fresh.store, &batch).await;
                for (event, recorded) in std::iter::zip(&batch, recorded) {
                    let first = firsts.entry(event.key.clone()).or_insert_with(|| Arc::clone(event));
                    let expected = if first.id == event.id {
                        Recorded::Fresh
                    } else if first.fingerprint == event.fingerprint {
                        Recorded::Duplicate { event_id: first.id.clone() }
                    } else {
                        Recorded::Conflict { event_id: first.id.clone() }
                    };
                    assert_eq!(recorded, expected);
                }
            }
            let stored = fresh.number(&format!("select count(*) from events where event_key like '%:{case}-%'")).await;
            assert_eq!(stored, i64::try_from(firsts.len()).unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_that_keep_several_contents_of_one_event_wait_in_one_order() {
    FreshStore::with_postgres(|fresh| async move {
        let first = Arc::new(event("1", b"content"));
        fresh
            .store
            .insert_fresh(std::slice::from_ref(&first), None)
            .await
            .unwrap();
        let mut contents: Vec<_> = [&b"one"[..], b"two"]
            .map(|content| (first.id.clone(), Arc::new(event("1", content))))
            .to_vec();
        contents.sort_by_key(|(_, event)| event.fingerprint.to_bytes());
        // The other daemon has kept the second one, and has not told a human yet.
        let mut other = fresh.store.begin().await.unwrap();
        let Tx::Postgres(conn) = &mut other else {
            unreachable!()
        };
        sqlx::query(
            "insert into event_conflicts (event_id, fingerprint, received_at, headers, body) \
                values ($1, $2, 1, '[]', '')",
        )
        .bind(first.id.as_str())
        .bind(contents[1].1.fingerprint.to_bytes())
        .execute(&mut **conn)
        .await
        .unwrap();
        let mut keeping = tokio::task::JoinSet::new();
        let store = fresh.store.clone();
        keeping.spawn(async move { store.keep_conflicts(&contents).await });
        until("it waits for the other one", || async {
            fresh
                .number(
                    "select count(*) from pg_stat_activity \
                where datname = current_database() and wait_event_type = 'Lock'",
                )
                .await
                == 1
        })
        .await;
        sqlx::query(
            "insert into attention (id, code, source, merchant, explanation, created_at) \
                values ('a1', 'event_conflict', $1, $2, 'x', 1)",
        )
        .bind(first.id.as_str())
        .bind(&first.merchant)
        .execute(&mut **conn)
        .await
        .unwrap();
        other.commit().await.unwrap();
        keeping.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(fresh.number("select count(*) from event_conflicts").await, 2);
        assert_eq!(fresh.number("select count(*) from attention").await, 1);
    })
    .await;
}
