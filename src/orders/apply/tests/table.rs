//! Every sentence of the order rules, one by one.

use super::*;
use crate::event::AttentionCode;
use crate::orders::apply::input::Refusal;

fn ali(id: &str, facts: Vec<Fact>) -> Input {
    event(id, "alipay", Some(O), facts)
}

fn play(events: Vec<Input>) -> Sim {
    let mut sim = Sim::default();
    for event in events {
        sim.one(event);
    }
    sim
}

#[test]
fn a17_finished_after_refunds_pays_once_and_keeps_the_refund() {
    let a = cny(8888);
    let sim = play(vec![
        ali("der01", vec![paid("T", a)]),
        ali("der04", vec![paid("T", a), total("T", cny(3000))]),
        ali("der08", vec![paid("T", a), finished("T")]),
    ]);
    assert_eq!((sim.status(), sim.totals()), ("finished", (8888, 3000, 0)));
    assert_eq!((sim.sum("payment"), sim.sum("refund")), (8888, -3000));
    assert_eq!(
        sim.messages,
        [
            "ORDER-1:order.paid",
            "ORDER-1:order.partially_refunded",
            "ORDER-1:order.finished"
        ]
    );
}

/// C23.
#[test]
fn a18_refunds_grow_to_refunded_with_one_order_paid() {
    let a = cny(8888);
    let mut sim = play(vec![ali("der01", vec![paid("T", a)])]);
    for (id, refunded) in [("der04", 3000), ("der05", 5000), ("der06", 8888)] {
        sim.one(ali(id, vec![paid("T", a), total("T", cny(refunded))]));
        assert_eq!(sim.totals(), (8888, refunded, 0));
        assert_eq!(sim.sum("refund"), -refunded);
    }
    assert_eq!((sim.status(), sim.sent("order.paid")), ("refunded", 1));
    let late = sim.one(ali("late", vec![paid("T", a), total("T", cny(100))]));
    assert_eq!(late.outcome.as_str(), "stale");
}

#[test]
fn b17_the_first_time_of_payment_stays() {
    let at = |secs| Some(Timestamp::from_secs(secs));
    let sim = play(vec![
        ali("0", vec![paid("T", cny(1))]),
        ali("1", vec![paid("T", cny(1)).happened(at(100))]),
        ali("2", vec![paid("T", cny(1)).happened(at(200))]),
    ]);
    let row = sim.book.trades.values().next().unwrap();
    assert_eq!(row.paid_at, at(100));
}

#[test]
fn b25_the_second_payment_across_providers_is_booked_and_shown() {
    let sim = play(vec![
        ali("1", vec![paid("T1", cny(100))]),
        event("2", "wechatpay", Some(O), vec![paid("T2", cny(100))]),
    ]);
    assert_eq!((sim.status(), sim.totals()), ("paid", (200, 0, 0)));
    assert_eq!(
        (sim.raised(), sim.outcome("2")),
        (vec!["paid_twice"], "attention")
    );
    assert_eq!(sim.messages, ["ORDER-1:order.paid", "ORDER-1:order.updated"]);
}

#[test]
fn of_two_paid_trades_the_one_refunded_least_decides() {
    let sim = play(vec![
        ali("1", vec![paid("T1", cny(100))]),
        ali("2", vec![paid("T2", cny(100))]),
        ali("3", vec![paid("T1", cny(100)), total("T1", cny(100))]),
    ]);
    assert_eq!((sim.status(), sim.trade("alipay", "T1")), ("paid", "refunded"));
}

#[test]
fn c15_a_late_failure_is_stale() {
    let sim = play(vec![
        ali("1", vec![paid("T", cny(100))]),
        ali("2", vec![failed("T", "a", 9)]),
    ]);
    assert_eq!((sim.status(), sim.outcome("2")), ("paid", "stale"));
    assert_eq!(sim.messages, ["ORDER-1:order.paid"]);
}

#[test]
fn c17_a_failed_attempt_is_not_final() {
    let sim = play(vec![
        ali("1", vec![failed("T", "a", 9)]),
        ali("2", vec![paid("T", cny(100))]),
    ]);
    assert_eq!(sim.status(), "paid");
    assert_eq!(sim.messages, ["ORDER-1:order.failed", "ORDER-1:order.paid"]);
}

#[test]
fn c12_processing_and_failed_are_ordered_by_event_time() {
    let mut sim = play(vec![
        ali("1", vec![failed("T", "a", 20)]),
        ali("2", vec![processing("T", 10)]),
    ]);
    assert_eq!((sim.status(), sim.outcome("2")), ("failed", "stale"));
    sim.one(ali("3", vec![processing("T", 30)]));
    assert_eq!(sim.status(), "processing");
    sim.one(ali("4", vec![failed("T", "b", 30)]));
    assert_eq!(sim.status(), "failed", "a tie is failed");
}

#[test]
fn a_late_close_does_not_unpay() {
    let sim = play(vec![
        ali("1", vec![paid("T", cny(100))]),
        ali("2", vec![closed("T")]),
    ]);
    assert_eq!((sim.status(), sim.outcome("2")), ("paid", "stale"));
    assert!(sim.raised().is_empty());
}

#[test]
fn a_payment_after_the_trades_own_close_is_booked_and_moves_nothing() {
    let sim = play(vec![
        ali("1", vec![closed("T")]),
        ali("2", vec![paid("T", cny(100))]),
    ]);
    assert_eq!((sim.status(), sim.totals()), ("closed", (100, 0, 0)));
    assert_eq!(
        (sim.raised(), sim.outcome("2")),
        (vec!["paid_after_close"], "attention")
    );
    assert_eq!(sim.sent("order.paid"), 0);
}

#[test]
fn a_close_of_one_trade_leaves_the_order_open_to_another() {
    let mut sim = play(vec![ali("1", vec![closed("T1")])]);
    assert_eq!(sim.status(), "closed");
    sim.one(ali("2", vec![processing("T2", 5)]));
    assert_eq!(sim.status(), "processing");
    sim.one(ali("3", vec![paid("T2", cny(1))]));
    assert_eq!((sim.status(), sim.raised()), ("paid", vec![]));
}

#[test]
fn the_merchants_close_is_final_and_a_payment_after_it_is_shown() {
    let mut sim = play(vec![close(), ali("1", vec![paid("T", cny(100))])]);
    assert_eq!((sim.status(), sim.raised()), ("closed", vec!["paid_after_close"]));
    assert_eq!(sim.sum("payment"), 100);
    sim.one(ali("2", vec![paid("T2", cny(5))]));
    assert_eq!(sim.status(), "closed");
    let mut paid_first = play(vec![ali("1", vec![paid("T", cny(100))])]);
    assert_eq!(paid_first.one(close()).outcome.as_str(), "stale");
    assert_eq!(paid_first.status(), "paid");
}

#[test]
fn closing_what_the_provider_closed_makes_it_final_without_a_version() {
    let mut sim = play(vec![ali("1", vec![closed("T")])]);
    assert_eq!(sim.one(close()).outcome.as_str(), "applied");
    assert_eq!(sim.order().began.version, 1);
    sim.one(ali("2", vec![processing("T2", 5)]));
    assert_eq!(sim.status(), "closed");
}

#[test]
fn finished_first_is_order_paid_and_then_order_finished() {
    let sim = play(vec![ali(
        "1",
        vec![paid("T", cny(100)), finished("T"), total("T", cny(30))],
    )]);
    assert_eq!(sim.messages, ["ORDER-1:order.paid", "ORDER-1:order.finished"]);
    assert_eq!(sim.order().began.paid_version, Some(1));
    assert_eq!(sim.order().began.version, 2);
}

#[test]
fn first_known_as_wholly_refunded_gives_no_order_paid() {
    let one = play(vec![ali("1", vec![paid("T", cny(100)), total("T", cny(100))])]);
    assert_eq!(one.messages, ["ORDER-1:order.refunded"]);
    let mut batch = Sim::default();
    batch.batch(&[
        ali("1", vec![paid("T", cny(100))]),
        ali("2", vec![paid("T", cny(100)), total("T", cny(100))]),
    ]);
    assert_eq!(batch.messages, ["ORDER-1:order.refunded"]);
}

#[test]
fn a_mismatch_with_an_earlier_registration_is_held_until_accepted() {
    let accept = || {
        let (attention_id, trade_id) = ("item".to_owned(), "T".to_owned());
        let provider = crate::event::ProviderName::Alipay;
        Input::of_own(
            M,
            &OwnFact::PaymentAccepted {
                attention_id,
                provider,
                trade_id,
            },
        )
    };
    let mut sim = play(vec![register(cny(100)), ali("1", vec![paid("T", cny(90))])]);
    assert_eq!((sim.status(), sim.trade("alipay", "T")), ("pending", "held"));
    assert_eq!(
        (sim.totals(), sim.raised()),
        ((90, 0, 0), vec!["amount_mismatch"])
    );
    assert_eq!(sim.messages, ["ORDER-1:order.updated"]);
    assert_eq!(sim.one(accept()).outcome.as_str(), "applied");
    assert_eq!((sim.status(), sim.sent("order.paid")), ("paid", 1));
    assert!(sim.open().is_empty());
    assert_eq!(sim.one(accept()).outcome.as_str(), "already_applied");
}

#[test]
fn a_held_trade_that_is_refunded_whole_resolves_its_item() {
    let mut sim = play(vec![register(cny(100)), ali("1", vec![paid("T", cny(90))])]);
    sim.one(ali("2", vec![paid("T", cny(90)), total("T", cny(90))]));
    assert_eq!((sim.status(), sim.trade("alipay", "T")), ("pending", "held"));
    assert!(sim.open().is_empty());
    assert_eq!(sim.outcome("2"), "applied");
}

#[test]
fn a_mismatch_found_after_payment_is_shown_and_nothing_else() {
    let mut sim = play(vec![ali("1", vec![paid("T", cny(90))])]);
    assert_eq!(sim.one(register(cny(100))).outcome.as_str(), "attention");
    assert_eq!((sim.status(), sim.trade("alipay", "T")), ("paid", "paid"));
    assert_eq!(sim.raised(), ["amount_mismatch"]);
}

#[test]
fn another_currency_is_a_currency_mismatch_and_stands_outside_the_totals() {
    let mut sim = play(vec![register(cny(100)), ali("1", vec![paid("T", usd(100))])]);
    assert_eq!(
        (sim.raised(), sim.totals()),
        (vec!["currency_mismatch"], (0, 0, 0))
    );
    assert_eq!(sim.sums()[&("T".to_owned(), "payment", "USD".to_owned())], 100);
    sim.one(ali("2", vec![paid("T2", cny(100))]));
    assert_eq!((sim.status(), sim.totals()), ("paid", (100, 0, 0)));
    let other = play(vec![ali("1", vec![paid("T", usd(100))]), register(cny(100))]);
    assert_eq!(
        (other.raised(), other.totals()),
        (vec!["currency_mismatch"], (100, 0, 0))
    );
    assert_eq!(
        other.order().row.amount,
        None,
        "a registered amount in another currency is not shown as one"
    );
}

#[test]
fn a_second_view_of_a_refund_books_nothing() {
    let a = cny(100);
    let mut sim = play(vec![
        ali("1", vec![paid("T", a)]),
        ali("2", vec![refunded("T", "R1", cny(30))]),
    ]);
    sim.one(ali("3", vec![total("T", cny(30))]));
    assert_eq!((sim.sum("refund"), sim.outcome("3")), (-30, "already_applied"));
    sim.one(ali("4", vec![total("T", cny(50))]));
    sim.one(ali("5", vec![refunded("T", "R2", cny(20))]));
    assert_eq!((sim.sum("refund"), sim.totals()), (-50, (100, 50, 0)));
    let sources: Vec<&str> = sim
        .book
        .writes
        .entries
        .iter()
        .skip(1)
        .map(|entry| entry.source.as_str())
        .collect();
    assert_eq!(sources, ["R1", "T@50"]);
}

#[test]
fn a_refund_that_failed_after_all_comes_back_in_either_order() {
    let ok = || ali("ok", vec![paid("T", cny(100)), refunded("T", "R", cny(40))]);
    let fail = || ali("fail", vec![refund(FactKind::RefundFailed, "T", "R")]);
    for events in [vec![ok(), fail()], vec![fail(), ok()]] {
        let sim = play([vec![ali("link", vec![processing("T", 1)])], events].concat_events());
        assert_eq!(sim.totals(), (100, 40, 40));
        assert_eq!((sim.sum("refund"), sim.sum("refund_reversal")), (-40, 40));
        assert_eq!(
            (sim.raised(), sim.status()),
            (vec!["refund_reversed"], "partially_refunded")
        );
    }
    let alone = play(vec![ali("1", vec![paid("T", cny(100))]), fail()]);
    assert_eq!((alone.totals(), alone.outcome("fail")), ((100, 0, 0), "applied"));
}

trait ConcatEvents {
    fn concat_events(self) -> Vec<Input>;
}

impl ConcatEvents for [Vec<Input>; 2] {
    fn concat_events(self) -> Vec<Input> {
        self.into_iter().flatten().collect()
    }
}

#[test]
fn an_abnormal_refund_resolves_itself_when_it_succeeds() {
    let mut sim = play(vec![
        ali("1", vec![paid("T", cny(100))]),
        ali("2", vec![refund(FactKind::RefundAbnormal, "T", "R")]),
    ]);
    assert_eq!(
        (sim.open(), sim.outcome("2")),
        (vec!["refund_abnormal"], "attention")
    );
    sim.one(ali("3", vec![refunded("T", "R", cny(40))]));
    assert!(sim.open().is_empty());
    sim.one(ali("4", vec![refunded("T", "R2", cny(40))]));
    sim.one(ali("5", vec![refund(FactKind::RefundAbnormal, "T", "R2")]));
    assert_eq!((sim.open(), sim.outcome("5")), (vec![], "stale"));
}

#[test]
fn more_refunded_than_paid_is_shown() {
    let sim = play(vec![
        ali("1", vec![refunded("T", "R1", cny(70))]),
        ali("2", vec![paid("T", cny(100))]),
        ali("3", vec![refunded("T", "R2", cny(70))]),
    ]);
    assert_eq!(sim.raised(), ["refund_exceeds_payment"]);
    assert_eq!((sim.status(), sim.totals()), ("refunded", (100, 140, 0)));
}

#[test]
fn disputes_book_once_and_resolve_when_won() {
    let d = |kind: FactKind| ali(kind.as_str(), vec![dispute(kind, "T", "D", cny(60))]);
    let mut sim = play(vec![
        ali("1", vec![paid("T", cny(100))]),
        d(FactKind::DisputeOpened),
    ]);
    assert_eq!((sim.open(), sim.sum("dispute")), (vec!["dispute_opened"], 0));
    sim.one(d(FactKind::DisputeFundsWithdrawn));
    sim.one(d(FactKind::DisputeWon));
    assert_eq!(
        (sim.sum("dispute"), sim.sum("dispute_reversal"), sim.open()),
        (-60, 60, vec![])
    );
    sim.one(d(FactKind::DisputeFundsReinstated));
    assert_eq!((sim.sum("dispute_reversal"), sim.status()), (60, "paid"));
    let lost = play(vec![
        ali("1", vec![paid("T", cny(100))]),
        d(FactKind::DisputeLost),
    ]);
    assert_eq!(
        (lost.sum("dispute"), lost.raised(), lost.status()),
        (-60, vec!["dispute_lost"], "paid")
    );
    let won = play(vec![ali("1", vec![paid("T", cny(100))]), d(FactKind::DisputeWon)]);
    assert_eq!((won.sum("dispute"), won.sum("dispute_reversal")), (0, 0));
}

#[test]
fn c18_facts_wait_by_trade_for_the_event_that_carries_both_ids() {
    let mut sim = Sim::default();
    let waits = sim.one(event("re", "stripe", None, vec![refunded("T", "R", cny(40))]));
    assert_eq!(waits.outcome.as_str(), "parked");
    assert_eq!(
        sim.one(event("re", "stripe", None, vec![refunded("T", "R", cny(40))]))
            .outcome
            .as_str(),
        "parked"
    );
    sim.one(event("pi", "stripe", Some(O), vec![paid("T", cny(100))]));
    assert_eq!((sim.outcome("re"), sim.totals()), ("applied", (100, 40, 0)));
    assert_eq!(
        sim.messages,
        ["ORDER-1:order.paid", "ORDER-1:order.partially_refunded"]
    );
    assert_eq!(sim.history(), 2);
}

#[test]
fn a_link_alone_is_taught_once() {
    let mut input = event("s", "stripe", Some(O), vec![]);
    input.links = vec![("T".to_owned(), O.to_owned())];
    let mut sim = Sim::default();
    sim.one(event("ch", "stripe", None, vec![paid("T", cny(100))]));
    assert_eq!(sim.one(input).outcome.as_str(), "applied");
    assert_eq!((sim.status(), sim.outcome("ch")), ("paid", "applied"));
}

#[test]
fn a_trade_stays_with_its_first_order() {
    let mut sim = play(vec![ali("1", vec![paid("T", cny(100))])]);
    let other = sim.one(event(
        "2",
        "alipay",
        Some("OTHER"),
        vec![paid("T", cny(100)), total("T", cny(5))],
    ));
    assert_eq!(other.outcome.as_str(), "attention");
    assert_eq!((sim.raised(), sim.totals()), (vec!["fact_conflict"], (100, 0, 0)));
    assert_eq!(sim.book.orders.len(), 1, "the other order is not created");
}

#[test]
fn the_same_fact_with_another_amount_is_a_conflict_and_the_first_stays() {
    let mut sim = play(vec![ali("1", vec![paid("T", cny(100))])]);
    for id in ["2", "3"] {
        assert_eq!(
            sim.one(ali(id, vec![paid("T", cny(99))])).outcome.as_str(),
            "attention"
        );
    }
    assert_eq!((sim.raised(), sim.totals()), (vec!["fact_conflict"], (100, 0, 0)));
    sim.one(ali("4", vec![refunded("T", "R", cny(10))]));
    sim.one(ali("5", vec![refunded("T", "R", cny(11))]));
    assert_eq!((sim.raised().len(), sim.sum("refund")), (2, -10));
}

#[test]
fn an_assumed_currency_gives_way_to_the_payments() {
    let assume = |fact: Fact| Fact {
        currency_assumed: true,
        ..fact
    };
    let refund = || {
        let facts = vec![assume(paid("T", cny(100))), assume(refunded("T", "R", cny(40)))];
        event("r", "wechatpay", Some(O), facts)
    };
    let pay = || event("p", "wechatpay", Some(O), vec![paid("T", usd(100))]);
    let sim = play(vec![pay(), refund()]);
    assert_eq!(sim.sums()[&("T".to_owned(), "refund", "USD".to_owned())], -40);
    assert!(sim.raised().is_empty());
    let first = play(vec![refund(), pay()]);
    assert_eq!(first.sums()[&("T".to_owned(), "refund", "CNY".to_owned())], -40);
    assert_eq!(first.raised(), ["fact_conflict"]);
}

fn unsigned_refund(order: &str, claims: Money) -> Input {
    let mut fact = refunded("T", "R", cny(40)).for_order(Some(order));
    fact.unsigned = Some(claims);
    fact.key.push_str(":unsigned");
    let mut input = event("v2", "wechatpay", Some(order), vec![]);
    input.facts = vec![fact];
    input
}

#[test]
fn a_refund_that_nobody_signed_waits_and_must_agree() {
    let pay = || event("p", "wechatpay", Some(O), vec![paid("T", cny(100))]);
    let mut sim = Sim::default();
    assert_eq!(sim.one(unsigned_refund(O, cny(100))).outcome.as_str(), "parked");
    assert!(
        sim.book.orders.is_empty(),
        "it teaches no link and creates no order"
    );
    sim.one(pay());
    assert_eq!(
        (sim.totals(), sim.outcome("v2"), sim.status()),
        ((100, 40, 0), "applied", "partially_refunded")
    );
    for (order, claims) in [(O, cny(99)), ("OTHER", cny(100))] {
        let sim = play(vec![pay(), unsigned_refund(order, claims)]);
        assert_eq!(
            (sim.totals(), sim.raised()),
            ((100, 0, 0), vec!["unsigned_refund"])
        );
    }
    let mut signed = play(vec![pay(), unsigned_refund(O, cny(100))]);
    signed.one(event(
        "v3",
        "wechatpay",
        Some(O),
        vec![refunded("T", "R", cny(40))],
    ));
    assert_eq!(
        signed.sum("refund"),
        -40,
        "the same refund told by somebody who signs is a second view"
    );
}

#[test]
fn parked_orders_wait_for_their_registration() {
    let mut sim = Sim::parking();
    assert_eq!(
        sim.one(ali("1", vec![paid("T", cny(100))])).outcome.as_str(),
        "parked"
    );
    assert_eq!(
        (sim.status(), sim.totals(), sim.messages.len()),
        ("pending", (0, 0, 0), 0)
    );
    assert_eq!(sim.one(register(cny(100))).outcome.as_str(), "applied");
    assert_eq!((sim.status(), sim.outcome("1")), ("paid", "applied"));
    assert_eq!(sim.messages, ["ORDER-1:order.paid"]);
    let mut wrong = Sim::parking();
    wrong.one(ali("1", vec![paid("T", cny(90))]));
    wrong.one(register(cny(100)));
    assert_eq!(
        (wrong.status(), wrong.trade("alipay", "T")),
        ("pending", "held"),
        "nothing had moved yet"
    );
}

#[test]
fn a_payment_that_wakes_lets_its_unsigned_refunds_go() {
    let mut sim = Sim::parking();
    sim.one(event("p", "wechatpay", Some(O), vec![paid("T", cny(100))]));
    sim.one(unsigned_refund(O, cny(100)));
    sim.one(register(cny(100)));
    assert_eq!(
        (sim.totals(), sim.outcome("v2"), sim.status()),
        ((100, 40, 0), "applied", "partially_refunded")
    );
}

#[test]
fn what_is_refused_is_shown_and_moves_nothing() {
    let mut sim = play(vec![ali("0", vec![processing("T", 1)])]);
    let mut input = ali("1", vec![paid("T", cny(100))]);
    input.refusal = Some(Refusal {
        code: AttentionCode::IdentityMismatch,
        source: "key".to_owned(),
        explanation: "another app".to_owned(),
    });
    assert_eq!(sim.one(input).outcome.as_str(), "attention");
    assert_eq!(
        (sim.status(), sim.totals(), sim.raised()),
        ("processing", (0, 0, 0), vec!["identity_mismatch"])
    );
    // The account was corrected, and the event replayed.
    assert!(sim.book.writes.resolved.is_empty());
    sim.one(ali("1", vec![paid("T", cny(100))]));
    let settled = sim
        .book
        .writes
        .resolved
        .iter()
        .map(|((_, code, source), _)| (*code, source.as_str()));
    assert!(settled.eq(
        ["identity_mismatch", "event_unreadable", "amount_unreadable"].map(|code| (code, "key of 1"))
    ));
    assert_eq!((sim.status(), sim.totals()), ("paid", (100, 0, 0)));
}

#[test]
fn what_says_nothing_is_unmapped_and_creates_nothing() {
    let mut sim = Sim::default();
    assert_eq!(sim.one(ali("1", vec![])).outcome.as_str(), "unmapped");
    assert!(sim.book.orders.is_empty());
}

#[test]
fn a_refund_that_names_nothing_waits() {
    let mut sim = Sim::default();
    let fact = Fact::of_refund(FactKind::RefundSucceeded, None, "R", "refunded").with_amount(Some(cny(1)));
    assert_eq!(
        sim.one(event("1", "antom", None, vec![fact])).outcome.as_str(),
        "parked"
    );
}

#[test]
fn a_combined_event_moves_each_of_its_orders() {
    let mut facts = vec![
        paid("T1", cny(10)).for_order(Some(O)),
        paid("T2", cny(20)).for_order(Some("ORDER-2")),
    ];
    let mut input = event("c", "wechatpay", None, vec![]);
    input.links = vec![
        ("T1".to_owned(), O.to_owned()),
        ("T2".to_owned(), "ORDER-2".to_owned()),
    ];
    input.facts.append(&mut facts);
    let mut sim = Sim::default();
    assert_eq!(sim.one(input).outcome.as_str(), "applied");
    assert_eq!(sim.messages, ["ORDER-1:order.paid", "ORDER-2:order.paid"]);
}
