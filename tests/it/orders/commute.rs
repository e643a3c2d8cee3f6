//! I10 on both databases: for sets of facts of every provider, every permutation with repetitions ends alike;
//! and two workers side by side end like one.

use std::collections::BTreeMap;

use payhook::event::{EventId, EventKey, FactKind, ProviderName};

use super::cast::{
    Act, CREATE, End, ORDER, PARK, batch, close, now, of, paid, play, record, refund, register, told, total,
};
use crate::support::store::{FreshStore, on_both_stores};
use payhook::orders::apply::{Item, apply};
use payhook::time::Timestamp;

/// Sets small enough that every permutation is played.
fn sets() -> Vec<Vec<Act>> {
    use ProviderName::{Alipay, Antom, Stripe, TwoCTwoP, Wechatpay};
    let order = Some(ORDER);
    let mut sets = vec![
        vec![
            told(Alipay, "a1", order, vec![paid("T1", 100)]),
            told(Alipay, "a2", order, vec![paid("T1", 100), total("T1", 30)]),
            told(
                Alipay,
                "a3",
                order,
                vec![paid("T1", 100), of(FactKind::TradeFinished, "T1", "finished")],
            ),
            register(100),
        ],
        vec![
            told(
                Alipay,
                "b1",
                order,
                vec![of(FactKind::TradeClosed, "T1", "closed")],
            ),
            told(Alipay, "b2", order, vec![paid("T1", 100)]),
            told(Wechatpay, "b3", order, vec![paid("T2", 100)]),
            close(),
        ],
        vec![
            told(Wechatpay, "c1", order, vec![paid("T1", 100)]),
            told(
                Wechatpay,
                "c2",
                order,
                vec![paid("T1", 100), refund(FactKind::RefundSucceeded, "T1", "R1", 40)],
            ),
            told(
                Wechatpay,
                "c3",
                order,
                vec![paid("T1", 100), refund(FactKind::RefundSucceeded, "T1", "R2", 60)],
            ),
            register(90),
        ],
        vec![
            told(Stripe, "d1", order, vec![paid("T1", 100)]),
            told(
                Stripe,
                "d2",
                None,
                vec![refund(FactKind::RefundSucceeded, "T1", "R1", 40)],
            ),
            told(
                Stripe,
                "d3",
                None,
                vec![
                    refund(FactKind::RefundSucceeded, "T1", "R1", 40),
                    refund(FactKind::RefundFailed, "T1", "R1", 40),
                ],
            ),
            told(Stripe, "d4", None, vec![paid("T1", 100), total("T1", 40)]),
        ],
        vec![
            told(TwoCTwoP, "e1", order, vec![paid("T1", 100)]),
            told(
                TwoCTwoP,
                "e2",
                order,
                vec![refund(FactKind::RefundSucceeded, "T1", "T1:100", 100)],
            ),
            told(
                Antom,
                "e3",
                order,
                vec![of(FactKind::PaymentFailed, "T2", "failed:1").happened(Some(now()))],
            ),
            register(100),
        ],
    ];
    sets.extend(further_trades_and_contradictions());
    sets
}

/// Sets with more than one trade, and reports that differ about one thing.
fn further_trades_and_contradictions() -> [Vec<Act>; 3] {
    use ProviderName::{Alipay, Stripe, Wechatpay};
    let order = Some(ORDER);
    [
        // Paid twice, one refunded whole, and a third trade.
        vec![
            told(Wechatpay, "f1", order, vec![paid("T1", 100)]),
            told(Alipay, "f2", order, vec![paid("T2", 100)]),
            told(Alipay, "f3", order, vec![paid("T2", 100), total("T2", 100)]),
            told(
                Stripe,
                "f4",
                order,
                vec![refund(FactKind::RefundSucceeded, "T3", "R3", 100)],
            ),
            told(Stripe, "f5", order, vec![paid("T3", 100)]),
        ],
        // A dispute whose reports differ, attempts that share a charge, and a refund before its payment.
        vec![
            told(
                Stripe,
                "g1",
                order,
                vec![of(FactKind::PaymentFailed, "T1", "failed:ch").happened(Some(at(10)))],
            ),
            told(
                Stripe,
                "g2",
                order,
                vec![of(FactKind::PaymentProcessing, "T1", "processing").happened(Some(at(15)))],
            ),
            told(
                Stripe,
                "g3",
                order,
                vec![of(FactKind::PaymentFailed, "T1", "failed:ch").happened(Some(at(20)))],
            ),
        ],
        vec![
            told(Stripe, "h1", order, vec![paid("T1", 100)]),
            told(
                Stripe,
                "h2",
                None,
                vec![refund(FactKind::DisputeFundsWithdrawn, "T1", "D1", 12)],
            ),
            told(
                Stripe,
                "h3",
                None,
                vec![refund(FactKind::DisputeLost, "T1", "D1", 14)],
            ),
            told(
                Stripe,
                "h4",
                None,
                vec![refund(FactKind::DisputeFundsReinstated, "T1", "D1", 5)],
            ),
            told(
                Stripe,
                "h5",
                None,
                vec![refund(FactKind::RefundSucceeded, "T1", "R1", 40)],
            ),
        ],
    ]
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn permutations(len: usize) -> Vec<Vec<usize>> {
    if len == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(len - 1) {
        for at in 0..len {
            let mut one = shorter.clone();
            one.insert(at, len - 1);
            all.push(one);
        }
    }
    all
}

/// Each order has its own id, so that one database serves all permutations.
fn rename(acts: &[Act], suffix: usize) -> Vec<Act> {
    use payhook::orders::apply::OwnFact;
    let with = |text: &str| format!("{text}-{suffix}");
    acts.iter()
        .cloned()
        .map(|act| match act {
            Act::Own(OwnFact::Registered { order_id, amount }) => {
                let order_id = with(&order_id);
                Act::Own(OwnFact::Registered { order_id, amount })
            }
            Act::Own(OwnFact::Closed { order_id }) => Act::Own(OwnFact::Closed {
                order_id: with(&order_id),
            }),
            Act::Own(other) => Act::Own(other),
            Act::Event(mut told) => {
                let (event, reading) = &mut *told;
                "default".clone_into(&mut event.merchant);
                event.id = EventId::from_text(with(event.key.as_str()));
                event.key = EventKey::from_text(with(event.key.as_str()));
                for fact in &mut reading.facts {
                    fact.key = with(&fact.key);
                    fact.order_id = fact.order_id.as_deref().map(with);
                    fact.trade_id = fact.trade_id.as_deref().map(with);
                    fact.refund_id = fact.refund_id.as_deref().map(with);
                }
                event.trade_id = event.trade_id.as_deref().map(with);
                event.order_id = event.order_id.as_deref().map(with);
                reading.order_id = event.order_id.clone();
                Act::Event(told)
            }
        })
        .collect()
}

/// How every order of the database ended, by its suffix.
pub(crate) async fn ends(fresh: &FreshStore) -> BTreeMap<usize, End> {
    let mut ends: BTreeMap<usize, End> = BTreeMap::new();
    let rows =
        "select order_id || ' ' || status || ' ' || paid || ' ' || refunded || ' ' || reversed from orders";
    for row in fresh.texts(rows).await {
        let [order, status, totals] = row.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let end = ends.entry(suffix(order)).or_default();
        (end.status, end.totals) = (status.to_owned(), totals.to_owned());
    }
    let sums = "select order_id || ' ' || provider || ' ' || entry_type || ' ' || currency || ' ' || cast(sum(amount) as text) \
         as line from ledger_entries group by order_id, provider, trade_id, entry_type, currency order by line";
    for row in fresh.texts(sums).await {
        let (order, sum) = row.split_once(' ').unwrap();
        ends.get_mut(&suffix(order)).unwrap().sums.push(sum.to_owned());
    }
    for row in fresh
        .texts("select order_id || ' ' || code from attention order by code")
        .await
    {
        let (order, code) = row.split_once(' ').unwrap();
        ends.get_mut(&suffix(order)).unwrap().raised.push(code.to_owned());
    }
    for order in fresh
        .texts("select order_id from messages where routing_key = 'order.paid'")
        .await
    {
        ends.get_mut(&suffix(&order)).unwrap().paid_messages += 1;
    }
    ends
}

fn suffix(order_id: &str) -> usize {
    order_id.rsplit('-').next().unwrap().parse().unwrap()
}

on_both_stores! {
    async fn every_permutation_with_repetitions_ends_alike(fresh) {
        let sets = sets();
        let mut played = Vec::new();
        for (set, acts) in sets.iter().enumerate() {
            for (nth, order) in permutations(acts.len()).into_iter().enumerate() {
                let named = rename(acts, played.len());
                let mut acts: Vec<Act> = order.iter().map(|at| named[*at].clone()).collect();
                acts.extend(order.iter().rev().take(2).map(|at| named[*at].clone()));
                if nth % 4 == 0 {
                    play(&fresh.store, &acts, &CREATE).await;
                } else {
                    batch(&fresh.store, &acts, &CREATE).await;
                }
                played.push((set, order));
            }
        }
        let ends = ends(&fresh).await;
        assert_eq!(ends.len(), played.len());
        let mut first: BTreeMap<usize, End> = BTreeMap::new();
        for ((set, order), end) in played.iter().zip(ends.into_values()) {
            let expected = first.entry(*set).or_insert_with(|| end.clone());
            assert_eq!((&end.totals, &end.sums), (&expected.totals, &expected.sums), "set {set}, {order:?}");
            if !end.humans_decide() && !expected.humans_decide() {
                let (one, other) = ((&end.status, &end.raised), (&expected.status, &expected.raised));
                assert_eq!(one, other, "set {set}, {order:?}");
            }
            let held_back = |end: &End| end.raised.iter().any(|code| code == "paid_after_close" || code == "amount_mismatch");
            if !held_back(&end) && !held_back(expected) {
                assert_eq!(end.status == "refunded", expected.status == "refunded", "set {set}, {order:?}");
            }
            match set {
                5 => assert_eq!(
                    (end.status.as_str(), end.totals.as_str(), end.paid_messages),
                    ("paid", "300 200 0", 1),
                    "{order:?}"
                ),
                6 => assert_eq!(end.status, "failed", "{order:?}"),
                _ => {}
            }
            assert!(end.paid_messages <= 1);
        }
        let parked = "select event_id || ': ' || reason from event_outcomes where outcome = 'parked'";
        assert_eq!(fresh.texts(parked).await, [""; 0]);
    }

    async fn parked_facts_end_like_unparked_ones(fresh) {
        let acts = sets().swap_remove(0);
        for (suffix, order) in permutations(acts.len()).into_iter().enumerate() {
            let named = rename(&acts, suffix);
            let acts: Vec<Act> = order.iter().map(|at| named[*at].clone()).collect();
            play(&fresh.store, &acts, &PARK).await;
        }
        for end in ends(&fresh).await.into_values() {
            assert_eq!((end.status.as_str(), end.totals.as_str()), ("finished", "100 30 0"));
        }
        assert_eq!(fresh.number("select count(*) from event_outcomes where outcome = 'parked'").await, 0);
        assert_eq!(fresh.number("select count(*) from orders where parked_until is not null").await, 0);
    }
}

/// C13, C14: Two workers apply the same shuffled events of the same orders in overlapping batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_on_postgres_end_like_one_and_never_deadlock() {
    FreshStore::with_postgres(async |fresh| {
        let orders = 12;
        let acts: Vec<Act> = (0..orders)
            .flat_map(|suffix| rename(&sets()[3], suffix))
            .collect();
        record(&fresh.store, &acts).await;
        let worker = |reverse: bool| {
            let store = fresh.store.clone();
            let mut acts = acts.clone();
            if reverse {
                acts.reverse();
            }
            // A stride that mixes the orders within each batch.
            let mixed: Vec<Act> = (0..acts.len())
                .map(|at| acts[at * 7 % acts.len()].clone())
                .collect();
            async move {
                for chunk in mixed.chunks(16).chain(mixed.chunks(5)) {
                    let items: Vec<Item<'_>> = chunk
                        .iter()
                        .filter_map(|act| match act {
                            Act::Event(told) => Some(Item {
                                event: &told.0,
                                reading: &told.1,
                            }),
                            Act::Own(_) => None,
                        })
                        .collect();
                    let mut tx = store.begin().await.unwrap();
                    apply(&mut tx, &items, &CREATE, now()).await.unwrap();
                    tx.commit().await.unwrap();
                }
            }
        };
        tokio::join!(worker(false), worker(true), worker(false));
        let ends = ends(&fresh).await;
        assert_eq!(ends.len(), orders);
        for end in ends.into_values() {
            assert_eq!(
                (end.status.as_str(), end.totals.as_str()),
                ("partially_refunded", "100 40 40")
            );
            assert_eq!(end.paid_messages, 1);
            assert_eq!(end.raised, ["refund_reversed"]);
        }
    })
    .await;
}
