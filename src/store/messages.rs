//! Order and attention messages: kept for the feed and for replays, each with its outbox row, due at once.
//!
//! Written in the transaction of the change that they tell, so that neither is ever without the other (I5, I6).
//! The relay publishes them; this file only writes.

use sqlx::QueryBuilder;

use super::rows::Rows;
use super::time::db_now;
use super::{StoreError, Tx, on_tx};
use crate::time::Timestamp;

const INSERT_MESSAGES: &str = "insert into messages (id, merchant, order_id, routing_key, body, created_at) ";
const INSERT_OUTBOX: &str = "insert into outbox (id, kind, message_id, created_at, due_at) \
     select column1, 'message', column1, column2, ";

/// A message to be written.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The CloudEvent's id: `{merchant}/{order_id}/{version}`, `sha256:` of that where it is too long for AMQP, or
    /// `attention/{id}`.
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
    let rows = Rows::of(messages)
        .text(|message| message.id.as_str())
        .text(|message| message.merchant.as_str())
        .text(|message| message.order_id.as_deref())
        .text(|message| message.routing_key.as_str())
        .blob(|message| &message.body)
        .each(now);
    let written = on_tx!(&mut *tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT_MESSAGES);
        rows.push_to(&mut sql);
        sql.build().execute(conn).await.map(|done| done.rows_affected())
    })?;
    let wanted = u64::try_from(messages.len()).unwrap_or(u64::MAX);
    if written != wanted {
        return Err(StoreError::corrupt("messages", "a message id was taken already"));
    }
    // Due by the database's clock, which is the only one that claims are compared with.
    let due = tx.pick(db_now!(postgres), db_now!(sqlite));
    let rows = Rows::of(messages).text(|message| message.id.as_str()).each(now);
    on_tx!(&mut *tx, |conn| {
        let mut sql = QueryBuilder::new(INSERT_OUTBOX);
        sql.push(due).push(" from (");
        rows.push_to(&mut sql);
        sql.push(") as listed");
        sql.build().execute(conn).await.map(drop)
    })?;
    Ok(())
}
