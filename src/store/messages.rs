//! Order and attention messages: kept for the feed and for replays, each with its outbox row, due at once.
//!
//! Written in the transaction of the change that they tell, so that neither is ever without the other (I5, I6).
//! The relay publishes them; this file only writes.

use sqlx::QueryBuilder;

use super::{StoreError, Tx, on_tx};
use crate::time::Timestamp;

const INSERT_MESSAGES: &str = "insert into messages (id, merchant, order_id, routing_key, body, created_at) ";
const INSERT_OUTBOX: &str = "insert into outbox (id, kind, message_id, created_at, due_at) ";

/// A message to be written.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The CloudEvent's id: `{merchant}/{order_id}/{version}` or `attention/{id}`.
    pub id: String,
    /// Whose it is.
    pub merchant: String,
    /// The order it speaks of.
    pub order_id: Option<String>,
    /// `order.{status}`, `order.updated` or `attention.{code}`.
    pub routing_key: String,
    /// The CloudEvent.
    pub body: Vec<u8>,
}

/// Writes `messages`, in their order, and for each an unclaimed outbox row that is due now.
pub async fn insert(tx: &mut Tx, messages: &[NewMessage], now: Timestamp) -> Result<(), StoreError> {
    if messages.is_empty() {
        return Ok(());
    }
    // Due by the database's clock, which is the only one that claims are compared with.
    let due = tx.pick(
        "(extract(epoch from clock_timestamp()) * 1000000)::bigint",
        "cast(unixepoch('subsec') * 1000000 as integer)",
    );
    let written = on_tx!(&mut *tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT_MESSAGES);
        sql.push_values(messages, |mut row, message| {
            row.push_bind(&message.id)
                .push_bind(&message.merchant)
                .push_bind(&message.order_id)
                .push_bind(&message.routing_key)
                .push_bind(&message.body)
                .push_bind(now.micros());
        });
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    let wanted = u64::try_from(messages.len()).unwrap_or(u64::MAX);
    if written != wanted {
        return Err(StoreError::corrupt("messages", "a message id was taken already"));
    }
    on_tx!(&mut *tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT_OUTBOX);
        sql.push_values(messages, |mut row, message| {
            row.push_bind(&message.id)
                .push("'message'")
                .push_bind(&message.id)
                .push_bind(now.micros())
                .push(due);
        });
        sql.build().execute(conn).await.map(drop)
    })?;
    Ok(())
}
