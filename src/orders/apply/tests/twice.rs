//! An order that is paid by more than one trade, or after a close: what is final, what an operator can put right,
//! and reports that contradict each other.

use super::*;

fn ali(id: &str, facts: Vec<Fact>) -> Input {
    event(id, "alipay", Some(O), facts)
}

fn wx(id: &str, facts: Vec<Fact>) -> Input {
    event(id, "wechatpay", Some(O), facts)
}

fn play(events: &[&Input]) -> Sim {
    let mut sim = Sim::default();
    for event in events {
        sim.one(commute::again(event));
    }
    sim
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

/// Every order of arrival of `events`.
fn every_order(events: &[Input]) -> Vec<Sim> {
    permutations(events.len())
        .into_iter()
        .map(|order| play(&order.iter().map(|at| &events[*at]).collect::<Vec<_>>()))
        .collect()
}

#[test]
fn second_payment_refunded_before_first_is_reported_ends_paid_and_ships_once() {
    let events = [
        ali("1", vec![paid("T1", cny(700))]),
        wx("2", vec![paid("T2", cny(700))]),
        wx(
            "2-back",
            vec![paid("T2", cny(700)), refunded("T2", "R", cny(700))],
        ),
    ];
    for sim in every_order(&events) {
        assert_eq!((sim.status(), sim.totals()), ("paid", (1400, 700, 0)));
        assert_eq!(sim.sent("order.paid"), 1, "{:?}", sim.messages);
        assert_eq!(sim.open(), [""; 0], "nothing is left to do");
    }
    // Never known as paid before: the first report of money that stays is what ships.
    let sim = play(&[&events[2], &events[0]]);
    assert_eq!(sim.messages, ["ORDER-1:order.refunded", "ORDER-1:order.paid"]);
    assert!(sim.raised().is_empty());
    // Shipped already: the order stands as paid again, and nothing ships it a second time.
    let sim = play(&[&events[1], &events[2], &events[0]]);
    assert_eq!(
        sim.messages,
        [
            "ORDER-1:order.paid",
            "ORDER-1:order.refunded",
            "ORDER-1:order.updated"
        ]
    );
}

#[test]
fn refunds_known_before_their_payments_are_booked_with_them() {
    let events = [
        ali("1", vec![paid("T1", cny(700))]),
        wx("2", vec![paid("T2", cny(700))]),
        wx("2-back", vec![refunded("T2", "R", cny(700))]),
    ];
    for sim in every_order(&events) {
        assert_eq!((sim.status(), sim.totals()), ("paid", (1400, 700, 0)));
        assert_eq!(sim.sent("order.paid"), 1, "{:?}", sim.messages);
    }
    let sim = play(&[&events[2]]);
    assert_eq!(
        (sim.status(), sim.totals(), sim.sum("refund")),
        ("pending", (0, 0, 0), 0)
    );
    assert_eq!(sim.outcome("2-back"), "applied");
}

#[test]
fn only_refunded_trades_never_write_order_paid() {
    let events = [
        ali("1", vec![paid("T1", cny(700)), total("T1", cny(700))]),
        wx("2", vec![paid("T2", cny(700)), refunded("T2", "R", cny(700))]),
    ];
    for sim in every_order(&events) {
        assert_eq!((sim.status(), sim.sent("order.paid")), ("refunded", 0));
        assert!(sim.raised().is_empty());
    }
}

#[test]
fn refunded_is_left_for_what_the_other_trade_says() {
    let back = wx("2", vec![paid("T2", cny(700)), refunded("T2", "R", cny(700))]);
    let part = ali("1", vec![paid("T1", cny(700)), total("T1", cny(200))]);
    let done = ali("1", vec![paid("T1", cny(700)), finished("T1")]);
    let sim = play(&[&back, &part]);
    assert_eq!(
        sim.messages,
        [
            "ORDER-1:order.refunded",
            "ORDER-1:order.paid",
            "ORDER-1:order.partially_refunded"
        ]
    );
    let mut sim = play(&[&back, &done]);
    assert_eq!((sim.status(), sim.sent("order.paid")), ("finished", 1));
    // And back, for good as far as is known.
    sim.one(ali("1-back", vec![total("T1", cny(700))]));
    assert_eq!((sim.status(), sim.totals()), ("refunded", (1400, 1400, 0)));
    assert_eq!(sim.sent("order.refunded"), 2);
}

#[test]
fn paid_twice_names_what_was_paid_refunded_and_stays_and_ends_with_the_refund() {
    let one = ali("1", vec![paid("T1", cny(700))]);
    let two = wx("2", vec![paid("T2", cny(700))]);
    let part = wx("2-part", vec![refunded("T2", "R1", cny(300))]);
    let rest = wx("2-rest", vec![refunded("T2", "R2", cny(400))]);
    let three = event("3", "stripe", Some(O), vec![paid("T3", cny(700))]);
    let mut sim = play(&[&one, &two, &part]);
    assert_eq!(sim.open(), ["paid_twice"]);
    assert_eq!(
        sim.explanations("paid_twice"),
        [
            "the order was paid by more than one trade: alipay trade T1 was paid 7.00 CNY; \
             wechatpay trade T2 was paid 7.00 CNY; 14.00 CNY stays with the shop"
        ]
    );
    sim.one(commute::again(&rest));
    assert_eq!((sim.open(), sim.outcome("2-rest")), (vec![], "applied"));
    sim.one(commute::again(&three));
    assert_eq!(sim.open(), ["paid_twice"]);
    assert_eq!(
        sim.explanations("paid_twice")[1],
        "the order was paid by more than one trade: alipay trade T1 was paid 7.00 CNY; wechatpay trade T2 was \
         paid 7.00 CNY, and refunded whole; stripe trade T3 was paid 7.00 CNY; 14.00 CNY stays with the shop"
    );
    // Whichever of the two goes back.
    sim.one(ali("1-back", vec![total("T1", cny(700))]));
    assert_eq!((sim.open(), sim.status()), (vec![], "paid"));
    assert_eq!(sim.sent("order.paid"), 1);
}

#[test]
fn a_payment_linked_late_is_shown_although_the_other_had_its_item() {
    let unlinked = event("1", "stripe", None, vec![paid("T1", cny(700))]);
    let zero = ali("0", vec![paid("T0", cny(700))]);
    let two = wx("2", vec![paid("T2", cny(700))]);
    let zero_back = ali("0-back", vec![total("T0", cny(700))]);
    let mut sim = play(&[&unlinked, &zero, &two, &zero_back]);
    assert!(sim.open().is_empty());
    let mut link = event("link", "stripe", Some(O), vec![]);
    link.links = vec![("T1".to_owned(), O.to_owned())];
    sim.one(link);
    assert_eq!(sim.open(), ["paid_twice"]);
    sim.one(ali("again", vec![processing("T0", 1)]));
    assert_eq!(sim.open(), ["paid_twice"], "it stays until one goes back");
}

#[test]
fn keep_makes_a_late_payment_count_and_writes_order_paid_once() {
    let late = || [closed("T1"), paid("T1", cny(700))].map(|fact| ali(fact.key.as_str(), vec![fact.clone()]));
    let [shut, pay] = late();
    for first in [&shut, &close()] {
        let mut sim = play(&[first, &pay]);
        assert_eq!((sim.status(), sim.open()), ("closed", vec!["paid_after_close"]));
        assert_eq!(
            sim.one(keep(ProviderName::Alipay, "T1")).outcome.as_str(),
            "applied"
        );
        assert_eq!((sim.status(), sim.sent("order.paid")), ("paid", 1));
        assert!(sim.open().is_empty());
        let again = sim.one(keep(ProviderName::Alipay, "T1"));
        assert_eq!(
            (again.outcome.as_str(), sim.sent("order.paid")),
            ("already_applied", 1)
        );
    }
    // An order that a late payment could not bring back from refunded.
    let back = wx("2", vec![paid("T2", cny(700)), refunded("T2", "R", cny(700))]);
    let mut sim = play(&[&back, &shut, &pay]);
    assert_eq!((sim.status(), sim.sent("order.paid")), ("refunded", 0));
    sim.one(keep(ProviderName::Alipay, "T1"));
    assert_eq!((sim.status(), sim.sent("order.paid")), ("paid", 1));
    assert!(sim.open().is_empty());
}

#[test]
fn keep_of_a_second_payment_changes_nothing_that_is_right() {
    let mut sim = play(&[
        &ali("1", vec![paid("T1", cny(700))]),
        &wx("2", vec![paid("T2", cny(700))]),
    ]);
    let kept = sim.one(keep(ProviderName::Wechatpay, "T2"));
    assert_eq!(kept.outcome.as_str(), "applied");
    assert_eq!((sim.status(), sim.totals()), ("paid", (1400, 0, 0)));
    assert_eq!(sim.sent("order.paid"), 1);
}

#[test]
fn acceptance_alone_does_not_open_what_the_merchant_closed() {
    let accept = OwnFact::PaymentAccepted {
        attention_id: "item".to_owned(),
        provider: ProviderName::Alipay,
        trade_id: "T1".to_owned(),
    };
    let mut sim = play(&[
        &register(cny(100)),
        &ali("1", vec![paid("T1", cny(90))]),
        &close(),
        &Input::of_own(M, &accept),
    ]);
    assert_eq!((sim.status(), sim.open()), ("closed", vec!["paid_after_close"]));
    sim.one(keep(ProviderName::Alipay, "T1"));
    assert_eq!((sim.status(), sim.sent("order.paid")), ("paid", 1));
}

#[test]
fn a_late_payment_refunded_at_first_sight_is_shown_and_over() {
    let back = ali("2", vec![paid("T1", cny(700)), total("T1", cny(700))]);
    let sim = play(&[&ali("1", vec![closed("T1")]), &back]);
    assert_eq!((sim.status(), sim.raised()), ("closed", vec!["paid_after_close"]));
    assert!(sim.open().is_empty());
    assert_eq!(sim.book.writes.resolved.len(), 1);
}

#[test]
fn a_dispute_is_booked_at_its_largest_report_in_every_order() {
    let d = |kind: FactKind, amount| ali(kind.as_str(), vec![dispute(kind, "T1", "D", cny(amount))]);
    let events = [
        ali("1", vec![paid("T1", cny(700))]),
        d(FactKind::DisputeOpened, 10),
        d(FactKind::DisputeFundsWithdrawn, 12),
        d(FactKind::DisputeLost, 14),
        d(FactKind::DisputeFundsReinstated, 5),
    ];
    for sim in every_order(&events) {
        assert_eq!((sim.sum("dispute"), sim.sum("dispute_reversal")), (-14, 5));
        assert_eq!(
            sim.explanations("fact_conflict"),
            [
                "dispute D about alipay trade T1: reports say that 0.12 CNY and 0.14 CNY was taken; the larger is \
                 booked"
            ]
        );
    }
}

#[test]
fn attempts_that_share_a_charge_are_dated_by_the_latest_report() {
    let events = [
        ali("1", vec![failed("T1", "ch", 100)]),
        ali("2", vec![processing("T1", 150)]),
        ali("3", vec![failed("T1", "ch", 200)]),
    ];
    for sim in every_order(&events) {
        assert_eq!(sim.status(), "failed");
    }
    let events = [&events[0], &events[2], &ali("2", vec![processing("T1", 250)])];
    for order in permutations(3) {
        let sim = play(&order.iter().map(|at| events[*at]).collect::<Vec<_>>());
        assert_eq!(sim.status(), "processing");
    }
}

#[test]
fn money_in_another_currency_is_never_booked_and_always_shown() {
    let events = [
        ali("1", vec![paid("T1", cny(700))]),
        ali("2", vec![refunded("T1", "R", usd(300))]),
        ali("3", vec![dispute(FactKind::DisputeLost, "T1", "D", usd(400))]),
        ali("4", vec![refunded("T1", "R2", cny(100))]),
    ];
    for sim in every_order(&events) {
        assert_eq!(
            (sim.status(), sim.totals()),
            ("partially_refunded", (700, 100, 0))
        );
        assert_eq!(sim.sums().len(), 2, "{:?}", sim.sums());
        assert_eq!(sim.explanations("fact_conflict").len(), 2);
    }
}

#[test]
fn payments_in_two_currencies_are_always_shown() {
    let events = [
        ali("1", vec![paid("T1", cny(700))]),
        wx("2", vec![paid("T2", usd(500)), refunded("T2", "R", usd(500))]),
    ];
    for sim in every_order(&events) {
        assert_eq!((sim.status(), sim.open()), ("paid", vec!["currency_mismatch"]));
        assert_eq!(sim.sum("payment"), 1200);
    }
    let registered = [&[register(usd(500))][..], &events].concat_inputs();
    for sim in every_order(&registered) {
        assert!(sim.raised().contains(&"currency_mismatch"), "{:?}", sim.raised());
    }
}

trait ConcatInputs {
    fn concat_inputs(self) -> Vec<Input>;
}

impl ConcatInputs for [&[Input]; 2] {
    fn concat_inputs(self) -> Vec<Input> {
        self.into_iter().flatten().map(commute::again).collect()
    }
}
