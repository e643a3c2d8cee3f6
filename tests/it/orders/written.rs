//! What one application leaves in the tables, and what the database refuses.

use std::time::Duration;

use payhook::event::{FactKind, Identity, ProviderName};
use payhook::orders::apply::{Item, apply};
use payhook::store::attention::{self, Resolution};
use payhook::store::parked;

use super::cast::{
    Act, CREATE, End, ORDER, PARK, batch, cny, now, of, paid, play, refund, register, told, total,
};
use crate::support::store::on_both_stores;

fn first() -> Act {
    told(ProviderName::Alipay, "1", Some(ORDER), vec![paid("T", 100)])
}

fn first_again() -> Act {
    told(ProviderName::Alipay, "again", Some(ORDER), vec![paid("T", 100)])
}

on_both_stores! {
    /// E15.
    async fn one_event_writes_everything_once(fresh) {
        let act = first();
        let applied = play(&fresh.store, std::slice::from_ref(&act), &CREATE).await;
        assert_eq!(applied[0].outcome.as_str(), "applied");
        assert_eq!(applied[0].reason, "1.00 CNY paid; alipay trade T is paid; the order is paid");
        let view = fresh.store.order("default", ORDER).await.unwrap().unwrap();
        assert_eq!((view.head.status.as_str(), view.head.version, view.head.paid), ("paid", 1, 100));
        assert_eq!((view.trades.len(), view.history.len(), view.ledger.len()), (1, 1, 1));
        assert_eq!((view.history[0].before.as_str(), view.history[0].after.as_str()), ("pending", "paid"));
        assert_eq!(fresh.texts("select routing_key from messages").await, ["order.paid"]);
        assert_eq!(fresh.texts("select id from outbox where kind = 'message'").await, ["default/ORDER-1/1"]);
        let again = play(&fresh.store, &[act.clone(), act], &CREATE).await;
        assert!(again.iter().all(|applied| applied.outcome.as_str() == "already_applied"));
        for table in ["facts", "messages", "ledger_entries", "order_history", "event_orders"] {
            assert_eq!(fresh.number(&format!("select count(*) from {table}")).await, 1, "{table}");
        }
        assert_eq!(fresh.texts("select outcome from event_outcomes").await, ["applied"]);
    }

    async fn the_message_holds_the_order_at_its_version(fresh) {
        let finished = of(FactKind::TradeFinished, "T", "finished");
        let act = told(ProviderName::Alipay, "1", Some(ORDER), vec![paid("T", 100), finished, total("T", 30)]);
        play(&fresh.store, &[act], &CREATE).await;
        let sql = if fresh.is_postgres() {
            "select convert_from(body, 'utf8') from messages order by id"
        } else {
            "select cast(body as text) from messages order by id"
        };
        let bodies: Vec<serde_json::Value> =
            fresh.texts(sql).await.iter().map(|body| serde_json::from_str(body).unwrap()).collect();
        let seen: Vec<_> = bodies
            .iter()
            .map(|body| (body["type"].as_str().unwrap(), body["data"]["version"].as_i64().unwrap(), body["data"]["refunded"].as_i64().unwrap()))
            .collect();
        assert_eq!(seen, [("order.paid", 1, 0), ("order.finished", 2, 30)]);
        assert_eq!(bodies[0]["id"], "default/ORDER-1/1");
        assert_eq!(bodies[0]["subject"], ORDER);
        assert_eq!(bodies[1]["data"]["trades"][0]["status"], "finished");
        assert_eq!(bodies[1]["data"]["history"][0]["outcome"], "applied");
        assert_eq!(fresh.number("select paid_version from orders").await, 1);
    }

    async fn a_parked_order_is_not_there_until_it_is_registered(fresh) {
        let applied = play(&fresh.store, &[first()], &PARK).await;
        assert_eq!(applied[0].outcome.as_str(), "parked");
        assert!(fresh.store.order("default", ORDER).await.unwrap().is_none());
        play(&fresh.store, &[register(100)], &PARK).await;
        let view = fresh.store.order("default", ORDER).await.unwrap().unwrap();
        assert_eq!((view.head.status.as_str(), view.head.amount), ("paid", Some(100)));
        assert_eq!(fresh.texts("select outcome from event_outcomes").await, ["applied"]);
    }

    /// Where orders need no registration any more.
    async fn a_parked_order_is_created_by_its_next_event(fresh) {
        // The second tells nothing that the first has not told.
        play(&fresh.store, &[first(), first_again()], &PARK).await;
        let next = told(ProviderName::Alipay, "next", Some(ORDER), vec![paid("T", 100), total("T", 40)]);
        play(&fresh.store, &[next], &CREATE).await;
        let end = End::of(&fresh).await;
        assert_eq!((end.status.as_str(), end.totals.as_str(), end.paid_messages), ("partially_refunded", "100 40 0", 1));
        let outcomes = fresh.texts("select outcome from event_outcomes order by outcome").await;
        assert_eq!(outcomes, ["already_applied", "applied", "applied"]);
    }

    async fn a_parked_order_is_created_by_its_own_event_again(fresh) {
        let act = first();
        play(&fresh.store, std::slice::from_ref(&act), &PARK).await;
        play(&fresh.store, &[act], &CREATE).await;
        let end = End::of(&fresh).await;
        assert_eq!((end.status.as_str(), end.totals.as_str(), end.paid_messages), ("paid", "100 0 0", 1));
        assert_eq!(fresh.texts("select outcome from event_outcomes").await, ["applied"]);
    }

    async fn facts_without_a_link_wait_and_wake_with_their_events(fresh) {
        let re = told(ProviderName::Stripe, "re", None, vec![refund(FactKind::RefundSucceeded, "T", "R", 40)]);
        let pi = told(ProviderName::Stripe, "pi", Some(ORDER), vec![paid("T", 100)]);
        play(&fresh.store, &[re, pi], &CREATE).await;
        let end = End::of(&fresh).await;
        assert_eq!((end.status.as_str(), end.totals.as_str()), ("partially_refunded", "100 40 0"));
        assert_eq!(fresh.texts("select outcome from event_outcomes").await, ["applied", "applied"]);
        assert_eq!(fresh.number("select count(*) from event_orders").await, 2);
    }

    /// C19.
    async fn what_waits_too_long_is_shown_once_and_goes_on_waiting(fresh) {
        let re = told(ProviderName::Stripe, "re", None, vec![refund(FactKind::RefundSucceeded, "T", "R", 40)]);
        play(&fresh.store, &[re], &CREATE).await;
        let later = now().plus(Duration::from_hours(25));
        for (since, found) in [(now(), 0), (later, 1), (later, 0)] {
            let mut tx = fresh.store.begin().await.unwrap();
            assert_eq!(parked::raise_overdue(&mut tx, since, later).await.unwrap(), found);
            tx.commit().await.unwrap();
        }
        assert_eq!(fresh.texts("select routing_key from messages").await, ["attention.parked_too_long"]);
        let pi = told(ProviderName::Stripe, "pi", Some(ORDER), vec![paid("T", 100)]);
        play(&fresh.store, &[pi], &CREATE).await;
        assert_eq!(End::of(&fresh).await.totals, "100 40 0");
    }

    async fn attention_is_raised_with_its_message_and_resolves_itself(fresh) {
        let held = told(ProviderName::Alipay, "1", Some(ORDER), vec![paid("T", 90)]);
        play(&fresh.store, &[register(100), held], &CREATE).await;
        assert_eq!(fresh.texts("select code || ' ' || state from attention").await, ["amount_mismatch open"]);
        let keys = fresh.texts("select routing_key from messages order by routing_key").await;
        assert_eq!(keys, ["attention.amount_mismatch", "order.updated"]);
        let refund = told(ProviderName::Alipay, "2", Some(ORDER), vec![paid("T", 90), total("T", 90)]);
        play(&fresh.store, &[refund], &CREATE).await;
        let items = fresh.store.order("default", ORDER).await.unwrap().unwrap().attention;
        assert_eq!(items[0].state, "resolved");
        assert_eq!(items[0].resolution.as_ref().unwrap().action, "resolved_itself");
        assert_eq!(fresh.texts("select status from trades").await, ["held"]);
    }

    async fn an_event_about_another_account_is_applied_once_when_a_human_says_so(fresh) {
        let Act::Event(mut told) = first() else { unreachable!() };
        told.1.identity = Identity::Mismatch("app_id 2".to_owned());
        let act = Act::Event(told.clone());
        let applied = play(&fresh.store, &[act.clone(), act.clone()], &CREATE).await;
        assert!(applied.iter().all(|applied| applied.outcome.as_str() == "attention"));
        assert_eq!(fresh.number("select count(*) from orders").await, 0);
        let id = fresh.texts("select id from attention").await.remove(0);
        let mut tx = fresh.store.begin().await.unwrap();
        let resolution = Resolution {
            action: "apply_once".to_owned(),
            reason: "the shop was renamed".to_owned(),
            resolved_by: "ops".to_owned(),
            resolved_at: now(),
        };
        assert!(attention::resolve(&mut tx, &id, &resolution).await.unwrap());
        assert!(!attention::resolve(&mut tx, &id, &resolution).await.unwrap());
        let item = Item { event: &told.0, reading: &told.1 };
        let applied = apply(&mut tx, &[item], &CREATE, now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(applied[0].outcome.as_str(), "applied");
        assert_eq!(play(&fresh.store, &[act], &CREATE).await[0].outcome.as_str(), "already_applied");
    }

    async fn a_batch_of_many_orders_is_one_transaction(fresh) {
        let acts: Vec<Act> = (0..64)
            .map(|n| told(ProviderName::Alipay, &n.to_string(), Some(&format!("O-{n}")), vec![paid(&format!("T-{n}"), 100)]))
            .collect();
        let applied = batch(&fresh.store, &acts, &CREATE).await;
        assert_eq!(applied.len(), 64);
        assert_eq!(fresh.number("select count(*) from messages where routing_key = 'order.paid'").await, 64);
        assert_eq!(fresh.number("select count(distinct order_id) from orders where status = 'paid'").await, 64);
    }

    async fn the_database_refuses_to_go_back(fresh) {
        let refund = told(ProviderName::Alipay, "2", Some(ORDER), vec![total("T", 30)]);
        play(&fresh.store, &[register(100), first(), refund], &CREATE).await;
        for sql in [
            "update orders set status = 'pending', version = version + 1",
            "update orders set status = 'paid', version = version + 1",
            "update orders set refunded = 0, version = version + 1",
            "update orders set refunded = 40",
            "update orders set version = version + 1",
            "update orders set paid_version = 7",
            "update orders set amount = 5",
            "update trades set status = 'unpaid'",
            "update trades set order_id = 'OTHER'",
            "update trades set refunded = 0",
            "update trades set amount = 1",
            "update ledger_entries set amount = 1",
            "update facts set amount = 1",
            "update order_history set reason = ''",
            "update messages set routing_key = ''",
            "update attention set explanation = ''",
            "delete from orders",
            "delete from trades",
            "delete from facts",
            "delete from ledger_entries",
            "delete from order_history",
        ] {
            let touches_rows = !sql.contains("attention");
            let done = fresh.by_hand(sql).await;
            assert!(done.is_err() || !touches_rows && matches!(done, Ok(0)), "{sql}: {done:?}");
        }
        let end = End::of(&fresh).await;
        assert_eq!((end.status.as_str(), end.totals.as_str()), ("partially_refunded", "100 30 0"));
        assert_eq!(cny(100).minor, 100);
    }
}
