//! Disputes (`notifyDispute`), which name neither a `notifyType` nor a result.

use super::facts::{Body, MAX_TYPE};
use crate::event::{Fact, FactKind, Reading, text};

impl Body {
    /// payhook's type and fact of a dispute, for what is mapped. One that Visa resolves on the spot is lost from the start.
    pub(super) fn disputed(&self) -> Option<(&'static str, FactKind)> {
        let judged = self.text("disputeJudgedResult");
        match (self.text("disputeNotificationType")?, judged) {
            ("DISPUTE_CREATED", _) => Some(("dispute.opened", FactKind::DisputeOpened)),
            ("DISPUTE_CANCELLED", _)
            | ("DISPUTE_JUDGED", Some("ACCEPT_BY_CUSTOMER" | "VALIDATE_SUCCESS")) => {
                Some(("dispute.closed", FactKind::DisputeWon))
            }
            ("RDR_RESOLVED", _) | ("DISPUTE_JUDGED", Some("ACCEPT_BY_MERCHANT")) => {
                Some(("dispute.closed", FactKind::DisputeLost))
            }
            _ => None,
        }
    }

    /// Puts the fact of a dispute into `reading`. Only a loss takes money: what the judgement says, else all that was
    /// disputed.
    pub(super) fn dispute(&self, kind: FactKind, reading: &mut Reading) -> Result<(), String> {
        reading.occurred_at = self.time(&["disputeJudgedTime", "disputeTime"]);
        let lost = kind == FactKind::DisputeLost;
        let judged = lost && self.0.contains_key("disputeJudgedAmount");
        let amount = self.amount(if judged {
            "disputeJudgedAmount"
        } else {
            "disputeAmount"
        });
        reading.amount = amount.as_ref().ok().copied();
        match (amount, self.id("disputeId")?) {
            (Err(why), _) if lost => reading.amount_unreadable = Some(why),
            (_, Some(id)) => reading.facts.push(
                Fact::of_refund(kind, reading.trade_id.as_deref(), &id, kind.as_str())
                    .for_order(reading.order_id.as_deref())
                    .with_amount(reading.amount)
                    .happened(reading.occurred_at)
                    .because(self.text("disputeReasonMsg").map(|why| text::cut(why, MAX_TYPE))),
            ),
            (_, None) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Capture;

    #[test]
    fn disputes_go_by_their_judgement() {
        let dispute = |notification: &str, judged: &str| {
            Body::read(format!(
                r#"{{"disputeNotificationType":"{notification}","paymentRequestId":"O","paymentId":"T","disputeId":"D",
                   "disputeAmount":{{"currency":"USD","value":"1000"}}{judged}}}"#
            ).as_bytes())
            .unwrap()
            .reading(Capture::Auto)
        };
        let judged = |result: &str| {
            format!(
                r#","disputeJudgedResult":"{result}","disputeJudgedAmount":{{"currency":"USD","value":"700"}}"#
            )
        };
        let (nothing, theirs, ours) = (
            String::new(),
            judged("ACCEPT_BY_CUSTOMER"),
            judged("ACCEPT_BY_MERCHANT"),
        );
        for (notification, more, kind, minor) in [
            ("DISPUTE_CREATED", &nothing, FactKind::DisputeOpened, 1000),
            ("DISPUTE_CANCELLED", &nothing, FactKind::DisputeWon, 1000),
            ("DISPUTE_JUDGED", &theirs, FactKind::DisputeWon, 1000),
            ("DISPUTE_JUDGED", &ours, FactKind::DisputeLost, 700),
            ("RDR_RESOLVED", &nothing, FactKind::DisputeLost, 1000),
        ] {
            let reading = dispute(notification, more);
            let opened = kind == FactKind::DisputeOpened;
            assert_eq!(
                reading.kind,
                if opened {
                    "dispute.opened"
                } else {
                    "dispute.closed"
                }
            );
            let fact = &reading.facts[0];
            assert_eq!(
                (
                    fact.kind,
                    fact.refund_id.as_deref(),
                    fact.amount.map(|money| money.minor)
                ),
                (kind, Some("D"), Some(minor))
            );
        }
        for (notification, more) in [("DEFENSE_DUE_ALERT", ""), ("DISPUTE_JUDGED", "")] {
            let reading = dispute(notification, more);
            assert_eq!(reading.kind, format!("other.{}", notification.to_lowercase()));
            assert!(reading.facts.is_empty());
        }
        let silent =
            Body::read(br#"{"disputeNotificationType":"RDR_RESOLVED","paymentId":"T","disputeId":"D"}"#)
                .unwrap()
                .reading(Capture::Auto);
        assert!(silent.amount_unreadable.is_some() && silent.facts.is_empty());
    }
}
