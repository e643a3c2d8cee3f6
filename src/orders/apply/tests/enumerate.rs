//! I7 and I10 by exhaustion: every set of up to [`SIZE`] of the facts below, about two trades of one order, in
//! every order of arrival; and at each step everything known is told once more.
//!
//! Whatever the path: the rank never falls but out of `refunded`, a merchant's close is left only for a payment
//! that is kept, no total shrinks, `order.paid` is written at most once, and a repetition does nothing. An order is
//! `refunded` if and only if every trade that counts is. Whatever the order: one set ends in one pair of totals
//! and ledger sums; and in one status wherever no human has to decide. Since every path of a set is walked
//! through the same steps as its beginnings, sets of any smaller size are covered by the same walk.

use std::collections::HashMap;
use std::thread;

use super::diagram::{Step, rule, steps};
use super::*;
use crate::event::ProviderName;
use crate::orders::status::{ClosedBy, Totals};

/// The largest sets: 78 660 paths, some 10 s of a debug build. One more fact takes fourteen times as long.
const SIZE: usize = 4;

/// Where the alphabet has the operator's decision to keep trade 1.
const KEPT: usize = 17;

/// What may be told. Trade 1 is paid what the order is registered at, trade 2 less. Disputes, which move no
/// status, and more views of what is here are the random walk's: see `commute`.
fn alphabet() -> Vec<Input> {
    let (a, b) = ("alipay", "stripe");
    let facts = [
        (a, processing("T1", 100)),
        (a, failed("T1", "x", 200)),
        (a, paid("T1", cny(100))),
        (a, closed("T1")),
        (a, finished("T1")),
        (a, total("T1", cny(30))),
        (a, total("T1", cny(100))),
        (a, refunded("T1", "R1", cny(40))),
        (a, refund(FactKind::RefundFailed, "T1", "R1")),
        (b, failed("T2", "y", 150)),
        (b, paid("T2", cny(90))),
        (b, closed("T2")),
        (b, finished("T2")),
        (b, refunded("T2", "R2", cny(90))),
    ];
    let mut all: Vec<Input> = facts
        .into_iter()
        .enumerate()
        .map(|(at, (provider, fact))| event(&format!("e{at}"), provider, Some(O), vec![fact]))
        .collect();
    all.push(register(cny(100)));
    all.push(close());
    all.push(Input::of_own(
        M,
        &OwnFact::PaymentAccepted {
            attention_id: "A1".to_owned(),
            provider: ProviderName::Stripe,
            trade_id: "T2".to_owned(),
        },
    ));
    all.push(keep(ProviderName::Alipay, "T1"));
    all
}

/// What one set of facts has come to so far, whatever the order.
#[derive(Debug, PartialEq, Eq)]
struct End {
    totals: Totals,
    sums: Vec<(bool, &'static str, i64)>,
    /// Where no human has to decide.
    status: Option<Status>,
}

/// What a walk has seen.
#[derive(Default)]
struct Walked {
    ends: HashMap<u32, End>,
    steps: BTreeSet<Step>,
    paths: usize,
}

fn standing(sim: &Sim) -> Standing {
    sim.book
        .orders
        .values()
        .next()
        .map_or(Standing::NEW, |order| order.began)
}

/// What the ledger holds, by trade and entry type; all of it is in one currency.
fn sums(sim: &Sim) -> Vec<(bool, &'static str, i64)> {
    let mut sums: Vec<(bool, &'static str, i64)> = Vec::new();
    for entry in &sim.book.writes.entries {
        let (first, kind) = (entry.trade.trade_id == "T1", entry.entry_type);
        match sums.iter_mut().find(|sum| (sum.0, sum.1) == (first, kind)) {
            Some(sum) => sum.2 += entry.amount,
            None => sums.push((first, kind, entry.amount)),
        }
    }
    sums.sort_unstable();
    sums
}

fn humans_decide(sim: &Sim) -> bool {
    let codes = ["paid_after_close", "paid_twice", "amount_mismatch"];
    sim.raised().iter().any(|raised| codes.contains(raised))
}

impl Walked {
    /// One more fact, in a transaction of its own.
    fn step(&mut self, sim: &Sim, alphabet: &[Input], set: u32, next: usize) -> (Sim, u32) {
        let before = standing(sim);
        let mut sim = sim.clone();
        sim.one(commute::again(&alphabet[next]));
        let set = set | 1 << next;
        let after = standing(&sim);
        let told = || (0..alphabet.len()).filter(|at| set & 1 << at != 0);
        let path = || {
            format!(
                "{:?}",
                told().map(|at| &alphabet[at].facts[0].key).collect::<Vec<_>>()
            )
        };

        if before.status == Status::Closed(ClosedBy::Merchant) && after.status != before.status {
            let kept = alphabet[next].facts[0].kind == FactKind::PaymentKept;
            assert!(
                after.status.rank() > 0 && (kept || set & 1 << KEPT != 0),
                "{}",
                path()
            );
        }
        let fell = after.status.rank() < before.status.rank();
        assert!(
            !fell || before.status == Status::Refunded && after.status.rank() > 0,
            "{}",
            path()
        );
        assert_eq!(
            after.status == Status::Refunded,
            sim.wholly_refunded(),
            "{}",
            path()
        );
        for (was, is) in [
            (before.totals.paid, after.totals.paid),
            (before.totals.refunded, after.totals.refunded),
            (before.totals.reversed, after.totals.reversed),
        ] {
            assert!(is >= was, "{}", path());
        }
        assert!(sim.sent("order.paid") <= 1, "{}", path());
        let is_paid = (1..4).contains(&after.status.rank());
        assert!(!is_paid || sim.sent("order.paid") == 1, "{}", path());
        self.steps.extend(steps(&before, after.status, after.totals));

        let written = |sim: &Sim| (sim.messages.len(), sim.book.writes.entries.len());
        let once = written(&sim);
        let repetitions: Vec<Input> = told().map(|at| commute::again(&alphabet[at])).collect();
        sim.batch(&repetitions);
        assert_eq!((standing(&sim), written(&sim)), (after, once), "{}", path());
        sim.book.writes.history.clear();

        self.paths += 1;
        let end = End {
            totals: after.totals,
            sums: sums(&sim),
            status: (!humans_decide(&sim)).then_some(after.status),
        };
        self.compare(set, end, path);
        (sim, set)
    }

    fn compare(&mut self, set: u32, end: End, path: impl Fn() -> String) {
        match self.ends.get_mut(&set) {
            None => {
                self.ends.insert(set, end);
            }
            Some(known) => {
                assert_eq!((known.totals, &known.sums), (end.totals, &end.sums), "{}", path());
                if let (Some(one), Some(other)) = (known.status, end.status) {
                    assert_eq!(one, other, "{}", path());
                }
                known.status = known.status.or(end.status);
            }
        }
    }

    fn walk(&mut self, sim: &Sim, alphabet: &[Input], set: u32, left: usize) {
        for next in (0..alphabet.len()).filter(|next| set & 1 << next == 0) {
            let (sim, set) = self.step(sim, alphabet, set, next);
            if left > 1 {
                self.walk(&sim, alphabet, set, left - 1);
            }
        }
    }
}

#[test]
fn every_small_set_of_facts_in_every_order() {
    let alphabet = &alphabet();
    let count = alphabet.len();
    // One half of the first facts on each of two threads.
    let halves: Vec<Walked> = thread::scope(|scope| {
        let walks = [0, 1].map(|half| {
            scope.spawn(move || {
                let mut walked = Walked::default();
                for first in (half..count).step_by(2) {
                    let (sim, set) = walked.step(&Sim::default(), alphabet, 0, first);
                    walked.walk(&sim, alphabet, set, SIZE - 1);
                }
                walked
            })
        });
        walks.map(|walk| walk.join().unwrap()).into_iter().collect()
    });
    let mut all = Walked::default();
    for half in halves {
        all.paths += half.paths;
        all.steps.extend(half.steps);
        for (set, end) in half.ends {
            all.compare(set, end, || "the two halves".to_owned());
        }
    }
    let paths: usize = (1..=SIZE)
        .map(|size| (count + 1 - size..=count).product::<usize>())
        .sum();
    assert_eq!(all.paths, paths, "every order of every set");

    // Nothing happens that the README does not draw, and everything it draws happens.
    let not_paid = ["pending", "processing", "failed", "closed"];
    let leaving = |steps: &BTreeSet<Step>| -> BTreeSet<&str> {
        let out = steps.iter().filter(|(_, to)| !not_paid.contains(to));
        out.map(|(_, to)| *to).collect()
    };
    let rule = rule();
    assert!(all.steps.is_subset(&rule), "{:?}", all.steps.difference(&rule));
    let paid = |steps: &BTreeSet<Step>| -> BTreeSet<Step> {
        let from_paid = steps.iter().filter(|(from, _)| !not_paid.contains(from));
        from_paid.copied().collect()
    };
    assert_eq!(paid(&all.steps), paid(&rule));
    assert_eq!(leaving(&all.steps), leaving(&rule));
}
