//! Alipay's cases. Bodies stay in the order and encoding in which they are sent.

use std::time::Duration;

use payhook::event::ProviderName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::cases::Case;

/// One notification's parameters; what every one has is added by `case`.
type Parameters<'a> = &'a [(&'a str, &'a str)];

fn case(
    name: &'static str,
    title: &'static str,
    minutes: u64,
    notify: u32,
    parameters: Parameters<'_>,
) -> Case {
    in_charset(
        name,
        title,
        minutes,
        notify,
        ("utf-8", encoding_rs::UTF_8),
        parameters,
    )
}

fn in_charset(
    name: &'static str,
    title: &'static str,
    minutes: u64,
    notify: u32,
    (label, charset): (&str, &'static encoding_rs::Encoding),
    parameters: Parameters<'_>,
) -> Case {
    let notify_id = format!("2026030200222100000000000000{notify:06}");
    let every = [
        ("notify_time", ""),
        ("notify_type", "trade_status_sync"),
        ("notify_id", &notify_id),
        ("app_id", "2021000000000000"),
        ("auth_app_id", "2021000000000000"),
        ("charset", label),
        ("version", "1.0"),
        ("sign_type", "RSA2"),
        ("sign", ""),
        ("seller_id", "2088000000000000"),
        ("buyer_logon_id", "pay***@example.com"),
        ("gmt_create", "2026-03-02 09:59:00"),
    ];
    let pairs = every.iter().chain(parameters);
    let encode = |value: &str| {
        let (bytes, ..) = charset.encode(value);
        form_urlencoded(&bytes)
    };
    let body: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    Case::new(ProviderName::Alipay, name, title, minutes)
        .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
        .body(body.join("&"))
}

fn form_urlencoded(bytes: &[u8]) -> String {
    const FORM: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'*');
    percent_encode(bytes, FORM).to_string().replace("%20", "+")
}

const PAID_1001: Parameters<'_> = &[
    ("trade_no", "2026030222001400000000001001"),
    ("out_trade_no", "CN-1001"),
    ("subject", "测试商品 100% + 1"),
    ("trade_status", "TRADE_SUCCESS"),
    ("total_amount", "88.88"),
    ("receipt_amount", "88.88"),
    ("buyer_pay_amount", "88.88"),
    (
        "fund_bill_list",
        r#"[{"amount":"88.88","fundChannel":"ALIPAYACCOUNT"}]"#,
    ),
    ("gmt_payment", "2026-03-02 09:59:58"),
];

const PAID_1004: Parameters<'_> = &[
    ("trade_no", "2026030222001400000000001004"),
    ("out_trade_no", "CN-1004"),
    ("subject", "测试商品"),
    ("body", "两件，蓝色"),
    ("trade_status", "TRADE_SUCCESS"),
    ("total_amount", "12.00"),
    ("gmt_payment", "2026-03-02 10:19:30"),
];

/// A partial or full refund of CN-1001: the total so far.
fn refund(
    name: &'static str,
    title: &'static str,
    minutes: u64,
    notify: u32,
    status: &str,
    total: &str,
) -> Case {
    case(
        name,
        title,
        minutes,
        notify,
        &[
            ("trade_no", "2026030222001400000000001001"),
            ("out_trade_no", "CN-1001"),
            ("out_biz_no", &format!("CN-1001-R{notify}")),
            ("subject", "测试商品 100% + 1"),
            ("trade_status", status),
            ("total_amount", "88.88"),
            ("refund_fee", total),
            ("gmt_payment", "2026-03-02 09:59:58"),
            ("gmt_refund", "2026-03-02 11:00:00.316"),
        ],
    )
}

/// What the order's life is told with.
fn story() -> Vec<Case> {
    vec![
        case("01-paid", "CN-1001 is paid, 88.88 CNY", 0, 1, PAID_1001),
        case(
            "02-paid-again",
            "the same notification, resent with a fresh notify_time",
            24,
            1,
            PAID_1001,
        ),
        refund(
            "03-partial-refund",
            "30.00 of CN-1001 are refunded",
            60,
            2,
            "TRADE_SUCCESS",
            "30.00",
        ),
        refund(
            "04-full-refund",
            "the rest of CN-1001 is refunded: 88.88 in all",
            90,
            3,
            "TRADE_CLOSED",
            "88.88",
        ),
        case(
            "05-closed",
            "CN-1002 was never paid and is closed",
            30,
            4,
            &[
                ("trade_no", "2026030222001400000000001002"),
                ("out_trade_no", "CN-1002"),
                ("subject", "umbrella"),
                ("trade_status", "TRADE_CLOSED"),
                ("total_amount", "20.00"),
                ("gmt_close", "2026-03-02 10:29:00"),
            ],
        ),
        case(
            "06-finished",
            "CN-1003 is finished; that it was paid is first heard here",
            40,
            5,
            &[
                ("trade_no", "2026030222001400000000001003"),
                ("out_trade_no", "CN-1003"),
                ("subject", "e-book"),
                ("trade_status", "TRADE_FINISHED"),
                ("total_amount", "9.90"),
                ("gmt_payment", "2026-03-02 10:01:00"),
            ],
        ),
        in_charset(
            "07-paid-gbk",
            "CN-1004 is paid; the text is GBK",
            20,
            6,
            ("GBK", encoding_rs::GBK),
            PAID_1004,
        ),
        case(
            "08-late-close",
            "a close of CN-1004 that comes after its payment and un-pays nothing",
            45,
            7,
            &[
                ("trade_no", "2026030222001400000000001004"),
                ("out_trade_no", "CN-1004"),
                ("subject", "测试商品"),
                ("trade_status", "TRADE_CLOSED"),
                ("total_amount", "12.00"),
                ("gmt_close", "2026-03-02 10:15:00"),
            ],
        ),
    ]
}

/// What must be refused, and what tries to break readers.
fn hostile() -> Vec<Case> {
    vec![
        case(
            "09-forged",
            "somebody claims that CN-1002 was paid",
            50,
            8,
            &[
                ("trade_no", "2026030222001400000000001002"),
                ("out_trade_no", "CN-1002"),
                ("subject", "umbrella"),
                ("trade_status", "TRADE_SUCCESS"),
                ("total_amount", "20.00"),
                ("gmt_payment", "2026-03-02 10:49:00"),
            ],
        )
        .forged(),
        case(
            "10-stale",
            "a genuine notification that arrives 26 hours after it was sent",
            0,
            9,
            PAID_1001,
        )
        .late_by(Duration::from_hours(26)),
        case(
            "11-hostile-characters",
            "CN-1005 is paid; its texts try to break a terminal, a page and a query",
            55,
            10,
            &[
                ("trade_no", "2026030222001400000000001005"),
                ("out_trade_no", "CN-1005"),
                (
                    "subject",
                    "@x\u{1b}[31m<script>alert(1)</script>'; drop table orders;--\u{202e}%41%2B+ \"q\" \u{1f600}",
                ),
                (
                    "body",
                    "line one\r\nline two\ttab \u{0}nul ${jndi:ldap://127.0.0.1/a} {{7*7}}",
                ),
                ("trade_status", "TRADE_SUCCESS"),
                ("total_amount", "0.01"),
                ("gmt_payment", "2026-03-02 10:54:00"),
            ],
        ),
    ]
}

/// Money of the payer that is frozen, and released: no payment.
fn frozen() -> Vec<Case> {
    let operation = |name, title, minutes, notify, (notify_type, kind, amount): (&str, &str, &str)| {
        let case = case(
            name,
            title,
            minutes,
            notify,
            &[
                ("auth_no", "2026030210002001000000001006"),
                ("out_order_no", "CN-1006"),
                ("out_request_no", "CN-1006-1"),
                ("operation_id", "20260302000000000006"),
                ("operation_type", kind),
                ("status", "SUCCESS"),
                ("amount", amount),
                ("total_freeze_amount", "500.00"),
                ("total_pay_amount", "0.00"),
                ("rest_amount", "500.00"),
                ("gmt_trans", "2026-03-02 10:59:00"),
            ],
        );
        let body = String::from_utf8(case.request.body.to_vec()).unwrap();
        case.body(body.replace(
            "notify_type=trade_status_sync",
            &format!("notify_type={notify_type}"),
        ))
    };
    vec![
        operation(
            "12-frozen",
            "500.00 of the payer's money are frozen for CN-1006: not paid",
            60,
            11,
            ("fund_auth_freeze", "FREEZE", "500.00"),
        ),
        operation(
            "13-released",
            "200.00 of it are released",
            61,
            12,
            ("fund_auth_unfreeze", "UNFREEZE", "200.00"),
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = story();
    cases.extend(hostile());
    cases.extend(frozen());
    cases
}
