//! What an Alipay event says: identity, money, facts.
//!
//! [`read`] understands the stored [`content`](super::content), at verification and whenever it is read again. The
//! status alone decides little: a partial refund is still `TRADE_SUCCESS`, and `TRADE_CLOSED` means "never paid" or
//! "all refunded" (design section 4.1).

use std::collections::BTreeMap;

use crate::event::{Currency, Fact, FactKind, Identity, Money, Reading, text};
use crate::time::{Timestamp, parse_local};

/// Beijing: no Alipay time names its zone.
const OFFSET_MINUTES: i32 = 8 * 60;

/// The longest provider event type that is carried.
const MAX_TYPE: usize = 100;

/// A time as Alipay writes it, with or without a fraction.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    parse_local("%Y-%m-%d %H:%M:%S%.f", text, OFFSET_MINUTES)
}

/// Whose notifications an account takes.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    /// `app_id`.
    pub(super) app_id: String,
    /// `seller_id`; absent: not checked.
    pub(super) seller_id: Option<String>,
}

/// What the event with this content says.
pub(super) fn read(content: &[u8], owner: &Owner) -> Result<Reading, String> {
    let parameters: BTreeMap<String, String> =
        serde_json::from_slice(content).map_err(|_| "the content is not a JSON object of text".to_owned())?;
    let parameters = Parameters(parameters);
    let read = parameters.reading(owner);
    Ok(read.unwrap_or_else(|why| Reading::unreadable(parameters.event_type(), why)))
}

struct Parameters(BTreeMap<String, String>);

/// The amounts of one event, all readable.
struct Amounts {
    total: Option<Money>,
    /// Cumulative, and only if it is above zero.
    refunded: Option<Money>,
}

impl Parameters {
    /// A parameter that is there and not empty.
    fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    fn id(&self, name: &str) -> Result<Option<String>, String> {
        text::id(self.get(name).unwrap_or_default()).map_err(|why| format!("{name} {why}"))
    }

    fn event_type(&self) -> String {
        let named = ["trade_status", "notify_type", "msg_method", "method"]
            .into_iter()
            .find_map(|name| self.get(name));
        text::storable(text::cut(named.unwrap_or("unknown"), MAX_TYPE)).into_owned()
    }

    fn time(&self, name: &str) -> Option<Timestamp> {
        self.get(name).and_then(time)
    }

    fn reading(&self, owner: &Owner) -> Result<Reading, String> {
        let status = self.get("trade_status");
        let mut reading = Reading {
            provider_event_type: self.event_type(),
            order_id: self.id("out_trade_no")?,
            trade_id: self.id("trade_no")?,
            refund_id: self.id("out_biz_no")?,
            identity: self.identity(owner),
            ..Reading::default()
        };
        reading.links = reading
            .trade_id
            .clone()
            .zip(reading.order_id.clone())
            .into_iter()
            .collect();
        match self.amounts(status) {
            Ok(amounts) => {
                reading.kind = self.kind(&amounts, &reading.provider_event_type);
                reading.amount = amounts.refunded.or(amounts.total);
                reading.facts = self.facts(&amounts, &reading);
            }
            Err(why) => {
                let unknown = Amounts {
                    total: None,
                    refunded: None,
                };
                reading.kind = self.kind(&unknown, &reading.provider_event_type);
                reading.amount_unreadable = Some(why);
            }
        }
        reading.occurred_at = self.occurred_at(&reading.kind);
        Ok(reading)
    }

    fn identity(&self, owner: &Owner) -> Identity {
        let other = |name: &str, mine: &str| self.get(name).is_some_and(|theirs| theirs != mine);
        if other("app_id", &owner.app_id) {
            return Identity::Mismatch("app_id is not this account's".to_owned());
        }
        if owner
            .seller_id
            .as_deref()
            .is_some_and(|mine| other("seller_id", mine))
        {
            return Identity::Mismatch("seller_id is not this account's".to_owned());
        }
        Identity::Ok
    }

    /// `total_amount` and `refund_fee`, in yuan unless the message names another currency.
    fn amounts(&self, status: Option<&str>) -> Result<Amounts, String> {
        let currency = match self.get("trans_currency").or_else(|| self.get("currency")) {
            Some(code) => Currency::new(code).map_err(|e| format!("the currency is unreadable: {e}"))?,
            None => Currency::CNY,
        };
        let amount = |name: &str| match self.get(name).map(|text| Money::parse_decimal(text, currency)) {
            None => Ok(None),
            Some(Ok(money)) if money.minor >= 0 => Ok(Some(money)),
            Some(Ok(_)) => Err(format!("{name} is negative")),
            Some(Err(e)) => Err(format!("{name} is unreadable: {e}")),
        };
        let total = amount("total_amount")?;
        let mut refunded = amount("refund_fee")?.filter(|money| money.minor > 0);
        // Closed after it was paid means refunded whole, even where no sum is named.
        if refunded.is_none() && status == Some("TRADE_CLOSED") && self.closed_after_payment() {
            refunded = total;
        }
        let paid = matches!(status, Some("TRADE_SUCCESS" | "TRADE_FINISHED"))
            || (status == Some("TRADE_CLOSED") && (refunded.is_some() || self.closed_after_payment()));
        if paid && total.is_none() {
            return Err("total_amount is missing, so nobody can tell what was paid".to_owned());
        }
        Ok(Amounts { total, refunded })
    }

    fn closed_after_payment(&self) -> bool {
        self.get("gmt_refund").is_some()
            || self.get("gmt_payment").is_some()
            || self.get("refund_status") == Some("REFUND_SUCCESS")
    }

    fn kind(&self, amounts: &Amounts, event_type: &str) -> String {
        if amounts.refunded.is_some() {
            return "refund.succeeded".to_owned();
        }
        match self.get("trade_status") {
            Some("TRADE_SUCCESS") => "payment.succeeded".to_owned(),
            Some("TRADE_FINISHED") => "payment.finished".to_owned(),
            Some("TRADE_CLOSED") => "payment.closed".to_owned(),
            Some("WAIT_BUYER_PAY") => "payment.processing".to_owned(),
            _ => format!("other.{}", event_type.to_lowercase()),
        }
    }

    fn facts(&self, amounts: &Amounts, reading: &Reading) -> Vec<Fact> {
        let Some(trade) = reading.trade_id.as_deref() else {
            return Vec::new();
        };
        let fact =
            |kind, what: &str| Fact::of_trade(kind, trade, what).for_order(reading.order_id.as_deref());
        let paid = || {
            fact(FactKind::PaymentSucceeded, "paid")
                .with_amount(amounts.total)
                .happened(self.time("gmt_payment"))
        };
        let refunded = || {
            amounts.refunded.map(|total| {
                let mut refunded = fact(
                    FactKind::RefundedTotal,
                    &format!("refunded_total:{}", total.minor),
                )
                .with_amount(Some(total))
                .happened(self.time("gmt_refund"));
                refunded.refund_id.clone_from(&reading.refund_id);
                refunded
            })
        };
        let ended = self.time("gmt_close");
        match self.get("trade_status") {
            Some("WAIT_BUYER_PAY") => {
                vec![fact(FactKind::PaymentProcessing, "processing").happened(self.time("gmt_create"))]
            }
            Some("TRADE_SUCCESS") => [Some(paid()), refunded()].into_iter().flatten().collect(),
            Some("TRADE_FINISHED") => {
                let finished = fact(FactKind::TradeFinished, "finished").happened(ended);
                [Some(paid()), Some(finished), refunded()]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            Some("TRADE_CLOSED") if amounts.refunded.is_some() => {
                [Some(paid()), refunded()].into_iter().flatten().collect()
            }
            Some("TRADE_CLOSED") => vec![fact(FactKind::TradeClosed, "closed").happened(ended)],
            _ => Vec::new(),
        }
    }

    /// When it happened: the time that belongs to the kind, else the first there is. `notify_time` is when
    /// this send was made and says nothing about that.
    fn occurred_at(&self, kind: &str) -> Option<Timestamp> {
        let own = match kind {
            "refund.succeeded" => "gmt_refund",
            "payment.closed" | "payment.finished" => "gmt_close",
            "payment.processing" => "gmt_create",
            _ => "gmt_payment",
        };
        [own, "gmt_payment", "gmt_refund", "gmt_close", "gmt_create"]
            .into_iter()
            .find_map(|name| self.time(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_pairs(pairs: &[(&str, &str)]) -> Reading {
        let base = [
            ("app_id", "app"),
            ("trade_no", "T1"),
            ("out_trade_no", "O1"),
            ("total_amount", "88.88"),
            ("gmt_create", "2024-03-01 10:00:00"),
        ];
        let all: BTreeMap<&str, &str> = base.into_iter().chain(pairs.iter().copied()).collect();
        let owner = Owner {
            app_id: "app".into(),
            seller_id: Some("2088".into()),
        };
        read(&serde_json::to_vec(&all).unwrap(), &owner).unwrap()
    }

    fn facts(reading: &Reading) -> Vec<(&str, Option<i64>)> {
        reading
            .facts
            .iter()
            .map(|f| (f.key.as_str(), f.amount.map(|m| m.minor)))
            .collect()
    }

    #[test]
    fn each_status_says_what_it_means() {
        let paid_at = ("gmt_payment", "2024-03-01 10:00:05");
        let success = read_pairs(&[("trade_status", "TRADE_SUCCESS"), paid_at]);
        assert_eq!(
            (success.kind.as_str(), facts(&success)),
            ("payment.succeeded", vec![("T1:paid", Some(8888))])
        );
        assert_eq!(success.occurred_at.unwrap().to_string(), "2024-03-01T02:00:05Z");
        assert_eq!(success.links, [("T1".to_owned(), "O1".to_owned())]);

        let refund = [
            ("trade_status", "TRADE_SUCCESS"),
            ("refund_fee", "30.00"),
            ("out_biz_no", "R1"),
            ("gmt_refund", "2024-03-02 09:00:00.123"),
            paid_at,
        ];
        let refund = read_pairs(&refund);
        assert_eq!(refund.kind, "refund.succeeded");
        assert_eq!(
            facts(&refund),
            [("T1:paid", Some(8888)), ("T1:refunded_total:3000", Some(3000))]
        );
        assert_eq!(refund.facts[1].refund_id.as_deref(), Some("R1"));
        assert_eq!(refund.amount.unwrap().minor, 3000);
        assert_eq!(
            refund.occurred_at.unwrap().to_string(),
            "2024-03-02T01:00:00.123Z"
        );

        let finished = read_pairs(&[
            ("trade_status", "TRADE_FINISHED"),
            ("refund_fee", "0.00"),
            paid_at,
        ]);
        assert_eq!(finished.kind, "payment.finished");
        assert_eq!(facts(&finished), [("T1:paid", Some(8888)), ("T1:finished", None)]);

        let finished = read_pairs(&[("trade_status", "TRADE_FINISHED"), ("refund_fee", "5"), paid_at]);
        assert_eq!(finished.kind, "refund.succeeded");
        assert_eq!(facts(&finished).len(), 3);

        let waiting = read_pairs(&[("trade_status", "WAIT_BUYER_PAY")]);
        assert_eq!(
            (waiting.kind.as_str(), facts(&waiting)),
            ("payment.processing", vec![("T1:processing", None)])
        );

        let unknown = read_pairs(&[("trade_status", "TRADE_PENDING")]);
        assert_eq!(
            (unknown.kind.as_str(), facts(&unknown)),
            ("other.trade_pending", vec![])
        );
    }

    #[test]
    fn closed_is_unpaid_only_where_nothing_speaks_of_payment() {
        let closed = ("trade_status", "TRADE_CLOSED");
        let unpaid = read_pairs(&[closed, ("gmt_close", "2024-03-01 12:00:00")]);
        assert_eq!(
            (unpaid.kind.as_str(), facts(&unpaid)),
            ("payment.closed", vec![("T1:closed", None)])
        );
        assert_eq!(unpaid.occurred_at.unwrap().to_string(), "2024-03-01T04:00:00Z");
        let whole = vec![("T1:paid", Some(8888)), ("T1:refunded_total:8888", Some(8888))];
        for sign in [
            ("refund_fee", "88.88"),
            ("gmt_refund", "2024-03-02 11:00:00.7"),
            ("gmt_payment", "x"),
            ("refund_status", "REFUND_SUCCESS"),
        ] {
            let refunded = read_pairs(&[closed, sign]);
            assert_eq!(
                (refunded.kind.as_str(), facts(&refunded)),
                ("refund.succeeded", whole.clone())
            );
        }
        assert_eq!(
            facts(&read_pairs(&[closed, ("refund_fee", "0.00")])),
            [("T1:closed", None)]
        );
    }

    #[test]
    fn money_that_does_not_fit_is_left_to_a_human() {
        for bad in ["88.888", "1e2", "-1.00", "", "８８", "10000000000000.01"] {
            let reading = read_pairs(&[("trade_status", "TRADE_SUCCESS"), ("total_amount", bad)]);
            assert!(reading.amount_unreadable.is_some(), "{bad}");
            assert!(reading.facts.is_empty() && reading.amount.is_none());
            assert_eq!(
                (reading.kind.as_str(), reading.links.len()),
                ("payment.succeeded", 1)
            );
        }
        let other = read_pairs(&[
            ("trade_status", "TRADE_SUCCESS"),
            ("trans_currency", "JPY"),
            ("total_amount", "500"),
        ]);
        assert_eq!(other.amount.unwrap().to_string(), "500 JPY");
        for unknown in ["yuan", "XYZ"] {
            let bad = read_pairs(&[("trade_status", "TRADE_SUCCESS"), ("trans_currency", unknown)]);
            assert!(
                bad.amount_unreadable.is_some() && bad.facts.is_empty(),
                "{unknown}"
            );
        }
    }

    #[test]
    fn an_id_that_cannot_be_used_is_said_and_nothing_else_is() {
        for (name, value, why) in [
            ("out_trade_no", "x".repeat(256), "out_trade_no is longer"),
            ("trade_no", "T\u{fffd}".to_owned(), "trade_no holds a character"),
            ("out_biz_no", "R\0".to_owned(), "out_biz_no holds a character"),
        ] {
            let reading = read_pairs(&[("trade_status", "TRADE_SUCCESS"), (name, &value)]);
            assert!(
                reading.unreadable.is_some_and(|said| said.starts_with(why)),
                "{name}"
            );
            assert!(reading.facts.is_empty() && reading.links.is_empty());
            assert_eq!(
                (&*reading.kind, &*reading.provider_event_type),
                ("other.unreadable", "TRADE_SUCCESS")
            );
        }
    }

    #[test]
    fn another_owner_is_a_mismatch_and_a_missing_field_is_none() {
        let identity = |pairs: &[(&str, &str)]| read_pairs(pairs).identity;
        assert_eq!(identity(&[("seller_id", "2088")]), Identity::Ok);
        assert_eq!(identity(&[]), Identity::Ok);
        assert_eq!(identity(&[("app_id", "")]), Identity::Ok);
        assert!(matches!(
            identity(&[("seller_id", "2089")]),
            Identity::Mismatch(_)
        ));
        assert!(matches!(identity(&[("app_id", "app2")]), Identity::Mismatch(_)));
    }
}
