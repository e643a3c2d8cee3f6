//! A flood of forged notifications, over real HTTP: it keeps no genuine one from its ack, and crowds out nothing of
//! what another sender was refused.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use payhook::time::Clock;
use tokio::task::JoinSet;

use crate::support::daemon::{Daemon, Setup};
use crate::support::rabbit::until;
use crate::support::store::{FreshStore, on_both_stores};
use crate::support::traffic::{Happening, Request, Sender, Signers, Telling};

const FORGERS: usize = 4;
/// More than the quarantine keeps of one sender, so that something of the flood's own has to go.
const FORGED: usize = 3000;
const GENUINE: usize = 120;
/// What a sender that is not the flood is refused meanwhile: genuine, by yesterday's secret.
const OF_YESTERDAY: usize = 60;
/// Of 10 000 items that an account has, one sender's tenth.
const SHARE: i64 = 1000;

/// Believes what a proxy on this machine says of the sender.
fn daemon(fresh: &FreshStore) -> Daemon {
    let daemon = Daemon::new(&Setup {
        store: Some(&fresh.url),
        ..Setup::default()
    });
    let config = fs::read_to_string(daemon.config()).unwrap();
    let trusting = config.replace("[server]\n", "[server]\ntrusted_proxies = [\"127.0.0.1/32\"]\n");
    assert!(trusting.len() > config.len());
    fs::write(daemon.config(), trusting).unwrap();
    daemon
}

fn signed(signers: &Signers, number: usize, sender: &str) -> Request {
    let telling = Telling {
        sender: Sender::Stripe,
        order_id: format!("FLOOD-{number}"),
        trade_id: format!("pi_flood{number}"),
        amount: 8888,
        number,
        happening: Happening::Paid,
    };
    let mut request = signers.sign(&telling, Clock::system().now());
    request
        .headers
        .push(("x-forwarded-for".to_owned(), sender.to_owned()));
    request
}

/// Signed by a key that this daemon does not hold.
fn unholdable(mut request: Request) -> Request {
    let (_, value) = request
        .headers
        .iter_mut()
        .find(|(name, _)| name == "stripe-signature")
        .unwrap();
    let (time, mac) = value.split_once(",v1=").unwrap();
    let other: String = mac
        .chars()
        .map(|digit| if digit == '0' { '1' } else { '0' })
        .collect();
    *value = format!("{time},v1={other}");
    request
}

struct Flood {
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    forgers: JoinSet<()>,
}

/// On as many connections as there are forgers, until stopped: the even ones from one /24, each notification of the
/// others from a network of its own.
fn flood(daemon: &Arc<Daemon>) -> Flood {
    let (stop, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut forgers = JoinSet::new();
    for forger in 0..FORGERS {
        let (daemon, stop, refused) = (Arc::clone(daemon), Arc::clone(&stop), Arc::clone(&refused));
        forgers.spawn(async move {
            let (client, signers) = (reqwest::Client::new(), Signers::new());
            let mut forged = unholdable(signed(&signers, 900_000 + forger, &format!("203.0.113.{forger}")));
            while !stop.load(Ordering::Relaxed) {
                if forger % 2 == 1 {
                    let network: [u8; 2] = rand::random();
                    forged.headers.last_mut().unwrap().1 =
                        format!("100.{}.{}.{forger}", network[0], network[1]);
                }
                let (status, body) = daemon.notify(&client, &forged).await.unwrap();
                assert_eq!(
                    (status, body.as_slice()),
                    (401, b"{\"error\":\"refused\"}".as_slice())
                );
                refused.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    Flood {
        stop,
        refused,
        forgers,
    }
}

on_both_stores! {
    async fn a_flood_of_forgeries_costs_nobody_else_anything(fresh) {
        let mut daemon = daemon(&fresh);
        daemon.start().await;
        let (client, signers) = (reqwest::Client::new(), Signers::new());
        let nowhere = daemon.notify_url("/");
        until("the public listener", async || client.get(&nowhere).send().await.is_ok()).await;
        let daemon = Arc::new(daemon);
        let mut flood = flood(&daemon);
        let refused = Arc::clone(&flood.refused);
        until("the flood to have begun", async || refused.load(Ordering::Relaxed) > FORGERS * 10).await;

        for number in 0..GENUINE {
            let request = signed(&signers, number, "198.51.100.1");
            let (status, body) = daemon.notify(&client, &request).await.unwrap();
            assert_eq!((status, body.as_slice()), (200, Sender::Stripe.ack()), "notification {number}");
            if number % 2 == 0 && number / 2 < OF_YESTERDAY {
                let request = unholdable(signed(&signers, 1000 + number, "198.51.100.2"));
                assert_eq!(daemon.notify(&client, &request).await.unwrap().0, 401);
            }
        }
        let patience = Instant::now() + Duration::from_mins(2);
        while flood.refused.load(Ordering::Relaxed) < FORGED {
            assert!(Instant::now() < patience, "{} refusals", flood.refused.load(Ordering::Relaxed));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        flood.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = flood.forgers.join_next().await {
            ended.unwrap();
        }

        let kept = async |sender: &str| {
            fresh.number(&format!("select count(*) from quarantine where sender = '{sender}'")).await
        };
        let all = i64::try_from(OF_YESTERDAY).unwrap();
        until("everything of the other sender", async || kept("198.51.100.0/24").await == all).await;
        let known = "select count(*) from known_senders where network = '198.51.100.0/24'";
        assert_eq!(fresh.number(known).await, 1);
        let flooded = kept("203.0.113.0/24").await;
        assert!((1..=SHARE).contains(&flooded), "{flooded} of the flood are kept");
        let acked = i64::try_from(GENUINE).unwrap();
        assert_eq!(fresh.number("select count(*) from events").await, acked);
        let paid = "select count(*) from orders where status = 'paid'";
        until("every order to be paid", async || fresh.number(paid).await == acked).await;
    }
}
