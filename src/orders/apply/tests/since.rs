//! Payments from before an account's `since`: booked, and never shipped; and payments of 0.

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::input::Times;
use super::commute::{again, sequence};
use super::*;

/// The account's `since`, in days.
const SINCE: i64 = 1000;

fn day(day: i64) -> Timestamp {
    Timestamp::from_secs(day * 86_400)
}

/// `input`, which happened on `day`; `of_payment`: it is the payment's own message.
fn on(mut input: Input, at: i64, of_payment: bool) -> Input {
    input.since = Some(day(SINCE));
    input.times = Some(Times {
        received_at: day(at),
        occurred_at: day(at),
        of_payment,
    });
    input
}

fn ali(id: &str, facts: Vec<Fact>) -> Input {
    event(id, "alipay", Some(O), facts)
}

fn paid_on(amount: Money, at: i64) -> Fact {
    paid("T1", amount).happened(Some(day(at)))
}

#[test]
fn old_payment_takes_every_status_and_is_never_shipped() {
    let a = cny(100);
    let mut sim = Sim::default();
    let applied = sim.one(on(ali("paid", vec![paid_on(a, 999)]), 1001, true));
    assert!(
        applied.reason.contains("so it is not shipped"),
        "{}",
        applied.reason
    );
    sim.one(on(
        ali("part", vec![paid_on(a, 999), total("T1", cny(30))]),
        1002,
        false,
    ));
    sim.one(on(ali("end", vec![paid_on(a, 999), finished("T1")]), 1003, false));
    assert_eq!((sim.status(), sim.totals()), ("finished", (100, 30, 0)));
    assert_eq!(sim.sum("payment"), 100);
    assert_eq!(
        sim.messages,
        [
            "ORDER-1:order.updated",
            "ORDER-1:order.partially_refunded",
            "ORDER-1:order.finished"
        ]
    );
}

#[test]
fn first_sight_that_is_old_ships_nothing() {
    let a = cny(100);
    let first = [
        ("finished", vec![paid_on(a, 910), finished("T1")]),
        // WeChat Pay names no time of payment in a refund.
        (
            "partially_refunded",
            vec![paid("T1", a), refunded("T1", "R1", cny(20))],
        ),
    ];
    for (status, facts) in first {
        let mut sim = Sim::default();
        sim.one(on(ali("first", facts), 1002, false));
        assert_eq!(sim.status(), status);
        assert_eq!(sim.messages, [format!("ORDER-1:order.{status}")]);
    }
}

#[test]
fn refund_long_after_since_ships_what_it_implies() {
    let mut sim = Sim::default();
    let refund = vec![paid("T1", cny(100)), refunded("T1", "R1", cny(20))];
    sim.one(on(ali("r", refund), SINCE + 366, false));
    assert_eq!(
        sim.messages,
        ["ORDER-1:order.paid", "ORDER-1:order.partially_refunded"]
    );
}

#[test]
fn payment_that_only_looked_old_is_shipped_when_its_time_comes() {
    let a = cny(100);
    let mut sim = Sim::default();
    sim.one(on(
        ali("r", vec![paid("T1", a), refunded("T1", "R1", cny(20))]),
        1002,
        false,
    ));
    assert_eq!(sim.sent("order.paid"), 0);
    let late = || on(ali("p", vec![paid_on(a, 1000)]), 1001, true);
    let applied = sim.one(late());
    assert_eq!(
        (applied.outcome.as_str(), sim.status()),
        ("applied", "partially_refunded")
    );
    assert!(applied.reason.contains("it is shipped"), "{}", applied.reason);
    assert_eq!(sim.order().began.version, 2);
    sim.one(late());
    assert_eq!(
        sim.messages,
        ["ORDER-1:order.partially_refunded", "ORDER-1:order.paid"]
    );
}

#[test]
fn two_steps_at_once_are_two_messages() {
    let a = cny(100);
    let mut sim = Sim::default();
    sim.one(on(
        ali("r", vec![paid("T1", a), refunded("T1", "R1", cny(20))]),
        1002,
        false,
    ));
    sim.batch(&[
        on(ali("p", vec![paid_on(a, 1000)]), 1001, true),
        on(ali("f", vec![paid_on(a, 1000), finished("T1")]), 1003, false),
    ]);
    assert_eq!(
        sim.messages,
        [
            "ORDER-1:order.partially_refunded",
            "ORDER-1:order.paid",
            "ORDER-1:order.finished"
        ]
    );
}

#[test]
fn second_payment_of_an_old_order_is_for_a_human_and_ships_nothing() {
    let mut sim = Sim::default();
    sim.one(on(ali("old", vec![paid_on(cny(100), 999)]), 1001, true));
    let second = paid("T2", cny(100)).happened(Some(day(1001)));
    sim.one(on(event("new", "wechatpay", Some(O), vec![second]), 1001, true));
    assert_eq!((sim.raised(), sim.sent("order.paid")), (vec!["paid_twice"], 0));
}

#[test]
fn payment_of_nothing_ships_once_and_is_held_against_a_price() {
    let free = || event("cs", "stripe", Some(O), vec![paid("cs_1", cny(0))]);
    for before in [None, Some(0)] {
        let mut sim = Sim::default();
        if let Some(amount) = before {
            sim.one(register(cny(amount)));
        }
        sim.one(free());
        sim.one(free());
        assert_eq!((sim.status(), sim.totals()), ("paid", (0, 0, 0)));
        assert_eq!((sim.sent("order.paid"), sim.raised().len()), (1, 0));
    }
    let mut sim = Sim::default();
    sim.one(register(cny(500)));
    sim.one(free());
    assert_eq!((sim.status(), sim.trade("stripe", "cs_1")), ("pending", "held"));
    assert_eq!((sim.open(), sim.sent("order.paid")), (vec!["amount_mismatch"], 0));
}

#[test]
fn ignored_facts_raise_nothing_and_take_effect_when_their_trade_is_linked() {
    let mut sim = Sim::default();
    let ignored = |mut input: Input| {
        input.ignored = Some("ignored");
        input
    };
    let renewal = || ignored(event("pi", "stripe", None, vec![paid("T1", cny(100))]));
    for _ in 0..2 {
        let applied = sim.one(renewal());
        assert_eq!(
            (applied.outcome.as_str(), applied.reason.as_str()),
            ("unmapped", "ignored")
        );
    }
    sim.one(ignored(event(
        "re",
        "stripe",
        None,
        vec![refunded("T1", "R1", cny(20))],
    )));
    sim.one(event("cs", "stripe", Some(O), vec![paid("T1", cny(100))]));
    assert_eq!((sim.status(), sim.totals()), ("partially_refunded", (100, 20, 0)));
    assert_eq!((sim.outcome("re"), sim.sent("order.paid")), ("applied", 1));
}

/// One payment of `amount`, told by messages that do and do not say when it was made; refunded in part at most.
fn events(amount: i64, paid_at: i64, keep: [bool; 6]) -> Vec<Input> {
    let a = cny(amount);
    let part = cny(amount / 3);
    let all = vec![
        on(ali("p", vec![paid_on(a, paid_at)]), paid_at, true),
        on(
            ali("r", vec![paid("T1", a), refunded("T1", "R1", part)]),
            paid_at + 3,
            false,
        ),
        on(
            ali("t", vec![paid_on(a, paid_at), total("T1", part)]),
            paid_at + 4,
            false,
        ),
        // A charge tells of its authorisation, which may have been before the payment.
        on(
            ali("c", vec![paid_on(a, paid_at - 2), total("T1", part)]),
            paid_at + 4,
            false,
        ),
        on(ali("f", vec![paid("T1", a), finished("T1")]), paid_at + 90, false),
        register(a),
    ];
    all.into_iter()
        .zip(keep)
        .filter(|(_, keep)| *keep)
        .map(|(input, _)| input)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn shipping_does_not_depend_on_arrival(
        free in any::<bool>(),
        paid_at in SINCE - 4..SINCE + 4,
        keep in any::<[bool; 6]>(),
        shuffle in prop::collection::vec(any::<Index>(), 20),
        repeats in prop::collection::vec(any::<Index>(), 0..8),
        cuts in prop::collection::vec(any::<bool>(), 1..10),
    ) {
        let amount = if free { 0 } else { 90 };
        let events = events(amount, paid_at, keep);
        prop_assume!(events.iter().any(|event| event.event_id.is_some()));
        let mut straight = Sim::default();
        for event in &events {
            straight.one(again(event));
        }
        let mut other = Sim::default();
        let mut batch = Vec::new();
        for (index, cut) in sequence(events.len(), &shuffle, &repeats).iter().zip(cuts.iter().cycle()) {
            batch.push(again(&events[*index]));
            if *cut {
                other.batch(&std::mem::take(&mut batch));
            }
        }
        other.batch(&batch);
        prop_assert_eq!((straight.status(), straight.totals(), straight.sums()), (other.status(), other.totals(), other.sums()));
        let ships = (keep[0] || keep[2]) && paid_at >= SINCE || keep[3] && paid_at - 2 >= SINCE;
        prop_assert_eq!(straight.sent("order.paid"), usize::from(ships));
        prop_assert_eq!(other.sent("order.paid"), usize::from(ships));
    }
}
