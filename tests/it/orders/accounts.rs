//! What an account says about its payments: since when they are shipped, and what has no order.

use std::time::Duration;

use payhook::event::{FactKind, NoOrder, ProviderName, Reading};
use payhook::store::attention::{self, Resolution};
use payhook::store::parked;
use payhook::time::Timestamp;

use super::cast::{Act, CREATE, End, ORDER, PARK, now, of, paid, play, refund, register, told};
use crate::support::store::{FreshStore, on_both_stores};

const DAY: Duration = Duration::from_hours(24);

/// `act` with what its account says, as a message of this type.
fn with(act: Act, kind: &str, change: impl Fn(&mut Reading)) -> Act {
    let Act::Event(mut told) = act else { unreachable!() };
    kind.clone_into(&mut told.0.kind);
    change(&mut told.1);
    Act::Event(told)
}

fn stripe(id: &str, order: Option<&str>, trade: &str) -> Act {
    told(ProviderName::Stripe, id, order, vec![paid(trade, 100)])
}

async fn raise(fresh: &FreshStore, later: Timestamp) -> usize {
    let mut tx = fresh.store.begin().await.unwrap();
    let found = parked::raise_overdue(&mut tx, later, later).await.unwrap();
    tx.commit().await.unwrap();
    found
}

/// Code, state and how many events, closed ones first.
async fn items(fresh: &FreshStore) -> Vec<String> {
    let items =
        "select code || ' ' || state || ' ' || events from attention order by state desc, events desc";
    fresh.texts(items).await
}

async fn dismiss(fresh: &FreshStore) {
    let id = fresh
        .texts("select id from attention where state = 'open'")
        .await
        .remove(0);
    let resolution = Resolution {
        action: "dismiss".to_owned(),
        reason: "seen".to_owned(),
        resolved_by: "ops".to_owned(),
        resolved_at: now(),
    };
    let mut tx = fresh.store.begin().await.unwrap();
    assert!(attention::resolve(&mut tx, &id, &resolution).await.unwrap());
    tx.commit().await.unwrap();
}

async fn sent(fresh: &FreshStore) -> Vec<String> {
    fresh.texts("select routing_key from messages order by id").await
}

on_both_stores! {
    async fn old_payment_is_booked_and_not_shipped(fresh) {
        let since = |reading: &mut Reading| {
            reading.rules.since = Some(now());
            reading.facts[0].at = Some(now().minus(DAY));
        };
        let finished = || vec![paid("T", 100), of(FactKind::TradeFinished, "T", "finished")];
        for order in ["A", "B"] {
            let kind = "payment.finished";
            let mut facts = finished();
            for fact in &mut facts {
                fact.key = format!("{order}:{}", fact.key);
                fact.trade_id = Some(format!("T-{order}"));
            }
            let act = with(told(ProviderName::Alipay, order, Some(order), facts), kind, since);
            play(&fresh.store, &[act.clone(), act], &CREATE).await;
        }
        assert_eq!(sent(&fresh).await, ["order.finished", "order.finished"]);
        assert_eq!(fresh.texts("select status || ' ' || paid from orders").await, ["finished 100", "finished 100"]);
        assert_eq!(fresh.number("select count(*) from orders where paid_version is not null").await, 0);
    }

    async fn payment_that_looked_old_is_shipped_once_its_time_is_known(fresh) {
        let since = |reading: &mut Reading| reading.rules.since = Some(now().minus(DAY));
        let facts = vec![paid("T", 100), refund(FactKind::RefundSucceeded, "T", "R", 40)];
        let refunded = with(told(ProviderName::Wechatpay, "r", Some(ORDER), facts), "refund.succeeded", since);
        play(&fresh.store, std::slice::from_ref(&refunded), &CREATE).await;
        assert_eq!(sent(&fresh).await, ["order.partially_refunded"]);
        let payment = with(told(ProviderName::Wechatpay, "p", Some(ORDER), vec![paid("T", 100)]), "payment.succeeded", since);
        play(&fresh.store, &[payment.clone(), refunded, payment], &CREATE).await;
        assert_eq!(sent(&fresh).await, ["order.partially_refunded", "order.paid"]);
        let order = fresh.store.order("default", ORDER).await.unwrap().unwrap();
        assert_eq!((order.head.status.as_str(), order.head.version, order.head.paid), ("partially_refunded", 2, 100));
    }

    async fn default_since_is_when_the_store_first_knew_the_account(fresh) {
        let known = now().minus(DAY);
        let accounts = || [(ProviderName::Stripe, "shop".to_owned())];
        fresh.store.know_accounts(accounts(), known).await.unwrap();
        fresh.store.know_accounts(accounts(), now()).await.unwrap();
        for (order, at) in [
            ("OLD", known.minus(Duration::from_mins(6))),
            ("UNDER-WAY", known.minus(Duration::from_mins(4))),
            ("NEW", known.plus(Duration::from_mins(1))),
        ] {
            let act = stripe(order, Some(order), &format!("pi-{order}"));
            let act = with(act, "payment.succeeded", |reading| reading.facts[0].at = Some(at));
            play(&fresh.store, &[act], &CREATE).await;
        }
        let shipped = "select order_id from messages where routing_key = 'order.paid' order by order_id";
        assert_eq!(fresh.texts(shipped).await, ["NEW", "UNDER-WAY"]);
        assert_eq!(fresh.number("select count(*) from accounts").await, 1);
    }

    async fn account_that_no_daemon_noted_is_known_from_its_first_event(fresh) {
        let old = with(stripe("old", Some("OLD"), "pi-1"), "payment.succeeded", |reading| {
            reading.facts[0].at = Some(now().minus(DAY));
        });
        play(&fresh.store, &[old, stripe("new", Some("NEW"), "pi-2")], &CREATE).await;
        let shipped = "select order_id from messages where routing_key = 'order.paid'";
        assert_eq!(fresh.texts(shipped).await, ["NEW"]);
        assert_eq!(fresh.number("select count(*) from accounts").await, 1);
    }

    async fn payments_without_an_order_are_one_item_that_counts(fresh) {
        let renewals: Vec<Act> = (0..5).map(|n| stripe(&format!("r{n}"), None, &format!("pi-{n}"))).collect();
        play(&fresh.store, &renewals, &CREATE).await;
        let later = now().plus(DAY * 2);
        assert_eq!((raise(&fresh, later).await, raise(&fresh, later).await), (5, 0));
        assert_eq!(items(&fresh).await, ["parked_too_long open 5"]);
        play(&fresh.store, &renewals, &CREATE).await;
        play(&fresh.store, &[stripe("r5", None, "pi-5")], &CREATE).await;
        assert_eq!(raise(&fresh, later).await, 1);
        assert_eq!(items(&fresh).await, ["parked_too_long open 6"]);
        assert_eq!(sent(&fresh).await, ["attention.parked_too_long"]);

        // Dismissed, it is not raised for these again, but for the next.
        dismiss(&fresh).await;
        assert_eq!(raise(&fresh, later).await, 0);
        play(&fresh.store, &[stripe("r6", None, "pi-6"), stripe("r7", None, "pi-7")], &CREATE).await;
        assert_eq!(raise(&fresh, later).await, 2);
        assert_eq!(items(&fresh).await, ["parked_too_long resolved 6", "parked_too_long open 2"]);

        // It closes itself with the last event that waited, not before.
        play(&fresh.store, &[stripe("l6", Some("O6"), "pi-6")], &CREATE).await;
        raise(&fresh, later).await;
        assert_eq!(items(&fresh).await[1], "parked_too_long open 2");
        play(&fresh.store, &[stripe("l7", Some("O7"), "pi-7")], &CREATE).await;
        raise(&fresh, later).await;
        assert_eq!(items(&fresh).await[1], "parked_too_long resolved 2");
        let view = fresh.store.attention_item("default", &fresh.texts("select id from attention order by events desc").await[0]).await;
        assert_eq!(view.unwrap().unwrap().count, 6);
    }

    async fn order_that_is_not_registered_still_has_an_item_of_its_own(fresh) {
        play(&fresh.store, &[stripe("a", Some("A"), "pi-a"), stripe("b", Some("B"), "pi-b")], &PARK).await;
        raise(&fresh, now().plus(DAY * 2)).await;
        assert_eq!(items(&fresh).await, ["parked_too_long open 1", "parked_too_long open 1"]);
    }

    async fn ignored_payment_raises_nothing_and_counts_when_it_is_linked(fresh) {
        let ignore = |act| with(act, "payment.succeeded", |reading| reading.rules.no_order = NoOrder::Ignore);
        let renewal = ignore(stripe("r", None, "pi-1"));
        let applied = play(&fresh.store, &[renewal.clone(), renewal], &CREATE).await;
        assert!(applied.iter().all(|applied| applied.outcome.as_str() == "unmapped"), "{applied:?}");
        assert_eq!(raise(&fresh, now().plus(DAY * 2)).await, 0);
        assert_eq!(fresh.number("select count(*) from attention").await, 0);
        play(&fresh.store, &[ignore(told(ProviderName::Stripe, "s", Some(ORDER), vec![paid("pi-1", 100)]))], &CREATE).await;
        let end = End::of(&fresh).await;
        assert_eq!((end.status.as_str(), end.paid_messages), ("paid", 1));
    }

    async fn event_of_a_kind_that_is_not_applied_is_counted_once(fresh) {
        let session = |id: &str| {
            let act = told(ProviderName::Stripe, id, Some(ORDER), Vec::new());
            with(act, "other.checkout.session.completed", |reading| reading.not_applied = Some("do this".to_owned()))
        };
        let (one, two) = (session("1"), session("2"));
        let applied = play(&fresh.store, &[one.clone(), two.clone(), one], &CREATE).await;
        assert!(applied.iter().all(|applied| applied.outcome.as_str() == "unmapped"), "{applied:?}");
        assert_eq!(items(&fresh).await, ["not_applied open 2"]);
        dismiss(&fresh).await;
        play(&fresh.store, &[two, session("3")], &CREATE).await;
        assert_eq!(items(&fresh).await, ["not_applied resolved 2", "not_applied open 1"]);
        assert_eq!(sent(&fresh).await, ["attention.not_applied", "attention.not_applied"]);
    }

    async fn order_of_nothing_is_registered_and_paid_with_nothing(fresh) {
        let free = told(ProviderName::Stripe, "cs", Some(ORDER), vec![paid("cs_1", 0)]);
        play(&fresh.store, &[register(0), free.clone(), free], &CREATE).await;
        let end = End::of(&fresh).await;
        assert_eq!((end.status.as_str(), end.totals.as_str(), end.paid_messages), ("paid", "0 0 0", 1));
        assert_eq!(end.raised, [""; 0]);
    }

    async fn payment_of_nothing_is_held_against_a_price(fresh) {
        let free = told(ProviderName::Stripe, "cs", Some(ORDER), vec![paid("cs_1", 0)]);
        play(&fresh.store, &[register(500), free], &CREATE).await;
        let end = End::of(&fresh).await;
        assert_eq!((end.status.as_str(), end.paid_messages), ("pending", 0));
        assert_eq!(fresh.texts("select code || ' ' || state from attention").await, ["amount_mismatch open"]);
    }

    async fn what_is_counted_and_known_is_not_rewritten(fresh) {
        fresh.store.know_accounts([(ProviderName::Stripe, "shop".to_owned())], now()).await.unwrap();
        play(&fresh.store, &[stripe("p", Some(ORDER), "pi-1")], &CREATE).await;
        for refused in [
            "update accounts set known_at = micros(1)",
            "delete from accounts",
            "update trades set ships = false",
            "update orders set version = version + 1",
        ] {
            assert!(fresh.by_hand(refused).await.is_err(), "{refused}");
        }
    }
}
