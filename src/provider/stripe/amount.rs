//! Amounts: in Stripe's own minor units on the wire, in ISO 4217's from here on.

use serde_json::value::RawValue;

use super::payload::Object;
use crate::event::{Currency, Money};
use crate::provider::raw_json;

impl Object<'_> {
    /// `units` of the object's currency.
    pub(super) fn money(&self, name: &str, units: Option<&RawValue>) -> Result<Money, String> {
        let code = raw_json::text(self.currency).ok_or("the currency is missing")?;
        let currency = Currency::new(&code).map_err(|error| format!("the currency is {error}"))?;
        let units = raw_json::integer(units).filter(|units| *units >= 0);
        let units = units.ok_or_else(|| format!("{name} is missing or no whole number of units"))?;
        Money::with_exponent(units, exponent(currency), currency)
            .map_err(|error| format!("{name} of {currency} {error}"))
    }
}

/// The digits behind the point that Stripe counts with. UGX and ISK have none any more, but are still sent as
/// if they had two; MGA has a fifth as its smallest unit and is sent whole.
fn exponent(currency: Currency) -> u8 {
    match currency.as_str() {
        "BIF" | "CLP" | "DJF" | "GNF" | "JPY" | "KMF" | "KRW" | "MGA" | "PYG" | "RWF" | "VND" | "VUV"
        | "XAF" | "XOF" | "XPF" => 0,
        "BHD" | "JOD" | "KWD" | "OMR" | "TND" => 3,
        _ => 2,
    }
}
