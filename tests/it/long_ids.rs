//! Every order id that can be paid is published: ids of 1 to 255 bytes, one-byte and multi-byte, under the longest
//! merchant name, through a daemon and a real RabbitMQ.

use std::collections::BTreeMap;

use payhook::provider::stripe;
use payhook::time::Clock;
use serde_json::{Value, json};

use crate::support::daemon::{Daemon, Setup};
use crate::support::rabbit::{Rabbit, until};
use crate::support::store::on_both_stores;

const SECRET: &str = "whsec_long_ids";

/// Ids of every length, of letters and of characters of 3 and 4 bytes.
fn order_ids() -> Vec<String> {
    let letters = (1..=255).map(|len| "x".repeat(len));
    let wide = [("测", 3), ("😀", 4)].into_iter().flat_map(|(c, bytes)| {
        (1..=255 / bytes).map(move |count| c.repeat(count) + &"y".repeat(255 % bytes))
    });
    letters.chain(wide).collect()
}

fn event(number: usize, order: &str) -> String {
    json!({ "id": format!("evt_{number}"), "object": "event", "type": "payment_intent.succeeded",
            "created": Clock::system().now().secs(), "livemode": false, "api_version": "2025-06-30.basil",
            "data": { "object": { "id": format!("pi_{number}"), "object": "payment_intent", "amount": 500,
                                  "amount_received": 500, "currency": "usd",
                                  "metadata": { "order_id": order } } } })
    .to_string()
}

on_both_stores! {
    async fn every_payable_order_id_is_published(fresh) {
        let url = fresh.url.clone();
        Rabbit::with(async |rabbit| {
            let merchant = "M".repeat(64);
            let queue = rabbit.name("q");
            let broker = crate::support::services::amqp_url();
            let mut daemon = Daemon::new(&Setup {
                store: Some(&url),
                broker: &broker,
                prefix: &rabbit.prefix,
                broker_more: &format!(
                    "queues = [{{ name = \"{queue}\", exchange = \"orders\", bind = [\"order.paid\"] }}]"
                ),
                ..Setup::default()
            });
            let config = std::fs::read_to_string(daemon.config()).unwrap();
            let account = format!(
                "\n[[accounts]]\nprovider = \"stripe\"\nname = \"long\"\nmerchant = \"{merchant}\"\n\
                 signing_secrets = [\"{SECRET}\"]\n"
            );
            std::fs::write(daemon.config(), config + &account).unwrap();
            daemon.start().await;
            let client = reqwest::Client::new();
            let notify = daemon.notify_url("/notify/stripe/long");
            until("the public listener", async || client.get(&notify).send().await.is_ok()).await;
            let orders = order_ids();
            for (number, order) in orders.iter().enumerate() {
                let body = event(number, order);
                let signature = stripe::sign(SECRET.as_bytes(), Clock::system().now(), body.as_bytes());
                let post = client.post(&notify).header("stripe-signature", signature).body(body);
                assert_eq!(post.send().await.unwrap().status(), 200, "{order}");
            }
            let mut ids = BTreeMap::new();
            for message in rabbit.take_all(&queue, orders.len()).await {
                let body: Value = serde_json::from_slice(&message.body).unwrap();
                let order = body["data"]["order_id"].as_str().unwrap().to_owned();
                assert_eq!(body["id"], message.id.as_str(), "{order}");
                let plain = format!("{merchant}/{order}/1");
                if plain.len() <= 255 {
                    assert_eq!(message.id, plain);
                } else {
                    assert!(message.id.starts_with("sha256:") && message.id.len() == 71, "{}", message.id);
                }
                assert_eq!(ids.insert(message.id, order.clone()), None, "{order}");
            }
            assert_eq!(ids.len(), orders.len());
            assert_eq!(fresh.number("select count(*) from attention").await, 0);
            rabbit
        })
        .await;
    }
}
