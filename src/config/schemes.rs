//! The keys of each provider's scheme, one function each.
//!
//! What must be there is judged here; whether it is a usable key is the provider's judgement, which is made
//! even when there are problems here, so that all come at once.

use std::collections::BTreeSet;
use std::time::Duration;

use super::account::{
    AlipayAccount, AlipaySignType, AntomAccount, Capture, KeyMaterial, Scheme, StripeAccount,
    TwoCTwoPAccount, WechatpayAccount,
};
use super::keys::Keys;
use super::names::is_merchant_name;
use crate::event::{Currency, ProviderName};

/// The scheme's part of one account.
pub(super) fn read(provider: ProviderName, keys: &mut Keys<'_>) -> Scheme {
    match provider {
        ProviderName::Alipay => Scheme::Alipay(alipay(keys)),
        ProviderName::Wechatpay => Scheme::Wechatpay(wechatpay(keys)),
        ProviderName::Stripe => Scheme::Stripe(stripe(keys)),
        ProviderName::TwoCTwoP => Scheme::TwoCTwoP(twoctwop(keys)),
        ProviderName::Antom => Scheme::Antom(antom(keys)),
    }
}

fn alipay(keys: &mut Keys<'_>) -> AlipayAccount {
    let has_key = ["public_key", "public_key_file", "alipay_cert", "alipay_cert_file"]
        .iter()
        .any(|k| keys.is_given(k));
    if !has_key {
        keys.problem(
            "public_key_file",
            "is missing: public_key_file or alipay_cert_file",
        );
    }
    AlipayAccount {
        app_id: keys.text("app_id"),
        seller_id: keys.maybe_text("seller_id"),
        public_key: keys.key("public_key"),
        alipay_cert: keys.key("alipay_cert"),
        sign_type: sign_type(keys),
    }
}

fn sign_type(keys: &mut Keys<'_>) -> AlipaySignType {
    if !keys.is_given("sign_type") {
        return AlipaySignType::default();
    }
    let sign_type = keys.parsed("sign_type", "\"RSA2\" or \"RSA\"", |text| match text {
        "RSA2" => Some(AlipaySignType::Rsa2),
        "RSA" => Some(AlipaySignType::Rsa),
        _ => None,
    });
    sign_type.unwrap_or_default()
}

fn wechatpay(keys: &mut Keys<'_>) -> WechatpayAccount {
    let has = |keys: &Keys<'_>, key: &str| keys.is_given(key) || keys.is_given(&format!("{key}_file"));
    let has_v3 = has(keys, "api_v3_key");
    let has_v2 = has(keys, "api_v2_key");
    let account = WechatpayAccount {
        mch_id: keys.text("mch_id"),
        app_ids: keys.list("app_ids").into_iter().map(|item| item.text).collect(),
        currency: currency(keys),
        api_v3_key: keys.secret("api_v3_key"),
        public_keys: public_keys(keys),
        platform_certs: keys.files("platform_cert_files"),
        api_v2_key: keys.secret("api_v2_key"),
    };
    let keys_given = !account.public_keys.is_empty()
        || !account.platform_certs.is_empty()
        || keys.is_broken_below("public_keys")
        || keys.is_broken_below("platform_cert_files");
    match (has_v3, keys_given) {
        (true, false) => {
            keys.problem(
                "public_keys",
                "is missing: api_v3_key needs public_keys or platform_cert_files",
            );
        }
        (false, true) => keys.problem(
            "api_v3_key",
            "is missing: public_keys and platform_cert_files need it",
        ),
        (false, false) if !has_v2 => {
            keys.problem(
                "api_v3_key",
                "is missing: api_v3_key with public_keys or platform_cert_files, or api_v2_key",
            );
        }
        _ => {}
    }
    account
}

fn currency(keys: &mut Keys<'_>) -> Currency {
    if !keys.is_given("currency") {
        return Currency::CNY;
    }
    keys.parsed("currency", "an ISO 4217 code such as \"CNY\"", |text| {
        Currency::new(text).ok()
    })
    .unwrap_or(Currency::CNY)
}

fn public_keys(keys: &mut Keys<'_>) -> Vec<(String, KeyMaterial)> {
    let mut ids = BTreeSet::new();
    let found = keys.tables("public_keys", |keys| {
        let id = keys.text("id");
        if !id.is_empty() && !ids.insert(id.clone()) {
            keys.problem("id", "is the id of an earlier key");
        }
        let file = keys.text("file");
        let material = if file.is_empty() {
            None
        } else {
            keys.read(&keys.at("file"), &file)
        };
        Some((id, material?))
    });
    found.into_iter().flatten().collect()
}

fn stripe(keys: &mut Keys<'_>) -> StripeAccount {
    let signing_secrets = keys.secrets("signing_secrets");
    if signing_secrets.is_empty() && !keys.is_broken_below("signing_secrets") {
        keys.problem("signing_secrets", "is missing: at least one signing secret");
    }
    let tolerance = if keys.is_given("tolerance") {
        // Zero would refuse every notification, or none: libraries differ, so it is never meant.
        keys.duration("tolerance", Duration::from_secs(1)..=Duration::from_hours(24))
    } else {
        Duration::from_mins(5)
    };
    let order_id_from = if keys.is_given("order_id_from") {
        let paths: Vec<_> = keys
            .list("order_id_from")
            .into_iter()
            .map(|item| item.text)
            .collect();
        if paths.is_empty() && !keys.is_broken_below("order_id_from") {
            keys.problem("order_id_from", "is empty: no event would name its order");
        }
        paths
    } else {
        ["metadata.order_id", "client_reference_id"]
            .map(str::to_owned)
            .to_vec()
    };
    StripeAccount {
        signing_secrets,
        tolerance,
        order_id_from,
        livemode: keys.maybe_boolean("livemode"),
        connect_accounts: connect_accounts(keys),
        merchant_from_account: merchant_from_account(keys),
        only: only(keys),
    }
}

fn connect_accounts(keys: &mut Keys<'_>) -> Vec<String> {
    let given = keys.is_given("connect_accounts");
    let mut accounts = Vec::new();
    for item in keys.list("connect_accounts") {
        if item.text.starts_with("acct_") && is_merchant_name(&item.text) {
            accounts.push(item.text);
        } else {
            keys.problem_at(
                item.path,
                "must be a connected account's id, such as \"acct_1A2b3C\"",
            );
        }
    }
    if given && accounts.is_empty() && !keys.is_broken_below("connect_accounts") {
        keys.problem("connect_accounts", "is empty: no event would be of this account");
    }
    accounts
}

fn merchant_from_account(keys: &mut Keys<'_>) -> bool {
    let given = keys.is_given("merchant_from");
    given
        && keys
            .parsed("merchant_from", "\"account\"", |text| {
                (text == "account").then_some(())
            })
            .is_some()
}

/// Paths in `data.object` with the text that must stand there.
fn only(keys: &mut Keys<'_>) -> Vec<(String, String)> {
    let given = keys.is_given("only");
    let only = keys.section("only", |keys| {
        let paths: Vec<String> = keys.names();
        paths
            .into_iter()
            .filter_map(|path| Some((path.clone(), keys.maybe_text(&path)?)))
            .collect::<Vec<_>>()
    });
    if given && only.is_empty() && !keys.is_broken_below("only") {
        keys.problem(
            "only",
            "is empty: write { \"metadata.site\" = \"shop-a\" }, the path in quotes",
        );
    }
    only
}

fn twoctwop(keys: &mut Keys<'_>) -> TwoCTwoPAccount {
    if !keys.is_given("secret_key") && !keys.is_given("secret_key_file") {
        keys.problem("secret_key", "is missing: secret_key or secret_key_file");
    }
    let utc_offset_minutes = if keys.is_given("timezone_offset") {
        keys.parsed(
            "timezone_offset",
            "an offset from UTC such as \"+07:00\"",
            offset_minutes,
        )
        .unwrap_or_default()
    } else {
        7 * 60
    };
    TwoCTwoPAccount {
        merchant_id: keys.text("merchant_id"),
        secret_key: keys.secret("secret_key"),
        utc_offset_minutes,
        capture: capture(keys),
    }
}

fn capture(keys: &mut Keys<'_>) -> Capture {
    if !keys.is_given("capture") {
        return Capture::default();
    }
    let capture = keys.parsed("capture", "\"auto\" or \"manual\"", |text| match text {
        "auto" => Some(Capture::Auto),
        "manual" => Some(Capture::Manual),
        _ => None,
    });
    capture.unwrap_or_default()
}

/// `+07:00` as minutes east of UTC.
fn offset_minutes(text: &str) -> Option<i32> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let two_digits = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<i32>().ok()).flatten()
    };
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    (hours <= 14 && minutes < 60).then(|| sign * (hours * 60 + minutes))
}

fn antom(keys: &mut Keys<'_>) -> AntomAccount {
    if !keys.is_given("public_key") && !keys.is_given("public_key_file") {
        keys.problem("public_key_file", "is missing");
    }
    let notify_path = if keys.is_given("notify_path") {
        keys.parsed(
            "notify_path",
            "a path that begins with / and has no query",
            |text| (text.starts_with('/') && !text.contains(['?', '#'])).then(|| text.to_owned()),
        )
    } else {
        None
    };
    AntomAccount {
        client_id: keys.text("client_id"),
        public_key: keys.key("public_key"),
        notify_path,
        capture: capture(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::offset_minutes;

    #[test]
    fn offsets_are_minutes_east() {
        assert_eq!(offset_minutes("+07:00"), Some(420));
        assert_eq!(offset_minutes("-03:30"), Some(-210));
        for bad in ["07:00", "+7:00", "+07", "+15:00", "+07:60", "Z", "+-7:00"] {
            assert_eq!(offset_minutes(bad), None, "{bad}");
        }
    }
}
