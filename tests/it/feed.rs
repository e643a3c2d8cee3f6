//! A reader that follows its cursor misses nothing: whatever writers do at once, and whatever happened to the
//! database in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use payhook::event::{Event, EventId, Replay};
use payhook::store::feed::{
    Begin, Cursor, FeedContent, FeedItem, FeedRead, FeedWatch, Stream, note_replayed_events,
    note_replayed_messages,
};
use payhook::store::messages::{self, NewMessage};
use payhook::store::{Store, StoreOptions, Tx};
use payhook::time::Timestamp;
use rand::RngExt as _;

use crate::support::events::{ARRIVAL, event, events};
use crate::support::store::{FreshStore, on_both_stores, patient};

/// Far above any transaction id that this cluster has given.
const FAR: i64 = 1_000_000_000_000_000;

fn name(item: &FeedItem) -> String {
    let id = match &item.what {
        FeedContent::Event(event) => event.key.as_str().rsplit(':').next().unwrap().to_owned(),
        FeedContent::Message(body) => String::from_utf8(body.clone()).unwrap(),
    };
    match &item.replay {
        Some(replay) => format!("{id}#{}", replay.id),
        None => id,
    }
}

/// Stores each in a commit of its own, so that they have an order.
async fn record_each(fresh: &FreshStore, events: &[Arc<Event>]) {
    for event in events {
        fresh
            .store
            .insert_fresh(std::slice::from_ref(event), None)
            .await
            .unwrap();
    }
}

/// A reader of one stream, following its cursor.
struct Follower {
    store: Store,
    stream: Stream,
    begin: Begin,
    limit: u16,
}

impl Follower {
    fn new(store: &Store, stream: Stream) -> Self {
        Self {
            store: store.clone(),
            stream,
            begin: Begin::Oldest,
            limit: 3,
        }
    }

    async fn look(&mut self) -> Vec<String> {
        match self
            .store
            .feed(self.stream, "default", &self.begin, self.limit)
            .await
            .unwrap()
        {
            FeedRead::Page { items, next } => {
                // Through its text, as a reader keeps it.
                let next: Cursor = next.to_string().parse().unwrap();
                self.begin = Begin::After(next);
                items.iter().map(name).collect()
            }
            FeedRead::Expired => vec!["expired".to_owned()],
        }
    }

    /// Follows until `wanted` was seen. Other tests write to the same cluster, so there may be delay.
    async fn until(&mut self, wanted: &str) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_mins(1);
        let mut seen = Vec::new();
        loop {
            let page = self.look().await;
            let empty = page.is_empty();
            seen.extend(page);
            if seen.iter().any(|item| item == wanted) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{wanted} never came, but {seen:?}");
            if empty {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Inserts an event inside an open transaction.
async fn insert(tx: &mut Tx, id: &str) {
    let event_id = EventId::new(Timestamp::from_micros(ARRIVAL));
    let sql = |blob: &str, at: &str| {
        format!(
            "insert into events (id, event_key, provider, account, merchant, type, provider_event_type,
               occurred_at, received_at, fingerprint, headers, body)
             values ('{event_id}', 'webhook:stripe:shop:{id}', 'stripe', 'shop', 'default', 'other.x', 'x', 1, {at},
               {blob}, '[]', {blob})"
        )
    };
    let hash = "01".repeat(32);
    match tx {
        Tx::Postgres(tx) => {
            sqlx::query(&sql(
                &format!(r"'\x{hash}'::bytea"),
                &format!("micros({ARRIVAL})"),
            ))
            .execute(&mut **tx)
            .await
            .unwrap();
        }
        Tx::Sqlite(tx) => {
            sqlx::query(&sql(&format!("x'{hash}'"), &ARRIVAL.to_string()))
                .execute(&mut **tx)
                .await
                .unwrap();
        }
    }
}

/// One writer: transactions of one to three events, held open for a while, every fifth one rolled back. Gives
/// what it committed.
async fn write_slowly(store: Store, writer: usize) -> BTreeSet<String> {
    let mut committed = BTreeSet::new();
    for round in 0..12 {
        let names: Vec<String> = (0..=round % 3).map(|n| format!("{writer}-{round}-{n}")).collect();
        let mut tx = store.begin().await.unwrap();
        for name in &names {
            insert(&mut tx, name).await;
            // Holding the transaction open is what is tested, not what the test waits for.
            let hold = rand::rng().random_range(0..25);
            tokio::time::sleep(Duration::from_millis(hold)).await;
        }
        if round % 5 == 4 {
            drop(tx);
        } else {
            tx.commit().await.unwrap();
            committed.extend(names);
        }
    }
    committed
}

async fn write_batches(store: Store, writer: usize) -> BTreeSet<String> {
    let mut committed = BTreeSet::new();
    for round in 0..20 {
        let names: Vec<String> = (0..4).map(|n| format!("{writer}-{round}-{n}")).collect();
        let batch: Vec<Arc<Event>> = names.iter().map(|id| Arc::new(event(id, b"content"))).collect();
        store.insert_fresh(&batch, None).await.unwrap();
        committed.extend(names);
    }
    committed
}

on_both_stores! {
    async fn a_reader_misses_nothing_however_many_write(fresh) {
        let first = Store::open(&fresh.url, &patient()).await.unwrap();
        // SQLite has one daemon; Postgres several.
        let second = if fresh.is_postgres() {
            Store::open(&fresh.url, &patient()).await.unwrap()
        } else {
            first.clone()
        };
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..4 {
            writers.spawn(write_slowly(first.clone(), writer));
            writers.spawn(write_slowly(second.clone(), writer + 10));
        }
        writers.spawn(write_batches(first.clone(), 20));
        writers.spawn(write_batches(second.clone(), 21));
        let mut readers = tokio::task::JoinSet::new();
        for limit in [2, 7, 100] {
            let mut reader = Follower { limit, ..Follower::new(&fresh.store, Stream::Events) };
            readers.spawn(async move { reader.until("last").await });
        }
        let mut committed = BTreeSet::new();
        while let Some(names) = writers.join_next().await {
            committed.extend(names.unwrap());
        }
        first.insert_fresh(&[Arc::new(event("last", b"content"))], None).await.unwrap();
        committed.insert("last".to_owned());
        let later = Follower { limit: 500, ..Follower::new(&fresh.store, Stream::Events) }.until("last").await;
        for seen in readers.join_all().await {
            assert_eq!(seen.len(), committed.len());
            assert_eq!(seen.iter().cloned().collect::<BTreeSet<_>>(), committed);
            assert_eq!(seen, later, "the order lasts");
        }
    }

    async fn what_a_replay_sends_appears_again_once(fresh) {
        // A replay sends by id, and ids of one moment have no order.
        let batch: Vec<_> = (1..=3_i64).map(|n| {
            let mut event = event(&n.to_string(), b"content");
            event.id = EventId::new(Timestamp::from_micros(ARRIVAL + n * 1000));
            Arc::new(event)
        }).collect();
        record_each(&fresh, &batch).await;
        let mut reader = Follower::new(&fresh.store, Stream::Events);
        let mut late = Follower::new(&fresh.store, Stream::Events);
        assert_eq!(reader.until("3").await, ["1", "2", "3"]);
        let replay = |id: &str| Replay { id: id.to_owned(), reason: "lost".to_owned() };
        let now = Timestamp::from_micros(ARRIVAL);
        for (id, noted) in [("r1", 2), ("r1", 0), ("r2", 2)] {
            let mut tx = fresh.store.begin().await.unwrap();
            let ids = [batch[0].id.clone(), batch[2].id.clone(), EventId::from_text("unknown")];
            let done = note_replayed_events(&mut tx, &ids, &replay(id), now).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(done, noted, "{id}");
        }
        fresh.store.insert_fresh(&[Arc::new(event("4", b"content"))], None).await.unwrap();
        let again = ["1#r1", "3#r1", "1#r2", "3#r2", "4"];
        assert_eq!(reader.until("4").await, again);
        let all = late.until("4").await;
        assert_eq!((&all[..3], &all[3..]), (["1", "2", "3"].map(str::to_owned).as_slice(), again.map(str::to_owned).as_slice()));
    }

    async fn order_messages_are_a_stream_of_their_own(fresh) {
        let message = |n: usize| NewMessage {
            id: format!("~odd:merchant/o/{n}"),
            merchant: "default".to_owned(),
            order_id: None,
            routing_key: "order.paid".to_owned(),
            body: format!("m{n}").into_bytes(),
        };
        let now = Timestamp::from_micros(ARRIVAL);
        record_each(&fresh, &events(2)).await;
        for pair in [[1, 2], [3, 4]] {
            let mut tx = fresh.store.begin().await.unwrap();
            messages::insert(&mut tx, &pair.map(message), now).await.unwrap();
            tx.commit().await.unwrap();
        }
        let mut reader = Follower::new(&fresh.store, Stream::Orders);
        assert_eq!(reader.until("m4").await, ["m1", "m2", "m3", "m4"]);
        let mut tx = fresh.store.begin().await.unwrap();
        let replay = Replay { id: "r".to_owned(), reason: "lost".to_owned() };
        note_replayed_messages(&mut tx, &["~odd:merchant/o/2"], &replay, now).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(reader.until("m2#r").await, ["m2#r"]);
    }

    async fn a_page_is_cut_where_its_bodies_are_too_much(fresh) {
        let body = vec![b'x'; 1_500_000];
        let big: Vec<_> = (1..=4).map(|n| Arc::new(event(&n.to_string(), &body))).collect();
        record_each(&fresh, &big).await;
        // A write of another test may end the first page sooner. What one reader has seen nothing holds back any more.
        Follower::new(&fresh.store, Stream::Events).until("4").await;
        let mut reader = Follower { limit: 50, ..Follower::new(&fresh.store, Stream::Events) };
        let first = reader.until("1").await;
        assert_eq!(first, ["1", "2"]);
        assert_eq!(reader.until("4").await, ["3", "4"]);
    }

    async fn a_reader_may_begin_with_what_is_yet_to_come(fresh) {
        record_each(&fresh, &events(2)).await;
        Follower::new(&fresh.store, Stream::Events).until("2").await;
        let mut reader = Follower { begin: Begin::End, ..Follower::new(&fresh.store, Stream::Events) };
        assert!(reader.look().await.is_empty());
        fresh.store.insert_fresh(&[Arc::new(event("3", b"content"))], None).await.unwrap();
        assert_eq!(reader.until("3").await, ["3"]);
    }

    async fn a_daemon_that_starts_again_repeats_nothing(fresh) {
        let mut reader = Follower::new(&fresh.store, Stream::Events);
        record_each(&fresh, &events(4)).await;
        reader.until("4").await;
        for id in ["5", "6"] {
            fresh.store.migrate().await.unwrap();
            fresh.store.insert_fresh(&[Arc::new(event(id, b"content"))], None).await.unwrap();
            assert_eq!(reader.until(id).await, [id]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_write_delays_and_loses_nothing() {
    FreshStore::with_postgres(|fresh| async move {
        let at = Timestamp::from_secs;
        let mut watch = FeedWatch::default();
        let mut tx = fresh.store.begin().await.unwrap();
        insert(&mut tx, "slow").await;
        fresh
            .store
            .insert_fresh(&[Arc::new(event("quick", b"content"))], None)
            .await
            .unwrap();
        let mut reader = Follower::new(&fresh.store, Stream::Events);
        assert!(reader.look().await.is_empty());
        // Writes of other tests may be older still: until ours is the oldest, the watch begins anew.
        let deadline = Instant::now() + Duration::from_mins(1);
        let mut second = 0;
        loop {
            watch.step(&fresh.store, at(second)).await.unwrap();
            let held = watch.step(&fresh.store, at(second + 7)).await.unwrap();
            if held >= Duration::from_secs(7) {
                break;
            }
            assert!(Instant::now() < deadline, "the delay was never seen");
            second += 100;
        }
        assert!(reader.look().await.is_empty());
        tx.commit().await.unwrap();
        assert_eq!(reader.until("quick").await, ["slow", "quick"]);
    })
    .await;
}

/// Moves an event to a position that this cluster never gave: what a dump of another one brings.
async fn plant_far(fresh: &FreshStore, id: &str, position: i64) {
    let event_id = EventId::new(Timestamp::from_micros(ARRIVAL));
    let hash = "01".repeat(32);
    fresh
        .by_hand(&format!(
            r"insert into events (id, event_key, provider, account, merchant, type, provider_event_type,
               occurred_at, received_at, fingerprint, headers, body, position)
             values ('{event_id}', 'webhook:stripe:shop:{id}', 'stripe', 'shop', 'default', 'other.x', 'x', 1, 1,
               '\x{hash}'::bytea, '[]', '\x{hash}'::bytea, {position})"
        ))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_restored_into_a_younger_cluster_is_followed_by_what_comes_then() {
    FreshStore::with_postgres(|fresh| async move {
        plant_far(&fresh, "old1", FAR).await;
        plant_far(&fresh, "old2", FAR + 5).await;
        let mut late = Follower::new(&fresh.store, Stream::Events);
        assert!(
            late.look().await.is_empty(),
            "nothing below the cluster's own ids"
        );
        fresh.store.migrate().await.unwrap();
        record_each(&fresh, &events(1)).await;
        assert_eq!(late.until("1").await, ["old1", "old2", "1"]);
        // And once more, into an even younger one: `lost` was read and did not survive.
        plant_far(&fresh, "lost", 3 * FAR).await;
        let epochs = "update feed_epochs set base = base + 4 * 1000000000000000 where epoch > 0";
        fresh.by_hand(epochs).await.unwrap();
        assert_eq!(late.until("lost").await, ["lost"]);
        let undo = "begin; insert into retention_cutoff values (2);
            delete from events where event_key like '%:lost'; delete from retention_cutoff; commit";
        fresh.by_hand(undo).await.unwrap();
        fresh
            .by_hand("update feed_epochs set base = 0, mark = 0 where epoch > 0")
            .await
            .unwrap();
        fresh.store.migrate().await.unwrap();
        fresh
            .store
            .insert_fresh(&[Arc::new(event("2", b"content"))], None)
            .await
            .unwrap();
        assert_eq!(late.until("2").await, ["2"]);
        fresh.store.migrate().await.unwrap();
        let whole = Follower {
            limit: 500,
            ..Follower::new(&fresh.store, Stream::Events)
        }
        .until("2")
        .await;
        assert_eq!(whole, ["old1", "old2", "1", "2"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_daemon_wrote_before_it_noticed_the_restore_is_not_lost() {
    FreshStore::with_postgres(|fresh| async move {
        plant_far(&fresh, "old1", FAR).await;
        fresh
            .by_hand("update feed_epochs set base = 2000000000000000")
            .await
            .unwrap();
        let mut reader = Follower::new(&fresh.store, Stream::Events);
        reader.until("old1").await;
        fresh.by_hand("update feed_epochs set base = 0").await.unwrap();
        // Newer than the one planted, which has the arrival of these tests in its id.
        let mut unnoticed = event("unnoticed", b"content");
        unnoticed.id = EventId::new(Timestamp::from_micros(ARRIVAL + 1_000_000));
        record_each(&fresh, &[Arc::new(unnoticed)]).await;
        fresh.store.migrate().await.unwrap();
        record_each(&fresh, &events(1)).await;
        assert_eq!(reader.until("1").await, ["unnoticed", "old1", "1"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_readers_go_on_from_the_mark() {
    FreshStore::with_postgres(|fresh| async move {
        let mut reader = Follower::new(&fresh.store, Stream::Events);
        record_each(&fresh, &events(1)).await;
        reader.until("1").await;
        fresh.store.migrate().await.unwrap();
        let two = [Arc::new(event("2", b"content"))];
        fresh.store.insert_fresh(&two, None).await.unwrap();
        assert_eq!(reader.until("2").await, ["2"]);
        // Another timeline: 2 may be one of several that were read and are gone.
        fresh
            .by_hand("update feed_epochs set cluster = 'old/1'")
            .await
            .unwrap();
        fresh.store.migrate().await.unwrap();
        fresh
            .store
            .insert_fresh(&[Arc::new(event("3", b"content"))], None)
            .await
            .unwrap();
        assert_eq!(reader.until("3").await, ["2", "3"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_put_back_is_followed_by_what_comes_then() {
    FreshStore::with_sqlite(|fresh| async move {
        let folder = tempfile::tempdir().unwrap();
        let backup = folder.path().join("backup.db");
        let mut reader = Follower::new(&fresh.store, Stream::Events);
        record_each(&fresh, &events(2)).await;
        reader.until("2").await;
        fresh
            .by_hand(&format!("vacuum into '{}'", backup.display()))
            .await
            .unwrap();
        // A later start, and what only it knew.
        fresh.store.migrate().await.unwrap();
        let lost: Vec<_> = (1..=5)
            .map(|n| Arc::new(event(&format!("lost{n}"), b"content")))
            .collect();
        record_each(&fresh, &lost).await;
        reader.until("lost5").await;
        let store = Store::open(&format!("sqlite:{}", backup.display()), &StoreOptions::default())
            .await
            .unwrap();
        store.migrate().await.unwrap();
        reader.store = store.clone();
        // Twice the number that was lost, over several starts: the old cursor lies in the middle of them.
        for n in 1..=10 {
            store
                .insert_fresh(&[Arc::new(event(&format!("new{n}"), b"content"))], None)
                .await
                .unwrap();
            if n % 4 == 0 {
                store.migrate().await.unwrap();
            }
        }
        let expected: Vec<String> = (1..=10).map(|n| format!("new{n}")).collect();
        assert_eq!(reader.until("new10").await, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_while_many_write_takes_nothing_for_a_restore() {
    FreshStore::with_postgres(|fresh| async move {
        const EPOCHS: &str = "select count(*) from feed_epochs";
        let before = fresh.number(EPOCHS).await;
        let store = Store::open(&fresh.url, &patient()).await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..4 {
            let store = store.clone();
            writers.spawn(async move {
                for turn in 0.. {
                    let one = Arc::new(event(&format!("{writer}-{turn}"), b"content"));
                    store.insert_fresh(&[one], None).await.unwrap();
                }
            });
        }
        for _ in 0..20 {
            store.renew_feed_epoch().await.unwrap();
        }
        writers.shutdown().await;
        assert_eq!(fresh.number(EPOCHS).await, before);
    })
    .await;
}
