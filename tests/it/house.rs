//! The rules of the house that the compiler does not know: who may use whom, where a crate may appear, how a
//! file begins and how long it may grow. Fails with `file:line: what is wrong`, all of them at once.
//!
//! Paths are read as text, which is enough: the code has no macros that build paths, and unit tests at a
//! file's end may use what they like.

mod source;

use std::fs;
use std::path::{Path, PathBuf};

use self::source::Source;

/// Who may use whom. A module that is not here is a module nobody has thought about yet. Later lines win over
/// earlier ones, so that a submodule may have a rule of its own.
const EDGES: &[(&str, &[&str])] = &[
    ("time", &[]),
    ("crash", &["config"]),
    ("listener", &[]),
    ("event", &["time"]),
    ("config", &["event", "time"]),
    ("telemetry", &["event", "config", "time"]),
    ("provider", &[]),
    ("store", &[]),
    ("idempotency", &[]),
    ("orders", &[]),
    ("orders::apply", &["orders", "store"]),
    ("listener", &[]),
    ("ingress", &["provider", "store"]),
    ("broker", &["store"]),
    ("relay", &["store", "broker"]),
    ("worker", &["provider", "orders", "store", "broker"]),
    ("replay", &["provider", "orders", "store", "broker"]),
    ("api", &["provider", "orders", "store", "idempotency", "replay"]),
    // The sending side of the providers, for `demo`, `send` and the tests.
    ("samples", &["provider"]),
    ("retention", &["store", "idempotency"]),
    ("app", ALL),
    ("cli", ALL),
];

/// `app` puts everything together, and a command may show anything.
const ALL: &[&str] = &["*"];

/// What every module above the foundation may use.
const FOUNDATION: &[&str] = &["event", "config", "time", "telemetry", "crash"];
/// The foundation itself has only the edges written down for it, or it would go round in a circle.
const BELOW: &[&str] = &["time", "crash", "event", "config", "telemetry"];

/// What may appear only in some modules, and why.
const CONFINED: &[(&str, &[&str], &str)] = &[
    (
        "sqlx",
        &["store", "idempotency", "telemetry::logs"],
        "rows are the store's business (and the log drops the library's notices)",
    ),
    (
        "lapin",
        &["broker", "telemetry::logs"],
        "RabbitMQ is one of two brokers (and the log keeps the library from telling bodies)",
    ),
    (
        "axum",
        &["ingress", "api", "idempotency", "console"],
        "HTTP ends at the listeners",
    ),
    (
        "utoipa::path",
        &["api"],
        "calls are described where they are handled; below, `ToSchema` is one more word beside `Serialize`",
    ),
    (
        "utoipa::openapi",
        &["api"],
        "the document is put together in one place",
    ),
    ("utoipa_axum", &["api"], "a call is bound by its description"),
    (
        "axum::routing",
        &["ingress", "console"],
        "the private listener binds no call that is not described",
    ),
    ("std::env", &["config"], "one place says what is read"),
    (
        "SystemTime::now",
        &["time"],
        "a test must be able to set the clock",
    ),
    (
        "jiff::Timestamp::now",
        &["time"],
        "a test must be able to set the clock",
    ),
];

/// Rules: bytes or facts in, a verdict out.
const PURE: &[&str] = &["provider", "orders::status", "orders::ledger", "event"];
const IO: &[&str] = &[
    "tokio",
    "reqwest",
    "hyper",
    "std::fs",
    "std::process",
    "std::io::stdin",
    "sqlx",
];

/// Longer than this, without the unit tests at its end, asks whether it is two files.
const LONG: usize = 400;
/// A file of tests is read one test at a time.
const LONG_TESTS: usize = 700;
/// Those that were asked, with the answer.
const LONG_FILES: &[(&str, &str)] = &[];

#[test]
fn modules_use_only_what_they_may() {
    report(&each_source(|source, found| {
        for (line, target) in source.edges() {
            if let Err(why) = may_use(&source.module, &target) {
                found.push(source.at(line, &why));
            }
        }
    }));
}

#[test]
fn crates_stay_where_they_belong() {
    report(&each_source(|source, found| {
        for (name, homes, why) in CONFINED {
            if !homes.iter().any(|home| within(&source.module, home)) {
                for line in source.mentions(name) {
                    found.push(source.at(line, &format!("`{name}` only in {}: {why}", homes.join(", "))));
                }
            }
        }
        if PURE.iter().any(|module| within(&source.module, module)) {
            for name in IO {
                for line in source.mentions(name) {
                    found.push(source.at(line, &format!("`{name}`: {} does no I/O", source.module)));
                }
            }
        }
    }));
}

#[test]
fn every_file_says_what_it_is_and_stays_readable() {
    let mut found = Vec::new();
    let mut long = Vec::new();
    for root in ["src", "tests", "benches"] {
        for path in rust_files(&manifest().join(root)) {
            let shown = shown(&path);
            let text = fs::read_to_string(&path).unwrap();
            if !text.starts_with("//! ") {
                found.push(format!(
                    "{shown}:1: a file opens with `//!`: its place, its promise"
                ));
            }
            let is_tests =
                !shown.starts_with("src/") || shown.ends_with("tests.rs") || shown.contains("/tests/");
            let lines = source::without_tests(&text).lines().count();
            let limit = if is_tests { LONG_TESTS } else { LONG };
            if lines > limit {
                if !LONG_FILES.iter().any(|(file, _)| *file == shown) {
                    found.push(format!("{shown}:{limit}: {lines} lines; is it two files?"));
                }
                long.push(shown);
            }
        }
    }
    for (file, _) in LONG_FILES {
        if !long.iter().any(|shown| shown == file) {
            found.push(format!("{file}:1: listed as long, and is not"));
        }
    }
    report(&found);
}

#[test]
fn a_wrong_edge_is_seen_however_it_is_written() {
    let edges = |module: &str, text: &str| -> Vec<String> {
        let source = Source::new(PathBuf::from("src/x.rs"), module, text);
        source
            .edges()
            .into_iter()
            .map(|(line, to)| format!("{line} {to}"))
            .collect()
    };
    assert_eq!(edges("api", "use crate::ingress;\n"), ["1 ingress"]);
    assert_eq!(
        edges("api", "use crate::{event::Event,\n    relay::{self, Relay}};"),
        ["1 event", "1 relay"]
    );
    assert_eq!(edges("api", "fn f(_: &crate::worker::Worker) {}"), ["1 worker"]);
    assert_eq!(
        edges("api::auth", "\nuse super::super::ingress::X;"),
        ["2 ingress"]
    );
    assert_eq!(edges("api", "use super::relay::X; // crate::store"), ["1 relay"]);
    assert_eq!(
        edges("api::auth", "use super::ApiState;\nuse super::page::Page;"),
        Vec::<String>::new()
    );
    assert_eq!(
        edges("api", "pub(crate) use on_tx;\nuse mycrate::x;"),
        Vec::<String>::new()
    );
    assert_eq!(
        edges(
            "orders::view",
            "use super::apply::Y;\nuse crate::orders::apply::Z;"
        ),
        ["1 orders::apply", "2 orders::apply"]
    );
    assert_eq!(
        edges(
            "api",
            "//! [`crate::ingress`]\n#[cfg(test)]\nmod tests {\n use crate::ingress; }"
        ),
        Vec::<String>::new()
    );

    assert_eq!(
        edges(
            "crash",
            "mod armed {\n use super::Point;\n use super::super::config;\n}\nuse super::relay;"
        ),
        ["3 config", "5 relay"]
    );

    assert!(may_use("api", "ingress").is_err());
    assert!(may_use("orders::status", "store").is_err());
    assert!(may_use("orders::view", "orders::apply").is_ok());
    assert!(may_use("orders::apply::links", "store").is_ok());
    assert!(may_use("api::auth", "telemetry").is_ok());
    assert!(may_use("event", "telemetry").is_err());
    assert!(may_use("common", "event").is_err());
}

/// Whether `module` may use `target`, or why not.
fn may_use(module: &str, target: &str) -> Result<(), String> {
    let (from, to) = (top(module), top(target));
    if from == to || from == "main" || from == "lib" {
        return Ok(());
    }
    let Some((_, allowed)) = EDGES.iter().rev().find(|(name, _)| within(module, name)) else {
        return Err(format!(
            "module `{from}` is not in the table of edges (tests/it/house.rs)"
        ));
    };
    let founded = FOUNDATION.contains(&to) && !BELOW.contains(&from);
    if founded || allowed.iter().any(|name| *name == "*" || *name == to) {
        Ok(())
    } else {
        Err(format!("`{module}` may not use `{to}`"))
    }
}

fn top(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

fn within(module: &str, name: &str) -> bool {
    module
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn each_source(judge: impl Fn(&Source, &mut Vec<String>)) -> Vec<String> {
    let root = manifest().join("src");
    let mut found = Vec::new();
    for path in rust_files(&root) {
        let module = path.strip_prefix(&root).unwrap().with_extension("");
        let segments: Vec<_> = module.iter().map(|part| part.to_str().unwrap()).collect();
        let module = segments.join("::");
        let module = module.strip_suffix("::mod").unwrap_or(&module);
        if module.ends_with("::tests") || module.contains("::tests::") {
            // Unit tests in a file of their own use what they like, too.
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        judge(&Source::new(path, module, &text), &mut found);
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return files;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(manifest())
        .unwrap_or(path)
        .display()
        .to_string()
}

fn report(found: &[String]) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
