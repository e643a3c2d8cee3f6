//! The outbox's ways out on both databases: failure and burial, confirm and outcome in either order, redrive.

use std::sync::Arc;
use std::time::Duration;

use payhook::event::{Event, EventId, Replay};
use payhook::store::attention::{self, Resolution};
use payhook::store::dead_letters::{Redriven, close_unknown, redrive, redrive_all, succeeded};
use payhook::store::history::{self, NewOutcome};
use payhook::store::outbox::{
    Content, Failed, FailurePolicy, Scope, enqueue_replays, finish_applied, resend_events, resend_messages,
};
use payhook::store::replays::{self, NewReplay, ReplayFilter, What};
use payhook::time::Timestamp;
use tokio::task::JoinSet;

use crate::support::events::{event, events};
use crate::support::rabbit::until;
use crate::support::store::{FreshStore, on_both_stores};

const REAPPLY: Duration = Duration::from_mins(5);

fn policy(max_attempts: u32) -> FailurePolicy {
    FailurePolicy::new(max_attempts, false)
}

async fn stored(fresh: &FreshStore, id: &str) -> Event {
    let event = event(id, b"{}");
    fresh
        .store
        .insert_fresh(&[Arc::new(event.clone())], None)
        .await
        .unwrap();
    event
}

fn row(event: &Event) -> Vec<String> {
    vec![event.id.as_str().to_owned()]
}

/// What a worker does in its transaction.
async fn apply(fresh: &FreshStore, event: &Event, embedded: bool) {
    let mut tx = fresh.store.begin().await.unwrap();
    finish_applied(&mut tx, std::slice::from_ref(&event.id), embedded)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let outcome = format!(
        "insert into event_outcomes values ('{}', 'applied', 'test', 1)",
        event.id
    );
    fresh.by_hand(&outcome).await.unwrap();
}

async fn rows(fresh: &FreshStore) -> i64 {
    fresh.number("select count(*) from outbox").await
}

fn replay() -> Replay {
    Replay {
        id: "r1".to_owned(),
        reason: "lost in a queue".to_owned(),
    }
}

async fn enqueue(fresh: &FreshStore, events: &[EventId]) {
    let mut tx = fresh.store.begin().await.unwrap();
    let rows = enqueue_replays(&mut tx, events, &replay()).await.unwrap();
    assert_eq!(usize::try_from(rows).unwrap(), events.len());
    tx.commit().await.unwrap();
}

async fn finish(fresh: &FreshStore, events: &[EventId]) {
    let mut tx = fresh.store.begin().await.unwrap();
    finish_applied(&mut tx, events, false).await.unwrap();
    tx.commit().await.unwrap();
}

/// An event whose row no code of ours would have written.
async fn corrupt(fresh: &FreshStore, id: &str) {
    let blob = if fresh.is_postgres() {
        r"'\x01'::bytea"
    } else {
        "x'01'"
    };
    fresh
        .by_hand(&format!(
            "insert into events (id, event_key, provider, account, merchant, type, provider_event_type, amount, currency,
                occurred_at, received_at, fingerprint, headers, body)
             values ('{id}', 'webhook:stripe:shop:{id}', 'stripe', 'shop', 'default', 'other.x', 'x', 1, 'no currency',
                1, 1, {blob}, '[]', {blob})"
        ))
        .await
        .unwrap();
    let row = format!(
        "insert into outbox (id, kind, event_id, created_at, due_at) values ('{id}', 'event', '{id}', 0, 0)"
    );
    fresh.by_hand(&row).await.unwrap();
}

on_both_stores! {
    async fn confirm_and_outcome_end_a_row_whichever_is_first(fresh) {
        let confirmed_first = stored(&fresh, "1").await;
        fresh.store.confirm_published(&row(&confirmed_first), REAPPLY).await.unwrap();
        assert_eq!(rows(&fresh).await, 1);
        apply(&fresh, &confirmed_first, false).await;
        assert_eq!(rows(&fresh).await, 0);

        let applied_first = stored(&fresh, "2").await;
        apply(&fresh, &applied_first, false).await;
        assert_eq!(rows(&fresh).await, 1, "its publish is still owed");
        assert_eq!(fresh.store.confirm_published(&row(&applied_first), REAPPLY).await.unwrap(), 1);
        assert_eq!(rows(&fresh).await, 0);

        let without_broker = stored(&fresh, "3").await;
        apply(&fresh, &without_broker, true).await;
        assert_eq!(rows(&fresh).await, 0);
    }

    async fn a_failure_is_counted_and_its_time_survives_the_confirm(fresh) {
        let event = stored(&fresh, "1").await;
        fresh.store.claim_due(Scope::First, "one", 10).await.unwrap();
        let failed = fresh.store.record_failure(&event, "no account", &policy(8)).await.unwrap();
        let Failed::Retry(due) = failed else { panic!("buried at once") };
        fresh.store.confirm_published(&row(&event), REAPPLY).await.unwrap();
        let kept = format!("select count(*) from outbox where attempts = 1 and due_at = micros({}) \
            and last_error = 'no account'", due.micros());
        assert_eq!(fresh.number(&kept).await, 1);

        // A message that comes back after its row was done: the failure is still counted.
        fresh.by_hand("delete from outbox").await.unwrap();
        fresh.store.record_failure(&event, "no account", &policy(8)).await.unwrap();
        assert_eq!(fresh.number("select sum(attempts) from outbox").await, 1);
    }

    async fn the_last_failure_buries_whole_and_a_redrive_begins_anew(fresh) {
        let event = stored(&fresh, "1").await;
        fresh.store.confirm_published(&row(&event), REAPPLY).await.unwrap();
        for _ in 0..2 {
            let failed = fresh.store.record_failure(&event, "bad\u{0}", &policy(3)).await.unwrap();
            assert!(matches!(failed, Failed::Retry(_)));
        }
        let failed = fresh.store.record_failure(&event, "bad", &policy(3)).await.unwrap();
        assert_eq!(failed, Failed::Buried);
        assert_eq!(fresh.number("select count(*) from outbox where kind = 'event'").await, 0);
        assert_eq!(fresh.texts("select outcome from event_outcomes").await, ["dead"]);
        assert_eq!(fresh.texts("select code from attention").await, ["dead_letter"]);
        let letters = fresh.store.dead_letters("default", None, false, 10).await.unwrap();
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].event_key.as_deref(), Some(event.key.as_str()));
        assert_eq!((letters[0].attempts, letters[0].error.as_str()), (3, "bad"));

        for expected in [Redriven::Due, Redriven::NotOpen] {
            let mut tx = fresh.store.begin().await.unwrap();
            assert_eq!(redrive(&mut tx, &letters[0].id).await.unwrap(), expected);
            tx.commit().await.unwrap();
        }
        assert_eq!(fresh.number("select count(*) from event_outcomes").await, 0, "not finished any more");
        let again = fresh.store.claim_due(Scope::Again, "one", 10).await.unwrap();
        assert_eq!(again.len(), 1);
        assert!(matches!(&again[0].content, Content::Event(found, None) if found.id == event.id));
        assert_eq!(fresh.number("select sum(attempts) from outbox where kind = 'event'").await, 0);
    }

    async fn an_earlier_application_outlives_a_burial(fresh) {
        let event = stored(&fresh, "1").await;
        fresh.store.confirm_published(&row(&event), REAPPLY).await.unwrap();
        apply(&fresh, &event, false).await;
        fresh.store.record_failure(&event, "replayed into a bug", &policy(1)).await.unwrap();
        assert_eq!(fresh.texts("select outcome from event_outcomes").await, ["applied"]);
        assert_eq!(fresh.number("select count(*) from dead_letters").await, 1);
        assert_eq!(fresh.store.record_crash(&event, "stopped", &policy(1)).await.unwrap(), Failed::Finished);
        assert_eq!(fresh.number("select count(*) from dead_letters").await, 1);
    }

    async fn a_crash_counts_against_an_unfinished_event_only(fresh) {
        let event = stored(&fresh, "1").await;
        fresh.store.confirm_published(&row(&event), REAPPLY).await.unwrap();
        let crash = async || fresh.store.record_crash(&event, "stopped", &policy(3)).await.unwrap();
        assert!(matches!(crash().await, Failed::Retry(_)));
        apply(&fresh, &event, false).await;
        assert_eq!(crash().await, Failed::Finished);
        assert_eq!(rows(&fresh).await, 0, "no row is written for it anew");

        let event = stored(&fresh, "2").await;
        fresh.store.confirm_published(&row(&event), REAPPLY).await.unwrap();
        let crash = async || fresh.store.record_crash(&event, "stopped", &policy(2)).await.unwrap();
        assert!(matches!(crash().await, Failed::Retry(_)));
        assert_eq!(crash().await, Failed::Buried);
        assert_eq!(crash().await, Failed::Finished);
        assert_eq!(fresh.texts("select event_id from dead_letters").await, [event.id.as_str()]);
    }

    async fn an_event_the_broker_refuses_still_reaches_the_workers(fresh) {
        let event = stored(&fresh, "1").await;
        fresh.store.mark_unpublishable(event.id.as_str(), Some(&event), "too long").await.unwrap();
        assert!(fresh.store.claim_due(Scope::First, "one", 10).await.unwrap().iter().all(|row| row.row != event.id.as_str()));
        assert!(fresh.store.has_unfinished_due().await.unwrap());
        assert_eq!(fresh.store.claim_due(Scope::Again, "one", 10).await.unwrap().len(), 1);
        apply(&fresh, &event, false).await;
        assert_eq!(fresh.number("select count(*) from outbox where kind = 'event'").await, 0);
    }

    async fn what_is_unknown_is_kept_and_told_once(fresh) {
        let long = vec![b'x'; 100_000];
        for body in [b"{}".as_slice(), &long] {
            let merchants = ["default".to_owned(), "other".to_owned()].into();
            fresh.store.bury_unknown(&merchants, "webhook:alipay:shop:1", "unknown", body).await.unwrap();
        }
        assert_eq!(fresh.number("select count(*) from dead_letters where event_id is null").await, 2);
        assert_eq!(fresh.number("select cast(max(length(message)) as bigint) from dead_letters").await, 65536);
        let told = fresh.texts("select merchant from attention order by merchant").await;
        assert_eq!(told, ["default", "other"], "each merchant once");
        let letters = fresh.store.dead_letters("default", None, false, 10).await.unwrap();
        let mut tx = fresh.store.begin().await.unwrap();
        assert_eq!(redrive(&mut tx, &letters[0].id).await.unwrap(), Redriven::NoEvent);
    }

    async fn claims_are_disjoint_and_rows_given_back_are_due_again(fresh) {
        let all = events(5);
        fresh.store.insert_fresh(&all, None).await.unwrap();
        let one = fresh.store.claim_due(Scope::First, "one", 3).await.unwrap();
        let two = fresh.store.claim_due(Scope::Apply, "two", 10).await.unwrap();
        assert_eq!((one.len(), two.len()), (3, 2));
        let ids: Vec<String> = one.into_iter().map(|claimed| claimed.row).collect();
        fresh.store.release(&ids, "somebody else", (Duration::ZERO, Duration::ZERO)).await.unwrap();
        assert_eq!(fresh.store.claim_due(Scope::First, "two", 10).await.unwrap().len(), 0);
        fresh.store.release(&ids, "one", (Duration::ZERO, Duration::ZERO)).await.unwrap();
        assert_eq!(fresh.store.claim_due(Scope::First, "two", 10).await.unwrap().len(), 3);
    }

    async fn what_the_broker_does_not_take_rests_for_a_quarter_of_its_age(fresh) {
        let event = stored(&fresh, "1").await;
        let rests = async |age: i64| {
            let claim = format!("update outbox set claimed_by = 'one', created_at = created_at - span({age}000000)");
            fresh.by_hand(&claim).await.unwrap();
            let between = (Duration::from_secs(5), Duration::from_mins(1));
            fresh.store.release(&row(&event), "one", between).await.unwrap();
            let rest = "select as_micros(due_at - created_at) / 1000000 from outbox where claimed_by is null";
            fresh.number(rest).await
        };
        // Each beside the age it has by then, and some for a machine that stalls.
        assert!((5..65).contains(&rests(0).await));
        assert!((125..190).contains(&rests(100).await));
        assert!((1160..1220).contains(&rests(1000).await));
    }

    async fn a_replay_ends_with_confirm_and_application_whichever_is_first(fresh) {
        let event = stored(&fresh, "1").await;
        fresh.store.confirm_published(&row(&event), REAPPLY).await.unwrap();
        apply(&fresh, &event, false).await;
        let of_replay = vec![format!("{}#r1", event.id)];

        enqueue(&fresh, std::slice::from_ref(&event.id)).await;
        assert_eq!(fresh.store.confirm_published(&of_replay, REAPPLY).await.unwrap(), 0, "the old outcome is not its end");
        finish(&fresh, std::slice::from_ref(&event.id)).await;
        assert_eq!(rows(&fresh).await, 0);

        // A repetition leaves the outcome as it was: the row itself says that it was applied.
        enqueue(&fresh, std::slice::from_ref(&event.id)).await;
        finish(&fresh, std::slice::from_ref(&event.id)).await;
        assert_eq!(rows(&fresh).await, 1, "its publish is still owed");
        assert_eq!(fresh.store.confirm_published(&of_replay, REAPPLY).await.unwrap(), 1);
        assert_eq!(rows(&fresh).await, 0);
    }

    async fn what_is_sent_again_to_one_queue_or_is_a_message_waits_for_no_worker(fresh) {
        let event = stored(&fresh, "1").await;
        fresh.store.confirm_published(&row(&event), REAPPLY).await.unwrap();
        apply(&fresh, &event, false).await;
        let blob = if fresh.is_postgres() { "convert_to('{\"id\":\"m\",\"data\":{}}', 'utf8')" } else { "cast('{\"id\":\"m\",\"data\":{}}' as blob)" };
        fresh.by_hand(&format!("insert into messages (id, merchant, routing_key, body, created_at)
            values ('default/o/1', 'default', 'order.paid', {blob}, 1)")).await.unwrap();
        let mut tx = fresh.store.begin().await.unwrap();
        assert_eq!(resend_events(&mut tx, std::slice::from_ref(&event.id), &replay(), "evidence").await.unwrap(), 1);
        assert_eq!(resend_messages(&mut tx, &["default/o/1", "unknown"], &replay(), None).await.unwrap(), 1);
        tx.commit().await.unwrap();

        assert!(fresh.store.claim_due(Scope::Apply, "one", 10).await.unwrap().is_empty(), "no worker wants it");
        let claimed = fresh.store.claim_due(Scope::First, "one", 10).await.unwrap();
        assert_eq!(claimed.len(), 2);
        for one in &claimed {
            match &one.content {
                Content::Event(found, Some(sent)) => {
                    assert_eq!((found.id.clone(), sent.id.as_str()), (event.id.clone(), "r1"));
                    assert_eq!(one.queue.as_deref(), Some("evidence"));
                }
                Content::Message(message) => {
                    assert_eq!((message.id.as_str(), one.queue.as_deref()), ("default/o/1", None));
                    let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
                    assert_eq!(body["data"]["replay"]["reason"], "lost in a queue");
                }
                other => panic!("{other:?}"),
            }
        }
        let ids: Vec<String> = claimed.into_iter().map(|one| one.row).collect();
        assert_eq!(fresh.store.confirm_published(&ids, REAPPLY).await.unwrap(), 2);
        assert_eq!(rows(&fresh).await, 0);
    }

    async fn what_was_published_long_ago_and_has_not_ended_is_seen(fresh) {
        let event = stored(&fresh, "1").await;
        let waits = async || fresh.store.has_unfinished_older_than(Duration::from_secs(15)).await.unwrap();
        fresh.by_hand("update outbox set created_at = created_at - span(16000000)").await.unwrap();
        assert!(!waits().await, "it has not been published");
        fresh.store.confirm_published(&[event.id.to_string()], Duration::from_mins(5)).await.unwrap();
        assert!(waits().await);
        fresh.by_hand("update outbox set created_at = created_at + span(16000000)").await.unwrap();
        assert!(!waits().await, "it has only just come");
    }

    async fn one_corrupt_row_holds_up_nobody(fresh) {
        let event = stored(&fresh, "1").await;
        corrupt(&fresh, "broken").await;
        let mut claimed = fresh.store.claim_due(Scope::First, "one", 10).await.unwrap();
        claimed.retain(|one| one.row != "broken");
        assert!(matches!(&claimed[..], [one] if matches!(&one.content, Content::Event(found, None) if found.id == event.id)));
        fresh.by_hand("update outbox set due_at = micros(0)").await.unwrap();
        let claimed = fresh.store.claim_due(Scope::First, "one", 10).await.unwrap();
        let broken = claimed.iter().find(|one| one.row == "broken").unwrap();
        let Content::Unreadable(unreadable) = &broken.content else { panic!("{broken:?}") };
        let mut tx = fresh.store.begin().await.unwrap();
        assert_eq!(resend_events(&mut tx, std::slice::from_ref(&unreadable.id), &replay(), "evidence").await.unwrap(), 1);
        tx.commit().await.unwrap();

        let failed = fresh.store.record_unreadable(unreadable, "broken", &policy(2)).await.unwrap();
        assert!(matches!(failed, Failed::Retry(_)), "a newer daemon may read it");
        assert_eq!(fresh.number("select count(*) from outbox where id = 'broken' and published_at is null and attempts = 1").await, 1);
        assert_eq!(fresh.store.record_unreadable(unreadable, "broken", &policy(2)).await.unwrap(), Failed::Buried);
        assert_eq!(fresh.texts("select id from outbox where event_id = 'broken'").await, ["broken#r1"]);
        let letters = fresh.store.dead_letters("default", None, false, 10).await.unwrap();
        assert_eq!(letters[0].event_id.as_deref(), Some("broken"));
        assert_eq!(fresh.texts("select event_id from attention").await, ["broken"], "a redrive that succeeds finds it");

        // What goes to one queue ends by itself.
        for _ in 0..2 {
            fresh.store.record_unreadable(unreadable, "broken#r1", &policy(2)).await.unwrap();
        }
        assert_eq!(fresh.number("select count(*) from outbox where event_id = 'broken'").await, 0);
        assert_eq!(fresh.number("select count(*) from dead_letters").await, 1);
        let told = fresh.texts("select code || ' ' || merchant from attention order by code").await;
        assert_eq!(told, ["dead_letter default", "unpublishable default"]);
        for most in [1, 2] {
            let gone = fresh.store.record_unreadable(unreadable, "broken#r1", &policy(most)).await.unwrap();
            assert_eq!(gone, Failed::Finished, "its replay was cancelled");
        }
        assert_eq!(fresh.number("select count(*) from outbox where event_id = 'broken'").await, 0, "nobody waits for it");
    }

    async fn whoever_owns_what_cannot_be_sent_is_told(fresh) {
        let mut theirs = event("1", b"paid 1");
        "other".clone_into(&mut theirs.merchant);
        fresh.store.insert_fresh(&[Arc::new(theirs.clone())], None).await.unwrap();
        let blob = if fresh.is_postgres() { "convert_to('{}', 'utf8')" } else { "cast('{}' as blob)" };
        fresh.by_hand(&format!("insert into messages (id, merchant, routing_key, body, created_at)
            values ('other/o/1', 'other', 'order.paid', {blob}, 1)")).await.unwrap();
        let filter = ReplayFilter::default();
        let new = NewReplay { merchant: "other", actor: "ops", reason: "lost", what: What::Orders, queue: None, filter: &filter, per_second: 1 };
        let mut tx = fresh.store.begin().await.unwrap();
        let replay = Replay { id: replays::begin(&mut tx, &new).await.unwrap().id, reason: "lost".to_owned() };
        resend_events(&mut tx, std::slice::from_ref(&theirs.id), &replay, "evidence").await.unwrap();
        resend_messages(&mut tx, &["other/o/1"], &replay, None).await.unwrap();
        tx.commit().await.unwrap();
        fresh.by_hand(&format!("insert into outbox (id, kind, event_id, created_at, due_at, replay_id, replay_reason)
            values ('gone', 'replay', 'gone', 0, 0, '{}', 'lost')", replay.id)).await.unwrap();
        fresh.by_hand("insert into outbox (id, kind, event_id, created_at, due_at) values ('nobodys', 'event', 'nobodys', 0, 0)").await.unwrap();
        fresh.store.mark_unpublishable(&format!("other/o/1#{}", replay.id), None, "too long").await.unwrap();
        fresh.store.mark_unpublishable(&format!("{}#{}", theirs.id, replay.id), None, "too long").await.unwrap();
        for row in ["gone", "nobodys"] {
            fresh.store.end_missing(row).await.unwrap();
        }
        let told = fresh.texts("select source || ' ' || merchant || ' ' || coalesce(event_id, '-') from attention order by 1").await;
        let mut expected = [format!("{}#{} other {}", theirs.id, replay.id, theirs.id), "gone other gone".to_owned(),
            "nobodys default nobodys".to_owned(), format!("other/o/1#{} other -", replay.id)];
        expected.sort();
        assert_eq!(told, expected);
    }

    async fn one_claim_takes_no_more_than_fits_into_memory(fresh) {
        let body = vec![b' '; 6 * 1024 * 1024];
        let long: Vec<Arc<Event>> = (1..=5).map(|n| Arc::new(event(&n.to_string(), &body))).collect();
        for one in &long {
            fresh.store.insert_fresh(std::slice::from_ref(one), None).await.unwrap();
        }
        let mut sizes = Vec::new();
        for _ in 0..3 {
            sizes.push(fresh.store.claim_due(Scope::First, "one", 10).await.unwrap().len());
        }
        assert_eq!(sizes, [3, 2, 0]);
        fresh.by_hand("update outbox set published_at = micros(1), due_at = micros(0)").await.unwrap();
        let names = fresh.store.claim_due(Scope::AgainByName, "one", 10).await.unwrap();
        assert_eq!(names.len(), 5);
        assert!(names.iter().all(|one| matches!(&one.content, Content::Name(name) if name.kind == "payment.succeeded")));
    }

    async fn what_was_given_up_and_succeeds_needs_nobody_any_more(fresh) {
        let event = stored(&fresh, "1").await;
        fresh.store.record_failure(&event, "bad", &policy(1)).await.unwrap();
        let open = "select count(*) from attention where state = 'open'";
        assert_eq!(fresh.number(open).await, 1);
        let mut tx = fresh.store.begin().await.unwrap();
        succeeded(&mut tx, &[EventId::from_text("another"), event.id.clone()]).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(fresh.number(open).await, 0);
        assert_eq!(fresh.number("select count(*) from dead_letters where redriven_at is not null").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirms_and_applications_of_a_bulk_replay_never_wait_in_a_circle() {
    FreshStore::with_postgres(|fresh| async move {
        let all = events(200);
        fresh.store.insert_fresh(&all, None).await.unwrap();
        let ids: Vec<EventId> = all.iter().map(|event| event.id.clone()).collect();
        let own: Vec<String> = ids.iter().map(EventId::to_string).collect();
        fresh.store.confirm_published(&own, REAPPLY).await.unwrap();
        for _ in 0..20 {
            enqueue(&fresh, &ids).await;
            let mut of_replay: Vec<String> = ids.iter().map(|id| format!("{id}#r1")).collect();
            of_replay.reverse();
            let mut tasks = JoinSet::new();
            let store = fresh.store.clone();
            tasks.spawn(async move { store.confirm_published(&of_replay, REAPPLY).await.map(drop) });
            for part in ids.chunks(50) {
                let (store, mut part) = (fresh.store.clone(), part.to_vec());
                part.reverse();
                tasks.spawn(async move {
                    let mut tx = store.begin().await?;
                    finish_applied(&mut tx, &part, false).await?;
                    tx.commit().await
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap().unwrap();
            }
            let left = fresh
                .number("select count(*) from outbox where kind = 'replay'")
                .await;
            assert_eq!(left, 0, "neither left a row for the other");
        }
    })
    .await;
}

/// A dead letter redriven, its event applied by another path and given up again, all at once: whoever waited in a
/// circle with the others would be given up by Postgres.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redrives_burials_and_applications_never_wait_in_a_circle() {
    FreshStore::with_postgres(|fresh| async move {
        let mut all = events(40);
        all.sort_by_key(|event| event.id.to_string());
        fresh.store.insert_fresh(&all, None).await.unwrap();
        for event in &all {
            for _ in 0..2 {
                fresh
                    .store
                    .record_failure(event, "bad", &policy(1))
                    .await
                    .unwrap();
            }
        }
        for round in 0..15 {
            let letters = "select id from dead_letters where redriven_at is null order by id";
            let letters = fresh.texts(letters).await;
            let mut tasks = JoinSet::new();
            for turned in [false, true] {
                for part in letters.chunks(20) {
                    let (store, mut part) = (fresh.store.clone(), part.to_vec());
                    if turned {
                        part.reverse();
                    }
                    tasks.spawn(async move {
                        let mut tx = store.begin().await?;
                        if turned {
                            redrive(&mut tx, &part[0]).await?;
                        } else {
                            redrive_all(&mut tx, &part).await?;
                        }
                        tx.commit().await
                    });
                }
            }
            for part in all.chunks(10) {
                let (store, ids) = (
                    fresh.store.clone(),
                    part.iter().map(|event| event.id.clone()).collect::<Vec<_>>(),
                );
                tasks.spawn(async move {
                    let mut tx = store.begin().await?;
                    let outcomes: Vec<NewOutcome> = ids
                        .iter()
                        .map(|id| NewOutcome {
                            event_id: id.clone(),
                            outcome: "applied",
                            reason: "yes".to_owned(),
                        })
                        .collect();
                    history::decide(&mut tx, &outcomes, Timestamp::from_micros(round)).await?;
                    finish_applied(&mut tx, &ids, false).await?;
                    succeeded(&mut tx, &ids).await?;
                    tx.commit().await
                });
                for event in part {
                    let (store, event) = (fresh.store.clone(), Arc::clone(event));
                    tasks.spawn(
                        async move { store.record_failure(&event, "bad", &policy(1)).await.map(drop) },
                    );
                }
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap().unwrap();
            }
            let forgotten = "select count(*) from events e where not exists (select 1 from event_outcomes o \
                 where o.event_id = e.id) and not exists (select 1 from outbox where id = e.id)";
            assert_eq!(
                fresh.number(forgotten).await,
                0,
                "neither ended nor due, in round {round}"
            );
        }
    })
    .await;
}

/// A worker that is about to commit holds the event's outcome; a burial has to wait for it, and then finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_never_buries_an_event_that_a_worker_is_ending() {
    FreshStore::with_postgres(|fresh| async move {
        for (id, most) in [("1", 1), ("2", 8)] {
            let event = stored(&fresh, id).await;
            fresh
                .store
                .confirm_published(&row(&event), REAPPLY)
                .await
                .unwrap();
            let mut worker = fresh.store.begin().await.unwrap();
            let applied = NewOutcome {
                event_id: event.id.clone(),
                outcome: "applied",
                reason: "yes".to_owned(),
            };
            history::decide(&mut worker, &[applied], Timestamp::from_micros(1))
                .await
                .unwrap();
            finish_applied(&mut worker, std::slice::from_ref(&event.id), false)
                .await
                .unwrap();
            let (store, doomed) = (fresh.store.clone(), event.clone());
            let mut tasks = JoinSet::new();
            tasks.spawn(async move { store.record_crash(&doomed, "stopped", &policy(most)).await });
            let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
                 and datname = current_database()";
            until("it waits for the worker", async || {
                fresh.number(waiting).await == 1
            })
            .await;
            assert!(tasks.try_join_next().is_none());
            worker.commit().await.unwrap();
            let crash = tasks.join_next().await.unwrap().unwrap();
            assert_eq!(crash.unwrap(), Failed::Finished);
        }
        let outcomes = fresh.texts("select distinct outcome from event_outcomes").await;
        assert_eq!(outcomes, ["applied"]);
        for table in ["dead_letters", "attention", "outbox"] {
            let left = fresh.number(&format!("select count(*) from {table}")).await;
            assert_eq!(left, 0, "{table}");
        }
    })
    .await;
}

/// A message that comes while the item about the earlier ones is being resolved is not closed unseen: it waits, and
/// raises an item of its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_message_that_meets_a_resolution_raises_a_new_item() {
    FreshStore::with_postgres(|fresh| async move {
        let merchants = || ["default".to_owned()].into();
        fresh
            .store
            .bury_unknown(&merchants(), "x", "unknown", b"")
            .await
            .unwrap();
        let item = fresh.texts("select id from attention").await.remove(0);
        let resolution = Resolution {
            action: "dismiss".to_owned(),
            reason: "sent again".to_owned(),
            resolved_by: "ops".to_owned(),
            resolved_at: Timestamp::from_micros(1),
        };
        let mut operator = fresh.store.begin().await.unwrap();
        assert!(
            attention::resolve(&mut operator, &item, &resolution)
                .await
                .unwrap()
        );
        let store = fresh.store.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { store.bury_unknown(&merchants(), "y", "unknown", b"").await });
        let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
             and datname = current_database()";
        until("it waits for the operator", async || {
            fresh.number(waiting).await == 1
        })
        .await;
        close_unknown(&mut operator, "unknown_message", Timestamp::from_micros(2))
            .await
            .unwrap();
        operator.commit().await.unwrap();
        tasks.join_next().await.unwrap().unwrap().unwrap();
        let open = "select event_key from dead_letters where redriven_at is null";
        assert_eq!(fresh.texts(open).await, ["y"]);
        let items = "select source || ' ' || state from attention order by id";
        assert_eq!(
            fresh.texts(items).await,
            ["unknown_message resolved", "unknown_message/1 open"]
        );
    })
    .await;
}
