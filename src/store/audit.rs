//! What operators did, and why: append-only, never removed by age.
//!
//! A row is written in the transaction of what it speaks of. What takes several transactions is entered before
//! the first of them, so that nothing happens unaccounted for, and once more with its outcome in the last.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sqlx::types::Json;

use super::{StoreError, Tx, on_tx};
use crate::event::new_id;
use crate::event::text::storable;

const INSERT: &str = "insert into audit (id, merchant, actor, action, reason, details, at) \
     values ($1, $2, $3, $4, $5, $6, $7)";

/// One thing that somebody did.
#[derive(Clone, Debug, Serialize)]
pub struct Deed<'a> {
    /// Whose data it was about.
    pub merchant: &'a str,
    /// The name of the token it was done with.
    pub actor: &'a str,
    /// What: `quarantine.reverify`, ….
    pub action: &'static str,
    /// Why, in the operator's words.
    pub reason: &'a str,
    /// What exactly: a JSON object, without payload.
    pub details: Value,
}

/// Enters `deed` in the caller's transaction; gives the row's id.
pub async fn enter(tx: &mut Tx, deed: &Deed<'_>) -> Result<String, StoreError> {
    let now = tx.now().await?;
    let id = new_id(now);
    // jsonb has no NUL, which JSON can spell.
    let details = deed.details.to_string().replace("\\u0000", "\u{2400}");
    let details = RawValue::from_string(details)
        .map_err(|_| StoreError::corrupt("audit", "details that are not JSON"))?;
    on_tx!(tx, |conn| sqlx::query(INSERT)
        .bind(&id)
        .bind(deed.merchant)
        .bind(deed.actor)
        .bind(deed.action)
        .bind(storable(deed.reason).as_ref())
        .bind(Json(details))
        .bind(now)
        .execute(conn)
        .await
        .map(drop))?;
    Ok(id)
}
