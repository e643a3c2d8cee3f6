//! The message that tells of an order's new version. Pure.

use crate::event::{Announcement, text};
use crate::orders::transition::Standing;
use crate::store::messages::NewMessage;
use crate::store::view::OrderView;
use crate::time::Timestamp;

/// The message for `version`, which followed `before`. Its data is the order as `view` shows it, standing as
/// that version says.
pub(super) fn message(
    view: &OrderView,
    before: &Standing,
    version: &Standing,
    now: Timestamp,
) -> Result<NewMessage, serde_json::Error> {
    let mut view = view.clone();
    let head = &mut view.head;
    version.status.as_str().clone_into(&mut head.status);
    head.closed_by = version.status.closed_by().map(|by| by.as_str().to_owned());
    head.paid = version.totals.paid;
    head.refunded = version.totals.refunded;
    head.reversed = version.totals.reversed;
    head.version = version.version;
    let (merchant, order_id) = (head.merchant.clone(), head.order_id.clone());
    let id = text::message_id(format!("{merchant}/{order_id}/{}", version.version));
    let routing_key = version.routing_key(before);
    let owner = ("orders", merchant.as_str());
    let body = Announcement::new(&id, owner, &routing_key, Some(&order_id), now, &view).to_bytes()?;
    Ok(NewMessage {
        id,
        routing_key,
        body,
        order_id: Some(order_id),
        merchant,
    })
}
