//! `/openapi.json` and the server in the eyes of others: a validator, and schemathesis, which makes up calls.
//!
//! Where Python or the packages can't be had the tests say so and pass, unless `PAYHOOK_TESTS_REQUIRE_SERVICES` is set.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::client::serve;
use super::openapi::{Planted, calls, walk};
use super::*;
use crate::support::python::python;
use crate::support::signed::root;

fn requirements() -> std::path::PathBuf {
    root().join("tests/openapi/requirements.txt")
}

/// What does not fit, a line each.
fn complaints(python: &Path, given: &Value) -> String {
    let mut child = Command::new(python)
        .arg(root().join("tests/openapi/conform.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(given.to_string().as_bytes()).unwrap();
    drop(stdin);
    let said = child.wait_with_output().unwrap();
    assert!(said.status.success());
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_and_every_answer_is_of_its_shape() {
    let Some(python) = python(&requirements()) else {
        return;
    };
    FreshStore::with_sqlite(|fresh| async move {
        let planted = Planted::new(&fresh).await;
        let mut document = planted.api.json(OPS, "/openapi.json").await;
        let exchanges = walk(&planted).await;
        let given = |document: &Value| json!({ "document": document, "exchanges": exchanges });
        assert_eq!(complaints(&python, &given(&document)), "");

        // A member that nobody described would be seen.
        let members = document["components"]["schemas"]["OrderHead"]["properties"]
            .as_object_mut()
            .unwrap();
        members.remove("paid").unwrap();
        let complaints = complaints(&python, &given(&document));
        assert!(complaints.contains("get /v1/orders: 200"), "{complaints}");
    })
    .await;
}

/// Gives schemathesis the ids of things that are there.
fn configuration(planted: &Planted, document: &Value) -> String {
    let with_id = calls(document).into_iter().filter_map(|call| {
        let (_, name) = call.path.split_once('{')?;
        let (name, _) = name.split_once('}').unwrap();
        Some(format!(
            "[[operations]]\ninclude-path = {path:?}\ninclude-method = \"{method}\"\nparameters = {{ \"path.{name}\" = {id:?} }}\n",
            path = call.path,
            method = call.method,
            id = planted.id(call.path),
        ))
    });
    with_id.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_a_stranger_makes_up_are_answered_as_documented() {
    let Some(python) = python(&requirements()) else {
        return;
    };
    FreshStore::with_sqlite(|fresh| async move {
        let planted = Planted::new(&fresh).await;
        let document = planted.api.json(OPS, "/openapi.json").await;
        let (_serving, server) = serve(&planted.api).await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("schemathesis.toml");
        std::fs::write(&config, configuration(&planted, &document)).unwrap();
        let mut command = Command::new(python.with_file_name("schemathesis"));
        command
            .current_dir(folder.path())
            .args(["--config-file", "schemathesis.toml", "run"])
            .arg(format!("{server}/openapi.json"))
            .args(["--header", &format!("Authorization: Bearer {OPERATOR}")])
            .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "5"])
            // How fast calls are made up says how busy the machine is.
            .args(["--suppress-health-check", "too_slow"])
            .args([
                "--checks",
                CHECKS,
                "--generation-deterministic",
                "--continue-on-failure",
                "--no-color",
            ]);
        let ran = tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(
            ran.status.success(),
            "{said}\n{}",
            String::from_utf8_lossy(&ran.stderr)
        );
    })
    .await;
}

/// Not among them: that whatever fits the schemas is accepted. A made-up cursor is not.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,negative_data_rejection,missing_required_header,\
    unsupported_method,ignored_auth";
