//! The outbox's ways out on both databases: failure and burial, confirm and outcome in either order, redrive.

use std::sync::Arc;
use std::time::Duration;

use payhook::event::Event;
use payhook::store::dead_letters::{Redriven, redrive};
use payhook::store::outbox::{Content, Failed, FailurePolicy, Scope, finish_applied};

use crate::support::events::{event, events};
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
        let kept = format!("select count(*) from outbox where attempts = 1 and due_at = {} \
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
        assert!(!fresh.store.bury_unfinished(&event, "given up").await.unwrap());
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
            fresh.store.bury_unknown("webhook:alipay:shop:1", "unknown", body).await.unwrap();
        }
        assert_eq!(fresh.number("select count(*) from dead_letters where event_id is null").await, 2);
        assert_eq!(fresh.number("select cast(max(length(message)) as bigint) from dead_letters").await, 65536);
        assert_eq!(fresh.number("select count(*) from attention").await, 1);
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
        fresh.store.release(&ids, "somebody else", Duration::ZERO).await.unwrap();
        assert_eq!(fresh.store.claim_due(Scope::First, "two", 10).await.unwrap().len(), 0);
        fresh.store.release(&ids, "one", Duration::ZERO).await.unwrap();
        assert_eq!(fresh.store.claim_due(Scope::First, "two", 10).await.unwrap().len(), 3);
    }
}
