//! Medians of the rounds, side by side, and the ratios between them.

use crate::round::{Cores, Outcome};

/// What is printed of a group of rounds that differ in nothing but chance.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Summary {
    pub(crate) subject: &'static str,
    pub(crate) senders: String,
    pub(crate) kind: String,
    pub(crate) connections: usize,
    pub(crate) rate: Option<u32>,
    /// Rounds that count, and those that do not.
    pub(crate) rounds: usize,
    pub(crate) void: usize,
    pub(crate) per_second: Spread,
    /// Milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) cores: Cores,
    pub(crate) memory: f64,
    pub(crate) syncs: f64,
    pub(crate) disk: f64,
    pub(crate) first_answer: f64,
}

/// Least, median and most.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

/// The middle of `values`, and their ends.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> Spread {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or_default();
    let half = sorted.len() / 2;
    let median = if sorted.len().is_multiple_of(2) {
        f64::midpoint(at(half.saturating_sub(1)), at(half))
    } else {
        at(half)
    };
    Spread {
        least: at(0),
        median,
        most: at(sorted.len().saturating_sub(1)),
    }
}

/// The groups of `outcomes`, in the order in which they first came.
pub(crate) fn summaries(outcomes: &[Outcome]) -> Vec<Summary> {
    let mut groups: Vec<Vec<&Outcome>> = Vec::new();
    for outcome in outcomes {
        let same = |group: &&mut Vec<&Outcome>| group.first().is_some_and(|first| alike(first, outcome));
        match groups.iter_mut().find(same) {
            Some(group) => group.push(outcome),
            None => groups.push(vec![outcome]),
        }
    }
    groups.iter().filter_map(|group| summary(group)).collect()
}

fn alike(one: &Outcome, other: &Outcome) -> bool {
    let key = |outcome: &Outcome| {
        (
            outcome.subject,
            outcome.senders.clone(),
            outcome.kind.clone(),
            outcome.connections,
            outcome.rate,
        )
    };
    key(one) == key(other)
}

fn summary(group: &[&Outcome]) -> Option<Summary> {
    let first = group.first()?;
    let good: Vec<&&Outcome> = group.iter().filter(|outcome| outcome.void.is_none()).collect();
    let median = |of: &dyn Fn(&Outcome) -> f64| spread(good.iter().map(|outcome| of(outcome))).median;
    Some(Summary {
        subject: first.subject,
        senders: first.senders.clone(),
        kind: first.kind.clone(),
        connections: first.connections,
        rate: first.rate,
        rounds: good.len(),
        void: group.len() - good.len(),
        per_second: spread(good.iter().map(|outcome| outcome.per_second)),
        p50: median(&|outcome| millis(outcome.phase.p50)),
        p99: median(&|outcome| millis(outcome.phase.p99)),
        p999: median(&|outcome| millis(outcome.phase.p999)),
        cores: Cores {
            program: median(&|outcome| outcome.cores.program),
            postgres: median(&|outcome| outcome.cores.postgres),
            rabbitmq: median(&|outcome| outcome.cores.rabbitmq),
            generator: median(&|outcome| outcome.cores.generator),
            other: median(&|outcome| outcome.cores.other),
        },
        memory: median(&|outcome| outcome.memory),
        syncs: median(&|outcome| outcome.syncs),
        disk: median(&|outcome| outcome.disk),
        first_answer: median(&|outcome| outcome.first_answer),
    })
}

/// Microseconds as milliseconds.
pub(crate) fn millis(micros: u64) -> f64 {
    f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1000.0
}

const HEAD: &str = "                                            requests/s              ms                  cores                                 \n\
subject                                    conn   least  median    most    p50    p99   p99.9  prog   pg   mq  gen other  MiB  syncs/s  disk/s  start ms";

/// The table of everything, and behind it the ratios of payhook to the others at the same load.
pub(crate) fn print(summaries: &[Summary]) {
    println!("{HEAD}");
    for s in summaries {
        let rate = s.rate.map(|rate| format!("@{rate}")).unwrap_or_default();
        let what = if s.kind == "fresh" {
            s.senders.clone()
        } else {
            format!("{} {}", s.senders, s.kind)
        };
        let c = &s.cores;
        println!(
            "{:<42} {:>4} {:>7.0} {:>7.0} {:>7.0} {:>6.2} {:>6.2} {:>7.2}  {:>4.2} {:>4.2} {:>4.2} {:>4.2} {:>5.2} {:>4.0} {:>8.0} {:>7.0} {:>9.0}  {}{}{}",
            s.subject,
            s.connections,
            s.per_second.least,
            s.per_second.median,
            s.per_second.most,
            s.p50,
            s.p99,
            s.p999,
            c.program,
            c.postgres,
            c.rabbitmq,
            c.generator,
            c.other,
            s.memory,
            s.syncs,
            s.disk,
            s.first_answer,
            what,
            rate,
            if s.void > 0 {
                format!("  {} VOID", s.void)
            } else {
                String::new()
            },
        );
    }
    println!();
    for ours in summaries.iter().filter(|s| s.subject.starts_with("payhook")) {
        for theirs in summaries {
            let same_load = theirs.connections == ours.connections
                && theirs.rate == ours.rate
                && theirs.senders == ours.senders
                && theirs.kind == ours.kind;
            if !same_load || theirs.subject == ours.subject {
                continue;
            }
            if theirs.rounds == 0 || ours.rounds == 0 {
                continue;
            }
            println!(
                "{} {} at {} connections{}: {:.2} × the rate of \"{}\", p99 {:.2} × its",
                ours.subject,
                ours.senders,
                ours.connections,
                ours.rate.map(|rate| format!(" and {rate}/s")).unwrap_or_default(),
                ours.per_second.median / theirs.per_second.median.max(1e-9),
                theirs.subject,
                ours.p99 / theirs.p99.max(1e-9),
            );
        }
    }
    for ours in summaries
        .iter()
        .filter(|s| s.subject == "payhook" && s.rounds > 0)
    {
        for theirs in summaries
            .iter()
            .filter(|s| s.subject == "payhook" && s.rounds > 0)
        {
            let same_place =
                theirs.connections == ours.connections && theirs.rate.is_none() && ours.rate.is_none();
            let reference = theirs.senders == "stripe" && theirs.kind == "fresh";
            let of_kind = ours.kind != "fresh" && theirs.kind == "fresh" && ours.senders == theirs.senders;
            let of_sender = ours.kind == "fresh" && ours.senders != "stripe" && reference;
            if same_place && (of_kind || of_sender) {
                println!(
                    "payhook {} {} at {} connections: {:.2} × {} {}",
                    ours.senders,
                    ours.kind,
                    ours.connections,
                    ours.per_second.median / theirs.per_second.median.max(1e-9),
                    theirs.senders,
                    theirs.kind,
                );
            }
        }
    }
}
