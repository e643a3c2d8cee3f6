//! A payment that is authorised first and captured later, whole or in parts.

use super::*;

fn authorised() -> Input {
    event("authorised", "antom", Some(O), vec![processing("T1", 100)])
}

fn capture(id: &str, amount: Money) -> Input {
    event(id, "antom", None, vec![captured("T1", id, amount)])
}

fn capture_failed(id: &str) -> Input {
    let fact = Fact::of_capture(FactKind::CaptureFailed, "T1", id, "capture_failed");
    event(&format!("{id}-failed"), "antom", None, vec![fact])
}

fn refund_of(amount: Money) -> Input {
    event("refund", "antom", None, vec![refunded("T1", "R1", amount)])
}

#[test]
fn authorisation_alone_never_ships() {
    let mut sim = Sim::default();
    sim.one(authorised());
    assert_eq!((sim.status(), sim.totals()), ("processing", (0, 0, 0)));
    sim.one(capture_failed("C1"));
    assert_eq!((sim.status(), sim.totals()), ("processing", (0, 0, 0)));
    assert_eq!((sim.open(), sim.sent("order.paid")), (vec!["capture_failed"], 0));
}

#[test]
fn capture_pays_its_amount_once() {
    let mut sim = Sim::default();
    // The capture names no order: it waits for the event that links its trade.
    assert_eq!(sim.one(capture("C1", cny(60))).outcome.as_str(), "parked");
    sim.one(authorised());
    assert_eq!((sim.status(), sim.totals()), ("paid", (60, 0, 0)));
    assert_eq!(
        sim.one(capture("C1", cny(60))).outcome.as_str(),
        "already_applied"
    );
    assert_eq!((sim.sum("payment"), sim.sent("order.paid")), (60, 1));
    assert!(sim.raised().is_empty());
}

#[test]
fn captures_of_one_amount_are_told_apart() {
    let mut sim = Sim::default();
    for input in [authorised(), capture("C1", cny(50)), capture("C2", cny(50))] {
        sim.one(input);
    }
    assert_eq!(
        (sim.status(), sim.totals(), sim.sum("payment")),
        ("paid", (100, 0, 0), 100)
    );
    assert_eq!((sim.sent("order.paid"), sim.sent("order.updated")), (1, 1));
    assert_eq!(sim.one(capture("C1", cny(51))).outcome.as_str(), "attention");
    assert_eq!((sim.open(), sim.sum("payment")), (vec!["fact_conflict"], 100));
}

#[test]
fn registered_order_ships_when_its_captures_make_up_the_amount() {
    let mut sim = Sim::default();
    for input in [register(cny(100)), authorised(), capture("C1", cny(60))] {
        sim.one(input);
    }
    assert_eq!((sim.trade("antom", "T1"), sim.sent("order.paid")), ("held", 0));
    assert_eq!(sim.open(), ["amount_mismatch"]);
    sim.one(capture("C2", cny(40)));
    assert_eq!((sim.status(), sim.totals()), ("paid", (100, 0, 0)));
    assert_eq!((sim.open().len(), sim.sent("order.paid")), (0, 1));
}

#[test]
fn refund_waits_for_the_capture_it_is_of() {
    let mut sim = Sim::default();
    sim.one(authorised());
    sim.one(refund_of(cny(60)));
    assert_eq!((sim.status(), sim.sent("order.paid")), ("processing", 0));
    sim.one(capture("C1", cny(60)));
    assert_eq!((sim.status(), sim.totals()), ("refunded", (60, 60, 0)));
}

#[test]
fn capture_after_the_refund_of_all_others_leaves_the_trade_refunded_in_part() {
    let orders = [
        ["C1", "refund", "C2"],
        ["C1", "C2", "refund"],
        ["refund", "C2", "C1"],
    ];
    for order in orders {
        let mut sim = Sim::default();
        sim.one(authorised());
        for what in order {
            sim.one(match what {
                "C1" => capture("C1", cny(60)),
                "C2" => capture("C2", cny(40)),
                _ => refund_of(cny(60)),
            });
        }
        assert_eq!(sim.totals(), (100, 60, 0), "{order:?}");
        assert_eq!(sim.trade("antom", "T1"), "partially_refunded", "{order:?}");
        assert_eq!((sim.sum("payment"), sim.sum("refund")), (100, -60), "{order:?}");
    }
}

#[test]
fn payment_told_whole_counts_its_captures_in() {
    let whole = || event("whole", "antom", Some(O), vec![paid("T1", cny(100))]);
    for order in [
        ["whole", "C1", "C2"],
        ["C1", "whole", "C2"],
        ["C1", "C2", "whole"],
    ] {
        let mut sim = Sim::default();
        sim.one(authorised());
        for what in order {
            sim.one(match what {
                "whole" => whole(),
                "C1" => capture("C1", cny(60)),
                _ => capture("C2", cny(40)),
            });
        }
        assert_eq!((sim.status(), sim.totals()), ("paid", (100, 0, 0)), "{order:?}");
        assert_eq!((sim.sum("payment"), sim.raised().len()), (100, 0), "{order:?}");
    }
}
