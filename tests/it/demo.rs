//! `payhook demo` by the real binary: what it tells a newcomer, and that what it prints can be typed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use payhook::samples;

/// How long the whole play may take on a busy two-core machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Both look for the same two ports first.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A child that does not outlive its test.
struct Demo(Child);

impl Demo {
    fn start(args: &[&str]) -> Self {
        let folder = std::env::temp_dir();
        let child = Command::new(env!("CARGO_BIN_EXE_payhook"))
            .arg("demo")
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn signal(&self) {
        let sent = Command::new("kill")
            .arg(self.0.id().to_string())
            .status()
            .unwrap();
        assert!(sent.success());
    }

    fn wait(&mut self) -> i32 {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < until, "the demo does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stderr(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            stderr.read_to_string(&mut said).unwrap();
        }
        said
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_demo_tells_every_sample_and_what_each_order_became() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut demo = Demo::start(&["--once"]);
    let mut told = String::new();
    demo.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(demo.wait(), 0, "{told}\n{}", demo.stderr());

    let all = samples::all().unwrap();
    assert!(all.len() >= 40, "{}", all.len());
    let mut seen = std::collections::HashSet::new();
    for sample in &all {
        let label = format!("{}/{} ", sample.provider, sample.case);
        let row = told.lines().find(|line| line.trim_start().starts_with(&label));
        let row = row.unwrap_or_else(|| panic!("nothing about {label}:\n{told}"));
        let again = sample
            .expected
            .event_key
            .as_ref()
            .is_some_and(|key| !seen.insert(key));
        let accepted = if again { "duplicate" } else { "accepted" };
        let verdict = sample.expected.reason.as_deref().unwrap_or(accepted);
        let answer = format!(" {} {verdict} ", sample.expected.ack.status);
        assert!(row.contains(&answer), "{row}");
    }
    let (_, orders) = told.split_once("BECAME").expect("a table of orders");
    for sample in &all {
        let expected = &sample.expected;
        let moves = expected.is_genuine() && expected.identity.as_deref() == Some("ok");
        if let (true, Some(order), false) = (moves, &expected.order_id, expected.facts.is_empty()) {
            let row = orders.lines().find(|line| line.contains(&format!(" {order} ")));
            assert!(row.is_some(), "nothing about {order}:\n{told}");
        }
    }
    for part in [
        "ORDER",
        "BECAME",
        "BECAUSE",
        "paid",
        "refunded",
        "applied: ",
        "stale: ",
    ] {
        assert!(told.contains(part), "{part} is missing:\n{told}");
    }
    let places = told
        .split_whitespace()
        .find(|word| word.contains("payhook-demo-"));
    let folder = places.expect("it says where it keeps things");
    assert!(!std::path::Path::new(folder).exists(), "{folder} is left behind");
}

#[test]
fn the_lines_that_a_demo_prints_can_be_typed_from_anywhere() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut demo = Demo::start(&[]);
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines();
    let mut invited = Vec::new();
    for line in &mut lines {
        let line = line.unwrap();
        if line.starts_with("Serving on") {
            break;
        }
        if line.contains(" --config ") {
            invited.push(line.trim().to_owned());
        }
    }
    assert_eq!(invited.len(), 4, "{invited:?}\n{}", demo.stderr());
    let shown = invited.iter().find(|line| line.contains(" orders show "));
    let order = shown.and_then(|line| line.split_whitespace().nth(3)).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    for line in &invited {
        let out = Command::new("sh")
            .args(["-c", line])
            .current_dir(elsewhere.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.success() && !said.trim().is_empty(),
            "{line}: {said}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        if line.contains(" orders show ") {
            assert!(said.contains(order), "{said}");
        }
    }
    demo.signal();
    assert_eq!(demo.wait(), 0);
}
