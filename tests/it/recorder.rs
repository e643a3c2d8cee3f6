//! Group commit on real databases: each waiter hears the truth about its own event, whatever its neighbours do.

mod hanging;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use payhook::event::{Event, EventId, EventKey};
use payhook::ingress::{Quarantine, Recorder, RecorderOptions, Unrecorded};
use payhook::store::outbox::Handoff;
use payhook::store::{Recorded, Store};
use payhook::time::Clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::support::events::{event, events};
use crate::support::store::{FreshStore, on_both_stores};

/// Longer than anything takes that is not meant to hang.
const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    recorder: Recorder,
    tasks: TaskTracker,
}

fn start(store: &Store, options: RecorderOptions) -> Running {
    let tasks = TaskTracker::new();
    let quarantine = Quarantine::start(store.clone(), &tasks);
    let recorder = Recorder::start(store, options, quarantine, Clock::system(), &tasks);
    Running { recorder, tasks }
}

fn patient() -> RecorderOptions {
    RecorderOptions::new(PATIENCE, "daemon-1")
}

impl Running {
    /// All at once; the answers in the order of the events.
    async fn record_all(&self, events: &[Arc<Event>]) -> Vec<Result<Recorded, Unrecorded>> {
        let all = events.iter().map(|event| self.recorder.record(Arc::clone(event)));
        futures_util::future::join_all(all).await
    }

    /// Ends as a drain does: the queue is emptied first.
    async fn end(self) {
        drop(self.recorder);
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Makes the database refuse every conflict that comes with these headers.
async fn refuse_conflicts_with(fresh: &FreshStore, headers: &str) {
    if fresh.is_postgres() {
        let function = "create function refuse() returns trigger language plpgsql as \
             $$begin raise exception 'as the test wants it' using errcode = '23514'; end$$";
        fresh.by_hand(function).await.unwrap();
    }
    let trigger = if fresh.is_postgres() {
        format!(
            "create trigger odd before insert on event_conflicts for each row \
             when (new.headers = '{headers}') execute function refuse()"
        )
    } else {
        format!(
            "create trigger odd before insert on event_conflicts when new.headers = '{headers}' \
             begin select raise(abort, 'as the test wants it'); end"
        )
    };
    fresh.by_hand(&trigger).await.unwrap();
}

async fn stored(fresh: &FreshStore) -> i64 {
    fresh.number("select count(*) from events").await
}

async fn until(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

on_both_stores! {
    async fn each_hears_how_its_own_event_ended(fresh) {
        let running = start(&fresh.store, patient());
        let batch = events(600);
        let answers = running.record_all(&batch).await;
        assert!(answers.iter().all(|answer| *answer == Ok(Recorded::Fresh)), "{answers:?}");
        let mut again = (*batch[0]).clone();
        again.id = EventId::new(again.received_at);
        let answers = running.record_all(&[
            Arc::new(again),
            Arc::new(event("2", b"other content")),
            Arc::new(event("new", b"content")),
        ]).await;
        assert_eq!(answers, [
            Ok(Recorded::Duplicate { event_id: batch[0].id.clone() }),
            Ok(Recorded::Conflict { event_id: batch[1].id.clone() }),
            Ok(Recorded::Fresh),
        ]);
        running.end().await;
        assert_eq!(stored(&fresh).await, 601);
        assert_eq!(fresh.number("select count(*) from outbox where kind = 'event'").await, 601);
    }

    async fn daemons_that_share_a_store_answer_each_event_once_as_fresh(fresh) {
        let daemons: Vec<_> = (0..8).map(|_| start(&fresh.store, patient())).collect();
        let once = events(100);
        let copies = once.iter().map(|event| {
            let mut copy = (**event).clone();
            copy.id = EventId::new(copy.received_at);
            Arc::new(copy)
        });
        let twice: Vec<_> = once.iter().cloned().chain(copies).collect();
        let all = std::iter::zip(&twice, daemons.iter().cycle())
            .map(|(event, daemon)| daemon.recorder.record(Arc::clone(event)));
        let answers = futures_util::future::join_all(all).await;
        let fresh_ones = answers.iter().filter(|answer| **answer == Ok(Recorded::Fresh)).count();
        assert_eq!(fresh_ones, 100, "{answers:?}");
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Recorded::Fresh | Recorded::Duplicate { .. }))));
        for daemon in daemons {
            daemon.end().await;
        }
        assert_eq!(stored(&fresh).await, 100);
    }

    async fn fifty_copies_at_once_are_one_event(fresh) {
        let running = start(&fresh.store, patient());
        let copies: Vec<_> = (0..50).map(|_| Arc::new(event("1", b"content"))).collect();
        let answers = running.record_all(&copies).await;
        let fresh_ones = answers.iter().filter(|answer| **answer == Ok(Recorded::Fresh)).count();
        assert_eq!(fresh_ones, 1);
        let duplicates = answers.iter().filter(|answer| matches!(answer, Ok(Recorded::Duplicate { .. }))).count();
        assert_eq!(duplicates, 49);
        assert_eq!(stored(&fresh).await, 1);
    }

    async fn the_culprit_of_a_batch_is_found_and_its_neighbours_are_recorded(fresh) {
        let running = start(&fresh.store, patient());
        let mut batch = events(20);
        let mut culprit = event("culprit", b"content");
        culprit.key = EventKey::from_text("x".repeat(201));
        batch.insert(7, Arc::new(culprit));
        // The first is taken alone and waits; the others gather behind it and go together.
        let held = fresh.lock("events in exclusive mode").await;
        let (answers, ()) = tokio::join!(running.record_all(&batch), async { drop(held) });
        for (n, answer) in answers.iter().enumerate() {
            let expected = if n == 7 { Err(Unrecorded::Unrecordable) } else { Ok(Recorded::Fresh) };
            assert_eq!(*answer, expected, "event {n}");
        }
        running.end().await;
        assert_eq!(stored(&fresh).await, 20);
        assert_eq!(fresh.texts("select reason from quarantine").await, ["unrecordable"]);
        assert_eq!(fresh.texts("select code from attention").await, ["unrecordable"]);
        assert_eq!(fresh.texts("select routing_key from messages").await, ["attention.unrecordable"]);
    }

    async fn a_repeat_that_cannot_be_kept_fails_no_other_repeat(fresh) {
        let running = start(&fresh.store, patient());
        let first = events(6);
        let mut unreadable = event("unreadable", b"content");
        running.record_all(&first).await;
        // As a newer version might have stored it: its fingerprint is none here.
        let stored_odd = format!(
            "insert into events (id, event_key, provider, account, merchant, type, provider_event_type, \
             occurred_at, received_at, fingerprint, headers, body) \
             select 'odd', '{}', provider, account, merchant, type, provider_event_type, occurred_at, \
             received_at, {}, headers, body from events where event_key = '{}'",
            unreadable.key.as_str(),
            if fresh.is_postgres() { "'\\x01'::bytea" } else { "x'01'" },
            first[0].key.as_str(),
        );
        fresh.by_hand(&stored_odd).await.unwrap();
        "[]".clone_into(&mut unreadable.headers);
        refuse_conflicts_with(&fresh, "[\"culprit\"]").await;
        let conflict = |n: usize, headers: &str| {
            let mut other = event(&n.to_string(), b"other content");
            headers.clone_into(&mut other.headers);
            Arc::new(other)
        };
        let again = |event: &Arc<Event>| {
            let mut again = (**event).clone();
            again.id = EventId::new(again.received_at);
            Arc::new(again)
        };
        let mut batch: Vec<_> = first[..3].iter().map(again).collect();
        batch.extend([conflict(4, "[]"), conflict(5, "[\"culprit\"]"), conflict(6, "[]"), Arc::new(unreadable)]);
        let held = fresh.lock("events in exclusive mode").await;
        let (answers, ()) = tokio::join!(running.record_all(&batch), async { drop(held) });
        let kinds: Vec<&str> = answers
            .iter()
            .map(|answer| match answer {
                Ok(Recorded::Duplicate { .. }) => "duplicate",
                Ok(Recorded::Conflict { .. }) => "conflict",
                Ok(Recorded::Fresh) => "fresh",
                Err(Unrecorded::Unrecordable) => "unrecordable",
                Err(_) => "failed",
            })
            .collect();
        let expected =
            ["duplicate", "duplicate", "duplicate", "conflict", "unrecordable", "conflict", "conflict"];
        assert_eq!(kinds, expected);
        running.end().await;
        assert_eq!(fresh.number("select count(*) from event_conflicts").await, 3);
        assert_eq!(fresh.number("select count(*) from attention where code = 'event_conflict'").await, 3);
    }

    async fn a_full_queue_says_so_at_once(fresh) {
        let mut options = patient();
        options.room = 4;
        let running = start(&fresh.store, options);
        let held = fresh.lock("events in exclusive mode").await;
        let batch = events(40);
        let mut waiting = Vec::new();
        let mut overloaded = 0;
        for event in &batch {
            let mut recording = Box::pin(running.recorder.record(Arc::clone(event)));
            // One look and no waiting: whoever finds no room knows it already.
            match futures_util::poll!(recording.as_mut()) {
                Poll::Pending => waiting.push(recording),
                Poll::Ready(answer) => {
                    assert_eq!(answer, Err(Unrecorded::Overloaded));
                    overloaded += 1;
                }
            }
        }
        assert_eq!(overloaded, 36);
        drop(held);
        let answers = futures_util::future::join_all(waiting).await;
        assert!(answers.iter().all(|answer| *answer == Ok(Recorded::Fresh)), "{answers:?}");
        assert_eq!(stored(&fresh).await, 40 - overloaded);
    }

    async fn a_store_that_hangs_is_given_up_at_the_deadline(fresh) {
        let running = start(&fresh.store, RecorderOptions::new(Duration::from_millis(200), "daemon-1"));
        let held = fresh.lock("events in exclusive mode").await;
        let (batch, mut quickest) = (events(10), Duration::MAX);
        // More than once, for a machine that stalls.
        for _ in 0..3 {
            let began = Instant::now();
            let answers = running.record_all(&batch).await;
            assert!(answers.iter().all(|answer| *answer == Err(Unrecorded::Unavailable)), "{answers:?}");
            quickest = quickest.min(began.elapsed());
        }
        assert!(quickest < Duration::from_secs(3), "{quickest:?}");
        drop(held);
        // The provider comes again, and is taken, whatever became of the first try.
        until("recorded after all", async || running.recorder.record(Arc::clone(&batch[0])).await.is_ok()).await;
    }

    async fn a_caller_that_goes_away_takes_nothing_with_it(fresh) {
        let running = start(&fresh.store, patient());
        let held = fresh.lock("events in exclusive mode").await;
        let mut waiting = JoinSet::new();
        for event in events(30) {
            let recorder = running.recorder.clone();
            waiting.spawn(async move {
                // Polled once: in the queue. Then dropped.
                let recording = recorder.record(event);
                tokio::pin!(recording);
                assert!(futures_util::poll!(recording.as_mut()).is_pending());
            });
        }
        waiting.join_all().await;
        drop(held);
        running.end().await;
        assert_eq!(stored(&fresh).await, 30);
    }

    async fn fresh_events_are_handed_over_claimed_while_there_is_room(fresh) {
        let (handoff, mut handed) = mpsc::channel::<Handoff>(2);
        let mut options = patient();
        options.handoff = Some(handoff);
        let running = start(&fresh.store, options);
        let batch = events(3);
        for event in &batch {
            assert_eq!(running.recorder.record(Arc::clone(event)).await, Ok(Recorded::Fresh));
        }
        // Of a duplicate nothing is handed over, and its reserved place is given back.
        let duplicate = running.recorder.record(Arc::new(event("1", b"content 1"))).await;
        assert_eq!(duplicate, Ok(Recorded::Duplicate { event_id: batch[0].id.clone() }));
        for expected in &batch[..2] {
            let Handoff { event, claimed_until } = handed.recv().await.unwrap();
            assert_eq!(event.id, expected.id);
            assert!(claimed_until > Instant::now());
        }
        assert!(handed.try_recv().is_err());
        let claimed = fresh.texts("select id from outbox where claimed_by = 'daemon-1'").await;
        let expected = batch[..2].iter().map(|event| event.id.to_string());
        assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), expected.collect());
        let unclaimed = fresh.texts("select id from outbox where claimed_by is null and due_at = created_at").await;
        assert_eq!(unclaimed, [batch[2].id.to_string()]);
    }
}

/// On SQLite whoever holds the one writer keeps everybody waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_on_conflicts_delays_no_duplicate() {
    FreshStore::with_postgres(|fresh| async move {
        let running = start(&fresh.store, patient());
        let first = Arc::new(event("1", b"content"));
        running.recorder.record(Arc::clone(&first)).await.unwrap();
        let held = fresh.lock("event_conflicts in exclusive mode").await;
        let conflicts = events_with(&[b"second", b"third"]);
        let mut conflicts = Box::pin(running.record_all(&conflicts));
        assert!(futures_util::poll!(conflicts.as_mut()).is_pending());
        let duplicate = Ok(Recorded::Duplicate {
            event_id: first.id.clone(),
        });
        for _ in 0..20 {
            let again = Arc::new(event("1", b"content"));
            assert_eq!(running.recorder.record(again).await, duplicate);
        }
        assert!(futures_util::poll!(conflicts.as_mut()).is_pending());
        drop(held);
        let conflict = Ok(Recorded::Conflict {
            event_id: first.id.clone(),
        });
        assert_eq!(conflicts.await, [conflict.clone(), conflict]);
        running.end().await;
        assert_eq!(fresh.number("select count(*) from event_conflicts").await, 2);
        assert_eq!(fresh.number("select count(*) from deliveries").await, 20);
    })
    .await;
}

/// Conflicts of event `1`.
fn events_with(contents: &[&[u8]]) -> Vec<Arc<Event>> {
    contents
        .iter()
        .map(|content| Arc::new(event("1", content)))
        .collect()
}

/// On SQLite whoever holds the one writer keeps all others waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_on_deliveries_delays_no_duplicate() {
    FreshStore::with_postgres(|fresh| async move {
        let running = start(&fresh.store, patient());
        let batch = events(20);
        assert_eq!(
            running.recorder.record(Arc::clone(&batch[0])).await,
            Ok(Recorded::Fresh)
        );
        let held = fresh.lock("deliveries in exclusive mode").await;
        let duplicate = Ok(Recorded::Duplicate {
            event_id: batch[0].id.clone(),
        });
        for event in &batch[1..] {
            let again = Arc::new(self::event("1", b"content 1"));
            let (fresh, again) = tokio::join!(
                running.recorder.record(Arc::clone(event)),
                running.recorder.record(again)
            );
            assert_eq!((fresh, again), (Ok(Recorded::Fresh), duplicate.clone()));
        }
        // Nor do many at once.
        let others = start(
            &fresh.store,
            RecorderOptions::new(Duration::from_secs(10), "daemon-2"),
        );
        let copies: Vec<_> = (0..100).map(|_| Arc::new(event("1", b"content 1"))).collect();
        let answers = others.record_all(&copies).await;
        assert!(answers.iter().all(|answer| *answer == duplicate), "{answers:?}");
        drop(held);
        let until = Instant::now() + PATIENCE;
        while fresh.number("select count(*) from deliveries").await == 0 {
            assert!(Instant::now() < until, "nothing is noted");
            let again = running.recorder.record(Arc::new(event("1", b"content 1")));
            assert_eq!(again.await, duplicate);
        }
    })
    .await;
}
