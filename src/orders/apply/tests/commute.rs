//! I10: facts commute. Realistic sets of events of every provider, in any order, any number of times, cut into
//! transactions anywhere, end in the same totals and ledger sums, always; and in the same status unless
//! something was raised that only a human can settle.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Two payments on one order, each with all that may follow it.
fn world(first: &str, amount: i64) -> Vec<Input> {
    let a = cny(amount);
    match first {
        "alipay" => alipay(a),
        "wechatpay" => wechatpay(a),
        "wechatpay v2" => wechatpay_v2(a),
        "stripe" => stripe(a),
        "stripe in part" => stripe_in_part(a),
        "2c2p" => twoctwop(a),
        "antom captures" => antom_captures(),
        _ => antom(a),
    }
}

fn alipay(a: Money) -> Vec<Input> {
    vec![
        event("ali-closed", "alipay", Some(O), vec![closed("T1")]),
        event("ali-paid", "alipay", Some(O), vec![paid("T1", a)]),
        event(
            "ali-30",
            "alipay",
            Some(O),
            vec![paid("T1", a), total("T1", cny(30))],
        ),
        event(
            "ali-50",
            "alipay",
            Some(O),
            vec![paid("T1", a), total("T1", cny(50))],
        ),
        event("ali-all", "alipay", Some(O), vec![paid("T1", a), total("T1", a)]),
        event(
            "ali-finished",
            "alipay",
            Some(O),
            vec![paid("T1", a), finished("T1"), total("T1", cny(50))],
        ),
    ]
}

fn wechatpay(a: Money) -> Vec<Input> {
    vec![
        event("wx-paid", "wechatpay", Some(O), vec![paid("T1", a)]),
        event(
            "wx-r1",
            "wechatpay",
            Some(O),
            vec![paid("T1", a), refunded("T1", "R1", cny(20))],
        ),
        event(
            "wx-r2",
            "wechatpay",
            Some(O),
            vec![paid("T1", a), refunded("T1", "R2", cny(30))],
        ),
        event(
            "wx-abnormal",
            "wechatpay",
            Some(O),
            vec![paid("T1", a), refund(FactKind::RefundAbnormal, "T1", "R2")],
        ),
        event(
            "wx-closed",
            "wechatpay",
            Some(O),
            vec![paid("T1", a), refund(FactKind::RefundFailed, "T1", "R3")],
        ),
    ]
}

/// Refunds that nobody signed, one of them of another payment.
fn wechatpay_v2(a: Money) -> Vec<Input> {
    let unsigned = |id: &str, kind: FactKind, of: Money| {
        let mut fact = refund(kind, "T1", id)
            .with_amount(Some(cny(20)))
            .for_order(Some(O));
        fact.unsigned = Some(of);
        fact.key.push_str(":unsigned");
        let mut input = event(
            &format!("v2-{id}-{}", kind.as_str()),
            "wechatpay",
            Some(O),
            vec![],
        );
        input.facts = vec![fact];
        input
    };
    vec![
        event("v2-paid", "wechatpay", Some(O), vec![paid("T1", a)]),
        unsigned("R1", FactKind::RefundSucceeded, a),
        unsigned("R2", FactKind::RefundAbnormal, a),
        unsigned("R2", FactKind::RefundSucceeded, a),
        unsigned("R3", FactKind::RefundSucceeded, cny(7)),
    ]
}

fn stripe(a: Money) -> Vec<Input> {
    vec![
        event("pi-processing", "stripe", Some(O), vec![processing("T1", 100)]),
        event("pi-failed", "stripe", Some(O), vec![failed("T1", "ch_1", 200)]),
        event("pi-paid", "stripe", Some(O), vec![paid("T1", a)]),
        event(
            "ch-refunded",
            "stripe",
            None,
            vec![paid("T1", a), total("T1", cny(20))],
        ),
        event(
            "ch-refunded-2",
            "stripe",
            None,
            vec![paid("T1", a), total("T1", cny(60))],
        ),
        event("re-1", "stripe", None, vec![refunded("T1", "R1", cny(20))]),
        event("re-2", "stripe", None, vec![refunded("T1", "R2", cny(40))]),
        event(
            "re-2-failed",
            "stripe",
            None,
            vec![
                refunded("T1", "R2", cny(40)),
                refund(FactKind::RefundFailed, "T1", "R2"),
            ],
        ),
        event(
            "dp",
            "stripe",
            None,
            vec![dispute(FactKind::DisputeOpened, "T1", "D1", cny(15))],
        ),
        event(
            "dp-out",
            "stripe",
            None,
            vec![dispute(FactKind::DisputeFundsWithdrawn, "T1", "D1", cny(15))],
        ),
        event(
            "dp-won",
            "stripe",
            None,
            vec![dispute(FactKind::DisputeWon, "T1", "D1", cny(15))],
        ),
        event(
            "dp-in",
            "stripe",
            None,
            vec![dispute(FactKind::DisputeFundsReinstated, "T1", "D1", cny(15))],
        ),
    ]
}

/// Of 140 authorised, `a` is captured: a refund of 40 is the release, and one more of 40 is none.
fn stripe_in_part(a: Money) -> Vec<Input> {
    let released = |minor: i64| {
        let what = format!("released:{minor}");
        Fact::of_trade(FactKind::AuthorisationReleased, "T1", &what).with_amount(Some(cny(minor)))
    };
    let with_release = |minor: i64| {
        let what = format!("refunded_or_released_total:{minor}");
        Fact::of_trade(FactKind::RefundedOrReleasedTotal, "T1", &what).with_amount(Some(cny(minor)))
    };
    let lost = refund(FactKind::RefundFailed, "T1", "R3").with_amount(Some(cny(10)));
    vec![
        event("pi-in-part", "stripe", Some(O), vec![paid("T1", a), released(40)]),
        event("re-release", "stripe", None, vec![refunded("T1", "R1", cny(40))]),
        event("re-other", "stripe", None, vec![refunded("T1", "R2", cny(40))]),
        event("ch-first", "stripe", None, vec![with_release(50)]),
        event(
            "ch-second",
            "stripe",
            None,
            vec![paid("T1", a), released(40), total("T1", cny(50))],
        ),
        event("re-never-left", "stripe", None, vec![lost]),
        event("ch-kept", "stripe", None, vec![released(0), total("T1", cny(20))]),
    ]
}

fn twoctwop(a: Money) -> Vec<Input> {
    vec![
        event("2-pending", "2c2p", Some(O), vec![processing("T1", 100)]),
        event("2-failed", "2c2p", Some(O), vec![failed("T1", "x", 100)]),
        event("2-paid", "2c2p", Some(O), vec![paid("T1", a)]),
        event(
            "2-refund",
            "2c2p",
            Some(O),
            vec![refunded("T1", "T1:30", cny(30))],
        ),
        event(
            "2-lost",
            "2c2p",
            Some(O),
            vec![dispute(FactKind::DisputeLost, "T1", "D1", a)],
        ),
    ]
}

fn antom(a: Money) -> Vec<Input> {
    vec![
        event("an-pending", "antom", Some(O), vec![processing("T1", 100)]),
        event("an-paid", "antom", Some(O), vec![paid("T1", a)]),
        event("an-refund", "antom", None, vec![refunded("T1", "R1", a)]),
    ]
}

/// What else may be told of the order: a registration, two more trades with their refunds, closes, decisions,
/// and reports that differ from others about the same thing.
fn extras(first: &str) -> Vec<Input> {
    let provider: ProviderName = first.parse().unwrap();
    vec![
        register(cny(100)),
        register(cny(99)),
        register(usd(100)),
        close(),
        event("2nd", "wechatpay", Some(O), vec![paid("T2", cny(100))]),
        event(
            "2nd-back",
            "wechatpay",
            Some(O),
            vec![paid("T2", cny(100)), refunded("T2", "R21", cny(100))],
        ),
        event("2nd-closed", "wechatpay", Some(O), vec![closed("T2")]),
        event("3rd", "alipay", Some(O), vec![paid("T3", cny(100))]),
        event("3rd-back", "alipay", Some(O), vec![total("T3", cny(100))]),
        event(
            "3rd-finished",
            "alipay",
            Some(O),
            vec![paid("T3", cny(100)), finished("T3")],
        ),
        event("usd", "stripe", Some(O), vec![paid("T4", usd(100))]),
        keep(provider, "T1"),
        keep(ProviderName::Wechatpay, "T2"),
        event("failed", first, Some(O), vec![failed("T1", "ch_2", 90)]),
        event("processing", first, Some(O), vec![processing("T1", 150)]),
        event("failed-again", first, Some(O), vec![failed("T1", "ch_2", 210)]),
        event("r-usd", first, Some(O), vec![refunded("T1", "R9", usd(10))]),
        event(
            "d-usd",
            first,
            Some(O),
            vec![dispute(FactKind::DisputeLost, "T1", "D9", usd(10))],
        ),
    ]
}

/// One dispute whose reports do not agree in amount.
fn disputed(first: &str) -> Vec<Input> {
    let kinds = [
        (FactKind::DisputeOpened, 10),
        (FactKind::DisputeFundsWithdrawn, 12),
        (FactKind::DisputeLost, 14),
        (FactKind::DisputeWon, 12),
        (FactKind::DisputeFundsReinstated, 5),
    ];
    kinds
        .into_iter()
        .map(|(kind, amount)| {
            let fact = dispute(kind, "T1", "D2", cny(amount));
            event(&format!("d2-{}", kind.as_str()), first, Some(O), vec![fact])
        })
        .collect()
}

/// A payment that is authorised, and captured in parts of 100 in all.
fn antom_captures() -> Vec<Input> {
    let failed = Fact::of_capture(FactKind::CaptureFailed, "T1", "C0", "capture_failed");
    vec![
        event("an-authorised", "antom", Some(O), vec![processing("T1", 100)]),
        event("an-capture-failed", "antom", None, vec![failed]),
        event("an-capture-1", "antom", None, vec![captured("T1", "C1", cny(60))]),
        event("an-capture-2", "antom", None, vec![captured("T1", "C2", cny(40))]),
        event("an-refund-1", "antom", None, vec![refunded("T1", "R1", cny(30))]),
        // The account was said to capture at once before.
        event("an-paid", "antom", Some(O), vec![paid("T1", cny(100))]),
    ]
}

fn events() -> impl Strategy<Value = Vec<Input>> {
    let providers = prop::sample::select(vec![
        "alipay",
        "wechatpay",
        "wechatpay v2",
        "stripe",
        "stripe in part",
        "2c2p",
        "antom",
        "antom captures",
    ]);
    // One in three of what else there is, of each kind at will: nothing, a little, or much of it.
    let more = prop::collection::vec(0..3_u8, 23);
    (providers, any::<[bool; 16]>(), more).prop_map(|(world_of, keep, more)| {
        let first = world_of.split(' ').next().unwrap_or_default();
        let mut events: Vec<Input> = world(world_of, 100)
            .into_iter()
            .zip(keep)
            // What nobody signed waits for its payment, so that one is always told.
            .filter(|(event, keep)| {
                *keep || event.event_id.as_ref().is_some_and(|id| id.as_str() == "v2-paid")
            })
            .map(|(event, _)| event)
            .collect();
        // The links are always taught: else there is no order to compare, or a decision waits for its trade.
        events.push(event("link", first, Some(O), vec![processing("T1", 1)]));
        events.push(event("2nd-link", "wechatpay", Some(O), vec![processing("T2", 1)]));
        let extras = extras(first).into_iter().chain(disputed(first)).zip(more);
        let mut registered = false;
        for (extra, _) in extras.filter(|(_, more)| *more == 0) {
            // An order is registered once: the API answers a second amount itself.
            if extra.registers() && std::mem::replace(&mut registered, true) {
                continue;
            }
            events.push(extra);
        }
        events
    })
}

fn run(events: &[Input], order: &[usize], cuts: &[bool], park: bool) -> Sim {
    let mut sim = if park { Sim::parking() } else { Sim::default() };
    let mut batch = Vec::new();
    for (index, cut) in order.iter().zip(cuts.iter().cycle()) {
        batch.push(again(&events[*index]));
        if *cut {
            sim.batch(&std::mem::take(&mut batch));
        }
    }
    sim.batch(&batch);
    sim
}

pub(super) fn again(input: &Input) -> Input {
    Input {
        merchant: input.merchant.clone(),
        provider: input.provider.clone(),
        account: input.account.clone(),
        event_id: input.event_id.clone(),
        event_key: input.event_key.clone(),
        facts: input.facts.clone(),
        links: input.links.clone(),
        names: input.names.clone(),
        refusal: None,
        not_applied: None,
        times: input.times,
        since: input.since,
        ignored: None,
        trade: input.trade.clone(),
    }
}

/// A sequence that holds each index at least once.
pub(super) fn sequence(len: usize, shuffle: &[Index], repeats: &[Index]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.extend(repeats.iter().map(|index| index.index(len)));
    for (at, index) in shuffle.iter().enumerate().take(order.len()) {
        let other = index.index(order.len());
        order.swap(at, other);
    }
    order
}

fn humans_decide(sim: &Sim) -> bool {
    let codes = [
        "paid_after_close",
        "paid_twice",
        "amount_mismatch",
        "currency_mismatch",
    ];
    sim.raised().iter().any(|raised| codes.contains(raised))
}

fn check(one: &Sim, other: &Sim) {
    let raised = |codes: &[&str]| {
        let raised = |sim: &Sim| sim.raised().iter().any(|code| codes.contains(code));
        raised(one) || raised(other)
    };
    assert_eq!(one.sums(), other.sums());
    if !raised(&["currency_mismatch"]) {
        assert_eq!(one.totals(), other.totals());
    }
    if !humans_decide(one) && !humans_decide(other) {
        assert_eq!(one.status(), other.status());
        assert_eq!(one.open(), other.open());
    }
    if !raised(&["paid_after_close", "amount_mismatch", "currency_mismatch"]) {
        assert_eq!(one.status() == "refunded", other.status() == "refunded");
        let paid = |sim: &Sim| sim.order().began.status.rank() > 0;
        assert_eq!(paid(one), paid(other));
    }
    for sim in [one, other] {
        for outcome in sim.book.writes.outcomes.values() {
            assert_ne!(outcome.outcome, "parked", "{} still waits", outcome.event_id);
        }
        let standing = sim.order().began;
        assert_eq!(sim.status() == "refunded", sim.wholly_refunded());
        assert_eq!(
            sim.sent("order.paid"),
            usize::from(standing.paid_version.is_some())
        );
        let is_paid = (1..4).contains(&standing.status.rank());
        assert!(standing.paid_version.is_some() || !is_paid);
        for code in sim.raised() {
            let item = sim
                .book
                .writes
                .attention
                .iter()
                .filter(|item| item.code.as_str() == code);
            let sources: BTreeSet<_> = item.clone().map(|item| item.source.clone()).collect();
            assert_eq!(sources.len(), item.count(), "{code} raised twice");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn facts_commute(
        events in events(),
        shuffle in prop::collection::vec(any::<Index>(), 60),
        repeats in prop::collection::vec(any::<Index>(), 0..12),
        cuts in prop::collection::vec(any::<bool>(), 1..20),
        park in any::<bool>(),
    ) {
        let registers = events.iter().any(|event| event.facts.iter().any(|fact| fact.kind == FactKind::OrderRegistered));
        let straight: Vec<usize> = (0..events.len()).collect();
        let park = park && registers;
        let one = run(&events, &straight, &[true], park);
        let other = run(&events, &sequence(events.len(), &shuffle, &repeats), &cuts, park);
        check(&one, &other);
    }

    #[test]
    fn a_second_round_changes_nothing(
        events in events(),
        shuffle in prop::collection::vec(any::<Index>(), 60),
        cuts in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let order = sequence(events.len(), &shuffle, &[]);
        let mut sim = run(&events, &order, &cuts, false);
        let (messages, history, entries) =
            (sim.messages.len(), sim.history(), sim.book.writes.entries.len());
        for index in order.iter().rev() {
            let own = events[*index].event_id.is_none();
            let applied = sim.one(again(&events[*index]));
            assert_eq!(applied.outcome.as_str(), "already_applied", "{}", applied.reason);
            if own {
                sim.book.writes.history.pop();
            }
        }
        assert_eq!((messages, history, entries), (sim.messages.len(), sim.history(), sim.book.writes.entries.len()));
    }
}
