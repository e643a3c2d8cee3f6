//! Rules and dashboards name only metrics of the vocabulary, with only the labels that it gives them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{deploy, document, text};

/// One metric as `telemetry/metrics.rs` describes it.
#[derive(Debug, Default)]
struct Metric {
    histogram: bool,
    labels: BTreeSet<String>,
}

/// `/// Counter {provider, outcome}: …` above `pub const X: &str = "payhook_…";`.
fn vocabulary() -> BTreeMap<String, Metric> {
    let source = include_str!("../../../src/telemetry/metrics.rs");
    let mut found = BTreeMap::new();
    let mut about = String::new();
    for line in source.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            about.push_str(words);
        } else if let Some((_, name)) = line.split_once(": &str = \"payhook_") {
            let labels = about.split_once(" {").and_then(|(kind, rest)| {
                let (labels, _) = rest.split_once('}')?;
                (!kind.contains(' ')).then_some(labels)
            });
            let metric = Metric {
                histogram: about.starts_with("Histogram"),
                labels: labels
                    .into_iter()
                    .flat_map(|labels| labels.split(", "))
                    .map(str::to_owned)
                    .collect(),
            };
            found.insert(format!("payhook_{}", name.trim_end_matches("\";")), metric);
            about.clear();
        } else {
            about.clear();
        }
    }
    found
}

/// Every `payhook_…` in an expression, with the label names of its selector.
fn used(expression: &str) -> Vec<(String, Vec<String>)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (start, _) in expression.match_indices("payhook_") {
        // The end of a longer word is not a metric.
        if expression[..start].ends_with(word) {
            continue;
        }
        let rest = &expression[start..];
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let mut labels = Vec::new();
        if let Some((selector, _)) = behind.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
            for part in selector.split(',') {
                let label = part.trim().split(|c| !word(c)).next().unwrap_or_default();
                labels.push(label.to_owned());
            }
        }
        found.push((name.to_owned(), labels));
    }
    found
}

/// What is wrong with an expression.
fn problems(expression: &str, vocabulary: &BTreeMap<String, Metric>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, labels) in used(expression) {
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .filter(|base| vocabulary.get(*base).is_some_and(|metric| metric.histogram));
        let Some(metric) = vocabulary.get(base.unwrap_or(&name)) else {
            found.push(format!("{name} is in no vocabulary"));
            continue;
        };
        if metric.histogram && base.is_none() {
            found.push(format!("{name} is a histogram: _bucket, _sum or _count"));
        }
        // Prometheus itself adds where it came from.
        let foreign = |label: &&String| {
            !metric.labels.contains(*label) && !["instance", "job", "le"].contains(&label.as_str())
        };
        for label in labels.iter().filter(foreign) {
            found.push(format!("{name} has no label {label}"));
        }
    }
    found
}

#[test]
fn the_check_itself_sees_what_is_wrong() {
    let known = vocabulary();
    assert!(
        known.len() >= 15 && known.values().any(|metric| metric.histogram),
        "{known:?}"
    );
    assert!(
        problems(
            "rate(payhook_ack_seconds_bucket{provider=\"a\",le=\"1\"}[5m])",
            &known
        )
        .is_empty()
    );
    assert_eq!(problems("payhook_ack_seconds > 1", &known).len(), 1);
    assert_eq!(problems("payhook_ack_second_bucket", &known).len(), 1);
    assert_eq!(
        problems("payhook_broker_up{account=\"a\"} + payhook_up", &known).len(),
        2
    );
}

#[test]
fn alerts_name_only_metrics_that_exist_and_tell_what_to_do() {
    let known = vocabulary();
    let rules = document("observe/alerts.yml");
    let mut names = BTreeSet::new();
    for group in rules["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} stands there twice");
            let wrong = problems(rule["expr"].as_str().unwrap(), &known);
            assert!(wrong.is_empty(), "{name}: {wrong:?}");
            let severity = rule["labels"]["severity"].as_str();
            assert!(matches!(severity, Some("page" | "ticket")), "{name}");
            for part in ["summary", "description"] {
                let words = rule["annotations"][part].as_str().unwrap_or_default();
                assert!(words.len() > 10, "{name} has no {part}");
            }
        }
    }
    assert!(names.len() >= 15, "{names:?}");
    // Every figure somebody should be woken or told about has a rule.
    let all = text("observe/alerts.yml");
    for name in known.keys().filter(|name| {
        ["_oldest_", "_open_", "_up", "_expiry_", "_offset_", "last_event"]
            .iter()
            .any(|part| name.contains(part))
    }) {
        assert!(all.contains(name.as_str()), "no rule watches {name}");
    }
}

#[test]
fn the_dashboard_names_only_metrics_that_exist() {
    let known = vocabulary();
    let dashboard: Value = serde_json::from_str(&text("observe/grafana.json")).unwrap();
    let mut shown = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let wrong = problems(expression, &known);
            assert!(wrong.is_empty(), "{}: {wrong:?}", panel["title"]);
            shown.extend(used(expression).into_iter().map(|(name, _)| name));
        }
    }
    for name in known.keys() {
        assert!(
            shown.iter().any(|shown| shown.starts_with(name.as_str())),
            "no panel shows {name}"
        );
    }
    assert!(deploy("observe/prometheus.yml").is_file());
}
