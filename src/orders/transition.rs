//! From what was to what is: the versions an order goes through, each one message. Pure.
//!
//! `order.paid` is written exactly once: by the first transaction that leaves the order paid and not wholly
//! refunded, even if that same transaction moves it on. Then it comes first, as a version of its own. An order
//! that leaves `refunded` for `paid` after that is `order.updated`.
//!
//! An order whose payment is from before its account's `since` was shipped by whoever came before: it takes the same
//! statuses, without `order.paid`. When a report shows that its payment is not as old as it looked, `order.paid` is
//! a version that changes nothing else.

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

    fn next(&self, status: Status, totals: Totals, ships: bool) -> Self {
        let version = self.version.saturating_add(1);
        let paid = ships && is_shippable(status);
        Self {
            status,
            totals,
            version,
            paid_version: self.paid_version.or(paid.then_some(version)),
        }
    }

    /// The routing key of the message for this version, which followed `before`. `order.paid` is the one that
    /// ships, so an order whose payment is not shipped only becomes `order.updated`.
    pub fn routing_key(&self, before: &Self) -> String {
        if self.paid_version != before.paid_version {
            "order.paid".to_owned()
        } else if self.status.as_str() == before.status.as_str() || self.status == Status::Paid {
            "order.updated".to_owned()
        } else {
            format!("order.{}", self.status.as_str())
        }
    }
}

/// Whether `order.paid` may go with a status: the order is paid, and not all of it came back.
pub fn is_shippable(status: Status) -> bool {
    matches!(
        status,
        Status::Paid | Status::PartiallyRefunded | Status::Finished
    )
}

/// The consecutive versions from `before` to where the facts say the order stands; empty if neither status nor
/// a total changed and there is nothing to ship. `ships`: its payment is not from before its account's `since`.
/// Who closed a closed order is no status: it changes without a version.
pub fn transitions(before: &Standing, status: Status, totals: Totals, ships: bool) -> Vec<Standing> {
    let status = before.status.advance(status);
    let totals = before.totals.grown(totals);
    let mut versions = Vec::new();
    let mut last = *before;
    let is_due = ships && last.paid_version.is_none() && is_shippable(status);
    // An order that becomes paid, and no more than that, needs one version.
    let becomes_paid = !is_shippable(last.status);
    if is_due && !(becomes_paid && status == Status::Paid) {
        let shown = if becomes_paid { Status::Paid } else { last.status };
        let paid = Totals {
            paid: totals.paid,
            ..last.totals
        };
        last = last.next(shown, paid, ships);
        versions.push(last);
    }
    if last.status.as_str() != status.as_str() || last.totals != totals {
        versions.push(last.next(status, totals, ships));
    }
    versions
}
