//! What is authorised, frozen, agreed to or accepted is not paid, whoever says it: no fact and no type of such a
//! notification makes an order paid.

use payhook::event::{FactKind, Notification};
use payhook::provider::wechatpay::sign::Method;
use serde_json::json;

use crate::support::signed::{Senders, WECHAT_V2_PAID, accounts, registry_of, scheme};

fn assert_unpaid(account: &str, what: &str, sent: &Notification) {
    let registry = registry_of(&accounts());
    let verified = scheme(&registry, account)
        .verify(sent)
        .unwrap_or_else(|refusal| panic!("{account}: {what}: {}", refusal.detail));
    let reading = verified.reading;
    let paid = reading
        .facts
        .iter()
        .any(|fact| fact.kind == FactKind::PaymentSucceeded);
    assert!(!paid, "{account}: {what}: {:?}", reading.facts);
    assert_ne!(reading.kind, "payment.succeeded", "{account}: {what}");
    assert_eq!(
        reading.amount_unreadable.or(reading.unreadable),
        None,
        "{account}: {what}"
    );
}

#[test]
fn alipay_frozen_deposit_is_not_paid() {
    let senders = Senders::new();
    for (notify_type, kind) in [
        ("fund_auth_freeze", "FREEZE"),
        ("fund_auth_unfreeze", "UNFREEZE"),
        ("fund_auth_operation_cancel", "FREEZE"),
        // Older ones name the order as a trade does.
        ("fund_auth_freeze", "out_trade_no"),
    ] {
        let mut fields = vec![
            ("app_id", "2021000000000001"),
            ("auth_no", "2026112910002001000281886861"),
            ("amount", "500.00"),
            ("total_amount", "500.00"),
            ("total_freeze_amount", "500.00"),
            ("gmt_trans", "2026-11-29 12:05:04"),
            ("notify_id", "n-freeze"),
            ("notify_time", "2026-11-29 12:05:06"),
            ("notify_type", notify_type),
            ("operation_type", kind),
            ("out_order_no", "ORDER-1"),
            ("status", "SUCCESS"),
        ];
        if kind == "out_trade_no" {
            fields.push(("out_trade_no", "ORDER-1"));
        }
        let bytes: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        assert_unpaid("alipay/shop-cn", notify_type, &senders.alipay(&bytes));
    }
}

#[test]
fn wechat_score_order_is_not_paid() {
    let senders = Senders::new();
    for (event_type, state) in [
        ("PAYSCORE.USER_CONFIRM", "DOING"),
        ("PAYSCORE.USER_OPEN_SERVICE", "DOING"),
        ("PAYSCORE.USER_PAID", "DONE"),
        ("PAYSCORE.USER_CANCEL", "REVOKED"),
    ] {
        let resource = json!({
            "mchid": "1900000001", "appid": "wx0000000000000001", "out_order_no": "ORDER-1", "order_id": "1564",
            "out_trade_no": "ORDER-1", "state": state, "total_amount": 20000, "amount": { "total": 20000 },
            "collection": { "state": "USER_PAYING", "total_amount": 20000 }
        });
        let sent = senders.wechat_event(event_type, &resource.to_string());
        assert_unpaid("wechatpay/shop-cn", event_type, &sent);
    }
    for state in ["ACCEPT", "NOTPAY", "USERPAYING", "PAY_FAIL", "CLOSED", "REVOKED"] {
        let mut fields = WECHAT_V2_PAID.to_vec();
        fields.push(("trade_state", state));
        let sent = senders.wechat_v2(&fields, Method::HmacSha256);
        assert_unpaid("wechatpay/shop-cn", state, &sent);
    }
}

#[test]
fn stripe_uncaptured_payment_is_not_paid() {
    let event = |kind: &str, object: &serde_json::Value| {
        let body = json!({ "id": "evt_1", "object": "event", "type": kind, "created": 1_795_925_100,
                           "livemode": false, "api_version": "2025-06-30.basil", "data": { "object": object } });
        Senders::stripe(body.to_string().as_bytes())
    };
    let intent = json!({ "id": "pi_1", "object": "payment_intent", "amount": 500, "amount_capturable": 500,
                         "amount_received": 0, "currency": "usd", "status": "requires_capture",
                         "capture_method": "manual", "metadata": { "order_id": "ORDER-1" } });
    for kind in [
        "amount_capturable_updated",
        "requires_action",
        "created",
        "canceled",
        "processing",
    ] {
        let kind = format!("payment_intent.{kind}");
        assert_unpaid("stripe/shop-intl", &kind, &event(&kind, &intent));
    }
    for payment_intent in [json!("pi_1"), json!(null)] {
        let charge = json!({ "id": "ch_1", "object": "charge", "amount": 500, "amount_captured": 0,
                             "amount_refunded": 0, "captured": false, "currency": "usd", "paid": true,
                             "status": "succeeded", "created": 1_795_925_100, "payment_intent": payment_intent,
                             "metadata": { "order_id": "ORDER-1" } });
        for kind in [
            "charge.succeeded",
            "charge.updated",
            "charge.pending",
            "charge.expired",
        ] {
            assert_unpaid("stripe/shop-intl", kind, &event(kind, &charge));
        }
    }
    let session = json!({ "id": "cs_1", "object": "checkout.session", "amount_total": 500, "currency": "usd",
                          "mode": "payment", "payment_intent": "pi_1", "payment_status": "unpaid",
                          "status": "complete", "client_reference_id": "ORDER-1", "metadata": {} });
    assert_unpaid(
        "stripe/shop-intl",
        "session",
        &event("checkout.session.completed", &session),
    );
}

#[test]
fn stored_card_is_not_paid() {
    for (code, amount) in [
        ("0000", "0.00"),
        ("4110", "0.00000"),
        ("4200", "0.00"),
        ("4200", "88.88"),
    ] {
        let claims = json!({ "merchantID": "JT01", "invoiceNo": "ORDER-1", "amount": amount, "currencyCode": "THB",
                             "transactionDateTime": "20261129110504", "tranRef": "1", "respCode": code });
        assert_unpaid("2c2p/shop-th", code, &Senders::twoctwop(&claims.to_string()));
    }
}

#[test]
fn antom_authorisation_is_not_paid_where_captures_are_manual() {
    let accounts = accounts().replace("name = \"shop-sg\"", "name = \"shop-sg\"\ncapture = \"manual\"");
    let registry = registry_of(&accounts);
    let sent = Senders::new().antom(crate::support::signed::ANTOM_PAID.as_bytes());
    let reading = scheme(&registry, "antom/shop-sg").verify(&sent).unwrap().reading;
    assert_eq!(reading.kind, "payment.processing");
    assert_eq!(reading.facts[0].kind, FactKind::PaymentProcessing);
}
