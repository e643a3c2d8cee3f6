//! What is kept of a verified form: its parameters as JSON text, whatever charset they came in, if they can be
//! taken in one way only.

use std::collections::BTreeMap;

use encoding_rs::{Encoding, UTF_8};

use super::form::Form;

/// The parameters that a decision is made on. None of them ever holds an `&`.
const ACTED_ON: [&str; 19] = [
    "app_id",
    "charset",
    "currency",
    "gmt_close",
    "gmt_create",
    "gmt_payment",
    "gmt_refund",
    "msg_method",
    "notify_id",
    "notify_time",
    "out_biz_no",
    "out_trade_no",
    "refund_fee",
    "seller_id",
    "total_amount",
    "trade_no",
    "trade_status",
    "trans_currency",
    "utc_timestamp",
];

/// The charset that the signed `charset` names; absent, unknown or unfit for ASCII names: UTF-8.
pub(super) fn charset(form: &Form) -> &'static Encoding {
    form.get("charset")
        .and_then(Encoding::for_label)
        .filter(|e| e.is_ascii_compatible())
        .unwrap_or(UTF_8)
}

/// The signed string joins values without escaping, so a body that was cut differently can carry the same
/// signature: one parameter made to swallow the next, or a free text made to grow new ones. What the
/// decisions rest on must therefore neither hold an `&` nor appear as `&name=` inside another value.
pub(super) fn ambiguous(form: &Form) -> bool {
    form.iter()
        .filter(|(name, value)| *name != "sign" && value.contains(&b'&'))
        .any(|(name, value)| {
            ACTED_ON.contains(&name)
                || value.split(|b| *b == b'&').skip(1).any(|rest| {
                    let inner = rest.split(|b| *b == b'=').next().unwrap_or_default();
                    inner.len() < rest.len() && ACTED_ON.iter().any(|known| known.as_bytes() == inner)
                })
        })
}

/// The parameters without `sign` and `sign_type`, as a JSON object of text.
pub(super) fn of(form: &Form) -> Vec<u8> {
    let charset = charset(form);
    let parameters: BTreeMap<&str, _> = form
        .iter()
        .filter(|(name, _)| !matches!(*name, "sign" | "sign_type"))
        .map(|(name, value)| (name, charset.decode_without_bom_handling(value).0))
        .collect();
    // A map of text serialises without failure.
    serde_json::to_vec(&parameters).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_out_of_any_charset() {
        let subject = |charset: &str| {
            let body = format!("charset={charset}&subject=%B2%E2%CA%D4&sign=s&sign_type=RSA2");
            let content = of(&Form::parse(body.as_bytes()).unwrap());
            let value: serde_json::Value = serde_json::from_slice(&content).unwrap();
            assert!(value.get("sign").is_none() && value.get("sign_type").is_none());
            value["subject"].as_str().unwrap().to_owned()
        };
        for label in ["GBK", "gbk", "gb2312", "GB18030"] {
            assert_eq!(subject(label), "测试");
        }
        for label in ["utf-8", "klingon", "utf-16", ""] {
            assert!(subject(label).contains('\u{fffd}'));
        }
    }

    #[test]
    fn a_body_cut_differently_is_seen() {
        let seen = |body: &str| ambiguous(&Form::parse(body.as_bytes()).unwrap());
        assert!(!seen(
            "subject=A%26B%3D1&passback_params=x%26y%3D2&total_amount=1.00"
        ));
        assert!(!seen("subject=tea%26total_amount&trade_no=T"));
        assert!(seen("subject=tea%26total_amount%3D1.00&trade_no=T"));
        assert!(seen("trade_no=T%26trade_status%3DTRADE_SUCCESS"));
        assert!(seen("zz=%26total_amount%3D1.00"));
    }
}
