//! Every order and every ledger against the raw notifications that payhook stored, read and added up here once
//! more: nothing of payhook's reading, rules or arithmetic is used, and the third opinion is the story's own.
//!
//! `PAYHOOK_STORM=200 cargo test --test it recount -- --nocapture` is 100 000 events over 20 000 orders.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::TryStreamExt as _;
use serde_json::Value;

use super::super::support::traffic::{keys, long_stories};
use super::*;

/// What the notifications of one order say, added up.
#[derive(Debug, Default)]
struct Sum {
    billed: Option<i64>,
    /// The largest sum of refunds that was told.
    refunded_so_far: i64,
    /// Each refund that was told alone.
    refunds: BTreeMap<String, i64>,
    failed: bool,
    closed: bool,
    finished: bool,
}

/// An order as the tables have it: status, paid, refunded, reversed; payments and refunds in the ledger.
type Row = (String, i64, i64, i64, i64, i64);

impl Sum {
    fn row(&self) -> Row {
        let paid = self.billed.unwrap_or_default();
        let refunded = self.refunded_so_far.max(self.refunds.values().sum());
        let status = match self.billed {
            Some(_) if refunded >= paid => "refunded",
            Some(_) if self.finished => "finished",
            Some(_) if refunded > 0 => "partially_refunded",
            Some(_) => "paid",
            None if self.closed => "closed",
            None if self.failed => "failed",
            None => "pending",
        };
        (status.to_owned(), paid, refunded, 0, paid, -refunded)
    }
}

/// Adds up raw bodies, by order.
struct Recount {
    wechat: LessSafeKey,
    orders: HashMap<String, Sum>,
}

impl Recount {
    fn new() -> Self {
        let key = std::fs::read(keys().join("wechatpay_apiv3.key")).unwrap();
        Self {
            wechat: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.trim_ascii()).unwrap()),
            orders: HashMap::new(),
        }
    }

    fn add(&mut self, provider: &str, body: &[u8]) {
        match provider {
            "alipay" => self.alipay(body),
            "wechatpay" => self.wechat(body),
            "stripe" => self.stripe(body),
            other => panic!("nobody sent as {other}"),
        }
    }

    fn order(&mut self, order_id: &str) -> &mut Sum {
        self.orders.entry(order_id.to_owned()).or_default()
    }

    fn alipay(&mut self, body: &[u8]) {
        let decoded = |text: &str| {
            percent_encoding::percent_decode_str(text)
                .decode_utf8()
                .unwrap()
                .into_owned()
        };
        let fields: HashMap<String, String> = std::str::from_utf8(body)
            .unwrap()
            .split('&')
            .map(|field| field.split_once('=').unwrap())
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect();
        let fen = |name: &str| {
            let (yuan, fen) = fields.get(name)?.split_once('.')?;
            Some(yuan.parse::<i64>().unwrap() * 100 + fen.parse::<i64>().unwrap())
        };
        let sum = self.order(&fields["out_trade_no"]);
        let back = fen("refund_fee").unwrap_or_default();
        match fields["trade_status"].as_str() {
            "TRADE_CLOSED" if back == 0 => sum.closed = true,
            status => {
                sum.finished |= status == "TRADE_FINISHED";
                sum.billed = fen("total_amount");
                sum.refunded_so_far = sum.refunded_so_far.max(back);
            }
        }
    }

    fn wechat(&mut self, body: &[u8]) {
        let envelope: Value = serde_json::from_slice(body).unwrap();
        let resource = &envelope["resource"];
        let text = |name: &str| resource[name].as_str().unwrap_or_default();
        let nonce = Nonce::try_assume_unique_for_key(text("nonce").as_bytes()).unwrap();
        let mut sealed = STANDARD.decode(text("ciphertext")).unwrap();
        let open = self
            .wechat
            .open_in_place(nonce, Aad::from(text("associated_data")), &mut sealed);
        let said: Value = serde_json::from_slice(open.unwrap()).unwrap();
        let sum = self.order(said["out_trade_no"].as_str().unwrap());
        sum.billed = said["amount"]["total"].as_i64();
        if let Some(refund) = said["refund_id"].as_str() {
            let amount = said["amount"]["refund"].as_i64().unwrap();
            sum.refunds.insert(refund.to_owned(), amount);
        }
    }

    fn stripe(&mut self, body: &[u8]) {
        let event: Value = serde_json::from_slice(body).unwrap();
        let object = &event["data"]["object"];
        let sum = self.order(object["metadata"]["order_id"].as_str().unwrap());
        match event["type"].as_str().unwrap() {
            "payment_intent.payment_failed" => sum.failed = true,
            "payment_intent.canceled" => sum.closed = true,
            "payment_intent.succeeded" => sum.billed = object["amount_received"].as_i64(),
            "charge.refunded" => {
                sum.billed = object["amount_captured"].as_i64();
                sum.refunded_so_far = sum
                    .refunded_so_far
                    .max(object["amount_refunded"].as_i64().unwrap());
            }
            other => panic!("nobody sent a {other}"),
        }
    }
}

/// What the tables say of every order.
async fn tables(fresh: &FreshStore) -> BTreeMap<String, Row> {
    type Read = (String, String, i64, i64, i64, i64, i64);
    const ORDERS: &str = "select o.order_id, o.status, o.paid, o.refunded, o.reversed, \
        coalesce(sum(l.amount) filter (where l.entry_type = 'payment'), 0)::bigint, \
        coalesce(sum(l.amount) filter (where l.entry_type <> 'payment'), 0)::bigint \
        from orders o left join ledger_entries l on l.merchant = o.merchant and l.order_id = o.order_id \
        group by o.merchant, o.order_id";
    let mut conn = fresh.connection().await;
    let rows: Vec<Read> = sqlx::query_as(ORDERS).fetch_all(&mut conn).await.unwrap();
    rows.into_iter()
        .map(|(order, status, paid, refunded, reversed, payments, refunds)| {
            (order, (status, paid, refunded, reversed, payments, refunds))
        })
        .collect()
}

/// The stored bodies, added up.
async fn recount(fresh: &FreshStore) -> BTreeMap<String, Row> {
    let mut conn = fresh.connection().await;
    let mut recount = Recount::new();
    let mut bodies =
        sqlx::query_as::<_, (String, Vec<u8>)>("select provider, body from events").fetch(&mut conn);
    while let Some((provider, body)) = bodies.try_next().await.unwrap() {
        recount.add(&provider, &body);
    }
    recount
        .orders
        .into_iter()
        .map(|(order, sum)| (order, sum.row()))
        .collect()
}

/// Waits until every event has ended and nothing is to be sent.
async fn settled(fresh: &FreshStore, events: i64) {
    let until = Instant::now() + patience();
    loop {
        let ended = fresh.number("select count(*) from event_outcomes").await;
        let waiting = fresh.number("select count(*) from outbox").await;
        if ended == events && waiting == 0 {
            return;
        }
        assert!(
            Instant::now() < until,
            "{ended} of {events} have ended, {waiting} rows wait"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_and_ledger_equal_a_recount_of_the_raw_notifications() {
    FreshStore::with_postgres(async |fresh| {
        let (url, prefix) = (amqp_url(), prefix());
        let more = queues(&url, &prefix);
        let setup = Setup {
            store: Some(&fresh.url),
            broker: &url,
            prefix: &prefix,
            broker_more: &more,
            patient: false,
        };
        // Two that do everything, and a third worker.
        let mut daemons = Vec::new();
        for role in [None, None, Some("worker")] {
            let mut daemon = Daemon::new(&setup);
            if let Some(role) = role {
                daemon.role(role);
            }
            daemon.start().await;
            daemons.push(Arc::new(Mutex::new(daemon)));
        }
        let stories = long_stories(57, scale(100), "r");
        let events: usize = stories.iter().map(|story| story.tellings.len()).sum();
        let load = Load::with_again(&stories, 30, 58);
        let began = Instant::now();
        send(&load, &Signers::new(), &daemons[..2]).await;
        let sent = began.elapsed();
        settled(&fresh, i64::try_from(events).unwrap()).await;
        let settled = began.elapsed();

        let stored = fresh.number("select count(*) from events").await;
        assert_eq!(usize::try_from(stored).unwrap(), events, "each once");
        let (tables, recount) = (tables(&fresh).await, recount(&fresh).await);
        assert_eq!(tables.len(), stories.len());
        for (order, row) in &tables {
            assert_eq!(Some(row), recount.get(order), "{order}");
        }
        for Story { order_id, end, .. } in &stories {
            let (status, paid, refunded, ..) = &recount[order_id];
            assert_eq!(
                (status.as_str(), *paid, *refunded),
                (end.status, end.paid, end.refunded),
                "{order_id}"
            );
        }
        let twice = "select count(*) from (select order_id from messages where routing_key = 'order.paid' \
                     group by order_id having count(*) > 1) as twice";
        assert_eq!(fresh.number(twice).await, 0);
        for table in ["attention", "dead_letters", "event_conflicts"] {
            assert_eq!(
                fresh.number(&format!("select count(*) from {table}")).await,
                0,
                "{table}"
            );
        }
        judge_queues(&url, &prefix, &stories).await;
        let mut peaks = Vec::new();
        for daemon in &daemons {
            let mut daemon = daemon.lock().await;
            peaks.push(daemon.peak_memory() / 1024);
            daemon.kill();
        }
        eprintln!(
            "{} requests, {events} events, {} orders: sent in {sent:.1?}, settled in {settled:.1?}; \
             peak memory {peaks:?} MiB; {} answers of 503",
            load.total,
            stories.len(),
            load.refused.load(Ordering::SeqCst),
        );
        clean_up(&url, &prefix).await;
    })
    .await;
}
