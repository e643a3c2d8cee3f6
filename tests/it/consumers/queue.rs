//! A consumer queue as payhook declares it, and a way to it whose connections can be cut.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use serde_json::Value;
use tokio::time::Instant;

use crate::support::services::amqp_url;

/// One queue with its dead-letter queue, deleted at the end.
pub(super) struct Queue {
    name: String,
    channel: Channel,
    _connection: Connection,
}

impl Queue {
    /// Quorum, limit 20, dead letters to `{name}.dead`: what `[broker] queues` makes.
    pub(super) async fn declare() -> Self {
        let connection = Connection::connect(&amqp_url(), ConnectionProperties::default())
            .await
            .expect("RabbitMQ (./tests/run starts one)");
        let channel = connection.create_channel().await.unwrap();
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .unwrap();
        let name = format!("payhook-test-{:016x}", rand::random::<u64>());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let dead = format!("{name}.dead");
        channel
            .queue_declare(dead.as_str().into(), options, arguments.clone())
            .await
            .unwrap();
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(20));
        arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
        arguments.insert(
            "x-dead-letter-routing-key".into(),
            AMQPValue::LongString(dead.into()),
        );
        channel
            .queue_declare(name.as_str().into(), options, arguments)
            .await
            .unwrap();
        Self {
            name,
            channel,
            _connection: connection,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sends a message and waits until the broker has it.
    pub(super) async fn publish(&self, message: &Value) {
        let properties = BasicProperties::default()
            .with_content_type("application/cloudevents+json".into())
            .with_delivery_mode(2)
            .with_app_id("payhook".into());
        let confirm = self
            .channel
            .basic_publish(
                "".into(),
                self.name.as_str().into(),
                BasicPublishOptions::default(),
                message.to_string().as_bytes(),
                properties,
            )
            .await
            .unwrap()
            .await
            .unwrap();
        assert!(confirm.is_ack());
    }

    /// How many messages lie in the dead-letter queue, once there are as many as expected or time is up.
    pub(super) async fn dead_letters(&self, expected: u32) -> u32 {
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let dead = format!("{}.dead", self.name);
            let queue = self
                .channel
                .queue_declare(dead.as_str().into(), passive, FieldTable::default())
                .await
                .unwrap();
            if queue.message_count() >= expected || Instant::now() > until {
                return queue.message_count();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Removes both queues.
    pub(super) async fn delete(self) {
        for name in [self.name.clone(), format!("{}.dead", self.name)] {
            self.channel
                .queue_delete(name.as_str().into(), QueueDeleteOptions::default())
                .await
                .unwrap();
        }
    }
}

/// Passes connections on to the broker until they are cut.
pub(super) struct Proxy {
    port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// On a port of its own.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&open);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(broker()).unwrap();
                kept.lock()
                    .unwrap()
                    .extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                pump(client.try_clone().unwrap(), server.try_clone().unwrap());
                pump(server, client);
            }
        });
        Self { port, open }
    }

    /// The broker's URL, through here.
    pub(super) fn url(&self) -> String {
        amqp_url().replacen(&broker(), &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Ends every connection; new ones are passed on as before.
    pub(super) fn cut(&self) {
        let cut = std::mem::take(&mut *self.open.lock().unwrap());
        assert!(!cut.is_empty(), "nobody was connected");
        for stream in cut {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

/// HOST:PORT of the broker.
fn broker() -> String {
    let url = amqp_url();
    let (_, behind) = url.split_once("://").unwrap();
    let behind = behind.split_once('@').map_or(behind, |(_, host)| host);
    behind.split('/').next().unwrap().to_owned()
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
}
