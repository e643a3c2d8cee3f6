//! A small model of Stripe's payment intent, charge and refunds: plays what a merchant and a card network do, and
//! keeps the events that an endpoint of one API version gets for it, with cumulative figures as they stood.

use payhook::event::Notification;
use serde_json::{Value, json};

use crate::support::signed::Senders;

/// What an endpoint's API version makes of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Charges list their refunds.
    Listed,
    /// Charges tell only totals; a refund by itself is told only when it changes.
    Totals,
    /// Each refund is told by itself from the beginning, and so is a release.
    ById,
    /// A release is no refund any more.
    NoRelease,
}

impl Generation {
    fn version(self) -> &'static str {
        match self {
            Self::Listed => "2020-08-27",
            Self::Totals => "2024-06-20",
            Self::ById => "2025-02-24.acacia",
            Self::NoRelease => "2025-09-30.clover",
        }
    }

    fn releases_are_refunds(self) -> bool {
        self != Self::NoRelease
    }

    fn tells_each_refund(self) -> bool {
        matches!(self, Self::ById | Self::NoRelease)
    }
}

/// How a pending refund ends, or a succeeded one after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Succeeds,
    /// The money had left the balance and came back.
    FailsWithBalanceTransaction,
    FailsWithout,
    IsCanceled,
}

/// One thing that happens; what is impossible at its moment does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Of the authorised amount, in percent; over 100 is an overcapture.
    Capture {
        percent: i64,
        last: bool,
    },
    /// Raises the authorised amount.
    Increment,
    /// Of what was captured, in percent.
    Refund {
        percent: i64,
        pending: bool,
    },
    /// Refunds exactly as much as is not captured.
    RefundTheRest,
    End {
        which: usize,
        how: Ending,
    },
    Cancel {
        expired: bool,
    },
}

#[derive(Clone, Debug)]
struct Refund {
    id: String,
    amount: i64,
    status: &'static str,
    reason: Option<&'static str>,
    came_back: bool,
    release: bool,
}

impl Refund {
    fn is_live(&self) -> bool {
        !matches!(self.status, "failed" | "canceled")
    }

    fn object(&self, o: &str) -> Value {
        let back = self.came_back.then(|| format!("txn_back_{}", self.id));
        json!({ "id": self.id, "object": "refund", "amount": self.amount, "currency": "usd", "status": self.status,
                "charge": format!("ch_{o}"), "payment_intent": format!("pi_{o}"), "reason": self.reason,
                "balance_transaction": format!("txn_{}", self.id), "failure_balance_transaction": back,
                "metadata": {} })
    }
}

/// One payment of the order `o`.
#[derive(Debug)]
pub(crate) struct Payment {
    generation: Generation,
    o: String,
    multicapture: bool,
    amount: i64,
    captured: i64,
    captures: i64,
    is_final: bool,
    is_canceled: bool,
    refunds: Vec<Refund>,
    clock: i64,
    pub(crate) events: Vec<Notification>,
}

/// What an order must have come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) is_canceled: bool,
    pub(crate) paid: i64,
    /// Every refund that was asked for.
    pub(crate) refunded: i64,
    /// Those that failed.
    pub(crate) reversed: i64,
}

impl Payment {
    /// Authorised, not captured.
    pub(crate) fn new(generation: Generation, o: &str, multicapture: bool) -> Self {
        let mut payment = Self {
            generation,
            o: o.to_owned(),
            multicapture,
            amount: 2000,
            captured: 0,
            captures: 0,
            is_final: false,
            is_canceled: false,
            refunds: Vec::new(),
            clock: 1_795_925_000,
            events: Vec::new(),
        };
        payment.tell("charge.succeeded", &payment.charge());
        payment.tell("payment_intent.amount_capturable_updated", &payment.intent());
        payment
    }

    pub(crate) fn play(&mut self, step: Step) {
        self.clock += 1;
        let live: i64 = self
            .given_back()
            .filter(|refund| refund.is_live())
            .map(|refund| refund.amount)
            .sum();
        let left = self.captured - live;
        match step {
            Step::Capture { percent, last } => self.capture(percent, last),
            Step::Increment if self.captured == 0 && !self.is_canceled => {
                self.amount += 700;
                self.tell("payment_intent.amount_capturable_updated", &self.intent());
            }
            Step::Refund { percent, pending } => {
                self.refund((self.captured * percent / 100).min(left), pending);
            }
            Step::RefundTheRest if self.amount - self.captured <= left => {
                self.refund(self.amount - self.captured, false);
            }
            Step::End { which, how } => self.end(which, how),
            Step::Cancel { expired } if self.captured == 0 && !self.is_canceled => self.cancel(expired),
            _ => {}
        }
    }

    /// Captures what was begun and ends what is pending.
    pub(crate) fn finish(&mut self) {
        if self.captured > 0 && !self.is_final {
            self.clock += 1;
            self.capture(1, true);
        }
        for which in 0..self.refunds.len() {
            self.clock += 1;
            if self.refunds[which].status == "pending" {
                self.end(which, Ending::Succeeds);
            }
        }
    }

    pub(crate) fn truth(&self) -> Truth {
        let sum = |failed: bool| -> i64 {
            let counted = self.given_back().filter(|refund| !failed || !refund.is_live());
            counted.map(|refund| refund.amount).sum()
        };
        Truth {
            is_canceled: self.is_canceled,
            paid: if self.is_final { self.captured } else { 0 },
            refunded: sum(false),
            reversed: sum(true),
        }
    }

    fn given_back(&self) -> impl Iterator<Item = &Refund> {
        self.refunds.iter().filter(|refund| !refund.release)
    }

    fn capture(&mut self, percent: i64, last: bool) {
        let last = last || !self.multicapture;
        let asked = (self.amount * percent / 100).max(1);
        let taken = if self.multicapture {
            asked.min(self.amount - self.captured)
        } else {
            asked
        };
        if self.is_final || self.is_canceled || taken <= 0 {
            return;
        }
        self.captured += taken;
        self.captures += 1;
        self.is_final = last || self.captured == self.amount;
        let rest = self.amount - self.captured;
        let released = self.is_final && rest > 0 && self.generation.releases_are_refunds();
        if released {
            self.release(rest, None);
        }
        let kind = if self.captures == 1 {
            "charge.captured"
        } else {
            "charge.updated"
        };
        self.tell(kind, &self.charge());
        if self.is_final {
            self.tell("payment_intent.succeeded", &self.intent());
        } else {
            self.tell("payment_intent.amount_capturable_updated", &self.intent());
        }
    }

    fn release(&mut self, amount: i64, reason: Option<&'static str>) {
        self.refunds.push(Refund {
            id: self.refund_id(),
            amount,
            status: "succeeded",
            reason,
            came_back: false,
            release: true,
        });
        self.tell_of_new_refund();
    }

    fn refund(&mut self, amount: i64, pending: bool) {
        if amount <= 0 || self.captured == 0 {
            return;
        }
        let status = if pending { "pending" } else { "succeeded" };
        let id = self.refund_id();
        self.refunds.push(Refund {
            id,
            amount,
            status,
            reason: None,
            came_back: false,
            release: false,
        });
        self.tell_of_new_refund();
    }

    fn end(&mut self, which: usize, how: Ending) {
        let Some(refund) = self
            .refunds
            .get_mut(which)
            .filter(|refund| refund.is_live() && !refund.release)
        else {
            return;
        };
        let (status, came_back) = match (refund.status, how) {
            ("pending", Ending::Succeeds) => ("succeeded", false),
            ("pending", Ending::IsCanceled) => ("canceled", false),
            ("pending", Ending::FailsWithout) => ("failed", false),
            (_, Ending::FailsWithBalanceTransaction) => ("failed", true),
            _ => return,
        };
        (refund.status, refund.came_back) = (status, came_back);
        let object = refund.object(&self.o);
        if self.generation.tells_each_refund() {
            self.tell("refund.updated", &object);
            if status == "failed" {
                self.tell("refund.failed", &object);
            }
        }
        self.tell("charge.refund.updated", &object);
    }

    fn cancel(&mut self, expired: bool) {
        self.is_canceled = true;
        if self.generation.releases_are_refunds() {
            self.release(self.amount, expired.then_some("expired_uncaptured_charge"));
        }
        self.tell("charge.expired", &self.charge());
        self.tell("payment_intent.canceled", &self.intent());
    }

    fn tell_of_new_refund(&mut self) {
        self.tell("charge.refunded", &self.charge());
        let object = self.refunds.last().map(|refund| refund.object(&self.o)).unwrap();
        if self.generation.tells_each_refund() {
            self.tell("refund.created", &object);
        }
    }

    fn refund_id(&self) -> String {
        format!("re_{}_{}", self.o, self.refunds.len())
    }

    fn charge(&self) -> Value {
        let refunded: i64 = self
            .refunds
            .iter()
            .filter(|refund| refund.is_live())
            .map(|refund| refund.amount)
            .sum();
        let multicapture = if self.multicapture {
            "available"
        } else {
            "unavailable"
        };
        let mut charge = json!({
            "id": format!("ch_{}", self.o), "object": "charge", "payment_intent": format!("pi_{}", self.o),
            "amount": self.amount, "amount_captured": self.captured, "amount_refunded": refunded,
            "captured": self.captured > 0, "refunded": refunded == self.amount, "currency": "usd",
            "created": 1_795_925_000, "metadata": {},
            "payment_method_details": { "type": "card", "card": { "multicapture": { "status": multicapture } } },
        });
        if self.generation == Generation::Listed {
            let listed: Vec<Value> = self
                .refunds
                .iter()
                .rev()
                .take(10)
                .map(|refund| refund.object(&self.o))
                .collect();
            charge["refunds"] =
                json!({ "object": "list", "has_more": self.refunds.len() > 10, "data": listed });
        }
        charge
    }

    fn intent(&self) -> Value {
        let status = match (self.is_final, self.is_canceled) {
            (true, _) => "succeeded",
            (_, true) => "canceled",
            _ => "requires_capture",
        };
        json!({ "id": format!("pi_{}", self.o), "object": "payment_intent", "amount": self.amount, "status": status,
                "amount_received": self.captured, "capture_method": "manual", "currency": "usd",
                "latest_charge": format!("ch_{}", self.o), "metadata": { "order_id": self.o } })
    }

    fn tell(&mut self, kind: &str, object: &Value) {
        let event = json!({
            "id": format!("evt_{}_{}", self.o, self.events.len()), "object": "event", "livemode": false,
            "api_version": self.generation.version(), "created": self.clock, "type": kind,
            "data": { "object": object },
        });
        self.events
            .push(Senders::stripe(&serde_json::to_vec(&event).unwrap()));
    }
}
