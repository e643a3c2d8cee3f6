//! What `deploy/` promises an operator: its files can be read by the tools they are for, name only metrics that
//! exist, hold configurations that payhook takes, and agree with each other about ports and deadlines.
//!
//! What payhook itself can judge is judged everywhere. Tools (systemd-analyze, promtool, nginx, caddy, kubectl)
//! are asked where they are installed, and the test says on stderr which were not.

mod dockerfile;
mod metrics;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use payhook::config::{Config, Environment, Exchange};
use payhook::provider::Registry;
use serde_json::Value;

/// A file or folder of `deploy/`.
fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(deploy(path)).unwrap_or_else(|error| panic!("deploy/{path}: {error}"))
}

/// Every document of a YAML file.
fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path)).unwrap_or_else(|error| panic!("deploy/{path}: {error}"))
}

fn document(path: &str) -> Value {
    let mut all = documents(path);
    assert_eq!(all.len(), 1, "deploy/{path}");
    all.remove(0)
}

/// What `pointer` names, which has to be there.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value
        .pointer(pointer)
        .unwrap_or_else(|| panic!("{pointer} is missing in {value}"))
}

/// A number of seconds as systemd, compose and Kubernetes write it: `40`, `40s`.
fn seconds(value: &str) -> Duration {
    let digits = value.trim().trim_end_matches('s');
    Duration::from_secs(
        digits
            .parse()
            .unwrap_or_else(|_| panic!("{value:?} is no number of seconds")),
    )
}

/// `text` as a configuration beside the sample keys, whose accounts' keys are usable.
fn configuration(path: &str, environment: &Environment) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("provider-samples/keys");
    fs::copy(
        keys.join("alipay_public.pem"),
        folder.path().join("alipay_public_key.pem"),
    )
    .unwrap();
    match Config::parse_with(&text(path), folder.path(), environment, Registry::build) {
        Ok((config, _)) => config,
        Err(errors) => panic!("deploy/{path}: {errors}"),
    }
}

#[test]
fn yaml_and_json_are_what_they_say() {
    let mut seen = 0;
    for folder in ["", "compose", "kubernetes", "observe"] {
        for entry in fs::read_dir(deploy(folder)).unwrap() {
            let path = entry.unwrap().path();
            let shown = path
                .strip_prefix(deploy(""))
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            match path.extension().and_then(|end| end.to_str()) {
                Some("yaml" | "yml") => {
                    for found in documents(&shown) {
                        assert!(found.is_object(), "deploy/{shown}: {found}");
                    }
                }
                Some("json") => {
                    serde_json::from_str::<Value>(&text(&shown))
                        .unwrap_or_else(|error| panic!("deploy/{shown}: {error}"));
                }
                _ => continue,
            }
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} files were found");
}

/// What ships on a queue that binds more than `order.paid` would have to choose among messages that overtake each
/// other.
fn ships_on_order_paid_alone(config: &Config) {
    let queues = &config.broker.queues;
    let fulfilment = queues.iter().find(|queue| queue.name == "fulfilment").unwrap();
    assert_eq!(fulfilment.exchange, Exchange::Orders);
    assert_eq!(fulfilment.bind, ["order.paid"]);
}

#[test]
fn kubernetes_gives_the_daemon_what_its_configuration_needs() {
    let secrets = documents("kubernetes/secret.example.yaml");
    let of = |name: &str| {
        let secret = secrets.iter().find(|secret| secret["metadata"]["name"] == name);
        at(secret.unwrap(), "/stringData").as_object().unwrap()
    };
    assert!(of("payhook-keys").contains_key("alipay_public_key.pem"));
    let env = of("payhook-env");
    let value = |name: &str| env[name].as_str().unwrap();
    let config = configuration(
        "kubernetes/payhook.toml",
        &Environment::from([
            ("PAYHOOK_DATABASE_URL", value("PAYHOOK_DATABASE_URL")),
            ("PAYHOOK_AMQP_URL", value("PAYHOOK_AMQP_URL")),
            ("PAYHOOK_OPS_TOKEN", value("PAYHOOK_OPS_TOKEN")),
        ]),
    );
    assert!(config.store.is_postgres(), "several replicas share a database");
    ships_on_order_paid_alone(&config);

    let deployment = document("kubernetes/deployment.yaml");
    let pod = at(&deployment, "/spec/template/spec");
    let container = at(pod, "/containers/0");
    let port = |name: &str| {
        let ports = container["ports"].as_array().unwrap();
        let found = ports.iter().find(|port| port["name"] == name).unwrap();
        found["containerPort"].as_u64().unwrap()
    };
    assert_eq!(port("notify"), u64::from(config.server.notify_addr.port()));
    assert_eq!(port("admin"), u64::from(config.server.admin_addr.port()));
    assert!(
        config.server.admin_addr.ip().is_unspecified(),
        "probes come from outside the pod"
    );
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(at(&container[probe], "/httpGet/path"), path);
        assert_eq!(at(&container[probe], "/httpGet/port"), "admin");
    }
    let grace = Duration::from_secs(at(pod, "/terminationGracePeriodSeconds").as_u64().unwrap());
    let pause = Duration::from_secs(
        at(container, "/lifecycle/preStop/sleep/seconds")
            .as_u64()
            .unwrap(),
    );
    assert!(grace > pause + config.server.drain_deadline, "{grace:?}");

    let services = documents("kubernetes/services.yaml");
    let targets: Vec<_> = services
        .iter()
        .map(|service| (at(service, "/metadata/name"), at(service, "/spec/ports")))
        .collect();
    for (name, ports) in targets {
        let ports = ports.as_array().unwrap();
        assert_eq!(
            ports.len(),
            1,
            "{name} mixes the public port with the private one"
        );
    }
    let ingress = document("kubernetes/ingress.example.yaml");
    let path = at(&ingress, "/spec/rules/0/http/paths/0");
    assert_eq!(path["path"], "/notify/");
    assert_eq!(at(path, "/backend/service/name"), "payhook-notify");
}

#[test]
fn compose_gives_the_daemon_what_its_configuration_needs() {
    let compose = document("compose/compose.yaml");
    let service = at(&compose, "/services/payhook");
    let given = at(service, "/environment").as_object().unwrap();
    for line in text("compose/env.example")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let name = line
            .strip_suffix('=')
            .unwrap_or_else(|| panic!("{line:?} has a value"));
        assert!(given.contains_key(name), "{name}");
    }
    let config = configuration(
        "compose/config/payhook.toml",
        &Environment::from([
            ("POSTGRES_PASSWORD", "aa"),
            ("RABBITMQ_PASSWORD", "bb"),
            ("PAYHOOK_OPS_TOKEN", "cc"),
        ]),
    );
    assert_eq!(
        given.len(),
        3,
        "each variable is one that the configuration reads"
    );
    ships_on_order_paid_alone(&config);
    let grace = seconds(at(service, "/stop_grace_period").as_str().unwrap());
    assert!(grace > config.server.drain_deadline);
    let ports = [config.server.notify_addr.port(), config.server.admin_addr.port()];
    let published = [
        format!("{0}:{0}", ports[0]),
        format!("127.0.0.1:{0}:{0}", ports[1]),
    ];
    let written: Vec<_> = at(service, "/ports").as_array().unwrap().iter().collect();
    assert_eq!(written, published.iter().collect::<Vec<_>>());
    let dockerfile = at(service, "/build/dockerfile").as_str().unwrap();
    let context = at(service, "/build/context").as_str().unwrap();
    assert!(deploy("compose").join(context).join(dockerfile).is_file());
}

#[test]
fn systemd_waits_for_the_drain_and_polls_the_right_port() {
    let defaults = Config::parse("", Path::new("/"), &Environment::default()).unwrap();
    let unit = text("payhook.service");
    let value = |key: &str| {
        let mut lines = unit
            .lines()
            .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines
            .next()
            .unwrap_or_else(|| panic!("{key} is missing"))
            .to_owned()
    };
    assert!(seconds(&value("TimeoutStopSec")) > defaults.server.drain_deadline);
    let ready = format!("http://{}/readyz", defaults.server.admin_addr);
    assert!(value("ExecStartPost").ends_with(&ready), "{ready}");
}
