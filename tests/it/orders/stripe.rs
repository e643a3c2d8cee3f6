//! Refunded is what was taken and went back, in every order of arrival: authorisations captured whole, in part, in
//! several parts or not at all, refunds that wait, succeed, fail or are canceled, at endpoints of four API versions.

use payhook::provider::Registry;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::cast::{Act, CREATE, End, batch, read};
use super::stripe_model::{Ending, Generation, Payment, Step};
use crate::support::signed::{accounts, registry_of};
use crate::support::store::{FreshStore, on_both_stores};

fn step() -> impl Strategy<Value = Step> {
    let percent = || prop::sample::select(vec![20_i64, 25, 50, 75, 100]);
    let ending = prop::sample::select(vec![
        Ending::Succeeds,
        Ending::FailsWithBalanceTransaction,
        Ending::FailsWithout,
        Ending::IsCanceled,
    ]);
    prop_oneof![
        3 => (prop::sample::select(vec![20_i64, 25, 50, 75, 100, 110]), any::<bool>())
            .prop_map(|(percent, last)| Step::Capture { percent, last }),
        1 => Just(Step::Increment),
        3 => (percent(), any::<bool>()).prop_map(|(percent, pending)| Step::Refund { percent, pending }),
        1 => Just(Step::RefundTheRest),
        3 => (0..5_usize, ending).prop_map(|(which, how)| Step::End { which, how }),
        1 => any::<bool>().prop_map(|expired| Step::Cancel { expired }),
    ]
}

/// A payment, and how its events arrive: in an order given by weights, some twice, cut into transactions.
#[derive(Clone, Debug)]
struct Story {
    generation: Generation,
    multicapture: bool,
    steps: Vec<Step>,
    weights: Vec<u16>,
    repeats: Vec<prop::sample::Index>,
    cut: usize,
}

fn story() -> impl Strategy<Value = Story> {
    let generation = prop::sample::select(vec![
        Generation::Listed,
        Generation::Totals,
        Generation::ById,
        Generation::NoRelease,
    ]);
    let arrival = (
        prop::collection::vec(any::<u16>(), 48),
        prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        1..8_usize,
    );
    let payment = (generation, any::<bool>(), prop::collection::vec(step(), 1..9));
    (payment, arrival).prop_map(
        |((generation, multicapture, steps), (weights, repeats, cut))| Story {
            generation,
            multicapture,
            steps,
            weights,
            repeats,
            cut,
        },
    )
}

/// Applies the story's events to an order of its own; `shuffled`, or as they were sent.
async fn tell(
    fresh: &FreshStore,
    registry: &Registry,
    story: &Story,
    payment: &Payment,
    order_id: &str,
    shuffled: bool,
) -> End {
    let mut acts: Vec<Act> = payment
        .events
        .iter()
        .map(|notification| read(registry, "stripe", notification))
        .collect();
    if shuffled {
        let repeats: Vec<Act> = story
            .repeats
            .iter()
            .map(|index| index.get(&acts).clone())
            .collect();
        acts.extend(repeats);
        let mut weighted: Vec<(u16, Act)> = story.weights.iter().cycle().copied().zip(acts).collect();
        weighted.sort_by_key(|(weight, _)| *weight);
        acts = weighted.into_iter().map(|(_, act)| act).collect();
    }
    for part in acts.chunks(story.cut) {
        batch(&fresh.store, part, &CREATE).await;
    }
    End::of_order(fresh, order_id).await
}

fn played(story: &Story, order_id: &str) -> Payment {
    let mut payment = Payment::new(story.generation, order_id, story.multicapture);
    for step in &story.steps {
        payment.play(*step);
    }
    payment.finish();
    payment
}

/// What was raised, but for a refund that seemed too much until an earlier one was known to have failed.
fn lasting(end: &End) -> Vec<&str> {
    let raised = end.raised.iter().map(String::as_str);
    raised.filter(|code| *code != "refund_exceeds_payment").collect()
}

/// What `end` must be, whatever came first.
fn check(story: &Story, payment: &Payment, end: &End) {
    let truth = payment.truth();
    let (paid, refunded, reversed) = (truth.paid, truth.refunded, truth.reversed);
    if paid == 0 {
        let status = if truth.is_canceled { "closed" } else { "processing" };
        assert_eq!((end.status.as_str(), end.totals.as_str()), (status, "0 0 0"));
        assert_eq!((end.sums.len(), end.paid_messages), (0, 0));
        return;
    }
    let told: Vec<i64> = end
        .totals
        .split(' ')
        .map(|total| total.parse().unwrap())
        .collect();
    let mut sums = vec![format!("payment {paid}")];
    sums.extend((told[1] > 0).then(|| format!("refund {}", -told[1])));
    sums.extend((told[2] > 0).then(|| format!("refund_reversal {}", told[2])));
    assert_eq!(end.sums, sums, "the ledger adds up to the totals");
    let raised = lasting(end);
    let failures = raised.iter().filter(|code| **code == "refund_reversed").count();
    assert_eq!(
        (failures > 0, failures),
        (reversed > 0, raised.len()),
        "a human is shown what failed"
    );
    assert_eq!((told[0], told[2]), (paid, reversed));
    // Where only totals tell of refunds that succeed, those after a failure hide behind the largest total.
    if story.generation != Generation::Totals || reversed == 0 {
        assert_eq!(told[1], refunded);
        let status = if refunded >= paid {
            "refunded"
        } else if refunded > 0 {
            "partially_refunded"
        } else {
            "paid"
        };
        assert_eq!(end.status, status);
    }
    assert!(end.paid_messages <= 1 && (end.status == "refunded" || end.paid_messages == 1));
}

on_both_stores! {
    async fn what_was_taken_and_went_back_is_refunded_in_every_order_of_arrival(fresh) {
        let registry = registry_of(&accounts());
        let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
        let count = std::cell::Cell::new(0_u32);
        tokio::task::block_in_place(|| {
            let handle = tokio::runtime::Handle::current();
            let told = TestRunner::new(config).run(&story(), |story| {
                handle.block_on(async {
                    let order = |way: &str| format!("{way}-{}", count.get());
                    count.set(count.get() + 1);
                    let (straight, mixed) = (order("S"), order("M"));
                    let payment = played(&story, &straight);
                    let one = tell(&fresh, &registry, &story, &payment, &straight, false).await;
                    check(&story, &payment, &one);
                    let payment = played(&story, &mixed);
                    let other = tell(&fresh, &registry, &story, &payment, &mixed, true).await;
                    check(&story, &payment, &other);
                    assert_eq!((&one.totals, &one.sums, lasting(&one)), (&other.totals, &other.sums, lasting(&other)));
                    assert_eq!(one.status, other.status);
                });
                Ok(())
            });
            told.unwrap();
        });
        let open = "select order_id from attention where code = 'refund_exceeds_payment' and state = 'open'";
        assert_eq!(fresh.texts(open).await, [""; 0], "resolved with the failure");
    }

    /// Found by the test above: the total was reported before the release, which is as large as the refund.
    async fn a_refund_that_fails_between_two_captures_is_reversed(fresh) {
        let registry = registry_of(&accounts());
        let story = Story {
            generation: Generation::Listed,
            multicapture: true,
            steps: vec![
                Step::Capture { percent: 50, last: false },
                Step::Refund { percent: 100, pending: true },
                Step::End { which: 0, how: Ending::FailsWithout },
            ],
            weights: vec![9, 8, 7, 6, 5, 4, 3, 2, 1],
            repeats: Vec::new(),
            cut: 4,
        };
        for (order_id, shuffled) in [("S-1", false), ("M-1", true)] {
            let payment = played(&story, order_id);
            let end = tell(&fresh, &registry, &story, &payment, order_id, shuffled).await;
            check(&story, &payment, &end);
            assert_eq!(end.totals, "1020 1000 1000");
        }
    }
}
