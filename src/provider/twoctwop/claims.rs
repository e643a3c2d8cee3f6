//! What the claims of a backend notification say (design section 4.1, 2C2P mapping).
//!
//! Response codes are per API: these are the backend notification's and nobody else's. Claims come and go
//! between versions, so each is read for itself; an amount is a decimal text whether it is quoted or not.
//!
//! Nothing in a success (0000) says whether it is a sale or an authorisation; with `capture = "manual"` it is an
//! authorisation, and the settlement (4110) is the payment. A success over nothing is the verification of a card that
//! is stored without a payment: it says nothing about an order.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::Capture;
use crate::event::{Currency, EventKey, Fact, FactKind, Fingerprint, Identity, Money, Reading, text};
use crate::provider::raw_json;
use crate::time::parse_local;

/// The account's settings that a reading depends on.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) merchant_id: String,
    pub(super) utc_offset_minutes: i32,
    pub(super) capture: Capture,
}

impl Rules {
    /// The response code that says that a payment was made.
    fn payment_code(&self) -> &'static str {
        match self.capture {
            Capture::Auto => "0000",
            Capture::Manual => "4110",
        }
    }
}

/// The claims payhook reads, each as it was written.
#[derive(Deserialize)]
pub(super) struct Claims<'a> {
    #[serde(borrow, rename = "merchantID")]
    merchant_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "invoiceNo")]
    invoice_no: Option<&'a RawValue>,
    #[serde(borrow)]
    amount: Option<&'a RawValue>,
    #[serde(borrow, rename = "currencyCode")]
    currency_code: Option<&'a RawValue>,
    #[serde(borrow, rename = "transactionDateTime")]
    transaction_date_time: Option<&'a RawValue>,
    #[serde(borrow, rename = "tranRef")]
    tran_ref: Option<&'a RawValue>,
    #[serde(borrow, rename = "respCode")]
    resp_code: Option<&'a RawValue>,
    #[serde(borrow, rename = "respDesc")]
    resp_desc: Option<&'a RawValue>,
}

/// What a response code means for the payment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    Paid,
    Processing,
    Failed,
    Refunded,
    RefundFailed,
    Chargeback,
    Unmapped,
}

impl Code {
    /// A code that is not listed moves nothing: it is never taken for a failure.
    fn of(code: &str) -> Self {
        match code {
            "0000" | "4110" => Self::Paid,
            "0001" | "0004" | "2001" => Self::Processing,
            "4120" => Self::Refunded,
            "4121" | "4122" => Self::RefundFailed,
            "4130" => Self::Chargeback,
            "0003" | "0999" | "2003" | "5002" | "5009" => Self::Failed,
            _ if code.len() == 4 && code.starts_with("40") && code != "4000" && all_digits(code) => {
                Self::Failed
            }
            _ => Self::Unmapped,
        }
    }

    /// payhook's type. The settlement (4110) repeats a payment that 0000 reported, unless that was an authorisation,
    /// and a payment has one `payment.succeeded` only.
    fn kind(self, code: &str, payment_code: &str) -> String {
        match self {
            Self::Paid if code == payment_code => "payment.succeeded".to_owned(),
            Self::Processing => "payment.processing".to_owned(),
            Self::Failed => "payment.failed".to_owned(),
            Self::Refunded => "refund.succeeded".to_owned(),
            Self::RefundFailed => "refund.failed".to_owned(),
            Self::Chargeback => "dispute.opened".to_owned(),
            _ if code.is_empty() => "other.no_resp_code".to_owned(),
            Self::Paid | Self::Unmapped => format!("other.{}", code.to_lowercase()),
        }
    }
}

fn event_type(resp_code: &str) -> String {
    text::cut(&text::storable(resp_code), 128).to_owned()
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

impl<'a> Claims<'a> {
    /// Reads the claims' JSON text; an error is a reason in words.
    pub(super) fn read(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            format!(
                "the claims cannot be read at line {} column {}",
                error.line(),
                error.column()
            )
        })
    }

    fn resp_code(&self) -> Cow<'a, str> {
        written(self.resp_code).unwrap_or_default()
    }

    /// `{invoiceNo}:{tranRef}:{respCode}`, and the amount where several of one code are legitimate.
    pub(super) fn key_id(&self) -> Option<String> {
        let invoice = written(self.invoice_no)?;
        let tran_ref = written(self.tran_ref)?;
        let code = written(self.resp_code)?;
        if Code::of(&code) == Code::Refunded {
            EventKey::joined(&[&invoice, &tran_ref, &code, &written(self.amount)?])
        } else {
            EventKey::joined(&[&invoice, &tran_ref, &code])
        }
    }

    /// What they say.
    pub(super) fn reading(&self, rules: &Rules) -> Reading {
        let read = self.understood(rules);
        read.unwrap_or_else(|why| Reading::unreadable(event_type(&self.resp_code()), why))
    }

    fn order_id(&self) -> Result<Option<String>, String> {
        let invoice = written(self.invoice_no).unwrap_or_default();
        text::id(&invoice).map_err(|why| format!("invoiceNo {why}"))
    }

    /// `merchantID:invoiceNo:tranRef`; a `:` in the first or the last would let two payments have one id.
    fn trade_id(&self, merchant: &str, order: &str) -> Result<Option<String>, String> {
        let tran_ref = written(self.tran_ref)
            .filter(|id| !id.is_empty())
            .unwrap_or(Cow::Borrowed("-"));
        for (name, part) in [("merchantID", merchant), ("tranRef", &*tran_ref)] {
            if part.contains(':') {
                return Err(format!(
                    "{name} holds a ':', so that it does not identify a payment"
                ));
            }
        }
        text::id(&format!("{merchant}:{order}:{tran_ref}"))
            .map_err(|why| format!("merchantID:invoiceNo:tranRef {why}"))
    }

    fn understood(&self, rules: &Rules) -> Result<Reading, String> {
        let resp_code = self.resp_code();
        let money = self.money();
        let nothing = money.as_ref().is_ok_and(|money| money.minor == 0);
        let code = match Code::of(&resp_code) {
            Code::Paid if nothing => Code::Unmapped,
            Code::Paid if resp_code == "0000" && rules.capture == Capture::Manual => Code::Processing,
            code => code,
        };
        let merchant = written(self.merchant_id).unwrap_or(Cow::Borrowed(&rules.merchant_id));
        let order_id = self.order_id()?;
        let at = raw_json::text(self.transaction_date_time)
            .filter(|text| text.len() == 14 && all_digits(text))
            .and_then(|text| parse_local("%Y%m%d%H%M%S", &text, rules.utc_offset_minutes));
        let trade_id = match order_id.as_deref() {
            Some(order) => self.trade_id(&merchant, order)?,
            None => None,
        };
        let mut reading = Reading {
            kind: text::cut(&text::storable(&code.kind(&resp_code, rules.payment_code())), 128).to_owned(),
            provider_event_type: event_type(&resp_code),
            links: trade_id.clone().zip(order_id.clone()).into_iter().collect(),
            occurred_at: at,
            identity: identity(&merchant, rules),
            order_id,
            trade_id,
            ..Reading::default()
        };
        if code == Code::Unmapped && nothing {
            reading.links.clear();
        }
        match money {
            Ok(amount) => {
                reading.amount = Some(amount);
                self.state(&mut reading, code, Some(amount));
            }
            Err(why) if code.moves_money() => reading.amount_unreadable = Some(why),
            Err(_) => self.state(&mut reading, code, None),
        }
        Ok(reading)
    }

    /// Puts the facts of `code` into `reading`.
    fn state(&self, reading: &mut Reading, code: Code, amount: Option<Money>) {
        let Some(trade) = reading.trade_id.clone() else {
            return;
        };
        let resp_code = &reading.provider_event_type;
        let of_trade = |kind, what: &str| Fact::of_trade(kind, &trade, what);
        let refund = format!("{trade}:{}", amount.map(|money| money.minor).unwrap_or_default());
        let of_refund =
            |kind, id: &str, what: &str| Fact::of_refund(kind, Some(&trade), id, what).with_amount(amount);
        let facts = match code {
            Code::Paid => vec![of_trade(FactKind::PaymentSucceeded, "paid").with_amount(amount)],
            Code::Processing => vec![of_trade(
                FactKind::PaymentProcessing,
                &format!("processing:{resp_code}"),
            )],
            Code::Failed => vec![of_trade(FactKind::PaymentFailed, &format!("failed:{resp_code}"))],
            Code::Refunded => {
                reading.refund_id = Some(refund.clone());
                vec![of_refund(FactKind::RefundSucceeded, &refund, "refunded")]
            }
            // A rejected request has an id of its own: another request for the same amount may succeed, and
            // success and failure of one id would read as a refund that came back.
            Code::RefundFailed => {
                let rejected = format!("{refund}:{resp_code}");
                let fact = of_refund(FactKind::RefundFailed, &rejected, "refund_failed");
                reading.refund_id = Some(rejected);
                vec![fact]
            }
            Code::Chargeback => [FactKind::DisputeOpened, FactKind::DisputeFundsWithdrawn]
                .map(|kind| of_refund(kind, &trade, kind.as_str()))
                .into(),
            Code::Unmapped => Vec::new(),
        };
        let reason =
            raw_json::text(self.resp_desc).filter(|_| matches!(code, Code::Failed | Code::RefundFailed));
        let finish = |fact: Fact| {
            fact.for_order(reading.order_id.as_deref())
                .happened(reading.occurred_at)
                .because(reason.as_deref())
        };
        reading.facts = facts.into_iter().map(finish).collect();
    }

    fn money(&self) -> Result<Money, String> {
        let code = raw_json::text(self.currency_code).ok_or("currencyCode is missing")?;
        let currency = Currency::new(&code).map_err(|error| format!("currencyCode is {error}"))?;
        let amount = written(self.amount).ok_or("amount is missing")?;
        let money = Money::parse_decimal(&amount, currency)
            .map_err(|error| format!("amount in {currency}: {error}"))?;
        if money.minor < 0 {
            Err("amount is negative".to_owned())
        } else {
            Ok(money)
        }
    }
}

impl Code {
    fn moves_money(self) -> bool {
        matches!(
            self,
            Self::Paid | Self::Refunded | Self::RefundFailed | Self::Chargeback
        )
    }
}

fn identity(merchant: &str, rules: &Rules) -> Identity {
    if merchant == rules.merchant_id {
        Identity::Ok
    } else {
        Identity::Mismatch("merchantID is another one than the account's".to_owned())
    }
}

/// A string's text, or a number as it was written; never through a float.
fn written(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let raw = value?.get();
    if raw.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return Some(Cow::Borrowed(raw));
    }
    raw_json::text(value)
}

/// What must be equal for a duplicate: the claims, but for their layout.
pub(super) fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::over([raw_json::compact(text).as_slice()])
}
