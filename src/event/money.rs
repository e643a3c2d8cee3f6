//! Money as integers: minor units, an ISO 4217 code and that code's exponent. No floats anywhere.
//!
//! Orders and ledger use the ISO exponent; a provider that counts in other units (Stripe's UGX and ISK)
//! converts in its own file through [`Money::with_exponent`], which refuses a rest.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest amount that is believed, in minor units: ten trillion yuan. Thousands of them add up without
/// leaving 64 bits, so no total of an order can.
pub const MAX_MINOR: i64 = 1_000_000_000_000_000;

/// An upper-case ISO 4217 code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z]{3}$", example = "CNY")]
pub struct Currency([u8; 3]);

/// Why a text is not an amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not a code of ISO 4217: nobody could tell what its smallest unit is.
    #[error("not an ISO 4217 currency code")]
    Currency,
    /// Not a plain decimal number.
    #[error("not a decimal amount")]
    NotDecimal,
    /// More digits behind the point than the currency has, and they are not zero.
    #[error("does not fit the currency's smallest unit")]
    Rest,
    /// Above [`MAX_MINOR`].
    #[error("too large to be an amount")]
    TooLarge,
}

impl Currency {
    /// Chinese yuan.
    pub const CNY: Self = Self(*b"CNY");

    /// From a code in either case. One that is not listed is refused: taken with a guessed exponent it would be
    /// wrong by a factor of ten or a hundred.
    pub fn new(code: &str) -> Result<Self, MoneyError> {
        let &[a, b, c] = code.as_bytes() else {
            return Err(MoneyError::Currency);
        };
        let code = [a, b, c].map(|letter| letter.to_ascii_uppercase());
        exponent_of(code).map(|_| Self(code)).ok_or(MoneyError::Currency)
    }

    /// The code.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Digits behind the point by ISO 4217.
    pub fn exponent(self) -> u8 {
        exponent_of(self.0).unwrap_or(2)
    }
}

/// Digits behind the point by ISO 4217, list one of 2026; and the codes withdrawn since 2022, in which payments
/// may still be refunded.
fn exponent_of(code: [u8; 3]) -> Option<u8> {
    const TWO: &str = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD \
        CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD \
        HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP \
        MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR \
        SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES \
        WST XAD XCD XCG YER ZAR ZMW ZWG ANG BGN CUC HRK SLL ZWL";
    match &code {
        b"BIF" | b"CLP" | b"DJF" | b"GNF" | b"ISK" | b"JPY" | b"KMF" | b"KRW" | b"PYG" | b"RWF" | b"UGX"
        | b"UYI" | b"VND" | b"VUV" | b"XAF" | b"XOF" | b"XPF" => Some(0),
        b"BHD" | b"IQD" | b"JOD" | b"KWD" | b"LYD" | b"OMR" | b"TND" => Some(3),
        b"CLF" | b"UYW" => Some(4),
        other => TWO
            .as_bytes()
            // Three letters and a space each.
            .chunks(4)
            .any(|listed| listed.starts_with(other))
            .then_some(2),
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = String::deserialize(deserializer)?;
        Self::new(&code).map_err(serde::de::Error::custom)
    }
}

/// An amount in the currency's ISO minor units. `exponent` is the currency's own; it is carried so that a
/// consumer without a table can print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, utoipa::ToSchema)]
pub struct Money {
    /// Minor units.
    pub minor: i64,
    /// The currency.
    pub currency: Currency,
    /// Digits behind the point.
    pub exponent: u8,
}

impl Money {
    /// `minor` ISO minor units of `currency`.
    pub fn new(minor: i64, currency: Currency) -> Self {
        Self {
            minor,
            currency,
            exponent: currency.exponent(),
        }
    }

    /// The same for an amount from outside: refused above [`MAX_MINOR`], on either side of zero.
    pub fn bounded(minor: i64, currency: Currency) -> Result<Self, MoneyError> {
        if minor.unsigned_abs() > MAX_MINOR.unsigned_abs() {
            return Err(MoneyError::TooLarge);
        }
        Ok(Self::new(minor, currency))
    }

    /// `units` counted with `exponent` digits behind the point, converted to the ISO exponent.
    pub fn with_exponent(units: i64, exponent: u8, currency: Currency) -> Result<Self, MoneyError> {
        let iso = currency.exponent();
        if exponent <= iso {
            let factor = 10_i64
                .checked_pow(u32::from(iso.saturating_sub(exponent)))
                .ok_or(MoneyError::TooLarge)?;
            let minor = units.checked_mul(factor).ok_or(MoneyError::TooLarge)?;
            return Self::bounded(minor, currency);
        }
        let factor = 10_i64
            .checked_pow(u32::from(exponent.saturating_sub(iso)))
            .ok_or(MoneyError::TooLarge)?;
        match (units.checked_rem(factor), units.checked_div(factor)) {
            (Some(0), Some(minor)) => Self::bounded(minor, currency),
            _ => Err(MoneyError::Rest),
        }
    }

    /// A decimal text such as `88.88`, `0.1`, `230.87000` in major units. An optional leading `-`, no
    /// exponent form, no grouping; trailing zeros beyond the currency's digits are no rest.
    pub fn parse_decimal(text: &str, currency: Currency) -> Result<Self, MoneyError> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty()
            || !plain(whole)
            || !plain(fraction)
            || (digits.contains('.') && fraction.is_empty())
        {
            return Err(MoneyError::NotDecimal);
        }
        let places = usize::from(currency.exponent());
        let (kept, rest) = fraction.split_at_checked(places).unwrap_or((fraction, ""));
        if rest.bytes().any(|b| b != b'0') {
            return Err(MoneyError::Rest);
        }
        let minor: i64 = format!("{whole}{kept:0<places$}")
            .parse()
            .map_err(|_| MoneyError::TooLarge)?;
        Self::bounded(if negative { minor.saturating_neg() } else { minor }, currency)
    }
}

impl fmt::Display for Money {
    /// `88.88 CNY`, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.minor < 0 { "-" } else { "" };
        let places = usize::from(self.exponent);
        let digits = format!(
            "{:0>width$}",
            self.minor.unsigned_abs(),
            width = places.saturating_add(1)
        );
        let (whole, fraction) = digits
            .split_at_checked(digits.len().saturating_sub(places))
            .unwrap_or((&digits, ""));
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{fraction} {}", self.currency)
    }
}

impl<'de> Deserialize<'de> for Money {
    /// `{minor, currency}`, with `exponent` optional; one that is not the currency's own is refused, and so is an
    /// amount above [`MAX_MINOR`].
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "an amount such as {\"minor\": 8888, \"currency\": \"CNY\"}")]
        struct Wire {
            minor: i64,
            currency: Currency,
            exponent: Option<u8>,
        }
        let wire = Wire::deserialize(deserializer)?;
        let money = Self::bounded(wire.minor, wire.currency).map_err(serde::de::Error::custom)?;
        if wire.exponent.is_some_and(|e| e != money.exponent) {
            return Err(serde::de::Error::custom("exponent is not the currency's"));
        }
        Ok(money)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_become_minor_units_or_say_why_not() {
        let cny = Currency::CNY;
        assert_eq!(Money::parse_decimal("88.88", cny).unwrap().minor, 8888);
        assert_eq!(Money::parse_decimal("0.1", cny).unwrap().minor, 10);
        assert_eq!(Money::parse_decimal("230.87000", cny).unwrap().minor, 23087);
        assert_eq!(Money::parse_decimal("1.001", cny), Err(MoneyError::Rest));
        assert_eq!(Money::parse_decimal("1e2", cny), Err(MoneyError::NotDecimal));
        assert_eq!(Money::parse_decimal("1.", cny), Err(MoneyError::NotDecimal));
        assert_eq!(Money::parse_decimal("", cny), Err(MoneyError::NotDecimal));
        assert_eq!(
            Money::parse_decimal("99999999999999999999", cny),
            Err(MoneyError::TooLarge)
        );
        assert_eq!(
            Money::parse_decimal("500", Currency::new("jpy").unwrap())
                .unwrap()
                .minor,
            500
        );
    }

    #[test]
    fn units_with_another_exponent_are_converted_without_a_rest() {
        let ugx = Currency::new("UGX").unwrap();
        assert_eq!(Money::with_exponent(500, 2, ugx).unwrap().minor, 5);
        assert_eq!(Money::with_exponent(501, 2, ugx), Err(MoneyError::Rest));
    }

    #[test]
    fn a_currency_nobody_lists_is_none() {
        for unlisted in ["XYZ", "yuan", "US", "", "U\u{a3}", "CNH"] {
            assert_eq!(Currency::new(unlisted), Err(MoneyError::Currency), "{unlisted}");
        }
        for (code, exponent) in [("usd", 2), ("Krw", 0), ("KWD", 3), ("CLF", 4), ("HRK", 2)] {
            assert_eq!(Currency::new(code).unwrap().exponent(), exponent, "{code}");
        }
    }

    #[test]
    fn an_amount_that_sums_could_not_hold_is_refused() {
        let cny = Currency::CNY;
        assert_eq!(Money::bounded(MAX_MINOR, cny).unwrap().minor, MAX_MINOR);
        for minor in [MAX_MINOR + 1, -MAX_MINOR - 1, i64::MAX, i64::MIN] {
            assert_eq!(Money::bounded(minor, cny), Err(MoneyError::TooLarge));
        }
        assert_eq!(
            Money::parse_decimal("10000000000000.01", cny),
            Err(MoneyError::TooLarge)
        );
        assert_eq!(Money::with_exponent(MAX_MINOR, 0, cny), Err(MoneyError::TooLarge));
        let text = format!("{{\"minor\":{},\"currency\":\"CNY\"}}", i64::MAX);
        assert!(serde_json::from_str::<Money>(&text).is_err());
    }

    #[test]
    fn people_see_the_point_in_the_right_place() {
        assert_eq!(Money::new(8888, Currency::CNY).to_string(), "88.88 CNY");
        assert_eq!(Money::new(-5, Currency::CNY).to_string(), "-0.05 CNY");
        assert_eq!(
            Money::new(500, Currency::new("JPY").unwrap()).to_string(),
            "500 JPY"
        );
    }
}
