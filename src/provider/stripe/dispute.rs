//! Disputes: what they take, and what comes back.

use serde_json::value::RawValue;

use super::facts::{Case, Said};
use crate::event::{Fact, FactKind, Money};
use crate::provider::raw_json;

impl Case<'_> {
    pub(super) fn dispute(&self, kind: FactKind, name: Option<&'static str>) -> Result<Said, String> {
        let amount = self.object.money("amount", self.object.amount)?;
        Ok(self.dispute_of(kind, name, amount))
    }

    fn dispute_of(&self, kind: FactKind, name: Option<&'static str>, amount: Money) -> Said {
        let reason = raw_json::text(self.object.reason);
        let fact = self.object.id().map(|id| {
            Fact::of_refund(kind, self.trade, &id, kind.as_str())
                .with_amount(Some(amount))
                .happened(self.at)
                .because(reason.as_deref())
        });
        Said {
            kind: name,
            amount: Some(amount),
            facts: fact.into_iter().collect(),
            ..Said::default()
        }
    }

    /// A dispute takes the whole payment, and what was refunded before comes back even when it is lost: the object's
    /// own amount is then too much.
    pub(super) fn reinstated(&self) -> Result<Said, String> {
        let amount = match self.came_back() {
            Some(units) => self.object.money("balance_transactions", Some(units))?,
            None if raw_json::text(self.object.status).is_some_and(|status| status == "lost") => {
                return Err(
                    "a lost dispute gave back what balance_transactions do not say in its currency"
                        .to_owned(),
                );
            }
            None => self.object.money("amount", self.object.amount)?,
        };
        Ok(self.dispute_of(FactKind::DisputeFundsReinstated, None, amount))
    }

    /// The one balance transaction that brings money, if it does so in the dispute's currency.
    fn came_back(&self) -> Option<&RawValue> {
        let moved: Vec<&RawValue> = serde_json::from_str(self.object.balance_transactions?.get()).ok()?;
        let member = |moved, name| raw_json::member(moved, name).ok().flatten();
        let mut bring = moved
            .into_iter()
            .filter(|moved| raw_json::integer(member(moved, "amount")).is_some_and(|units| units > 0));
        let (one, more) = (bring.next()?, bring.next());
        let alike = raw_json::text(member(one, "currency")) == raw_json::text(self.object.currency);
        member(one, "amount").filter(|_| alike && more.is_none())
    }

    /// An inquiry that is closed without a dispute ends in the merchant's favour, and so does a dispute that was
    /// prevented or given up for a refund: it takes nothing, the refund is told as one.
    pub(super) fn dispute_closed(&self) -> Result<Said, String> {
        let closed = Some("dispute.closed");
        match &*raw_json::text(self.object.status).unwrap_or_default() {
            "won" | "warning_closed" | "prevented" | "charge_refunded" => {
                self.dispute(FactKind::DisputeWon, closed)
            }
            "lost" => self.dispute(FactKind::DisputeLost, closed),
            _ => Ok(Said {
                kind: closed,
                ..Said::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::facts::{Rules, read};
    use super::super::payload::Payload;
    use super::super::scope::Scope;
    use crate::event::{FactKind, Reading};

    fn says(kind: &str, object: &Value) -> Reading {
        let event = json!({ "id": "evt_1", "object": "event", "type": kind, "created": 1, "data": { "object": object } });
        let rules = Rules {
            order_id_from: Vec::new(),
            scope: Scope::default(),
        };
        read(&Payload::read(&event.to_string()).unwrap(), &rules)
    }

    fn dispute(status: &str, moved: &Value) -> Value {
        json!({ "id": "dp_1", "object": "dispute", "amount": 1000, "currency": "usd", "payment_intent": "pi_1",
                "status": status, "balance_transactions": moved })
    }

    #[test]
    fn a_dispute_that_took_nothing_is_closed() {
        for status in ["won", "warning_closed", "prevented", "charge_refunded"] {
            let reading = says("charge.dispute.closed", &dispute(status, &json!([])));
            assert_eq!(reading.facts[0].kind, FactKind::DisputeWon, "{status}");
        }
    }

    #[test]
    fn a_lost_dispute_gives_back_what_the_balance_says() {
        let kind = "charge.dispute.funds_reinstated";
        let moved = |back: i64, currency: &str| json!([{ "amount": -1000, "currency": currency }, { "amount": back, "currency": currency }]);
        let came_back = |status, moved: &Value| {
            let reading = says(kind, &dispute(status, moved));
            let fact = reading.facts.first().and_then(|fact| fact.amount);
            (fact.map(|money| money.minor), reading.amount_unreadable.is_some())
        };
        assert_eq!(came_back("lost", &moved(400, "usd")), (Some(400), false));
        assert_eq!(came_back("won", &moved(1000, "usd")), (Some(1000), false));
        // The account is paid in another currency: all of it came back, or nobody can tell how much.
        assert_eq!(came_back("won", &moved(900, "eur")), (Some(1000), false));
        for untold in [moved(360, "eur"), json!([]), json!(null), json!("x")] {
            assert_eq!(came_back("lost", &untold), (None, true), "{untold}");
        }
    }

    #[test]
    fn a_charge_without_a_payment_intent_fails_and_lapses_by_itself() {
        let kinds = |intent: &Value| {
            let charge = json!({ "id": "ch_1", "object": "charge", "amount": 1000, "currency": "usd",
                "payment_intent": intent, "captured": false });
            ["charge.failed", "charge.expired"]
                .map(|kind| says(kind, &charge).facts.first().map(|fact| fact.kind))
        };
        assert_eq!(
            kinds(&json!(null)),
            [Some(FactKind::PaymentFailed), Some(FactKind::TradeClosed)]
        );
        assert_eq!(kinds(&json!("pi_1")), [None, None]);
    }
}
