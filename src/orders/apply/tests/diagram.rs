//! The README's diagram, drawn from the rule: every step that [`transitions`] makes from where an order may be,
//! whatever the facts say. `PAYHOOK_BLESS=1 cargo test --lib diagram` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::orders::status::{ClosedBy, Totals};

const BEGIN: &str = "<!-- drawn by PAYHOOK_BLESS=1 cargo test --lib diagram -->\n";
const END: &str = "<!-- drawn -->\n";

/// A step from one status to the next, as they are named in the diagram.
pub(super) type Step = (&'static str, &'static str);

const ALL: [Status; 9] = [
    Status::Pending,
    Status::Processing,
    Status::Failed,
    Status::Closed(ClosedBy::Provider),
    Status::Closed(ClosedBy::Merchant),
    Status::Paid,
    Status::PartiallyRefunded,
    Status::Finished,
    Status::Refunded,
];

/// Who closed an order makes a difference: only one of them does it for good.
fn name(status: Status) -> &'static str {
    match status {
        Status::Closed(ClosedBy::Merchant) => "closed_by_merchant",
        other => other.as_str(),
    }
}

/// The steps from `before` when the facts say `status` and `totals`.
pub(super) fn steps(before: &Standing, status: Status, totals: Totals) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = before.status;
    let versions = transitions(before, status, totals, true);
    let last = before.status.advance(status);
    for next in versions.iter().map(|version| version.status).chain([last]) {
        if next != at {
            steps.push((name(at), name(next)));
            at = next;
        }
    }
    steps
}

/// Every step that the rule makes from any place that it leads to.
pub(super) fn rule() -> BTreeSet<Step> {
    let mut rule = BTreeSet::new();
    let mut known: Vec<Standing> = vec![Standing::NEW];
    let mut looked_at = 0;
    while let Some(before) = known.get(looked_at).copied() {
        looked_at += 1;
        for status in ALL {
            rule.extend(steps(&before, status, Totals::default()));
            let mut next = transitions(&before, status, Totals::default(), true)
                .pop()
                .unwrap_or(before);
            (next.status, next.version) = (before.status.advance(status), 0);
            next.paid_version = next.paid_version.map(|_| 0);
            if !known.contains(&next) {
                known.push(next);
            }
        }
    }
    rule
}

/// Where `from` can get to.
fn reach(rule: &BTreeSet<Step>, from: &'static str) -> BTreeSet<&'static str> {
    let mut reached = BTreeSet::from([from]);
    loop {
        let more: Vec<_> = rule
            .iter()
            .filter(|(from, to)| reached.contains(from) && !reached.contains(to))
            .map(|(_, to)| *to)
            .collect();
        if more.is_empty() {
            return reached;
        }
        reached.extend(more);
    }
}

/// Unpaid statuses that lead to each other are drawn as one group, with one arrow for all of them.
fn draw(rule: &BTreeSet<Step>) -> String {
    let mut groups: Vec<Vec<&'static str>> = Vec::new();
    for status in ALL.map(name) {
        let together = |other: &str| {
            let unpaid = |name: &str| ALL.iter().any(|of| of.rank() == 0 && self::name(*of) == name);
            let leads = |from: &'static str, to: &str| reach(rule, from).contains(to);
            unpaid(status) && unpaid(other) && leads(status, other)
        };
        match groups
            .iter_mut()
            .find(|group| together(group[0]) && reach(rule, group[0]).contains(status))
        {
            Some(group) => group.push(status),
            None => groups.push(vec![status]),
        }
    }
    let called = |group: &[&'static str]| if group.len() > 1 { "not_paid" } else { group[0] };
    let group_of: BTreeMap<&str, &str> = groups
        .iter()
        .flat_map(|group| group.iter().map(|status| (*status, called(group))))
        .collect();
    let leaves = |status: &str| -> BTreeSet<&str> {
        rule.iter()
            .filter(|(from, to)| *from == status && group_of[from] != group_of[to])
            .map(|(_, to)| *to)
            .collect()
    };
    let mut text = "```mermaid\nstateDiagram-v2\n    [*] --> pending\n".to_owned();
    for group in groups.iter().filter(|group| group.len() > 1) {
        writeln!(
            text,
            "    state \"not paid: any of these may follow any other\" as not_paid {{"
        )
        .unwrap();
        for status in group {
            assert_eq!(
                leaves(status),
                leaves(group[0]),
                "one arrow would not be true of all"
            );
            writeln!(text, "        {status}").unwrap();
        }
        writeln!(text, "    }}").unwrap();
    }
    for group in &groups {
        let next = ALL
            .map(name)
            .into_iter()
            .filter(|to| leaves(group[0]).contains(to));
        for to in next {
            writeln!(text, "    {} --> {to}", called(group)).unwrap();
        }
        if leaves(group[0]).is_empty() {
            writeln!(text, "    {} --> [*]", called(group)).unwrap();
        }
    }
    text + "```\n"
}

#[test]
fn the_readme_draws_what_the_rule_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme
        .split_once(BEGIN)
        .expect("the mark where the diagram begins");
    let (drawn, after) = rest.split_once(END).expect("the mark where it ends");
    let wanted = draw(&rule());
    #[expect(
        clippy::disallowed_methods,
        reason = "a switch of this test alone, for whoever changes the rule"
    )]
    let bless = std::env::var("PAYHOOK_BLESS");
    if bless.is_ok() {
        std::fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        drawn, wanted,
        "draw it anew: PAYHOOK_BLESS=1 cargo test --lib diagram"
    );
}
