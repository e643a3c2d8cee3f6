//! The v2 judgement step by step, and what would make a refused one pass.
//!
//! The signed string is shown without the key that ends it.

use super::WechatPay;
use super::explain::same_secret;
use super::facts_v2;
use super::keys::V2Key;
use super::v2;
use super::xml::Fields;
use crate::event::{Notification, text};
use crate::provider::{Explanation, Refusal};

/// Walks the v2 judgement.
pub(super) fn explain(account: &WechatPay, notification: &Notification) -> Explanation {
    let mut told = Explanation::default();
    let fields = told.step("XML", v2::parse(&notification.body), |fields| {
        format!("{} elements", fields.len())
    });
    let Ok(fields) = fields else { return told };
    if walk(account, &fields, &mut told).is_err()
        && let Some(key) = &account.v2
    {
        told.hint = hint(&fields, key).or_else(|| same_secret(account));
    }
    told
}

fn walk(account: &WechatPay, fields: &Fields, told: &mut Explanation) -> Result<(), Refusal> {
    let check = if fields.contains_key("sign") {
        "sign"
    } else {
        "req_info"
    };
    if fields.contains_key("sign") {
        told.signed = Some((v2::canonical(fields) + "<api_v2_key>").into_bytes());
    }
    let opened = told.step(check, v2::open(fields.clone(), account.v2.as_ref()), |_| {
        let proof = if check == "sign" {
            "holds"
        } else {
            "opens, which proves only that the sender knows the key"
        };
        format!("{proof} with this account's api_v2_key")
    })?;
    let key = v2::event_key(&account.scope.account, &opened.content, &opened.fingerprint);
    let event_type = facts_v2::event_type(&opened.content).to_owned();
    let content = serde_json::Value::Object(opened.content).to_string();
    told.reading(&account.reading(content.as_bytes(), &event_type), key.as_str());
    Ok(())
}

/// The one change that makes the signature hold.
fn hint(fields: &Fields, key: &V2Key) -> Option<String> {
    let passes = |fields: &Fields| v2::open(fields.clone(), Some(key)).is_ok();
    if !fields.contains_key("sign") {
        return None;
    }
    let each = |change: fn(&str) -> String| -> Fields {
        fields
            .iter()
            .map(|(name, value)| (name.clone(), change(value)))
            .collect()
    };
    let mut upper = fields.clone();
    if let Some(sign) = upper.get_mut("sign") {
        sign.make_ascii_uppercase();
    }
    for (changed, happened) in [
        (upper, "sign holds in upper case: something changed its case"),
        (
            each(|value| value.trim().to_owned()),
            "sign holds when blanks around the values are removed: something indented the XML",
        ),
        (
            each(|value| value.replace("\r\n", "\n")),
            "sign holds with LF line ends: something made them CRLF",
        ),
        (
            each(|value| value.replace('\n', "\r\n")),
            "sign holds with CRLF line ends: something made them LF",
        ),
        (
            each(unescape),
            "sign holds when the values are unescaped once more: something escaped them twice",
        ),
    ] {
        if changed != *fields && passes(&changed) {
            return Some(happened.to_owned());
        }
    }
    fields.keys().filter(|name| *name != "sign").find_map(|name| {
        let mut without = fields.clone();
        without.remove(name);
        let name = text::printable(text::cut(name, 64));
        passes(&without).then(|| format!("sign holds without the element {name}: something added it"))
    })
}

fn unescape(value: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    pairs.iter().fold(value.to_owned(), |text, (escaped, plain)| {
        text.replace(escaped, plain)
    })
}
