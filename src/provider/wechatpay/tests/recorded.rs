//! Notifications made from the documented rules by other code than this: the check on our own signing side.

use super::*;
use crate::provider::request_file::RequestFile;

/// The recorded account: both generations of key, as in a migration.
fn recorded(name: &str, at: i64) -> Result<Verified, Reason> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/wechatpay");
    let read = |file: &str| std::fs::read(format!("{folder}/{file}")).unwrap();
    let key = |file: &str| material(std::str::from_utf8(&read(file)).unwrap());
    let account = WechatpayAccount {
        api_v3_key: Some(material("ThisIsA32ByteApiV3KeyForTests000")),
        public_keys: vec![
            (
                "PUB_KEY_ID_0119000000002024030100000000000001".to_owned(),
                key("derived_pub.pem"),
            ),
            (
                "5157F09EFDC096DE15EBE81A47057A7232F1B8E1".to_owned(),
                key("derived_old_platform_pub.pem"),
            ),
        ],
        platform_certs: vec![],
        api_v2_key: Some(material("TestV2ApiKey0123456789abcdefghij")),
        ..settings()
    };
    let request = RequestFile::parse(&read(&format!("{name}.http"))).unwrap();
    build(&account)
        .unwrap()
        .verify(&request.arriving(Timestamp::from_secs(at)))
        .map_err(|refusal| refusal.reason)
}

#[test]
fn each_gets_its_right_verdict() {
    for (name, at, want) in [
        (
            "der01_v3_transaction_success_pubkey",
            1_709_258_407,
            Ok("payment.succeeded"),
        ),
        (
            "der02_v3_transaction_success_platform_cert",
            1_709_258_407,
            Ok("payment.succeeded"),
        ),
        (
            "der03_v3_serial_key_mismatch",
            1_709_258_407,
            Err(Reason::BadSignature),
        ),
        (
            "der04b_v3_first_delivery_of_der04",
            1_709_258_407,
            Ok("payment.succeeded"),
        ),
        (
            "der05_v3_replayed_late",
            1_709_262_006,
            Err(Reason::OutsideWindow),
        ),
        ("der05b_v3_boundary_300s", 1_709_258_706, Ok("payment.succeeded")),
        (
            "der05b_v3_boundary_300s",
            1_709_258_707,
            Err(Reason::OutsideWindow),
        ),
        (
            "der06_v3_future_timestamp",
            1_709_257_806,
            Err(Reason::OutsideWindow),
        ),
        ("der07_v3_refund_success", 1_709_341_202, Ok("refund.succeeded")),
        ("der08_v3_refund_abnormal", 1_709_341_302, Ok("refund.abnormal")),
        ("der09_v3_empty_aad", 1_709_258_407, Ok("payment.succeeded")),
        ("der10_v3_signtest", 1_709_258_407, Err(Reason::Probe)),
        (
            "der11_v3_tampered_ciphertext",
            1_709_258_407,
            Err(Reason::BadSignature),
        ),
        ("der20_v2_pay_success_md5", 0, Ok("payment.succeeded")),
        (
            "der21_v2_pay_success_hmac_without_sign_type",
            0,
            Ok("payment.succeeded"),
        ),
        ("der23_v2_duplicate_element", 0, Err(Reason::Malformed)),
        (
            "der24_v2_sign_type_present_and_signed",
            0,
            Ok("payment.succeeded"),
        ),
    ] {
        let got = recorded(name, at).map(|verified| verified.reading.kind);
        assert_eq!(got.as_deref().map_err(|reason| *reason), want, "{name}");
    }
}

#[test]
fn b12_both_signings_of_one_payment_say_the_same_fact() {
    let facts = |name| recorded(name, 1_709_258_407).unwrap().reading.facts.remove(0);
    let new = facts("der01_v3_transaction_success_pubkey");
    assert_eq!(new.amount.unwrap().to_string(), "88.88 CNY");
    assert_eq!(new.at.unwrap().to_string(), "2024-03-01T02:00:04Z");
    assert_eq!(new.key, facts("der02_v3_transaction_success_platform_cert").key);
}
