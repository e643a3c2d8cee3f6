//! From what was to what is: the versions an order goes through, each one message. Pure.
//!
//! `order.paid` is written exactly once: by the first transaction that leaves the order paid and not wholly
//! refunded, even if that same transaction moves it on. Then it comes first, as a version of its own. An order
//! that leaves `refunded` for `paid` after that is `order.updated`.

use super::status::{Status, Totals};

/// How an order stands at one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its status.
    pub status: Status,
    /// Its totals.
    pub totals: Totals,
    /// Raised by one with every change of the two above.
    pub version: i64,
    /// The version under which `order.paid` was written.
    pub paid_version: Option<i64>,
}

impl Standing {
    /// Of an order that nothing has happened to.
    pub const NEW: Self = Self {
        status: Status::Pending,
        totals: Totals {
            paid: 0,
            refunded: 0,
            reversed: 0,
        },
        version: 0,
        paid_version: None,
    };

    fn next(&self, status: Status, totals: Totals) -> Self {
        let version = self.version.saturating_add(1);
        let is_paid = matches!(
            status,
            Status::Paid | Status::PartiallyRefunded | Status::Finished
        );
        Self {
            status,
            totals,
            version,
            paid_version: self.paid_version.or(is_paid.then_some(version)),
        }
    }

    /// The routing key of the message for this version, which followed `before`.
    pub fn routing_key(&self, before: &Self) -> String {
        let paid_again = self.status == Status::Paid && self.paid_version != Some(self.version);
        if paid_again || self.status.as_str() == before.status.as_str() {
            "order.updated".to_owned()
        } else {
            format!("order.{}", self.status.as_str())
        }
    }
}

/// The consecutive versions from `before` to where the facts say the order stands; empty if neither status nor
/// a total changed. Who closed a closed order is no status: it changes without a version.
pub fn transitions(before: &Standing, status: Status, totals: Totals) -> Vec<Standing> {
    let status = before.status.advance(status);
    let totals = before.totals.grown(totals);
    let mut versions = Vec::new();
    let mut last = *before;
    if last.paid_version.is_none() && matches!(status, Status::PartiallyRefunded | Status::Finished) {
        let paid = Totals {
            paid: totals.paid,
            ..last.totals
        };
        last = last.next(Status::Paid, paid);
        versions.push(last);
    }
    if last.status.as_str() != status.as_str() || last.totals != totals {
        versions.push(last.next(status, totals));
    }
    versions
}
