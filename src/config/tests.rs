//! The configuration as a whole: the example is the defaults, everything wrong is said at once, nothing
//! secret is shown.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::*;
use crate::event::ProviderName;

fn none() -> Environment {
    Environment::default()
}

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse(text, Path::new("/nowhere"), &none())
}

/// The problems' paths, sorted.
fn paths(result: Result<Config, ConfigErrors>) -> Vec<String> {
    result
        .unwrap_err()
        .problems
        .into_iter()
        .map(|problem| problem.path)
        .collect()
}

/// The example with its commented tables live: lines of TOML lose their `# `, prose stays.
fn uncommented() -> String {
    let mut live = String::new();
    let mut in_table = false;
    for line in EXAMPLE.lines() {
        let bare = line.strip_prefix("# ");
        match bare {
            Some(toml) if toml.starts_with("[[") || toml.starts_with("queues = [") => in_table = true,
            None => in_table = false,
            Some(_) => {}
        }
        live.push_str(if in_table { bare.unwrap_or(line) } else { line });
        live.push('\n');
    }
    live
}

/// A folder with every file that the example names.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "ops.token",
        "alipay_public_key.pem",
        "apiv3.key",
        "wechat_pub.pem",
        "platform_cert.pem",
        "apiv2.key",
        "2c2p.key",
        "antom_public_key.pem",
    ] {
        std::fs::write(dir.path().join(name), format!("content-of-{name}\n")).unwrap();
    }
    dir
}

#[test]
fn the_example_is_the_defaults() {
    // An empty file and the example itself mean the same: every key that is read stands in the example.
    let empty = parse("").unwrap();
    let example = parse(EXAMPLE).unwrap();
    assert_eq!(format!("{empty:?}"), format!("{example:?}"));
    assert!(empty.accounts.is_empty() && empty.tokens.is_empty() && empty.broker.queues.is_empty());
}

#[test]
fn the_defaults_are_the_contract() {
    let config = parse("").unwrap();
    assert_eq!(config.server.notify_addr, SocketAddr::from(([0, 0, 0, 0], 8080)));
    assert_eq!(config.server.admin_addr, SocketAddr::from(([127, 0, 0, 1], 8081)));
    assert_eq!(config.server.max_body, 1024 * 1024);
    assert_eq!(config.server.ack_deadline, Duration::from_secs(2));
    assert!(config.server.trusted_proxies.is_empty());
    assert_eq!(config.store.url.expose_secret(), "sqlite:/nowhere/payhook.db");
    assert!(config.store.migrate);
    assert!(matches!(config.broker.url, BrokerUrl::Embedded));
    assert_eq!(config.broker.prefix, "payhook");
    assert_eq!(config.broker.reapply_after, Duration::from_mins(5));
    assert_eq!(config.worker.max_attempts, 8);
    assert_eq!(config.orders.unknown, UnknownOrder::Create);
    assert_eq!(config.orders.park_deadline, Duration::from_hours(24));
    assert_eq!(config.retention.events, Duration::from_hours(400 * 24));
    assert_eq!(config.retention.idempotency, Duration::from_hours(7 * 24));
}

#[test]
fn every_commented_block_of_the_example_is_right_as_it_stands() {
    let dir = folder();
    let env = Environment::from([("STRIPE_SIGNING_SECRET", "whsec_canary")]);
    let config = Config::parse(&uncommented(), dir.path(), &env).unwrap();
    assert_eq!(
        config.accounts.iter().map(Account::provider).collect::<Vec<_>>(),
        ProviderName::ALL
    );
    assert_eq!(config.tokens[0].secret.expose_secret(), "content-of-ops.token");
    assert_eq!(
        config.broker.queues,
        [
            Queue {
                name: "fulfilment".into(),
                exchange: Exchange::Orders,
                bind: vec!["order.paid".into()]
            },
            Queue {
                name: "evidence".into(),
                exchange: Exchange::Events,
                bind: vec!["#".into()]
            },
        ]
    );
    let Scheme::Stripe(stripe) = &config.accounts[2].scheme else {
        panic!()
    };
    assert_eq!(stripe.signing_secrets[0].bytes.expose_secret(), b"whsec_canary");
    assert_eq!(stripe.livemode, Some(true));
    assert_eq!(stripe.connect_accounts, ["acct_1A2b3C"]);
    assert!(stripe.merchant_from_account);
    assert_eq!(stripe.only, [("metadata.site".to_owned(), "shop-a".to_owned())]);
    let Scheme::Wechatpay(wechat) = &config.accounts[1].scheme else {
        panic!()
    };
    assert_eq!(
        wechat.api_v3_key.as_ref().unwrap().bytes.expose_secret(),
        b"content-of-apiv3.key"
    );
    assert_eq!(wechat.public_keys[0].0, "PUB_KEY_ID_0100000000");
    assert_eq!(
        wechat.platform_certs[0].origin,
        dir.path().join("platform_cert.pem").display().to_string()
    );
}

#[test]
fn what_the_example_calls_a_default_is_one() {
    let dir = folder();
    let env = Environment::from([("STRIPE_SIGNING_SECRET", "whsec_canary")]);
    let shown = uncommented();
    let optional = [
        "merchant",
        "state",
        "sign_type",
        "app_ids",
        "currency",
        "tolerance",
        "order_id_from",
        "scopes",
    ];
    let optional = |line: &&str| {
        let key = line.split(" = ").next().unwrap_or_default();
        optional.contains(&key) || key == "timezone_offset"
    };
    assert_eq!(shown.lines().filter(optional).count(), 10);
    let terse: Vec<_> = shown.lines().filter(|line| !optional(line)).collect();
    let shown = Config::parse(&shown, dir.path(), &env).unwrap();
    let terse = Config::parse(&terse.join("\n"), dir.path(), &env).unwrap();
    assert_eq!(format!("{shown:?}"), format!("{terse:?}"));
}

#[test]
fn all_problems_come_at_once_with_their_paths() {
    let text = r#"
        colour = "red"
        [server]
        max_bdy = "1MiB"
        ack_deadline = "soon"
        max_in_flight = 0
        trusted_proxies = ["10.0.0.0/8", "everyone"]
        [store]
        url = "mysql://h/d"
        [broker]
        queues = [{ name = "a", bind = [] }, { name = "a", exchange = "order", bind = ["x"] }]
        [orders]
        unknown = "drop"
        [[tokens]]
        name = "ops"
        [[tokens]]
        name = "ops"
        token = "x"
        scopes = ["write"]
        [[accounts]]
        provider = "alipay"
        name = "Shop"
        app_id = 2021
        [[accounts]]
        provider = "wechatpay"
        name = "shop"
        api_v3_key = ""
        public_keys = [{ id = "PUB_KEY_ID_1", file = "missing.pem" }]
        [[accounts]]
        provider = "stripe"
        name = "shop"
        signing_secrets = ["${UNSET_SECRET}"]
        tolerance = "0s"
        [[accounts]]
        provider = "paypal"
        name = "shop"
        client = "x"
        [[accounts]]
        provider = "2c2p"
        name = "shop"
        merchant_id = "JT01"
        [[accounts]]
        provider = "stripe"
        name = "shop"
        signing_secrets = []
    "#;
    let found = paths(parse(text));
    assert_eq!(
        found,
        [
            "accounts[0].app_id",
            "accounts[0].name",
            "accounts[0].public_key_file",
            "accounts[1].api_v3_key",
            "accounts[1].mch_id",
            "accounts[1].public_keys[0].file",
            "accounts[2].signing_secrets[0]",
            "accounts[2].tolerance",
            "accounts[3].provider",
            "accounts[4].secret_key",
            "accounts[5].name",
            "accounts[5].signing_secrets",
            "broker.queues[0].bind",
            "broker.queues[1].exchange",
            "broker.queues[1].name",
            "colour",
            "orders.unknown",
            "server.ack_deadline",
            "server.max_bdy",
            "server.max_in_flight",
            "server.trusted_proxies[1]",
            "store.url",
            "tokens[0].token",
            "tokens[1].name",
            "tokens[1].scopes",
            "tokens[1].scopes[0]",
        ]
    );
}

#[test]
fn every_scalar_can_be_overridden_and_keeps_its_type() {
    let env = Environment::from([
        ("PAYHOOK__SERVER__NOTIFY_ADDR", "127.0.0.1:9"),
        ("PAYHOOK__SERVER__MAX_BODY", "2MiB"),
        ("PAYHOOK__SERVER__MAX_IN_FLIGHT", "7"),
        ("PAYHOOK__SERVER__TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
        ("PAYHOOK__STORE__URL", "postgres://u:p@h/d"),
        ("PAYHOOK__STORE__MIGRATE", "false"),
        ("PAYHOOK__BROKER__PREFIX", "123"),
        ("PAYHOOK__ORDERS__UNKNOWN", "park"),
        ("PAYHOOK_LOG", "debug"),
        ("PAYHOOK_CONFIG", "not ours"),
    ]);
    let config = Config::parse(
        "[store]\nmigrate = true\nurl = \"sqlite:x.db\"",
        Path::new("/"),
        &env,
    )
    .unwrap();
    assert_eq!(config.server.notify_addr.port(), 9);
    assert_eq!(config.server.max_body, 2 * 1024 * 1024);
    assert_eq!(config.server.max_in_flight, 7);
    assert_eq!(config.server.trusted_proxies.len(), 2);
    assert!(config.store.is_postgres() && !config.store.migrate);
    assert_eq!(config.broker.prefix, "123");
    assert_eq!(config.orders.unknown, UnknownOrder::Park);
    assert_eq!(config.log.filter, "debug");
}

#[test]
fn a_wrong_override_is_a_problem_that_names_the_variable() {
    let env = Environment::from([
        ("PAYHOOK__SERVER__MAX_IN_FLIGHT", "many"),
        ("PAYHOOK__SERVER__MAX_INFLIGHT", "1"),
        ("PAYHOOK__SERVR__MAX_BODY", "1MiB"),
        ("PAYHOOK__ACCOUNTS__0__NAME", "x"),
    ]);
    let errors = Config::parse("", Path::new("/"), &env).unwrap_err();
    let mut found: Vec<_> = errors
        .problems
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "PAYHOOK__ACCOUNTS__0__NAME",
            "PAYHOOK__SERVR__MAX_BODY",
            "server.max_in_flight",
            "server.max_inflight"
        ]
    );
    assert!(
        errors.to_string().contains("PAYHOOK__SERVER__MAX_IN_FLIGHT"),
        "{errors}"
    );
}

#[test]
fn text_in_quotes_is_not_a_number() {
    assert_eq!(
        paths(parse("server.max_in_flight = \"7\"")),
        ["server.max_in_flight"]
    );
    assert_eq!(paths(parse("store.migrate = \"true\"")), ["store.migrate"]);
    assert_eq!(
        paths(parse("server.trusted_proxies = \"10.0.0.0/8\"")),
        ["server.trusted_proxies"]
    );
}

#[test]
fn a_secret_is_given_once_and_from_a_file_without_its_line_end() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secrets"), "whsec_1\r\n\n  whsec_2\n").unwrap();
    std::fs::write(dir.path().join("url"), "postgres://u:p@h/d\n").unwrap();
    let text = "store.url_file = \"url\"\n[[accounts]]\nprovider = \"stripe\"\nname = \"s\"\nsigning_secrets_file = \"secrets\"";
    let config = Config::parse(text, dir.path(), &none()).unwrap();
    assert_eq!(config.store.url.expose_secret(), "postgres://u:p@h/d");
    let Scheme::Stripe(stripe) = &config.accounts[0].scheme else {
        panic!()
    };
    let secrets: Vec<_> = stripe
        .signing_secrets
        .iter()
        .map(|key| key.bytes.expose_secret())
        .collect();
    assert_eq!(secrets, [&b"whsec_1"[..], b"whsec_2"]);
    assert!(stripe.signing_secrets[1].origin.ends_with("line 3"));

    let both = format!("{text}\nsigning_secrets = [\"whsec_3\"]");
    assert_eq!(
        paths(Config::parse(&both, dir.path(), &none())),
        ["accounts[0].signing_secrets"]
    );
}

#[test]
fn empty_and_missing_keys_are_problems() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty"), " \n").unwrap();
    let env = Environment::from([("EMPTY", "")]);
    let account = "[[accounts]]\nprovider = \"2c2p\"\nname = \"s\"\nmerchant_id = \"JT01\"\n";
    for (key, path) in [
        ("", "accounts[0].secret_key"),
        ("secret_key = \"\"", "accounts[0].secret_key"),
        ("secret_key = \"${EMPTY}\"", "accounts[0].secret_key"),
        ("secret_key = \"${UNSET}\"", "accounts[0].secret_key"),
        ("secret_key_file = \"empty\"", "accounts[0].secret_key_file"),
        ("secret_key_file = \"missing\"", "accounts[0].secret_key_file"),
        ("secret_key_file = \".\"", "accounts[0].secret_key_file"),
    ] {
        let result = Config::parse(&format!("{account}{key}"), dir.path(), &env);
        assert_eq!(paths(result), [path], "{key}");
    }
}

#[test]
fn wechat_needs_a_whole_scheme() {
    let dir = folder();
    let account = "[[accounts]]\nprovider = \"wechatpay\"\nname = \"s\"\nmch_id = \"1\"\n";
    let with = |keys: &str| Config::parse(&format!("{account}{keys}"), dir.path(), &none());
    assert!(with("api_v2_key = \"k\"").is_ok());
    assert!(with("api_v3_key = \"k\"\nplatform_cert_files = [\"platform_cert.pem\"]").is_ok());
    assert_eq!(paths(with("")), ["accounts[0].api_v3_key"]);
    assert_eq!(paths(with("api_v3_key = \"k\"")), ["accounts[0].public_keys"]);
    assert_eq!(
        paths(with("platform_cert_files = [\"platform_cert.pem\"]")),
        ["accounts[0].api_v3_key"]
    );
}

#[test]
fn events_are_kept_as_long_as_a_provider_may_send_them() {
    let stripe = "[[accounts]]\nprovider = \"stripe\"\nname = \"s\"\nsigning_secrets = [\"x\"]\n";
    let thai = "[[accounts]]\nprovider = \"2c2p\"\nname = \"s\"\nmerchant_id = \"m\"\nsecret_key = \"x\"\n";
    let kept = |events: &str, account: &str| parse(&format!("retention.events = \"{events}\"\n{account}"));
    assert!(kept("30d", stripe).is_ok());
    assert_eq!(paths(kept("29d 23h", stripe)), ["retention.events"]);
    assert!(kept("25h", thai).is_ok());
    assert_eq!(paths(kept("24h", thai)), ["retention.events"]);
}

#[test]
fn the_same_name_at_two_providers_is_two_accounts() {
    let stripe = "[[accounts]]\nprovider = \"stripe\"\nname = \"s\"\nsigning_secrets = [\"x\"]\n";
    let thai = "[[accounts]]\nprovider = \"2c2p\"\nname = \"s\"\nmerchant_id = \"m\"\nsecret_key = \"x\"\n";
    assert!(parse(&format!("{stripe}{thai}")).is_ok());
    assert_eq!(
        paths(parse(&format!("{stripe}{thai}{stripe}"))),
        ["accounts[2].name"]
    );
}

#[test]
fn the_private_listener_is_not_the_public_one() {
    assert_eq!(
        paths(parse("server.admin_addr = \"0.0.0.0:8080\"")),
        ["server.admin_addr"]
    );
    // Port 0 gives each its own.
    assert!(parse("server.admin_addr = \"0.0.0.0:0\"\nserver.notify_addr = \"0.0.0.0:0\"").is_ok());
}

#[test]
fn the_keys_own_problems_come_with_the_others() {
    let text = "colour = 1\n[[accounts]]\nprovider = \"2c2p\"\nname = \"s\"\nmerchant_id = \"m\"\nsecret_key = \"\"\n\
                [[accounts]]\nprovider = \"stripe\"\nname = \"s\"\nsigning_secrets = [\"x\"]\n\
                [[accounts]]\nprovider = \"stripe\"\nname = \"t\"\nsigning_secrets = [\"${UNSET}\"]";
    let result = Config::parse_with(text, Path::new("/"), &none(), |accounts| -> Result<(), _> {
        Err(vec![
            accounts[0].problem("secret_key_file", "is missing"),
            accounts[1].problem("signing_secrets[0]", "does not begin with whsec_"),
            accounts[2].problem("signing_secrets", "at least one is needed"),
        ])
    });
    let found: Vec<_> = result
        .unwrap_err()
        .problems
        .into_iter()
        .map(|problem| problem.path)
        .collect();
    assert_eq!(
        found,
        [
            "accounts[0].secret_key",
            "accounts[1].signing_secrets[0]",
            "accounts[2].signing_secrets[0]",
            "colour"
        ]
    );
}

#[test]
fn no_secret_is_ever_shown() {
    const CANARY: &str = "cAnArY";
    let env = Environment::from([("S", CANARY), ("PAYHOOK__BROKER__URL", "amqp://u:cAnArY@h")]);
    let good = "store.url = \"postgres://u:cAnArY@h/d\"\n[[tokens]]\nname = \"t\"\ntoken = \"cAnArY\"\n\
                [[accounts]]\nprovider = \"stripe\"\nname = \"s\"\nsigning_secrets = [\"${S}\"]\n";
    let config = Config::parse(good, Path::new("/"), &env).unwrap();
    assert!(!format!("{config:?} {env:?}").contains(CANARY));

    for bad in [
        "store.url = \"cAnArY\"",
        "server.ack_deadline = \"cAnArY\"",
        "[[tokens]]\nname = \"t\"\ntoken = \"cAnArY cAnArY\"",
        "[[tokens]]\nname = \"t\"\ntoken = \"cAnArY\"\nscopes = [\"cAnArY\"]",
        "[[accounts]]\nprovider = \"${S}\"\nname = \"cAnArY\"",
        "store.url = \"cAnArY\"\nurl = cAnArY",
        "store.url = \"cAnArY\\q\"",
    ] {
        let errors = Config::parse(bad, Path::new("/"), &env).unwrap_err();
        assert!(
            !format!("{errors} {errors:?}").contains(CANARY),
            "{bad}: {errors}"
        );
    }
}

#[test]
fn a_named_file_must_exist_and_paths_start_from_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my.toml");
    assert_eq!(paths(Config::load(Some(&path))), ["file"]);
    std::fs::write(&path, "\u{feff}[store]\nurl = \"sqlite:data/p.db\"").unwrap();
    let config = Config::load(Some(&path)).unwrap();
    assert_eq!(config.source, Source::File(path));
    assert_eq!(config.dir, dir.path());
    assert_eq!(config.store.sqlite_file, Some(dir.path().join("data/p.db")));
}

#[test]
fn stripe_scope_settings_are_refused_by_path() {
    let stripe = |more: &str| {
        let block = "[[accounts]]\nprovider = \"stripe\"\nname = \"s\"\nsigning_secrets = [\"whsec_x\"]\n";
        parse(&format!("{block}{more}"))
    };
    for (more, path) in [
        ("connect_accounts = []", "accounts[0].connect_accounts"),
        (
            "connect_accounts = [\"acct_1\", \"a/b\"]",
            "accounts[0].connect_accounts[1]",
        ),
        ("merchant_from = \"metadata\"", "accounts[0].merchant_from"),
        ("only = {}", "accounts[0].only"),
        ("only = { metadata.site = \"a\" }", "accounts[0].only.metadata"),
        ("only = \"metadata.site\"", "accounts[0].only"),
    ] {
        assert_eq!(paths(stripe(more)), [path], "{more}");
    }
}
