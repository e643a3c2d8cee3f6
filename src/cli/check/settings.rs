//! What can be said of a configuration that is usable: what it leaves open, and what it exposes.

use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::Finding;
use crate::config::{BrokerUrl, Config, Source, spell, token_file};
use crate::event::ProviderName;

/// How long WeChat Pay waits for an answer.
const WECHAT_PATIENCE: Duration = Duration::from_secs(5);

/// Shorter, a token can be guessed.
const SHORTEST_TOKEN: usize = 20;

/// All findings of the settings.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    if config.source == Source::BuiltIn {
        let next = "there is no configuration file; `payhook init` writes one to start from";
        found.push(Finding::warning("configuration", next));
    }
    if config.accounts.is_empty() {
        found.push(Finding::warning(
            "accounts",
            "none is configured: every notification is answered 404",
        ));
    }
    tokens(config, &mut found);
    if matches!(config.broker.url, BrokerUrl::Embedded) && !config.broker.queues.is_empty() {
        let unused = "queues are declared at a RabbitMQ only; the embedded broker has the feed instead";
        found.push(Finding::warning("broker.queues", unused));
    }
    if config.server.max_in_flight > config.server.max_connections {
        let unreached = "is never reached: one connection carries one notification at a time";
        found.push(Finding::warning("server.max_in_flight", unreached));
    }
    let wechat = config
        .accounts
        .iter()
        .any(|account| account.provider() == ProviderName::Wechatpay);
    if wechat && config.server.ack_deadline >= WECHAT_PATIENCE {
        let late = "WeChat Pay waits 5 s for an answer, and sends again what was answered later";
        found.push(Finding::warning("server.ack_deadline", late));
    }
    let kept = spell(config.retention.events);
    found.push(Finding::ok(
        "retention.events",
        format!("{kept}, not shorter than any account's provider resends"),
    ));
    found
}

fn tokens(config: &Config, found: &mut Vec<Finding>) {
    let loopback = config.server.admin_addr.ip().is_loopback();
    if config.tokens.is_empty() && loopback {
        let file = token_file(config);
        let used = if file.exists() {
            "is used"
        } else {
            "is made by the first start, which must be allowed to write there"
        };
        found.push(Finding::ok(
            "tokens",
            format!("none is configured; {} {used}", file.display()),
        ));
        found.extend(exposed(&file));
    } else if config.tokens.is_empty() {
        let closed = "none is configured and server.admin_addr is not loopback: the API lets nobody in";
        found.push(Finding::warning("tokens", closed));
    }
    for (n, token) in config.tokens.iter().enumerate() {
        if token.secret.expose_secret().len() < SHORTEST_TOKEN {
            let short = format!(
                "{} is shorter than {SHORTEST_TOKEN} characters and may be guessed",
                token.name
            );
            found.push(Finding::warning(format!("tokens[{n}]"), short));
        }
    }
    if !loopback {
        let open = format!(
            "{} is not loopback: keep it inside a network you trust",
            config.server.admin_addr
        );
        found.push(Finding::warning("server.admin_addr", open));
    }
}

/// A token file that others on this machine can read.
#[cfg(unix)]
fn exposed(file: &std::path::Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(file).ok()?.permissions().mode() & 0o777;
    let open = format!("has mode {mode:03o}; make it 600, others on this machine can read it");
    (mode & 0o077 != 0).then(|| Finding::warning(file.display().to_string(), open))
}

/// Other systems have no such mode.
#[cfg(not(unix))]
fn exposed(_file: &std::path::Path) -> Option<Finding> {
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Environment;

    fn warned(text: &str) -> Vec<String> {
        let config = Config::parse(text, Path::new("/nowhere"), &Environment::default()).unwrap();
        let found = findings(&config).into_iter();
        found
            .filter(|finding| finding.level == super::super::Level::Warning)
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn an_operator_hears_what_is_open() {
        assert_eq!(warned(""), ["configuration", "accounts"]);
        assert_eq!(
            warned("server.admin_addr = \"0.0.0.0:8081\""),
            ["configuration", "accounts", "tokens", "server.admin_addr"]
        );
        assert_eq!(
            warned("[[tokens]]\nname = \"t\"\ntoken = \"short\""),
            ["configuration", "accounts", "tokens[0]"]
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_readable_token_file_is_said() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("payhook.token");
        std::fs::write(&file, "x").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(exposed(&file).unwrap().message.contains("644"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(exposed(&file), None);
    }
}
