//! Every situation from public bug reports that concerns effects, the broker, HTTP and the process has a test that
//! names it: `C12` in its comment, or `c12` in its name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// C: Stripe, ordering and effects. D: RabbitMQ, lapin, outbox. E: HTTP, database, process.
const CASES: [(char, &[u8]); 3] = [
    (
        'C',
        &[
            1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 30,
            31, 32, 33, 34,
        ],
    ),
    (
        'D',
        &[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 24, 25,
        ],
    ),
    ('E', &[1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 14, 15, 16]),
];

/// Cases that cannot happen here, and why.
const NOT_HERE: [(&str, &str); 1] = [(
    "E12",
    "about tools that cannot send GBK: the notifications of these tests are bytes",
)];

#[test]
fn every_case_is_named_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    read(&root.join("tests/it"), &mut text);
    read(&root.join("src"), &mut text);
    let named: BTreeSet<String> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_uppercase)
        .collect();
    let missing: Vec<String> = CASES
        .iter()
        .flat_map(|(section, numbers)| numbers.iter().map(move |number| format!("{section}{number:02}")))
        .filter(|case| !named.contains(case) && !NOT_HERE.iter().any(|(not_here, _)| not_here == case))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (case, reason) in NOT_HERE {
        assert!(
            !named.contains(case),
            "{case} is shown after all, although {reason}"
        );
    }
}

/// The text of every Rust file below `folder` but this one.
fn read(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("it/cases.rs")
        {
            text.push_str(&fs::read_to_string(&path).unwrap());
            text.push('\n');
        }
    }
}
