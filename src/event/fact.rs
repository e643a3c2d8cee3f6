//! What an event says, provider-neutral. Facts commute: any order and repetition ends the same (I10).
//!
//! A fact's key is unique by merchant and provider, so the same fact told by two events, two accounts or
//! two paths is one fact. Facts carry their own order id: a combined event speaks of several orders.

use super::Money;
use crate::time::Timestamp;

/// What kind of thing happened. The text form is stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKind {
    /// The payment is under way; another state may follow.
    PaymentProcessing,
    /// One attempt failed; another attempt may succeed.
    PaymentFailed,
    /// The trade is paid, whole or, where the fact names a capture, by this capture.
    PaymentSucceeded,
    /// A capture failed: its money was not taken.
    CaptureFailed,
    /// The trade ended unpaid.
    TradeClosed,
    /// The merchant closed the order (`POST /v1/orders/{id}/close`).
    MerchantClosed,
    /// The merchant registered the order with its expected amount.
    OrderRegistered,
    /// One refund reached the payer.
    RefundSucceeded,
    /// The trade's refunds so far, cumulative.
    RefundedTotal,
    /// The trade's refunds so far, cumulative, with the release of its authorisation where there was one.
    RefundedOrReleasedTotal,
    /// What was authorised, never taken, and released as if it were a refund.
    AuthorisationReleased,
    /// A refund is stuck and needs the merchant; not final.
    RefundAbnormal,
    /// A refund failed for good.
    RefundFailed,
    /// No refund is possible any more.
    TradeFinished,
    /// A payer disputes the payment.
    DisputeOpened,
    /// The dispute ended in the merchant's favour.
    DisputeWon,
    /// The dispute ended in the payer's favour.
    DisputeLost,
    /// The disputed amount left the merchant's balance.
    DisputeFundsWithdrawn,
    /// The disputed amount came back.
    DisputeFundsReinstated,
    /// An operator accepted a held payment.
    PaymentAccepted,
    /// An operator kept a payment that came after a close, or beside another one.
    PaymentKept,
}

impl FactKind {
    /// Every kind with its stored text.
    pub const ALL: [(Self, &'static str); 21] = [
        (Self::PaymentProcessing, "payment_processing"),
        (Self::PaymentFailed, "payment_failed"),
        (Self::PaymentSucceeded, "payment_succeeded"),
        (Self::CaptureFailed, "capture_failed"),
        (Self::TradeClosed, "trade_closed"),
        (Self::MerchantClosed, "merchant_closed"),
        (Self::OrderRegistered, "order_registered"),
        (Self::RefundSucceeded, "refund_succeeded"),
        (Self::RefundedTotal, "refunded_total"),
        (Self::RefundedOrReleasedTotal, "refunded_or_released_total"),
        (Self::AuthorisationReleased, "authorisation_released"),
        (Self::RefundAbnormal, "refund_abnormal"),
        (Self::RefundFailed, "refund_failed"),
        (Self::TradeFinished, "trade_finished"),
        (Self::DisputeOpened, "dispute_opened"),
        (Self::DisputeWon, "dispute_won"),
        (Self::DisputeLost, "dispute_lost"),
        (Self::DisputeFundsWithdrawn, "dispute_funds_withdrawn"),
        (Self::DisputeFundsReinstated, "dispute_funds_reinstated"),
        (Self::PaymentAccepted, "payment_accepted"),
        (Self::PaymentKept, "payment_kept"),
    ];

    /// The stored text.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(kind, _)| *kind == self)
            .map_or("", |(_, text)| text)
    }

    /// From the stored text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, known)| *known == text)
            .map(|(kind, _)| kind)
    }
}

/// One thing that an event says happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What happened.
    pub kind: FactKind,
    /// Its identity, unique by merchant and provider; see the constructors for the form.
    pub key: String,
    /// The order it names, if any.
    pub order_id: Option<String>,
    /// The trade it names, if any.
    pub trade_id: Option<String>,
    /// The refund (or dispute, or capture) it names, if any.
    pub refund_id: Option<String>,
    /// The amount: billed, refunded, cumulative or disputed, by kind.
    pub amount: Option<Money>,
    /// The message names no currency and `amount` assumes the account's (a WeChat refund): where the trade's
    /// payment is known, its currency is the right one; a payment that comes later and differs is a conflict.
    pub currency_assumed: bool,
    /// When it happened (for a payment: paid_at). Orders processing and failed; absent: received_at.
    pub at: Option<Timestamp>,
    /// The provider's reason, for people.
    pub reason: Option<String>,
    /// `Some(total of the payment it claims)` for a refund that was encrypted but not signed (WeChat v2): it
    /// waits for a verified payment and moves money only if the ids and this total agree.
    pub unsigned: Option<Money>,
}

impl Fact {
    /// A fact about a trade, keyed `{trade_id}:{what}`: `paid`, `closed`, `finished`, `processing`,
    /// `failed:{attempt}`, `refunded_total:{minor}`, `refunded_or_released_total:{minor}`, `released:{minor}`.
    pub fn of_trade(kind: FactKind, trade_id: &str, what: &str) -> Self {
        Self {
            trade_id: Some(trade_id.to_owned()),
            ..Self::new(kind, format!("{trade_id}:{what}"))
        }
    }

    /// A fact about a refund or a dispute of a trade, keyed `{id}:{what}`: `refunded`, `refund_failed`,
    /// `abnormal`, `dispute_opened`, ….
    pub fn of_refund(kind: FactKind, trade_id: Option<&str>, id: &str, what: &str) -> Self {
        Self {
            trade_id: trade_id.map(str::to_owned),
            refund_id: Some(id.to_owned()),
            ..Self::new(kind, format!("{id}:{what}"))
        }
    }

    /// A fact about one capture of a trade, keyed `{trade_id}:{what}:{capture}`: `paid`, `capture_failed`.
    pub fn of_capture(kind: FactKind, trade_id: &str, capture: &str, what: &str) -> Self {
        Self {
            refund_id: Some(capture.to_owned()),
            ..Self::of_trade(kind, trade_id, &format!("{what}:{capture}"))
        }
    }

    /// A fact about an order itself, keyed `{order_id}:{what}`: `registered`, `merchant_closed`.
    pub fn of_order(kind: FactKind, order_id: &str, what: &str) -> Self {
        Self {
            order_id: Some(order_id.to_owned()),
            ..Self::new(kind, format!("{order_id}:{what}"))
        }
    }

    fn new(kind: FactKind, key: String) -> Self {
        Self {
            kind,
            key,
            order_id: None,
            trade_id: None,
            refund_id: None,
            amount: None,
            currency_assumed: false,
            at: None,
            reason: None,
            unsigned: None,
        }
    }

    /// Whether it reports one capture of a payment and not the payment as a whole.
    pub fn is_capture(&self) -> bool {
        self.kind == FactKind::PaymentSucceeded && self.refund_id.is_some()
    }

    /// The same fact about this order.
    #[must_use]
    pub fn for_order(mut self, order_id: Option<&str>) -> Self {
        self.order_id = order_id.map(str::to_owned);
        self
    }

    /// The same fact with this amount.
    #[must_use]
    pub fn with_amount(mut self, amount: Option<Money>) -> Self {
        self.amount = amount;
        self
    }

    /// The same fact, having happened at `at`.
    #[must_use]
    pub fn happened(mut self, at: Option<Timestamp>) -> Self {
        self.at = at;
        self
    }

    /// The same fact with the provider's reason.
    #[must_use]
    pub fn because(mut self, reason: Option<&str>) -> Self {
        self.reason = reason.map(str::to_owned);
        self
    }
}
