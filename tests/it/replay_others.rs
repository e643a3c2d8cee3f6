//! Several processes and several replays: what one does not know or cannot do is no other's trouble.

use payhook::config::{Exchange, Queue};
use payhook::replay::{Driver, Round};

use crate::api::replays::paid;
use crate::replays::{Wish, begin, over, seen, stored};
use crate::support::events::event;
use crate::support::rabbit::until;
use crate::support::signed::Senders;
use crate::support::store::on_both_stores;

on_both_stores! {
    async fn what_an_older_configuration_does_not_know_is_left_to_another_process(fresh) {
        let senders = Senders::new();
        stored(&fresh, (0..3).map(|n| paid(&senders, n))).await;
        let queue = Queue { name: "evidence".to_owned(), exchange: Exchange::Events, bind: vec!["#".to_owned()] };
        let id = begin(&fresh, Wish { queue: Some("evidence"), ..Wish::default() }).await;
        let mut older = Driver::new(over(&fresh, &[]), "older");
        for _ in 0..2 {
            assert_eq!(older.step().await.unwrap(), Round::default());
            let waits = seen(&fresh, &id).await;
            assert_eq!((waits.state.as_str(), waits.sent, waits.refused), ("running", 0, 0));
            assert!(waits.waiting.unwrap().contains("queue evidence is not declared"));
            assert_eq!(fresh.number("select count(*) from replays where leased_by is null").await, 1);
        }
        let mut newer = Driver::new(over(&fresh, std::slice::from_ref(&queue)), "newer");
        until("it to be handed over", async || {
            newer.step().await.unwrap();
            seen(&fresh, &id).await.sent == 3
        }).await;
        assert_eq!(seen(&fresh, &id).await.waiting, None);
    }

    async fn an_account_that_nobody_knows_is_refused_after_the_others_were_asked(fresh) {
        let senders = Senders::new();
        stored(&fresh, (0..3).map(|n| paid(&senders, n))).await;
        stored(&fresh, [event("x", b"{}")]).await;
        fresh.by_hand("delete from outbox").await.unwrap();
        let id = begin(&fresh, Wish::default()).await;
        if fresh.is_postgres() {
            assert_eq!(Driver::new(over(&fresh, &[]), "one").step().await.unwrap(), Round::default());
            let waits = seen(&fresh, &id).await;
            assert_eq!((waits.sent, waits.refused), (0, 0));
            assert!(waits.waiting.unwrap().contains("account stripe/shop is not configured"));
            fresh.by_hand("update replays set waits_since = waits_since - span(301000000)").await.unwrap();
        }
        let mut driver = Driver::new(over(&fresh, &[]), "two");
        until("it to be handed over", async || {
            driver.step().await.unwrap();
            seen(&fresh, &id).await.sent == 3
        }).await;
        let moved = seen(&fresh, &id).await;
        assert_eq!((moved.refused, moved.waiting), (1, None));
        assert_eq!(moved.refusals[0].reason, "account stripe/shop is not configured: no worker could read it");
    }

    async fn one_with_a_trouble_of_its_own_rests_and_stops_no_other(fresh) {
        let senders = Senders::new();
        stored(&fresh, (0..3).map(|n| paid(&senders, n))).await;
        let (broken, sound) = (begin(&fresh, Wish::default()).await, begin(&fresh, Wish::default()).await);
        fresh.by_hand(&format!("update replays set refusals = '[]' where id = '{broken}'")).await.unwrap();
        let mut driver = Driver::new(over(&fresh, &[]), "one");
        until("the sound one to be handed over", async || {
            assert_eq!(driver.step().await.unwrap().driven, 2);
            seen(&fresh, &sound).await.sent == 3
        }).await;
        fresh.by_hand(&format!("update replays set refusals = '{{}}' where id = '{broken}'")).await.unwrap();
        assert_eq!(driver.step().await.unwrap().sent, 0, "it rests");
        let mut another = Driver::new(over(&fresh, &[]), "two");
        fresh.by_hand("update replays set leased_by = null, leased_until = micros(0)").await.unwrap();
        until("another to go on", async || {
            another.step().await.unwrap();
            seen(&fresh, &broken).await.sent == 3
        }).await;
    }
}
