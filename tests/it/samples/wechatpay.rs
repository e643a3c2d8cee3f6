//! WeChat Pay's cases: APIv3 under a public key and a platform certificate, and legacy XML.

use std::time::Duration;

use payhook::event::ProviderName;
use payhook::provider::wechatpay::sign::{Method, V3Message, v2_payment, v2_refund};
use payhook::samples::sign::{WECHATPAY_KEY_ID, WECHATPAY_SERIAL, wechatpay_signer};
use serde_json::{Value, json};

use super::cases::Case;

const V2_KEY: &[u8] = include_bytes!("../../../provider-samples/keys/wechatpay_apiv2.key");

/// A v3 notification `number` with `resource`; the numbers keep ids and nonces apart.
fn v3(
    name: &'static str,
    title: &'static str,
    minutes: u64,
    number: u8,
    event_type: &str,
    resource: &Value,
) -> Case {
    with_key(
        WECHATPAY_KEY_ID,
        name,
        title,
        minutes,
        number,
        event_type,
        resource,
    )
}

fn with_key(
    serial: &'static str,
    name: &'static str,
    title: &'static str,
    minutes: u64,
    number: u8,
    event_type: &str,
    resource: &Value,
) -> Case {
    let refund = event_type.starts_with("REFUND");
    let message = V3Message {
        id: &format!("0a1b2c3d-0000-5000-8000-0000000000{number:02}"),
        create_time: "2026-03-02T10:00:00+08:00",
        event_type,
        summary: if refund { "退款通知" } else { "支付成功" },
        original_type: if refund { "refund" } else { "transaction" },
        resource: &resource.to_string(),
    };
    let mut nonce = *b"samplenonc00";
    nonce[10] = b'0' + number / 10;
    nonce[11] = b'0' + number % 10;
    let body = wechatpay_signer(serial).unwrap().body(&message, nonce).unwrap();
    Case::new(ProviderName::Wechatpay, name, title, minutes)
        .header("wechatpay-serial", serial)
        .body(body)
}

fn paid(order: &str, transaction: &str, total: i64, attach: &str) -> Value {
    json!({
        "mchid": "1900000001", "appid": "wx0000000000000001", "out_trade_no": order,
        "transaction_id": transaction, "trade_type": "NATIVE", "trade_state": "SUCCESS",
        "trade_state_desc": "支付成功", "bank_type": "OTHERS", "attach": attach,
        "success_time": "2026-03-02T09:59:58+08:00", "payer": { "openid": "oSampleOpenId0000000000000001" },
        "amount": { "total": total, "payer_total": total, "currency": "CNY", "payer_currency": "CNY" }
    })
}

fn refund(order: &str, transaction: &str, (id, status): (&str, &str), (total, amount): (i64, i64)) -> Value {
    let mut refund = json!({
        "mchid": "1900000001", "out_trade_no": order, "transaction_id": transaction, "refund_id": id,
        "out_refund_no": format!("{order}-{id}"), "refund_status": status,
        "user_received_account": "支付用户零钱",
        "amount": { "total": total, "refund": amount, "payer_total": total, "payer_refund": amount }
    });
    if status == "SUCCESS" {
        refund["success_time"] = json!("2026-03-02T11:00:00+08:00");
    }
    refund
}

const T2001: &str = "4200002001202603020000000001";
const T2002: &str = "4200002001202603020000000002";
const T2006: &str = "4200002001202603020000000006";

fn combined() -> Value {
    let sub = |order: &str, transaction: &str, total: i64| {
        json!({ "mchid": "1900000001", "trade_type": "APP", "trade_state": "SUCCESS", "bank_type": "OTHERS",
                "attach": "", "success_time": "2026-03-02T09:59:58.000+08:00", "transaction_id": transaction,
                "out_trade_no": order,
                "amount": { "total_amount": total, "payer_amount": total, "currency": "CNY", "payer_currency": "CNY" } })
    };
    json!({
        "combine_appid": "wx0000000000000001", "combine_mchid": "1900000001",
        "combine_out_trade_no": "WX-COMBINED-1", "combine_payer_info": { "openid": "oSampleOpenId0000000000000001" },
        "sub_orders": [
            sub("WX-2003", "4200002001202603020000000003", 1000),
            sub("WX-2004", "4200002001202603020000000004", 2550)
        ]
    })
}

const V2_PAID: &[(&str, &str)] = &[
    ("appid", "wx0000000000000001"),
    ("mch_id", "1900000001"),
    ("nonce_str", "sample0000000000000000000000v2a"),
    ("return_code", "SUCCESS"),
    ("result_code", "SUCCESS"),
    ("openid", "oSampleOpenId0000000000000001"),
    ("is_subscribe", "N"),
    ("trade_type", "JSAPI"),
    ("bank_type", "OTHERS"),
    ("total_fee", "3300"),
    ("fee_type", "CNY"),
    ("cash_fee", "3300"),
    ("transaction_id", T2006),
    ("out_trade_no", "WX-2006"),
    ("attach", "测试"),
    ("time_end", "20260302095958"),
];

fn v2(name: &'static str, title: &'static str, minutes: u64, body: Vec<u8>) -> Case {
    Case::new(ProviderName::Wechatpay, name, title, minutes)
        .header("content-type", "text/xml")
        .body(body)
}

const SUCCESS: &str = "TRANSACTION.SUCCESS";

/// What the orders' lives are told with.
fn story() -> Vec<Case> {
    let first = paid("WX-2001", T2001, 12345, "");
    vec![
        v3("01-paid", "WX-2001 is paid, 123.45 CNY", 0, 1, SUCCESS, &first),
        v3(
            "02-paid-again",
            "the same notification, resent with a fresh signature",
            20,
            1,
            SUCCESS,
            &first,
        ),
        v3(
            "03-partial-refund",
            "20.00 of WX-2001 are refunded",
            60,
            2,
            "REFUND.SUCCESS",
            &refund(
                "WX-2001",
                T2001,
                ("50300000012026030200000001", "SUCCESS"),
                (12345, 2000),
            ),
        ),
        v3(
            "04-full-refund",
            "the rest of WX-2001 is refunded",
            90,
            3,
            "REFUND.SUCCESS",
            &refund(
                "WX-2001",
                T2001,
                ("50300000012026030200000002", "SUCCESS"),
                (12345, 10345),
            ),
        ),
        v3(
            "05-refund-abnormal",
            "a refund of WX-2002 is stuck: its payment is first heard of here",
            65,
            4,
            "REFUND.ABNORMAL",
            &refund(
                "WX-2002",
                T2002,
                ("50300000012026030200000003", "ABNORMAL"),
                (800, 800),
            ),
        ),
        v3(
            "06-refund-closed",
            "that refund is closed: it failed for good",
            70,
            5,
            "REFUND.CLOSED",
            &refund(
                "WX-2002",
                T2002,
                ("50300000012026030200000003", "CLOSED"),
                (800, 800),
            ),
        ),
        v3(
            "07-combined",
            "one notification pays WX-2003 and WX-2004",
            5,
            6,
            SUCCESS,
            &combined(),
        ),
        with_key(
            WECHATPAY_SERIAL,
            "08-paid-platform-certificate",
            "WX-2005 is paid; signed with the platform certificate's key, text in Chinese",
            10,
            7,
            SUCCESS,
            &paid("WX-2005", "4200002001202603020000000005", 1, "备注：送货上门"),
        ),
    ]
}

/// What must be refused, and what tries to break readers.
fn hostile() -> Vec<Case> {
    let first = paid("WX-2001", T2001, 12345, "");
    vec![
        v3(
            "09-forged",
            "somebody claims that WX-2007 was paid",
            12,
            8,
            SUCCESS,
            &paid("WX-2007", "4200002001202603020000000007", 999_900, ""),
        )
        .forged(),
        v3(
            "10-stale",
            "a genuine notification that arrives 301 seconds after it was signed",
            0,
            1,
            SUCCESS,
            &first,
        )
        .late_by(Duration::from_secs(301)),
        v3(
            "11-probe",
            "WeChat tests whether signatures are checked",
            13,
            9,
            SUCCESS,
            &first,
        )
        .header("wechatpay-signature", "WECHATPAY/SIGNTEST/"),
        v3(
            "12-hostile-characters",
            "WX-2008 is paid; its texts try to break a terminal, a page and a query",
            14,
            10,
            SUCCESS,
            &paid(
                "WX-2008",
                "4200002001202603020000000008",
                1,
                "\u{1b}]0;x\u{7}<img src=x onerror=alert(1)>'; drop table orders;-- \u{0} \u{202e}\u{1f600} ${jndi:ldap://a}",
            ),
        ),
    ]
}

/// Legacy XML, and a notification that is not ours.
fn others() -> Vec<Case> {
    vec![
        v2(
            "13-v2-paid",
            "WX-2006 is paid; legacy XML, HMAC-SHA256",
            15,
            v2_payment(V2_PAID, Method::HmacSha256, V2_KEY),
        ),
        v2(
            "14-v2-refund",
            "all of WX-2006 is refunded; legacy XML, encrypted but not signed",
            75,
            v2_refund(
                &[
                    ("return_code", "SUCCESS"),
                    ("appid", "wx0000000000000001"),
                    ("mch_id", "1900000001"),
                    ("nonce_str", "sample0000000000000000000000v2b"),
                ],
                &[
                    ("out_refund_no", "WX-2006-1"),
                    ("out_trade_no", "WX-2006"),
                    ("refund_account", "REFUND_SOURCE_RECHARGE_FUNDS"),
                    ("refund_fee", "3300"),
                    ("refund_id", "50300000012026030200000006"),
                    ("refund_recv_accout", "支付用户零钱"),
                    ("refund_request_source", "API"),
                    ("refund_status", "SUCCESS"),
                    ("settlement_refund_fee", "3300"),
                    ("settlement_total_fee", "3300"),
                    ("success_time", "2026-03-02 11:10:00"),
                    ("total_fee", "3300"),
                    ("transaction_id", T2006),
                ],
                V2_KEY,
            )
            .unwrap(),
        ),
        v3(
            "15-other-merchant",
            "genuine, but about another merchant number: kept, not applied",
            16,
            11,
            SUCCESS,
            &{
                let mut other = paid("WX-2009", "4200002001202603020000000009", 500, "");
                other["mchid"] = json!("1900009999");
                other
            },
        ),
    ]
}

/// What is agreed to, or accepted, and not paid.
fn unpaid() -> Vec<Case> {
    let accepted: Vec<_> = V2_PAID
        .iter()
        .map(|(name, value)| match *name {
            "transaction_id" => (*name, "4200002001202603020000000011"),
            "out_trade_no" => (*name, "WX-2011"),
            _ => (*name, *value),
        })
        .chain([("trade_state", "ACCEPT"), ("contract_id", "202603020000000011")])
        .collect();
    vec![
        v3(
            "16-score-confirmed",
            "the payer agrees to a service order of up to 200.00 CNY, WX-2010: not paid",
            17,
            12,
            "PAYSCORE.USER_CONFIRM",
            &json!({
                "appid": "wx0000000000000001", "mchid": "1900000001", "service_id": "500001",
                "out_order_no": "WX-2010", "order_id": "15646546545165651651", "openid": "oSampleOpenId0000000000000001",
                "state": "DOING", "state_description": "USER_CONFIRM", "total_amount": 0,
                "risk_fund": { "name": "ESTIMATE_ORDER_COST", "amount": 20000 }, "need_collection": true
            }),
        ),
        v2(
            "17-v2-deduction-accepted",
            "a deduction of 33.00 CNY for WX-2011 is accepted: not paid yet; legacy XML",
            18,
            v2_payment(&accepted, Method::HmacSha256, V2_KEY),
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    [story(), hostile(), others(), unpaid()]
        .into_iter()
        .flatten()
        .collect()
}
