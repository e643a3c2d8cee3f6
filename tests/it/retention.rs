//! Old events go, in batches, through the one path that may; what still matters stays.

use std::sync::Arc;
use std::time::Duration;

use payhook::config::RetentionConfig;
use payhook::event::{Event, EventId, Replay};
use payhook::idempotency::{Keys, Options, Pool};
use payhook::retention::{Purged, Retention};
use payhook::store::feed::{Begin, Cursor, FeedRead, Stream, note_replayed_events};
use payhook::store::retention::PurgedEvents;
use payhook::store::{Recorded, Store};
use payhook::time::{Clock, Timestamp};
use sqlx::{PgPool, SqlitePool};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::events::{ARRIVAL, event};
use crate::support::listener::record;
use crate::support::store::{FreshStore, on_both_stores};

const DAY: Duration = Duration::from_hours(24);

fn at(arrival: Duration) -> Timestamp {
    Timestamp::from_micros(ARRIVAL).plus(arrival)
}

/// Long after the first event of each test.
fn now() -> Timestamp {
    at(DAY * 400)
}

async fn retention(fresh: &FreshStore) -> Retention {
    let pool = if fresh.is_postgres() {
        Pool::Postgres(PgPool::connect(&fresh.url).await.unwrap())
    } else {
        Pool::Sqlite(SqlitePool::connect(&fresh.url).await.unwrap())
    };
    let keys = Keys::new(pool, Options::default(), TaskTracker::new());
    let config = RetentionConfig {
        events: DAY * 30,
        idempotency: DAY,
    };
    Retention::new(fresh.store.clone(), keys, &config, Clock::fixed(now()))
}

/// An event of `day` after the first ones.
fn on_day(id: &str, day: u32) -> Arc<Event> {
    let mut event = event(id, id.as_bytes());
    event.received_at = at(DAY * day);
    event.id = EventId::new(event.received_at);
    Arc::new(event)
}

/// Stores events and gives each its outcome on the day it came, as a worker does.
async fn store_applied(fresh: &FreshStore, events: &[Arc<Event>]) {
    for batch in events.chunks(200) {
        fresh.store.insert_fresh(batch, None).await.unwrap();
    }
    for event in events {
        apply(fresh, event, event.received_at).await;
    }
}

async fn apply(fresh: &FreshStore, event: &Event, decided_at: Timestamp) {
    let (id, decided_at) = (&event.id, decided_at.micros());
    for sql in [
        format!("insert into event_outcomes values ('{id}', 'applied', 'because', micros({decided_at}))"),
        format!("insert into event_orders values ('{id}', 'default', 'o1')"),
        format!("delete from outbox where id = '{id}'"),
    ] {
        assert_eq!(fresh.by_hand(&sql).await.unwrap(), 1, "{sql}");
    }
}

/// Takes an event's outcome away, through retention's own door.
async fn undecide(fresh: &FreshStore, event: &EventId) {
    let far = 253_402_300_799_000_000_i64;
    let sql = format!(
        "begin; insert into retention_cutoff values (micros({far}));
         delete from event_outcomes where event_id = '{event}'; delete from retention_cutoff; commit"
    );
    fresh.by_hand(&sql).await.unwrap();
    let left = format!("select count(*) from event_outcomes where event_id = '{event}'");
    assert_eq!(fresh.number(&left).await, 0);
}

async fn kept(fresh: &FreshStore) -> Vec<String> {
    let keys = fresh
        .texts("select event_key from events order by event_key")
        .await;
    keys.iter()
        .map(|key| key.rsplit(':').next().unwrap().to_owned())
        .collect()
}

fn again(event: &Event, content: &[u8], day: u32) -> Arc<Event> {
    let mut again = self::event("x", content);
    again.key = event.key.clone();
    again.received_at = at(DAY * day);
    Arc::new(again)
}

async fn read(store: &Store, begin: &Begin, limit: u16) -> Option<(usize, Cursor)> {
    match store.feed(Stream::Events, "default", begin, limit).await.unwrap() {
        FeedRead::Page { items, next } => Some((items.len(), next)),
        FeedRead::Expired => None,
    }
}

/// Reads until there is nothing more, with a cursor after every item.
async fn cursors(store: &Store, wanted: usize) -> Vec<Cursor> {
    let deadline = std::time::Instant::now() + Duration::from_mins(1);
    let mut cursors = Vec::new();
    let mut begin = Begin::Oldest;
    while cursors.len() < wanted {
        let (items, next) = read(store, &begin, 1).await.unwrap();
        if items == 1 {
            cursors.push(next.clone());
        } else {
            assert!(std::time::Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        begin = Begin::After(next);
    }
    cursors
}

on_both_stores! {
    async fn what_is_old_and_done_goes_with_all_that_hung_on_it(fresh) {
        let old = on_day("old", 1);
        let young = on_day("young", 371);
        store_applied(&fresh, &[Arc::clone(&old), Arc::clone(&young)]).await;
        record(&fresh.store, &[again(&old, b"old", 2), again(&old, b"forged", 3)]).await;
        fresh.by_hand("update attention set state = 'resolved', resolved_at = micros(1)").await.unwrap();
        let purged = retention(&fresh).await.round(&CancellationToken::new()).await.unwrap();
        assert_eq!(purged, Purged { events: 1, ..Purged::default() });
        assert_eq!(kept(&fresh).await, ["young"]);
        for (table, rows) in [("deliveries", 0), ("event_conflicts", 0), ("event_outcomes", 1), ("event_orders", 1),
            ("retention_cutoff", 0), ("attention", 1), ("messages", 1)] {
            assert_eq!(fresh.number(&format!("select count(*) from {table}")).await, rows, "{table}");
        }
        // The door is shut behind it.
        for table in ["events", "messages"] {
            assert!(fresh.by_hand(&format!("delete from {table}")).await.is_err(), "{table}");
        }
        // Its key is free again: the same event would be new.
        let recorded = record(&fresh.store, &[again(&old, b"old", 399)]).await;
        assert_eq!(recorded, [Recorded::Fresh]);
    }

    async fn what_still_matters_stays_however_old(fresh) {
        let names = ["attention", "conflict", "dead", "done", "late", "outbox", "repeated", "replay", "replayed", "undecided"];
        let events: Vec<_> = names.map(|name| on_day(name, 1)).into();
        let [attention, conflict, dead, _, late, outbox, repeated, replay, replayed, undecided] = &events[..] else {
            panic!("ten events");
        };
        store_applied(&fresh, &events).await;
        undecide(&fresh, &undecided.id).await;
        let row = |kind: &str, id: &str, event: &EventId| format!(
            "insert into outbox (id, kind, event_id, created_at, due_at) values ('{id}', '{kind}', '{event}', 1, 1)");
        fresh.by_hand(&row("event", outbox.id.as_str(), &outbox.id)).await.unwrap();
        let row = if fresh.texts(OUTBOX_COLUMNS[usize::from(!fresh.is_postgres())]).await.is_empty() {
            row("replay", "x#r", &replay.id)
        } else {
            format!("insert into outbox (id, kind, event_id, created_at, due_at, replay_id, replay_reason)
                values ('x#r', 'replay', '{}', 1, 1, 'r', 'lost')", replay.id)
        };
        fresh.by_hand(&row).await.unwrap();
        for sql in [
            format!("update event_outcomes set decided_at = micros({}) where event_id = '{}'", at(DAY * 390).micros(), late.id),
            format!("insert into dead_letters (id, event_id, error, attempts, created_at) values ('d', '{}', 'e', 1, 1)", dead.id),
            format!("insert into attention (id, code, source, merchant, event_id, explanation, created_at)
                values ('a', 'parked_too_long', 's', 'default', '{}', 'x', 1)", attention.id),
        ] {
            assert_eq!(fresh.by_hand(&sql).await.unwrap(), 1, "{sql}");
        }
        record(&fresh.store, &[again(repeated, b"repeated", 390), again(conflict, b"forged", 390)]).await;
        fresh.by_hand("update attention set state = 'resolved', resolved_at = micros(1) where code = 'event_conflict'").await.unwrap();
        let mut tx = fresh.store.begin().await.unwrap();
        let lost = Replay { id: "r2".to_owned(), reason: "lost".to_owned() };
        note_replayed_events(&mut tx, std::slice::from_ref(&replayed.id), &lost, at(DAY * 390)).await.unwrap();
        tx.commit().await.unwrap();
        let retention = retention(&fresh).await;
        let purged = retention.round(&CancellationToken::new()).await.unwrap();
        assert_eq!(purged.events, 1);
        let mut expected = names.map(str::to_owned).to_vec();
        expected.retain(|name| name != "done");
        assert_eq!(kept(&fresh).await, expected);
    }

    async fn a_cursor_that_retention_overtook_is_refused(fresh) {
        let events: Vec<_> = (0..6).map(|n| on_day(&n.to_string(), if n < 4 { n } else { 390 })).collect();
        // Each in a commit of its own: at one position there would be nothing between them.
        for event in &events {
            store_applied(&fresh, std::slice::from_ref(event)).await;
        }
        // The first stays: it has no outcome.
        undecide(&fresh, &events[0].id).await;
        let cursors = cursors(&fresh.store, 6).await;
        let purged = retention(&fresh).await.round(&CancellationToken::new()).await.unwrap();
        assert_eq!(purged.events, 3);
        for (n, cursor) in cursors.iter().enumerate() {
            let found = read(&fresh.store, &Begin::After(cursor.clone()), 50).await;
            let passed = usize::from(found.is_some());
            // Cursor 3 stands at the very last one removed: either answer is true there.
            if n != 3 {
                assert_eq!(passed, usize::from(n > 3), "cursor {n}");
            }
        }
        // Who begins anew goes on from the one that stayed, though the horizon lies beyond it.
        let (items, next) = read(&fresh.store, &Begin::Oldest, 1).await.unwrap();
        assert_eq!(items, 1);
        let (items, _) = read(&fresh.store, &Begin::After(next), 50).await.unwrap();
        assert_eq!(items, 2);
    }

    async fn a_great_many_go_in_batches_while_ingest_goes_on(fresh) {
        let old: Vec<_> = (0..450).map(|n| on_day(&format!("old{n}"), 1)).collect();
        for batch in old.chunks(200) {
            fresh.store.insert_fresh(batch, None).await.unwrap();
        }
        fresh.by_hand("insert into event_outcomes select id, 'applied', 'because', 1 from events").await.unwrap();
        fresh.by_hand("delete from outbox").await.unwrap();
        // Stepped by hand, one batch is at most what was asked for.
        let cutoff = at(DAY * 370);
        let first = fresh.store.purge_events(cutoff, None, 100).await.unwrap();
        let PurgedEvents::Purged { count: 100, next: Some(next) } = first else { panic!("{first:?}") };
        assert_eq!(old.iter().filter(|event| event.id <= next).count(), 100);
        let stop = CancellationToken::new();
        let retention = retention(&fresh).await;
        let (purged, recorded) = tokio::join!(
            async {
                let purged = retention.round(&CancellationToken::new()).await.unwrap();
                stop.cancel();
                purged
            },
            async {
                let mut recorded = 0_i64;
                while !stop.is_cancelled() {
                    let event = on_day(&format!("new{recorded}"), 399);
                    assert_eq!(fresh.store.insert_fresh(&[event], None).await.unwrap(), [true]);
                    recorded += 1;
                }
                recorded
            }
        );
        assert_eq!(purged.events, 350);
        assert!(recorded > 0);
        assert_eq!(fresh.number("select count(*) from events").await, recorded);
    }

    async fn quarantine_and_keys_go_too(fresh) {
        for (id, day) in [("old", 1), ("young", 390)] {
            let at = at(DAY * day);
            let id = format!("{}-{id}", EventId::new(at));
            let blob = if fresh.is_postgres() { r"''::bytea" } else { "x'01'" };
            for sql in [
                format!("insert into quarantine values ('{id}', 'stripe', 'a', 'm', 'malformed', 'd', '/p', '[]', {blob}, micros({}), null, 's', 1)", at.micros()),
                format!("insert into idempotency_keys (id, key_hash, merchant, method, path, fingerprint, effect, state, owner,
                    lease_until, created_at, expires_at, status, headers, body)
                    values ('{id}', 'h', 'm', 'POST', '/p', {blob}, 'none', 'finished', 'o', 1, 1, micros({}), 200, '[]', {blob})",
                    if day == 1 { 1 } else { i64::MAX / 2 }),
            ] {
                fresh.by_hand(&sql).await.unwrap();
            }
        }
        let purged = retention(&fresh).await.round(&CancellationToken::new()).await.unwrap();
        assert_eq!(purged, Purged { quarantine: 1, idempotency_keys: 1, ..Purged::default() });
        for table in ["quarantine", "idempotency_keys"] {
            let left = fresh.texts(&format!("select id from {table}")).await;
            assert!(left.len() == 1 && left[0].ends_with("young"), "{table}: {left:?}");
        }
    }

    async fn it_ends_when_the_daemon_does(fresh) {
        let stop = CancellationToken::new();
        let running = retention(&fresh).await.run(stop.clone());
        let both = async { tokio::join!(running, async { stop.cancel() }) };
        tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
    }
}

/// Whether the outbox names replays by columns of their own yet.
const OUTBOX_COLUMNS: [&str; 2] = [
    "select column_name::text from information_schema.columns where table_name = 'outbox' and column_name = 'replay_id'",
    "select name from pragma_table_info('outbox') where name = 'replay_id'",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_daemon_at_a_time_removes_events() {
    FreshStore::with_postgres(|fresh| async move {
        store_applied(&fresh, &[on_day("old", 1)]).await;
        let other = PgPool::connect(&fresh.url).await.unwrap();
        let mut held = other.begin().await.unwrap();
        sqlx::query("select pg_advisory_xact_lock(716300921102)")
            .execute(&mut *held)
            .await
            .unwrap();
        let cutoff = at(DAY * 370);
        assert_eq!(
            fresh.store.purge_events(cutoff, None, 10).await.unwrap(),
            PurgedEvents::Elsewhere
        );
        held.rollback().await.unwrap();
        let mine = fresh.store.purge_events(cutoff, None, 10).await.unwrap();
        assert_eq!(mine, PurgedEvents::Purged { count: 1, next: None });
    })
    .await;
}
