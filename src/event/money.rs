//! Money as integers: minor units, an ISO 4217 code and that code's exponent. No floats anywhere.
//!
//! Orders and ledger use the ISO exponent; a provider that counts in other units (Stripe's UGX and ISK)
//! converts in its own file through [`Money::with_exponent`], which refuses a rest.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An upper-case ISO 4217 code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

/// Why a text is not an amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not three ASCII letters.
    #[error("not an ISO 4217 currency code")]
    Currency,
    /// Not a plain decimal number.
    #[error("not a decimal amount")]
    NotDecimal,
    /// More digits behind the point than the currency has, and they are not zero.
    #[error("does not fit the currency's smallest unit")]
    Rest,
    /// Beyond 64 bits of minor units.
    #[error("too large")]
    TooLarge,
}

impl Currency {
    /// Chinese yuan.
    pub const CNY: Self = Self(*b"CNY");

    /// From a code in either case. Any three letters are taken: providers know codes that lists lack.
    pub fn new(code: &str) -> Result<Self, MoneyError> {
        match code.as_bytes() {
            &[a, b, c] if code.bytes().all(|b| b.is_ascii_alphabetic()) => Ok(Self([
                a.to_ascii_uppercase(),
                b.to_ascii_uppercase(),
                c.to_ascii_uppercase(),
            ])),
            _ => Err(MoneyError::Currency),
        }
    }

    /// The code.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Digits behind the point by ISO 4217 (list one, 2026): 0, 2 unless listed, 3 or 4.
    pub fn exponent(self) -> u8 {
        match &self.0 {
            b"BIF" | b"CLP" | b"DJF" | b"GNF" | b"ISK" | b"JPY" | b"KMF" | b"KRW" | b"PYG" | b"RWF"
            | b"UGX" | b"UYI" | b"VND" | b"VUV" | b"XAF" | b"XOF" | b"XPF" => 0,
            b"BHD" | b"IQD" | b"JOD" | b"KWD" | b"LYD" | b"OMR" | b"TND" => 3,
            b"CLF" | b"UYW" => 4,
            _ => 2,
        }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
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

    /// `units` counted with `exponent` digits behind the point, converted to the ISO exponent.
    pub fn with_exponent(units: i64, exponent: u8, currency: Currency) -> Result<Self, MoneyError> {
        let iso = currency.exponent();
        if exponent <= iso {
            let factor = 10_i64
                .checked_pow(u32::from(iso.saturating_sub(exponent)))
                .ok_or(MoneyError::TooLarge)?;
            return Ok(Self::new(
                units.checked_mul(factor).ok_or(MoneyError::TooLarge)?,
                currency,
            ));
        }
        let factor = 10_i64
            .checked_pow(u32::from(exponent.saturating_sub(iso)))
            .ok_or(MoneyError::TooLarge)?;
        match (units.checked_rem(factor), units.checked_div(factor)) {
            (Some(0), Some(minor)) => Ok(Self::new(minor, currency)),
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
        Ok(Self::new(
            if negative { minor.saturating_neg() } else { minor },
            currency,
        ))
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
    /// `{minor, currency}`, with `exponent` optional; one that is not the currency's own is refused.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            minor: i64,
            currency: Currency,
            exponent: Option<u8>,
        }
        let wire = Wire::deserialize(deserializer)?;
        let money = Self::new(wire.minor, wire.currency);
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
    fn people_see_the_point_in_the_right_place() {
        assert_eq!(Money::new(8888, Currency::CNY).to_string(), "88.88 CNY");
        assert_eq!(Money::new(-5, Currency::CNY).to_string(), "-0.05 CNY");
        assert_eq!(
            Money::new(500, Currency::new("JPY").unwrap()).to_string(),
            "500 JPY"
        );
    }
}
