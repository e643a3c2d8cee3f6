//! What may need a human: the codes of the attention list, and the ways out that each offers.
//!
//! The code is stored, shown, and part of a message's routing key (`attention.{code}`). It lives here because
//! rules decide it, the store keeps it and the API offers its actions.

use std::fmt;

/// Why somebody has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttentionCode {
    /// The payment is not the amount that was registered.
    AmountMismatch,
    /// The payment is not in the currency that was registered.
    CurrencyMismatch,
    /// Money came for a trade or an order that was closed before.
    PaidAfterClose,
    /// A second trade was paid for one order.
    PaidTwice,
    /// A capture of an authorised payment failed: its money was not taken.
    CaptureFailed,
    /// A genuine event about another app, seller, merchant or mode than the account's.
    IdentityMismatch,
    /// A refund that had succeeded failed after all: the money came back.
    RefundReversed,
    /// A refund is stuck at the provider.
    RefundAbnormal,
    /// More was refunded than was paid.
    RefundExceedsPayment,
    /// A refund that nobody signed does not agree with the verified payment.
    UnsignedRefund,
    /// A payer disputes a payment.
    DisputeOpened,
    /// A dispute was lost.
    DisputeLost,
    /// The same event key came with other signed content.
    EventConflict,
    /// The same fact was told with another amount, currency, trade or order.
    FactConflict,
    /// An amount that cannot be taken as it stands.
    AmountUnreadable,
    /// A genuine event, or an id in it, that cannot be understood.
    EventUnreadable,
    /// Facts waited longer than the deadline for their order.
    ParkedTooLong,
    /// Genuine events of a kind that payhook does not apply: what they tell is settled elsewhere.
    NotApplied,
    /// An event could not be applied.
    DeadLetter,
    /// The broker does not take a message.
    Unpublishable,
    /// The database does not take an event.
    Unrecordable,
    /// A declared queue had vanished.
    QueueMissing,
}

impl AttentionCode {
    /// Every code with its stored text.
    pub const ALL: [(Self, &'static str); 22] = [
        (Self::AmountMismatch, "amount_mismatch"),
        (Self::CurrencyMismatch, "currency_mismatch"),
        (Self::PaidAfterClose, "paid_after_close"),
        (Self::PaidTwice, "paid_twice"),
        (Self::CaptureFailed, "capture_failed"),
        (Self::IdentityMismatch, "identity_mismatch"),
        (Self::RefundReversed, "refund_reversed"),
        (Self::RefundAbnormal, "refund_abnormal"),
        (Self::RefundExceedsPayment, "refund_exceeds_payment"),
        (Self::UnsignedRefund, "unsigned_refund"),
        (Self::DisputeOpened, "dispute_opened"),
        (Self::DisputeLost, "dispute_lost"),
        (Self::EventConflict, "event_conflict"),
        (Self::FactConflict, "fact_conflict"),
        (Self::AmountUnreadable, "amount_unreadable"),
        (Self::EventUnreadable, "event_unreadable"),
        (Self::ParkedTooLong, "parked_too_long"),
        (Self::NotApplied, "not_applied"),
        (Self::DeadLetter, "dead_letter"),
        (Self::Unpublishable, "unpublishable"),
        (Self::Unrecordable, "unrecordable"),
        (Self::QueueMissing, "queue_missing"),
    ];

    /// The stored text.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(code, _)| *code == self)
            .map_or("", |(_, text)| text)
    }

    /// From the stored text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, known)| *known == text)
            .map(|(code, _)| code)
    }

    /// The actions that resolve such an item. All but `accept_payment`, `keep` and
    /// `apply_once` only close it.
    pub fn actions(self) -> &'static [&'static str] {
        match self {
            Self::AmountMismatch | Self::CurrencyMismatch => {
                &["accept_payment", "refunded_outside", "dismiss"]
            }
            Self::PaidAfterClose | Self::PaidTwice => &["refunded_outside", "keep", "dismiss"],
            Self::IdentityMismatch => &["apply_once", "dismiss"],
            Self::CaptureFailed
            | Self::RefundReversed
            | Self::RefundAbnormal
            | Self::RefundExceedsPayment
            | Self::UnsignedRefund
            | Self::DisputeOpened
            | Self::DisputeLost => &["acknowledge", "dismiss"],
            Self::EventConflict
            | Self::FactConflict
            | Self::AmountUnreadable
            | Self::EventUnreadable
            | Self::ParkedTooLong
            | Self::NotApplied
            | Self::DeadLetter
            | Self::Unpublishable
            | Self::Unrecordable
            | Self::QueueMissing => &["dismiss"],
        }
    }
}

impl fmt::Display for AttentionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_and_can_be_dismissed() {
        for (code, text) in AttentionCode::ALL {
            assert_eq!(AttentionCode::from_text(text), Some(code));
            assert_eq!(code.to_string(), text);
            assert!(code.actions().contains(&"dismiss"), "{text}");
        }
    }
}
