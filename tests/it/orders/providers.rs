//! I10 from signed bytes: what each provider really sends about an order, read by its own scheme, shuffled,
//! repeated and dealt to three workers that apply it side by side, ends as when it is told straight.
//!
//! Each round is an order of its own, so that the batches of the workers hold many orders at once.

use payhook::event::{Currency, Money, Notification};
use payhook::orders::apply::{ApplyError, OwnFact};
use payhook::provider::Registry;
use payhook::provider::wechatpay::sign::{Method, v2_refund};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::cast::End;
use super::cast::{Act, CREATE, PARK, now, play, read, record};
use super::commute::ends;
use crate::support::signed::{Senders, accounts, key_file, notification, registry_of};
use crate::support::store::{FreshStore, on_both_stores};
use payhook::orders::apply::{Item, Policy, apply, apply_fact};

/// Shuffled rounds of each set.
const ROUNDS: usize = 6;

const WORKERS: usize = 3;

/// Sends as every provider does.
struct Cast {
    senders: Senders,
    v2_key: String,
    registry: Registry,
}

/// Whose notifications, in which currency they are, and the order they are about.
type Told = (&'static str, Vec<Notification>);

impl Cast {
    fn new() -> Self {
        Self {
            senders: Senders::new(),
            v2_key: key_file("wechatpay_apiv2.key"),
            registry: registry_of(&accounts()),
        }
    }

    /// The order `o` at every provider.
    fn told(&self, provider: &str, o: &str) -> Told {
        match provider {
            "alipay" => ("CNY", self.alipay(o)),
            "wechatpay" => ("CNY", self.wechat(o)),
            "wechatpay v2" => ("CNY", self.wechat_v2(o)),
            "stripe" => ("USD", stripe(o)),
            "2c2p" => ("THB", twoctwop(o)),
            _ => ("USD", self.antom(o)),
        }
    }

    fn alipay(&self, o: &str) -> Vec<Notification> {
        let tell = |number: u8, status: &str, more: &[(&'static str, &str)]| {
            let (notify_id, trade) = (format!("n-{o}-{number}"), format!("ali-{o}"));
            let mut fields = vec![
                ("app_id", "2021000000000001"),
                ("charset", "utf-8"),
                ("gmt_create", "2026-11-29 12:05:00"),
                ("notify_id", &notify_id),
                ("notify_time", "2026-11-29 12:05:06"),
                ("notify_type", "trade_status_sync"),
                ("out_trade_no", o),
                ("seller_id", "2088000000000002"),
                ("total_amount", "88.88"),
                ("trade_no", &trade),
                ("trade_status", status),
            ];
            fields.extend(more);
            let bytes: Vec<(&str, &[u8])> = fields
                .iter()
                .map(|(name, value)| (*name, value.as_bytes()))
                .collect();
            self.senders.alipay(&bytes)
        };
        let paid = ("gmt_payment", "2026-11-29 12:05:04");
        let back = ("gmt_refund", "2026-11-29 12:05:05.123");
        vec![
            tell(1, "WAIT_BUYER_PAY", &[]),
            tell(2, "TRADE_SUCCESS", &[paid]),
            tell(3, "TRADE_SUCCESS", &[paid, back, ("refund_fee", "30.00")]),
            tell(4, "TRADE_SUCCESS", &[paid, back, ("refund_fee", "50.00")]),
            tell(5, "TRADE_FINISHED", &[paid, ("refund_fee", "50.00")]),
        ]
    }

    fn wechat(&self, o: &str) -> Vec<Notification> {
        let tell = |number: u8, event_type: &str, resource: &Value| {
            let body =
                self.senders
                    .wechat_body(&format!("EV-{o}-{number}"), event_type, &resource.to_string());
            self.senders.wechat(&body)
        };
        let paid = json!({
            "mchid": "1900000001", "appid": "wx0000000000000001", "out_trade_no": o, "transaction_id": format!("wx-{o}"),
            "trade_type": "JSAPI", "trade_state": "SUCCESS", "success_time": "2026-11-29T12:05:04+08:00",
            "payer": {"openid": "oTEST"}, "amount": {"total": 8888, "payer_total": 8888, "currency": "CNY"},
        });
        let refund = |id: &str, status: &str, amount: i64| {
            json!({
                "mchid": "1900000001", "out_trade_no": o, "transaction_id": format!("wx-{o}"),
                "refund_id": format!("{id}-{o}"), "out_refund_no": id, "refund_status": status,
                "success_time": "2026-11-29T12:05:05+08:00",
                "amount": {"total": 8888, "refund": amount, "payer_total": 8888, "payer_refund": amount},
            })
        };
        vec![
            tell(1, "TRANSACTION.SUCCESS", &paid),
            tell(2, "REFUND.SUCCESS", &refund("R1", "SUCCESS", 3000)),
            tell(3, "REFUND.ABNORMAL", &refund("R2", "ABNORMAL", 2000)),
            tell(4, "REFUND.SUCCESS", &refund("R2", "SUCCESS", 2000)),
            tell(5, "REFUND.CLOSED", &refund("R3", "CLOSED", 100)),
        ]
    }

    /// Its refunds are encrypted and not signed: they wait for the payment.
    fn wechat_v2(&self, o: &str) -> Vec<Notification> {
        let trade = format!("v2-{o}");
        let pay = |result: &str, trade: &str| {
            let fields = [
                ("appid", "wx0000000000000001"),
                ("fee_type", "CNY"),
                ("mch_id", "1900000001"),
                ("nonce_str", "5d2b6c2a8db53831f7eda20af46e531c"),
                ("out_trade_no", o),
                ("result_code", result),
                ("return_code", "SUCCESS"),
                ("time_end", "20261129120504"),
                ("total_fee", "8888"),
                ("transaction_id", trade),
            ];
            self.senders.wechat_v2(&fields, Method::Md5)
        };
        let refund = |id: &str, status: &str, fee: &str, total: &str| {
            let outer = [
                ("return_code", "SUCCESS"),
                ("appid", "wx0000000000000001"),
                ("mch_id", "1900000001"),
                ("nonce_str", "0d2b6c2a8db53831f7eda20af46e531c"),
            ];
            let id = format!("{id}-{o}");
            let inner = [
                ("out_refund_no", id.as_str()),
                ("out_trade_no", o),
                ("refund_fee", fee),
                ("refund_id", &id),
                ("refund_status", status),
                ("success_time", "2026-11-29 12:05:05"),
                ("total_fee", total),
                ("transaction_id", &trade),
            ];
            let body = v2_refund(&outer, &inner, self.v2_key.as_bytes()).unwrap();
            notification("/notify/wechatpay/shop-cn", &[("content-type", "text/xml")], body)
        };
        vec![
            pay("FAIL", &format!("v2-failed-{o}")),
            pay("SUCCESS", &trade),
            refund("V1", "SUCCESS", "3000", "8888"),
            refund("V2", "CHANGE", "2000", "8888"),
            refund("V2", "SUCCESS", "2000", "8888"),
            // What nobody signed and does not agree with the payment moves nothing.
            refund("V3", "SUCCESS", "100", "9999"),
        ]
    }

    fn antom(&self, o: &str) -> Vec<Notification> {
        let tell = |mut body: Value| {
            body["paymentRequestId"] = json!(o);
            body["paymentId"] = json!(format!("an-{o}"));
            self.senders.antom(body.to_string().as_bytes())
        };
        let money = |value: &str| json!({"value": value, "currency": "USD"});
        let refund = |id: &str, status: &str, value: &str| {
            tell(
                json!({"notifyType": "REFUND_RESULT", "result": {"resultStatus": "S"}, "refundStatus": status,
                        "refundId": format!("{id}-{o}"), "refundAmount": money(value)}),
            )
        };
        vec![
            tell(
                json!({"notifyType": "PAYMENT_PENDING", "result": {"resultStatus": "U"}, "paymentAmount": money("8888"),
                        "paymentCreateTime": "2026-11-29T12:05:00+08:00"}),
            ),
            tell(
                json!({"notifyType": "PAYMENT_RESULT", "result": {"resultStatus": "S"}, "paymentAmount": money("8888"),
                        "paymentTime": "2026-11-29T12:05:04+08:00"}),
            ),
            refund("A1", "SUCCESS", "3000"),
            refund("A2", "FAIL", "100"),
            refund("A3", "SUCCESS", "5888"),
        ]
    }

    /// The notifications as they are applied, in one order of the facts.
    fn acts(&self, provider: &str, also: Also, o: &str) -> Vec<Act> {
        let (currency, notifications) = self.told(provider, o);
        let (provider, _) = provider.split_once(' ').unwrap_or((provider, ""));
        let mut acts: Vec<Act> = notifications
            .iter()
            .map(|notification| read(&self.registry, provider, notification))
            .collect();
        let order_id = o.to_owned();
        let currency = Currency::new(currency).unwrap();
        let registered = |minor| OwnFact::Registered {
            order_id: order_id.clone(),
            amount: Money::new(minor, currency),
        };
        match also {
            Also::Nothing => {}
            Also::Registered => acts.push(Act::Own(registered(8888))),
            Also::RegisteredOtherwise => acts.push(Act::Own(registered(8800))),
            Also::Closed => acts.push(Act::Own(OwnFact::Closed { order_id })),
        }
        acts
    }
}

fn stripe(o: &str) -> Vec<Notification> {
    let tell = |number: u8, created: i64, kind: &str, object: &Value| {
        let event = json!({
            "id": format!("evt_{o}_{number}"), "object": "event", "api_version": "2024-06-20", "created": created,
            "type": kind, "livemode": false, "pending_webhooks": 1, "request": {"id": null, "idempotency_key": null},
            "data": {"object": object},
        });
        Senders::stripe(&serde_json::to_vec(&event).unwrap())
    };
    let (intent, charge) = (format!("pi_{o}"), format!("ch_{o}"));
    let pay = |status: &str, received: i64| {
        json!({"id": intent, "object": "payment_intent", "amount": 8888, "amount_received": received, "currency": "usd",
               "latest_charge": charge, "status": status, "metadata": {"order_id": o}})
    };
    let charged = |refunded: i64| {
        json!({"id": charge, "object": "charge", "payment_intent": intent, "amount": 8888, "amount_captured": 8888,
               "amount_refunded": refunded, "captured": true, "currency": "usd", "refunded": false, "metadata": {}})
    };
    let refund = |id: &str, status: &str, amount: i64, more: Value| {
        let mut refund = json!({"id": format!("{id}_{o}"), "object": "refund", "amount": amount, "currency": "usd",
                                "charge": charge, "payment_intent": intent, "status": status, "metadata": {}});
        refund
            .as_object_mut()
            .unwrap()
            .append(more.clone().as_object_mut().unwrap());
        refund
    };
    let dispute = |status: &str| {
        json!({"id": format!("dp_{o}"), "object": "dispute", "amount": 1500, "currency": "usd", "charge": charge,
               "payment_intent": intent, "status": status, "metadata": {}})
    };
    vec![
        tell(
            1,
            1_795_925_000,
            "payment_intent.processing",
            &pay("processing", 0),
        ),
        tell(
            2,
            1_795_925_010,
            "payment_intent.payment_failed",
            &pay("requires_payment_method", 0),
        ),
        tell(
            3,
            1_795_925_020,
            "payment_intent.succeeded",
            &pay("succeeded", 8888),
        ),
        tell(4, 1_795_925_030, "charge.refunded", &charged(3000)),
        tell(
            5,
            1_795_925_031,
            "refund.updated",
            &refund("re_1", "succeeded", 3000, json!({})),
        ),
        tell(6, 1_795_925_040, "charge.refunded", &charged(5000)),
        tell(
            7,
            1_795_925_041,
            "refund.updated",
            &refund("re_2", "succeeded", 2000, json!({})),
        ),
        tell(
            8,
            1_795_925_050,
            "refund.failed",
            &refund(
                "re_2",
                "failed",
                2000,
                json!({"failure_balance_transaction": "txn_1"}),
            ),
        ),
        tell(
            9,
            1_795_925_060,
            "charge.dispute.created",
            &dispute("needs_response"),
        ),
        tell(
            10,
            1_795_925_061,
            "charge.dispute.funds_withdrawn",
            &dispute("needs_response"),
        ),
        tell(11, 1_795_925_070, "charge.dispute.closed", &dispute("won")),
        tell(
            12,
            1_795_925_071,
            "charge.dispute.funds_reinstated",
            &dispute("won"),
        ),
    ]
}

fn twoctwop(o: &str) -> Vec<Notification> {
    let tell = |code: &str, at: &str, amount: &str| {
        let claims = json!({"merchantID": "JT01", "invoiceNo": o, "amount": amount, "currencyCode": "THB",
                            "transactionDateTime": at, "tranRef": format!("t-{o}"), "respCode": code, "respDesc": ""});
        Senders::twoctwop(&claims.to_string())
    };
    vec![
        tell("2001", "20261129110500", "88.88"),
        tell("0003", "20261129110502", "88.88"),
        tell("0000", "20261129110504", "88.88"),
        tell("4120", "20261129110505", "30.00"),
        tell("4121", "20261129110505", "10.00"),
        tell("4130", "20261129110506", "58.88"),
    ]
}

/// What the merchant says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Also {
    Nothing,
    Registered,
    RegisteredOtherwise,
    Closed,
}

const SETS: [(&str, Also); 24] = {
    use Also::{Closed, Nothing, Registered, RegisteredOtherwise};
    [
        ("alipay", Nothing),
        ("alipay", Registered),
        ("alipay", RegisteredOtherwise),
        ("alipay", Closed),
        ("wechatpay", Nothing),
        ("wechatpay", Registered),
        ("wechatpay", RegisteredOtherwise),
        ("wechatpay", Closed),
        ("wechatpay v2", Nothing),
        ("wechatpay v2", Registered),
        ("wechatpay v2", RegisteredOtherwise),
        ("wechatpay v2", Closed),
        ("stripe", Nothing),
        ("stripe", Registered),
        ("stripe", RegisteredOtherwise),
        ("stripe", Closed),
        ("2c2p", Nothing),
        ("2c2p", Registered),
        ("2c2p", RegisteredOtherwise),
        ("2c2p", Closed),
        ("antom", Nothing),
        ("antom", Registered),
        ("antom", RegisteredOtherwise),
        ("antom", Closed),
    ]
};

/// One transaction of one worker; what only the moment refused is tried again, as the worker does.
async fn apply_batch(fresh: &FreshStore, acts: &[Act], policy: &Policy) {
    for _ in 0..100 {
        let outcome: Result<(), ApplyError> = async {
            let mut tx = fresh.store.begin().await?;
            let items: Vec<Item<'_>> = acts
                .iter()
                .filter_map(|act| match act {
                    Act::Event(told) => Some(Item {
                        event: &told.0,
                        reading: &told.1,
                    }),
                    Act::Own(_) => None,
                })
                .collect();
            apply(&mut tx, &items, policy, now()).await?;
            tx.commit().await?;
            for act in acts {
                if let Act::Own(fact) = act {
                    let mut tx = fresh.store.begin().await?;
                    apply_fact(&mut tx, "default", fact, policy, now()).await?;
                    tx.commit().await?;
                }
            }
            Ok(())
        }
        .await;
        match outcome {
            Ok(()) => return,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    panic!("never the right moment");
}

/// What was raised, but for what is not raised at all where its end is known first.
fn lasting(end: &End) -> Vec<&str> {
    let raised = end.raised.iter().map(String::as_str);
    raised
        .filter(|code| !["refund_abnormal", "dispute_opened"].contains(code))
        .collect()
}

/// Plays every set once straight and [`ROUNDS`] times shuffled, and compares.
async fn play_all(fresh: &FreshStore, sets: &[(&str, Also)], policy: &Policy) {
    let cast = Cast::new();
    let mut rng = StdRng::seed_from_u64(77);
    let mut piles: [Vec<Act>; WORKERS] = Default::default();
    let rounds = ROUNDS + 1;
    for (set, (provider, also)) in sets.iter().enumerate() {
        for round in 0..rounds {
            let acts = cast.acts(provider, *also, &format!("P-{}", set * rounds + round));
            if round == 0 {
                play(&fresh.store, &acts, policy).await;
                continue;
            }
            record(&fresh.store, &acts).await;
            for act in acts {
                // Most are told once, and by chance one to each worker.
                for _ in 0..rng.random_range(1..=2_usize) + rng.random_range(0..=1_usize) {
                    piles[rng.random_range(0..WORKERS)].push(act.clone());
                }
            }
        }
    }
    let mut batches: Vec<Vec<Vec<Act>>> = Vec::new();
    for mut pile in piles {
        pile.shuffle(&mut rng);
        let mut cut = Vec::new();
        while !pile.is_empty() {
            let size = rng.random_range(1..=12_usize).min(pile.len());
            cut.push(pile.split_off(pile.len() - size));
        }
        batches.push(cut);
    }
    let worker = |batches: Vec<Vec<Act>>| async move {
        for batch in batches {
            apply_batch(fresh, &batch, policy).await;
        }
    };
    futures_util::future::join_all(batches.into_iter().map(worker)).await;

    let ends = ends(fresh).await;
    assert_eq!(ends.len(), sets.len() * rounds);
    for (set, what) in sets.iter().enumerate() {
        let straight = &ends[&(set * rounds)];
        assert!(straight.sums.len() >= 2, "{what:?} moves money: {straight:?}");
        let of_set: Vec<&End> = (0..rounds).map(|round| &ends[&(set * rounds + round)]).collect();
        // Of those in which no human has to decide, any is as good as the first.
        let decided = of_set.iter().find(|end| !end.humans_decide());
        for end in &of_set {
            assert_eq!(
                (&end.totals, &end.sums),
                (&straight.totals, &straight.sums),
                "{what:?}"
            );
            assert!(end.paid_messages <= 1, "{what:?}");
            if let Some(first) = decided.filter(|_| !end.humans_decide()) {
                assert_eq!(
                    (&end.status, lasting(end)),
                    (&first.status, lasting(first)),
                    "{what:?}"
                );
            }
        }
        if matches!(what.1, Also::Nothing | Also::Registered) {
            assert!(
                of_set.iter().all(|end| !end.humans_decide()),
                "{what:?}: {of_set:?}"
            );
        }
    }
    let open = "select event_id || ': ' || reason from event_outcomes where outcome in ('parked', 'dead')";
    assert_eq!(fresh.texts(open).await, [""; 0]);
    let unresolved = "select order_id || ' ' || code from attention where state = 'open' and provider <> '2c2p' \
        and code in ('refund_abnormal', 'dispute_opened')";
    assert_eq!(fresh.texts(unresolved).await, [""; 0]);
    let versions = "select count(*) from orders where version <> \
        (select count(*) from messages where messages.order_id = orders.order_id and routing_key like 'order.%')";
    assert_eq!(fresh.number(versions).await, 0, "one message each version");
}

on_both_stores! {
    async fn what_every_provider_sends_commutes_over_three_workers(fresh) {
        play_all(&fresh, &SETS, &CREATE).await;
    }

    async fn and_so_it_does_where_orders_wait_for_their_registration(fresh) {
        let registered: Vec<_> =
            SETS.into_iter().filter(|(_, also)| matches!(also, Also::Registered | Also::RegisteredOtherwise)).collect();
        play_all(&fresh, &registered, &PARK).await;
    }
}
