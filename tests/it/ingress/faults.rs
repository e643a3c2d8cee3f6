//! The whole process while its database fails: it says so quickly and exactly, and comes back by itself.

use std::time::Duration;

use payhook::app::{App, Role};
use tokio::time::Instant;

use super::*;
use crate::support::proxy::{Network, Proxy};
use crate::support::traffic::{Happening, Sender, Signers, Telling};

const PATIENCE: Duration = Duration::from_secs(30);

/// The process under test, with its database behind a proxy.
struct Daemon {
    app: App,
    client: reqwest::Client,
    signers: Signers,
    sent: std::cell::Cell<usize>,
}

/// `url` with the proxy in the place of the server.
fn through(proxy: &Proxy, url: &str) -> String {
    let (_, database) = url.rsplit_once('/').unwrap();
    format!("postgres://postgres@{}/{database}", proxy.addr)
}

/// The server behind `url`, as `host:port`.
fn server(url: &str) -> String {
    let (_, rest) = url.rsplit_once('@').unwrap();
    rest.split('/').next().unwrap().to_owned()
}

async fn start(url: &str) -> Daemon {
    let more = format!(
        "[server]\nnotify_addr = \"127.0.0.1:0\"\nadmin_addr = \"127.0.0.1:0\"\n[store]\nurl = \"{url}\"\n\
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

    async fn acks_within(&self, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            let (status, ..) = self.send().await;
            if status == 200 {
                return;
            }
            assert!(Instant::now() < until, "still {status}");
        }
    }

    async fn is_ready(&self) -> bool {
        let url = format!("http://{}/readyz", self.app.admin_addr());
        self.client.get(url).send().await.unwrap().status() == 200
    }

    /// Asks whether it is ready as often as a cluster does, until it is not, and then for two probes more.
    async fn says_unready(&self) {
        let until = Instant::now() + PATIENCE;
        while self.is_ready().await {
            assert!(Instant::now() < until, "still ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            assert!(!self.is_ready().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn says_unavailable(&self) {
        let (status, retry_after, body, took) = self.send().await;
        assert_eq!(
            (status, body.as_str()),
            (503, r#"{"code":"FAIL","message":"unavailable"}"#)
        );
        assert_eq!(retry_after.as_deref(), Some("5"));
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_or_silent_network_means_503_and_an_open_one_acks() {
    FreshStore::with_postgres(|fresh| async move {
        let proxy = Proxy::to(&server(&fresh.url), Network::Open).await;
        let daemon = start(&through(&proxy, &fresh.url)).await;
        daemon.acks_within(Duration::from_secs(2)).await;
        for broken in [Network::Cut, Network::Silent, Network::Cut] {
            proxy.set(broken);
            for _ in 0..3 {
                daemon.says_unavailable().await;
            }
            daemon.says_unready().await;
            proxy.set(Network::Open);
            daemon.acks_within(Duration::from_secs(2)).await;
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
        let proxy = Proxy::to(&server(&fresh.url), Network::Cut).await;
        let daemon = start(&through(&proxy, &fresh.url)).await;
        daemon.says_unavailable().await;
        proxy.set(Network::Open);
        daemon.acks_within(Duration::from_secs(10)).await;
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
        let daemon = start(&format!(
            "postgres://{role}:few@{}/{database}",
            server(&fresh.url)
        ))
        .await;
        // Longer than an answer about readiness is believed.
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            daemon.acks_within(Duration::ZERO).await;
            assert_eq!(daemon.send_number(0).await.0, 200, "and what comes again");
            assert!(daemon.is_ready().await);
        }
        // Not even one, and then enough.
        fresh
            .by_hand(&format!("alter role {role} connection limit 0"))
            .await
            .unwrap();
        let end =
            format!("select pg_terminate_backend(pid)::text from pg_stat_activity where usename = '{role}'");
        fresh.texts(&end).await;
        daemon.says_unavailable().await;
        daemon.says_unready().await;
        fresh
            .by_hand(&format!("alter role {role} connection limit 20"))
            .await
            .unwrap();
        daemon.acks_within(Duration::from_secs(10)).await;
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
        daemon.acks_within(Duration::from_secs(2)).await;
        let reads_only =
            |on: &str| format!("alter database {database} set default_transaction_read_only = {on}");
        let end = "select pg_terminate_backend(pid)::text from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        fresh.by_hand(&reads_only("on")).await.unwrap();
        fresh.texts(end).await;
        daemon.says_unavailable().await;
        daemon.says_unready().await;
        let writes = format!("begin; set transaction read write; {}; commit", reads_only("off"));
        fresh.by_hand(&writes).await.unwrap();
        daemon.acks_within(Duration::from_secs(5)).await;
        assert!(daemon.is_ready().await);
        assert!(daemon.app.shutdown().await, "all has ended");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_on_one_file_is_refused_and_the_next_one_is_not() {
    FreshStore::with_sqlite(|fresh| async move {
        let first = start(&fresh.url).await;
        first.acks_within(Duration::from_secs(5)).await;
        let (config, registry) = configured(&format!(
            "[server]\nnotify_addr = \"127.0.0.1:0\"\nadmin_addr = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"",
            fresh.url
        ));
        let second = App::start(config, registry, &Role::ALL, Clock::fixed(now())).await;
        let refused = second.map(drop).unwrap_err().to_string();
        assert!(refused.contains("another payhook daemon"), "{refused}");
        assert!(first.app.shutdown().await);
        let next = start(&fresh.url).await;
        next.acks_within(Duration::from_secs(5)).await;
        assert!(next.app.shutdown().await);
    })
    .await;
}
