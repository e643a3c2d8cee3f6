//! A night of wrong keys costs nothing: the real binary refuses all of it, gets the right key without a restart,
//! and makes events of what it had refused.

use std::fs;

use payhook::time::Clock;
use serde_json::{Value, json};

use crate::support::daemon::{Daemon, Setup};
use crate::support::rabbit::until;
use crate::support::store::{FreshStore, on_both_stores};
use crate::support::traffic::{Happening, Sender, Signers, Telling, keys};

const NOTIFICATIONS: usize = 200;

fn daemon(fresh: &FreshStore) -> Daemon {
    let daemon = Daemon::new(&Setup {
        store: Some(&fresh.url),
        ..Setup::default()
    });
    let config = fs::read_to_string(daemon.config()).unwrap();
    let shared = keys().join("wechatpay_public.pem").display().to_string();
    assert!(config.contains(&shared));
    fs::write(daemon.config(), config.replace(&shared, "wechat.pem")).unwrap();
    install(&daemon, "alipay_public.pem");
    daemon
}

/// Puts a key file where WeChat's is configured.
fn install(daemon: &Daemon, key: &str) {
    fs::copy(keys().join(key), daemon.folder().join("wechat.pem")).unwrap();
}

fn paid(number: usize) -> Telling {
    Telling {
        sender: Sender::Wechat,
        order_id: format!("NIGHT-{number}"),
        trade_id: format!("42000{number:06}"),
        amount: 8888,
        number,
        happening: Happening::Paid,
    }
}

async fn reloads(daemon: &Daemon, result: &str) -> bool {
    let (_, metrics) = daemon.get("/metrics").await;
    let line = format!("payhook_reloads_total{{result=\"{result}\"}} 1");
    metrics.as_str().unwrap().lines().any(|found| found == line)
}

fn reverify(daemon: &Daemon) -> Value {
    let args = [
        "quarantine",
        "reverify",
        "--account",
        "wechatpay/load",
        "--reason",
        "yesterday's key",
        "--json",
    ];
    let (code, out, err) = daemon.run(&args);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

/// What `check` says of the keys that verify, in the order of their accounts.
fn uses(daemon: &Daemon) -> Vec<String> {
    let (_, out, err) = daemon.run(&["check", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    let findings = report["findings"].as_array().unwrap();
    let of_key = |found: &&Value| {
        let (what, message) = (
            found["what"].as_str().unwrap(),
            found["message"].as_str().unwrap(),
        );
        what.ends_with("/load") && message.contains("fingerprint") && !message.contains("aes-256")
    };
    findings
        .iter()
        .filter(of_key)
        .map(|found| found["message"].as_str().unwrap().to_owned())
        .collect()
}

on_both_stores! {
    async fn a_night_of_wrong_keys_costs_nothing(fresh) {
        let mut daemon = daemon(&fresh);
        daemon.start().await;
        let (client, signers) = (reqwest::Client::new(), Signers::new());
        let nowhere = daemon.notify_url("/");
        until("the public listener", async || client.get(&nowhere).send().await.is_ok()).await;
        for number in 0..NOTIFICATIONS {
            let request = signers.sign(&paid(number), Clock::system().now());
            let (status, _) = daemon.notify(&client, &request).await.unwrap();
            assert_eq!(status, 401);
        }
        let all = i64::try_from(NOTIFICATIONS).unwrap();
        until("everything refused to be kept", async || fresh.number("select count(*) from quarantine").await == all).await;
        assert_eq!(reverify(&daemon), json!({"verified": 0, "refused": all}));

        // A bad file changes nothing; the right one is seen without a restart.
        fs::write(daemon.folder().join("wechat.pem"), "not a key").unwrap();
        until("the bad file to be seen", async || reloads(&daemon, "failed").await).await;
        assert_eq!(reverify(&daemon), json!({"verified": 0, "refused": all}));
        install(&daemon, "wechatpay_public.pem");
        until("the right key to be seen", async || reloads(&daemon, "ok").await).await;

        assert_eq!(reverify(&daemon), json!({"verified": all, "refused": 0}));
        let paid_orders = "select count(*) from orders where status = 'paid' and paid = 8888";
        until("every order to be paid", async || fresh.number(paid_orders).await == all).await;
        assert_eq!(reverify(&daemon), json!({"verified": 0, "refused": 0}));
        for (table, rows) in [("events", all), ("deliveries", 0), ("event_conflicts", 0), ("quarantine", 0),
            ("attention", 0), ("ledger_entries", all), ("audit", 8)] {
            assert_eq!(fresh.number(&format!("select count(*) from {table}")).await, rows, "{table}");
        }

        // What comes from now on shows which key is in use.
        let request = signers.sign(&paid(NOTIFICATIONS), Clock::system().now());
        assert_eq!(daemon.notify(&client, &request).await.unwrap().0, 200);
        let (_, metrics) = daemon.get("/metrics").await;
        let series = "payhook_key_last_verified_timestamp_seconds{provider=\"wechatpay\",account=\"load\",key=\"PUB_KEY_ID_";
        assert!(metrics.as_str().unwrap().contains(series), "{metrics}");
        assert!(uses(&daemon).iter().all(|used| !used.contains("last verified")), "not yet written");
        assert!(daemon.terminate().success());
        let [alipay, _stripe, wechat] = uses(&daemon).try_into().unwrap();
        assert!(alipay.contains("public key #1") && alipay.contains("has verified nothing yet"), "{alipay}");
        assert!(wechat.contains("PUB_KEY_ID_") && wechat.contains("last verified 20"), "{wechat}");
    }
}
