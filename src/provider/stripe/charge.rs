//! What a payment intent or a charge says was taken, and what of it went back.
//!
//! Before API version 2025-03-31 (basil) Stripe writes a Refund for the part of an authorisation that a capture
//! leaves behind, and counts it in `amount_refunded`. That part was never taken. It is told here as
//! `authorisation_released`, and the orders take one refund of exactly that amount for the release. The version
//! is the endpoint's and not that of the request that captured, so figures decide where they can:
//!
//! | a captured charge, `rest` = `amount` - `amount_captured` | `amount_refunded` counts the release |
//! |---|---|
//! | `amount_refunded` > `amount_captured` | yes: no more than what was taken can go back |
//! | `amount_refunded` < `rest` | no |
//! | otherwise | by the version |
//!
//! With multicapture a charge is `captured` while more of it may be taken. Then only the payment intent tells what
//! was taken, and a total that may count a release waits for it (`refunded_or_released_total`).

use serde_json::value::RawValue;

use super::facts::{Case, Said, created};
use super::payload::Object;
use crate::event::{Fact, FactKind, Money};
use crate::provider::raw_json;

/// What a captured charge amounts to.
struct Figures {
    taken: Money,
    rest: Money,
    refunded: Money,
}

impl Case<'_> {
    /// A succeeded intent; nothing of it can be captured any more.
    pub(super) fn intent_paid(&self) -> Result<Said, String> {
        let mut said = self.paid("amount_received", self.object.amount_received)?;
        let taken = said.amount.map_or(0, |taken| taken.minor);
        said.facts.extend(self.released(self.rest(taken), taken));
        Ok(said)
    }

    /// Whether a canceled intent had been captured in part: what was taken stays.
    pub(super) fn was_captured_in_part(&self) -> bool {
        let received = raw_json::integer(self.object.amount_received);
        let amount = raw_json::integer(self.object.amount);
        received.is_some_and(|received| received > 0) && received < amount
    }

    /// With a payment intent the intent's own event says it; an uncaptured charge is a promise only.
    pub(super) fn charge_paid(&self) -> Result<Said, String> {
        if self.object.payment_intent().is_some() || raw_json::boolean(self.object.captured) != Some(true) {
            return Ok(Said::default());
        }
        let mut said = self.paid("amount_captured", self.captured())?;
        let taken = said.amount.map_or(0, |taken| taken.minor);
        said.facts.extend(self.released(self.rest(taken), taken));
        Ok(said)
    }

    /// `amount_captured`; charges of very old API versions have `amount` only.
    fn captured(&self) -> Option<&RawValue> {
        self.object.amount_captured.or(self.object.amount)
    }

    /// What of `amount` is more than `taken`, if there is any.
    fn rest(&self, taken: i64) -> Option<Money> {
        let mut rest = self.object.money("amount", self.object.amount).ok()?;
        rest.minor = rest.minor.saturating_sub(taken);
        (rest.minor > 0).then_some(rest)
    }

    /// The release of `rest`, if there may be a refund that stands for it. A refund of more than was taken cannot
    /// be anything else, whatever the version.
    fn released(&self, rest: Option<Money>, taken: i64) -> Option<Fact> {
        let rest = rest.filter(|rest| self.releases_are_refunds || rest.minor > taken)?;
        self.release(rest)
    }

    fn release(&self, amount: Money) -> Option<Fact> {
        let key = format!("released:{}", amount.minor);
        let fact = self.about_trade(FactKind::AuthorisationReleased, &key)?;
        Some(fact.with_amount(Some(amount)))
    }

    /// Cumulative; pending refunds are counted from the moment they are asked for.
    pub(super) fn charge_refunded(&self) -> Result<Said, String> {
        if raw_json::boolean(self.object.captured) != Some(true) {
            return Ok(Said::default());
        }
        let taken = self.object.money("amount_captured", self.captured())?;
        let none = Money { minor: 0, ..taken };
        let figures = Figures {
            taken,
            rest: self.rest(taken.minor).unwrap_or(none),
            refunded: self
                .object
                .money("amount_refunded", self.object.amount_refunded)?,
        };
        let mut said = if figures.rest.minor > 0
            && figures.refunded.minor <= figures.taken.minor
            && self.object.has_multicapture()
        {
            self.refunded_between_captures(&figures)
        } else {
            self.refunded_after_capture(&figures)
        };
        for refund in self.object.refunds()? {
            said.facts
                .extend(self.refund_facts(&Object::read(&refund)?)?.facts);
        }
        Ok(said)
    }

    fn refunded_between_captures(&self, figures: &Figures) -> Said {
        let refunded = figures.refunded;
        if self.releases_are_refunds && refunded.minor >= figures.rest.minor {
            let key = format!("refunded_or_released_total:{}", refunded.minor);
            let total = self.about_trade(FactKind::RefundedOrReleasedTotal, &key);
            return Said {
                facts: total
                    .map(|fact| fact.with_amount(Some(refunded)))
                    .into_iter()
                    .collect(),
                ..Said::default()
            };
        }
        self.refunded_total(refunded)
    }

    fn refunded_after_capture(&self, figures: &Figures) -> Said {
        let Figures {
            taken,
            rest,
            refunded,
        } = figures;
        let counts_release =
            refunded.minor > taken.minor || self.releases_are_refunds && refunded.minor >= rest.minor;
        let (release, total) = if counts_release {
            (Some(*rest), refunded.minor.saturating_sub(rest.minor))
        } else {
            // The version would have it released, and it was not.
            let kept = Money { minor: 0, ..*rest };
            (self.releases_are_refunds.then_some(kept), refunded.minor)
        };
        let total = total.min(taken.minor);
        let mut said = self.refunded_total(Money {
            minor: total,
            ..*refunded
        });
        let paid = self.about_trade(FactKind::PaymentSucceeded, "paid");
        let paid = paid.map(|fact| {
            let paid_at = created(self.object.created);
            fact.with_amount(Some(*taken)).happened(paid_at)
        });
        let release = release
            .filter(|_| rest.minor > 0)
            .and_then(|amount| self.release(amount));
        said.facts = paid.into_iter().chain(release).chain(said.facts).collect();
        said
    }

    fn refunded_total(&self, total: Money) -> Said {
        if total.minor == 0 {
            return Said::default();
        }
        let key = format!("refunded_total:{}", total.minor);
        let fact = self.about_trade(FactKind::RefundedTotal, &key);
        Said {
            kind: Some("refund.succeeded"),
            amount: Some(total),
            facts: fact
                .map(|fact| fact.with_amount(Some(total)))
                .into_iter()
                .collect(),
            ..Said::default()
        }
    }

    pub(super) fn refund(&self) -> Result<Said, String> {
        self.refund_facts(self.object)
    }

    /// By status. A refund can fail after it succeeded; `failure_balance_transaction` says that the money had
    /// left and came back. An authorisation that lapsed took nothing, so nothing of it can go back.
    fn refund_facts(&self, refund: &Object<'_>) -> Result<Said, String> {
        let Some(id) = refund.id() else {
            return Ok(Said::default());
        };
        let status = raw_json::text(refund.status).unwrap_or_default();
        let reason = raw_json::text(refund.reason);
        let (kind, failed) = match &*status {
            _ if reason.as_deref() == Some("expired_uncaptured_charge") => (None, false),
            "succeeded" => (Some("refund.succeeded"), false),
            "failed" | "canceled" => (Some("refund.failed"), true),
            _ => (None, false),
        };
        let amount = Some(refund.money("amount", refund.amount)?);
        let fact = |kind, what| {
            Fact::of_refund(kind, self.trade, &id, what)
                .with_amount(amount)
                .happened(self.at)
        };
        let mut facts = Vec::new();
        if kind.is_some() && (!failed || refund.failure_balance_transaction.is_some()) {
            facts.push(fact(FactKind::RefundSucceeded, "refunded"));
        }
        if failed {
            let reason = raw_json::text(refund.failure_reason).or(reason);
            facts.push(fact(FactKind::RefundFailed, "refund_failed").because(reason.as_deref()));
        }
        Ok(Said {
            kind,
            amount,
            refund_id: Some(id),
            facts,
        })
    }
}
