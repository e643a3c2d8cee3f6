//! 2C2P's cases: nothing signed tells when they were sent, so none can be stale.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use payhook::event::ProviderName;
use payhook::provider::twoctwop::sign;
use serde_json::{Value, json};

use super::cases::Case;

const SECRET: &[u8] = include_bytes!("../../../provider-samples/keys/2c2p_secret.key");

fn claims(
    merchant: &str,
    (invoice, tran_ref): (&str, &str),
    amount: &Value,
    (code, words): (&str, &str),
) -> String {
    json!({ "merchantID": merchant, "invoiceNo": invoice, "accountNo": "411111XXXXXX1111", "amount": amount,
            "currencyCode": "THB", "tranRef": tran_ref, "transactionDateTime": "20260302090000",
            "channelCode": "VI", "respCode": code, "respDesc": words })
    .to_string()
}

fn case(name: &'static str, title: &'static str, minutes: u64, body: Vec<u8>) -> Case {
    Case::new(ProviderName::TwoCTwoP, name, title, minutes)
        .header("content-type", "application/json; charset=utf-8")
        .body(body)
}

fn signed(claims: &str) -> Vec<u8> {
    sign(SECRET.trim_ascii(), claims).unwrap()
}

pub(crate) fn cases() -> Vec<Case> {
    let (success, first) = (("0000", "Success"), ("TH-4001", "2868801"));
    let paid = claims("JT01", first, &json!("1230.50000"), success);
    let unsigned = format!(
        "{}.{}.",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#),
        URL_SAFE_NO_PAD.encode(&paid)
    );
    vec![
        case("01-paid", "TH-4001 is paid, 1230.50 THB", 0, signed(&paid)),
        case("02-paid-again", "the same notification again", 10, signed(&paid)),
        case(
            "03-declined",
            "an attempt to pay TH-4002 is declined",
            11,
            signed(&claims(
                "JT01",
                ("TH-4002", "2868802"),
                &json!("99.00"),
                ("4051", "Insufficient funds"),
            )),
        ),
        case(
            "04-pending",
            "a second attempt to pay TH-4002 is pending",
            12,
            signed(&claims(
                "JT01",
                ("TH-4002", "2868803"),
                &json!(99),
                ("0001", "Transaction is pending"),
            )),
        ),
        case(
            "05-refund",
            "1230.50 THB of TH-4001 are refunded",
            60,
            signed(&claims("JT01", first, &json!("1230.50"), ("4120", "Refunded"))),
        ),
        case(
            "06-forged",
            "signed with another secret",
            61,
            sign(b"0000000000000000", &paid).unwrap(),
        ),
        case(
            "07-algorithm-none",
            "a token that wants no signature",
            62,
            format!(r#"{{"payload":"{unsigned}"}}"#).into_bytes(),
        ),
        case(
            "08-other-merchant",
            "genuine, but about another merchant: kept, not applied",
            63,
            signed(&claims("JT02", ("TH-4003", "2868804"), &json!("5.00"), success)),
        ),
        case(
            "09-hostile-characters",
            "TH-4004 is paid; its words try to break readers",
            64,
            signed(&claims(
                "JT01",
                ("TH-4004", "2868805"),
                &json!("1.00"),
                ("0000", "\u{1b}[2J<b>'; drop table orders;-- 测试\u{0}\u{202e}"),
            )),
        ),
        case(
            "10-card-stored",
            "a card is stored without a payment: a success over 0.00",
            65,
            signed(&claims(
                "JT01",
                ("TH-4005", "2868806"),
                &json!("0.00000"),
                success,
            )),
        ),
    ]
}
