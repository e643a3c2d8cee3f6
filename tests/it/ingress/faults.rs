//! The whole process while its database fails: it says so quickly and exactly, and comes back by itself.

use std::time::Duration;

use payhook::app::{App, Role};
use tokio::time::Instant;

use super::*;
use crate::support::proxy::{Network, Proxy};
use crate::support::rabbit::until;
use crate::support::traffic::{Happening, Sender, Signers, Telling};

/// The process under test, with its database behind a proxy.
struct Daemon {
    app: App,
    client: reqwest::Client,
    signers: Signers,
    sent: std::cell::Cell<usize>,
}

async fn start(url: &str) -> Daemon {
    start_with(url, "").await
}

async fn start_with(url: &str, server: &str) -> Daemon {
    let more = format!(
        "[server]\nnotify_addr = \"127.0.0.1:0\"\nadmin_addr = \"127.0.0.1:0\"\n{server}\n[store]\nurl = \"{url}\"\n\
         [[tokens]]\nname = \"t\"\ntoken = \"test-token-of-this-daemon\"\nscopes = [\"read\"]\n"
    );
    let (config, registry) = configured(&more);
    let app = App::start(config, registry, &Role::ALL, Clock::fixed(now()))
        .await
        .unwrap();
    Daemon {
        app,
        client: reqwest::Client::new(),
        signers: Signers::new(),
        sent: std::cell::Cell::new(0),
    }
}

impl Daemon {
    /// Sends a new event; its answer and how long it took.
    async fn send(&self) -> (u16, Option<String>, String, Duration) {
        self.send_number(self.sent.replace(self.sent.get() + 1)).await
    }

    /// Sends the event of this number; its answer and how long it took.
    async fn send_number(&self, number: usize) -> (u16, Option<String>, String, Duration) {
        let telling = Telling {
            sender: Sender::Wechat,
            order_id: format!("order-{number}"),
            trade_id: format!("42000000012026112900{number:08}"),
            amount: 8888,
            number,
            happening: Happening::Paid,
        };
        let request = self.signers.sign(&telling, now());
        let url = format!("http://{}{}", self.app.notify_addr().unwrap(), request.path);
        let mut post = self.client.post(url).body(request.body);
        for (name, value) in &request.headers {
            post = post.header(name, value);
        }
        let began = Instant::now();
        let answer = post.send().await.unwrap();
        let status = answer.status().as_u16();
        let retry_after = answer
            .headers()
            .get("retry-after")
            .map(|value| value.to_str().unwrap().to_owned());
        (status, retry_after, answer.text().await.unwrap(), began.elapsed())
    }

    async fn acks(&self) {
        until("it acks", async || self.send().await.0 == 200).await;
    }

    async fn is_ready(&self) -> bool {
        let url = format!("http://{}/readyz", self.app.admin_addr());
        self.client.get(url).send().await.unwrap().status() == 200
    }

    /// Asks whether it is ready as often as a cluster does, until it is not, and then for two probes more.
    async fn says_unready(&self) {
        until("unready", async || !self.is_ready().await).await;
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            assert!(!self.is_ready().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// At once, by what is quickest of three: a machine that stalls does not make all of them late.
    async fn says_unavailable(&self) {
        let mut quickest = Duration::MAX;
        for _ in 0..3 {
            let (status, retry_after, body, took) = self.send().await;
            assert_eq!(
                (status, body.as_str()),
                (503, r#"{"code":"FAIL","message":"unavailable"}"#)
            );
            assert_eq!(retry_after.as_deref(), Some("5"));
            quickest = quickest.min(took);
        }
        assert!(quickest < Duration::from_secs(3), "{quickest:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_or_silent_network_means_503_and_an_open_one_acks() {
    FreshStore::with_postgres(|fresh| async move {
        let proxy = Proxy::before(&fresh.url).await;
        let daemon = start(&proxy.instead(&fresh.url)).await;
        daemon.acks().await;
        for broken in [Network::Cut, Network::Silent, Network::Cut] {
            proxy.set(broken);
            daemon.says_unavailable().await;
            daemon.says_unready().await;
            proxy.set(Network::Open);
            daemon.acks().await;
        }
        // Every event that was acked is there; one that was not may be.
        let acked = fresh.number("select count(*) from events").await;
        assert!(acked >= 4, "{acked}");
        assert!(daemon.app.shutdown().await, "all has ended");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_starts_without_its_database_and_migrates_when_it_comes() {
    FreshStore::with_postgres(|fresh| async move {
        // As it is before the first start: nothing migrated yet.
        fresh.by_hand("drop schema public cascade").await.unwrap();
        fresh.by_hand("create schema public").await.unwrap();
        let proxy = Proxy::before(&fresh.url).await;
        proxy.set(Network::Cut);
        let daemon = start(&proxy.instead(&fresh.url)).await;
        daemon.says_unavailable().await;
        proxy.set(Network::Open);
        daemon.acks().await;
        assert!(daemon.app.shutdown().await, "all has ended");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_too_few_connections_the_first_takes_notifications() {
    FreshStore::with_postgres(|fresh| async move {
        let (_, database) = fresh.url.rsplit_once('/').unwrap();
        let role = format!("few_for_{database}");
        for made in [
            "create role {role} login password 'few' connection limit 4",
            "grant all on schema public to {role}",
            "grant all on all tables in schema public to {role}",
            "grant all on all sequences in schema public to {role}",
        ] {
            fresh.by_hand(&made.replace("{role}", &role)).await.unwrap();
        }
        let (_, rest) = fresh.url.rsplit_once('@').unwrap();
        let url = format!("postgres://{role}:few@{rest}");
        // With a deadline that only what never comes misses.
        let daemon = start_with(&url, "ack_deadline = \"60s\"").await;
        // Longer than an answer about readiness is believed.
        let (end, mut asked, mut late) = (Instant::now() + Duration::from_secs(3), 0, 0);
        while Instant::now() < end || asked < 90 {
            for (status, .., took) in [daemon.send().await, daemon.send_number(0).await] {
                assert_eq!(status, 200, "what is new, and what comes again");
                late += i32::from(took > Duration::from_secs(2));
            }
            late += i32::from(!daemon.is_ready().await);
            asked += 3;
        }
        // A machine that stalls is late for one or two.
        assert!(late <= 3, "{late} of {asked}");
        assert!(daemon.app.shutdown().await, "all has ended");
        let daemon = start(&url).await;
        daemon.acks().await;
        // Not even one, and then enough.
        fresh
            .by_hand(&format!("alter role {role} connection limit 0"))
            .await
            .unwrap();
        let end = format!(
            "select pg_terminate_backend(pid, 30000)::text from pg_stat_activity where usename = '{role}'"
        );
        fresh.texts(&end).await;
        daemon.says_unavailable().await;
        daemon.says_unready().await;
        fresh
            .by_hand(&format!("alter role {role} connection limit 20"))
            .await
            .unwrap();
        daemon.acks().await;
        assert!(daemon.app.shutdown().await, "all has ended");
        fresh.by_hand(&format!("drop owned by {role}")).await.unwrap();
        fresh.by_hand(&format!("drop role {role}")).await.unwrap();
    })
    .await;
}

/// After a failover the old address may lead to a standby for a while, which answers everything but writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_is_left_as_soon_as_there_is_another() {
    FreshStore::with_postgres(|fresh| async move {
        let (_, database) = fresh.url.rsplit_once('/').unwrap();
        let daemon = start(&fresh.url).await;
        daemon.acks().await;
        let reads_only =
            |on: &str| format!("alter database {database} set default_transaction_read_only = {on}");
        let end = "select pg_terminate_backend(pid, 30000)::text from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        fresh.by_hand(&reads_only("on")).await.unwrap();
        fresh.texts(end).await;
        daemon.says_unavailable().await;
        daemon.says_unready().await;
        let writes = format!("begin; set transaction read write; {}; commit", reads_only("off"));
        fresh.by_hand(&writes).await.unwrap();
        daemon.acks().await;
        until("ready", async || daemon.is_ready().await).await;
        assert!(daemon.app.shutdown().await, "all has ended");
    })
    .await;
}

/// What it still writes into an open file that stands elsewhere is gone after the next start, acked or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_sqlite_file_is_not_acked_into_and_serves_again_when_put_back() {
    FreshStore::with_sqlite(|fresh| async move {
        let daemon = start(&fresh.url).await;
        daemon.acks().await;
        let file = fresh.url.strip_prefix("sqlite:").unwrap();
        let elsewhere = format!("{file}.elsewhere");
        for replaced in [false, true] {
            std::fs::rename(file, &elsewhere).unwrap();
            if replaced {
                std::fs::write(file, b"").unwrap();
            }
            assert_eq!(daemon.send().await.0, 503);
            until("it is not ready", async || !daemon.is_ready().await).await;
            std::fs::rename(&elsewhere, file).unwrap();
            daemon.acks().await;
            until("it is ready", async || daemon.is_ready().await).await;
        }
        assert!(daemon.app.shutdown().await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_on_one_file_is_refused_and_the_next_one_is_not() {
    FreshStore::with_sqlite(|fresh| async move {
        let first = start(&fresh.url).await;
        first.acks().await;
        let (config, registry) = configured(&format!(
            "[server]\nnotify_addr = \"127.0.0.1:0\"\nadmin_addr = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"",
            fresh.url
        ));
        let second = App::start(config, registry, &Role::ALL, Clock::fixed(now())).await;
        let refused = second.map(drop).unwrap_err().to_string();
        assert!(refused.contains("another payhook daemon"), "{refused}");
        assert!(first.app.shutdown().await);
        let next = start(&fresh.url).await;
        next.acks().await;
        assert!(next.app.shutdown().await);
    })
    .await;
}
