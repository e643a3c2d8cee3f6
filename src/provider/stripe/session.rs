//! A completed checkout session that names no payment intent: what it means for its order.
//!
//! With a payment intent the session repeats what that says. Without one there is nothing to collect, or the
//! money goes another way: a subscription's first payment is its invoice's.

use super::payload::Object;
use crate::provider::raw_json;

/// What follows from a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    /// Its payment intent tells, or nothing was paid yet.
    Other,
    /// Nothing was to be paid: a payment of 0, and the session is its trade.
    Free,
    /// The customer is done, and what was paid is reported by no event that is applied.
    NotApplied,
}

/// Says what the way out of `not_applied` is.
pub(super) const WAY_OUT: &str = "a session ended that is paid, or will be, by an invoice and not by a payment of its \
     own, so no order moves by it: grant what was bought by the events of its invoice (invoice.paid), or by hand. \
     Which sessions: events list --type other.checkout.session.completed";

/// Judges the session that an event of `event_type` is about.
pub(super) fn judge(event_type: &str, object: &Object<'_>) -> Session {
    let text = |value| raw_json::text(value).unwrap_or_default();
    let ended = matches!(
        event_type,
        "checkout.session.completed" | "checkout.session.async_payment_succeeded"
    );
    let (mode, status) = (text(object.mode), text(object.payment_status));
    let settled = matches!(&*status, "paid" | "no_payment_required");
    if !ended || !settled || mode == "setup" || object.payment_intent().is_some() {
        return Session::Other;
    }
    let nothing_due = raw_json::integer(object.amount_total) == Some(0);
    if nothing_due && (status == "no_payment_required" || mode != "subscription") {
        Session::Free
    } else {
        Session::NotApplied
    }
}
