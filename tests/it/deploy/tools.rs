//! The tools' own judgement of the files that are for them, where the tools are installed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::{deploy, text};

/// Runs a tool; `None`, said on stderr, when it is not installed.
#[expect(clippy::print_stderr, reason = "a check that did not happen is said")]
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!(
                "not installed, so not checked: {}",
                command.get_program().display()
            );
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Runs a tool that must be content.
fn content(command: &mut Command) -> Option<String> {
    let output = run(command)?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{command:?}:\n{said}");
    Some(said)
}

#[test]
fn systemd_takes_the_unit() {
    // It looks for the programs, so they are replaced by one that is there; the path it has in the unit is checked
    // by hand.
    let unit = text("payhook.service");
    assert!(unit.contains("\nExecStart=/usr/local/bin/payhook serve\n"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("payhook.service");
    let unit = unit
        .replace("/usr/local/bin/payhook", "/bin/true")
        .replace("/usr/bin/curl", "/bin/true");
    fs::write(&path, unit).unwrap();
    if let Some(said) = content(
        Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path),
    ) {
        // Unknown keys and sections are only warned about, with exit code 0.
        let about: Vec<_> = said
            .lines()
            .filter(|line| line.contains("payhook.service"))
            .collect();
        assert!(about.is_empty(), "{about:?}");
    }
}

#[test]
fn promtool_takes_the_rules() {
    content(
        Command::new("promtool")
            .args(["check", "rules"])
            .arg(deploy("observe/alerts.yml")),
    );
    content(
        Command::new("promtool")
            .args(["check", "config"])
            .arg(deploy("observe/prometheus.yml")),
    );
}

#[test]
fn nginx_takes_the_server_block() {
    let folder = tempfile::tempdir().unwrap();
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("provider-samples/keys");
    let live = "/etc/letsencrypt/live/pay.example.com";
    let block = text("proxy/nginx.conf")
        .replace(
            &format!("{live}/fullchain.pem"),
            keys.join("alipay_cert.pem").to_str().unwrap(),
        )
        .replace(
            &format!("{live}/privkey.pem"),
            keys.join("alipay_private.pem").to_str().unwrap(),
        );
    assert!(!block.contains("letsencrypt"));
    let shown = folder.path().display();
    let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {shown}/{kind};"))
        .join("\n");
    let whole = format!(
        "pid {shown}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temp}\n{block}\n}}\n"
    );
    let path = folder.path().join("nginx.conf");
    fs::write(&path, whole).unwrap();
    content(
        Command::new("nginx")
            .arg("-t")
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&path),
    );
}

#[test]
fn caddy_takes_the_caddyfile() {
    let folder = tempfile::tempdir().unwrap();
    content(
        Command::new("caddy")
            .args(["validate", "--adapter", "caddyfile", "--config"])
            .arg(deploy("proxy/Caddyfile"))
            .env("HOME", folder.path()),
    );
}

#[test]
fn kustomize_builds_the_manifests() {
    if let Some(built) = content(Command::new("kubectl").arg("kustomize").arg(deploy("kubernetes"))) {
        for kind in [
            "ConfigMap",
            "Deployment",
            "NetworkPolicy",
            "PodDisruptionBudget",
            "Service",
        ] {
            assert!(built.contains(&format!("\nkind: {kind}\n")), "{kind} is missing");
        }
    }
}
