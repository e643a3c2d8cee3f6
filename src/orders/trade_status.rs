//! How one trade stands. Pure; which status it has is decided in [`super::status`], which says what is final.

use super::status::Status;

/// How a trade stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TradeStatus {
    /// Known, not paid.
    Unpaid,
    /// Ended unpaid.
    Closed,
    /// Paid.
    Paid,
    /// Refunded in part.
    PartiallyRefunded,
    /// No longer refundable.
    Finished,
    /// Refunded whole (gross).
    Refunded,
    /// Paid, and not believed yet.
    Held,
}

impl TradeStatus {
    /// Every status with its stored text.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Unpaid, "unpaid"),
        (Self::Closed, "closed"),
        (Self::Paid, "paid"),
        (Self::PartiallyRefunded, "partially_refunded"),
        (Self::Finished, "finished"),
        (Self::Refunded, "refunded"),
        (Self::Held, "held"),
    ];

    /// The stored text.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(status, _)| *status == self)
            .map_or("", |(_, text)| text)
    }

    /// From the stored text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, known)| *known == text)
            .map(|(status, _)| status)
    }

    /// The order's status if this trade alone decides.
    pub(super) fn of_order(self) -> Option<Status> {
        match self {
            Self::Unpaid | Self::Closed | Self::Held => None,
            Self::Paid => Some(Status::Paid),
            Self::PartiallyRefunded => Some(Status::PartiallyRefunded),
            Self::Finished => Some(Status::Finished),
            Self::Refunded => Some(Status::Refunded),
        }
    }

    /// Whether its payment is known.
    pub fn is_paid(self) -> bool {
        !matches!(self, Self::Unpaid | Self::Closed)
    }
}
