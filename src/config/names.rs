//! Names that stand in paths, event keys and message ids, and the merchant that is meant when none is named.

use super::keys::Keys;

/// The owner of orders where no other is named.
pub const DEFAULT_MERCHANT: &str = "default";

/// An account's name.
pub(super) fn account(keys: &mut Keys<'_>) -> String {
    let expected = "1 to 32 of a-z 0-9 -, not beginning with -";
    keys.parsed("name", expected, |text| {
        is_account_name(text).then(|| text.to_owned())
    })
    .unwrap_or_default()
}

/// The `merchant` key. It is the first part of an order message's id, so it holds no slash.
pub(super) fn merchant(keys: &mut Keys<'_>) -> String {
    if !keys.is_given("merchant") {
        return DEFAULT_MERCHANT.to_owned();
    }
    keys.parsed("merchant", "1 to 64 of A-Z a-z 0-9 . _ -", |text| {
        is_merchant_name(text).then(|| text.to_owned())
    })
    .unwrap_or_default()
}

/// Whether `text` may be a merchant's name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
pub fn is_merchant_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

/// `[a-z0-9][a-z0-9-]{0,31}`.
fn is_account_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= 32 && text.bytes().next().is_some_and(plain) && text.bytes().all(|b| plain(b) || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::is_account_name;

    #[test]
    fn an_account_name_is_a_plain_path_segment() {
        for good in ["a", "0", "shop-cn", "a-", &"x".repeat(32)] {
            assert!(is_account_name(good), "{good}");
        }
        for bad in [
            "",
            "-a",
            "Shop",
            "a_b",
            "a/b",
            "a.b",
            "商店",
            "a\n",
            &"x".repeat(33),
        ] {
            assert!(!is_account_name(bad), "{bad:?}");
        }
    }
}
