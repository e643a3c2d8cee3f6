//! Has the database look again at tables that have grown, so that the next batch is looked up by the right index.

use std::collections::HashMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::applier::Applier;
use super::consume::pause;
use crate::store::StoreError;
use crate::telemetry::causes;

/// A new database outgrows its statistics within a second.
const EVERY: Duration = Duration::from_millis(500);

/// Until `shutdown`.
pub(super) async fn run(applier: &Applier, shutdown: &CancellationToken) {
    let mut asked = HashMap::new();
    while !shutdown.is_cancelled() {
        if let Err(error) = round(applier, &mut asked).await {
            tracing::debug!(error = causes(&error), "the tables' statistics are as they were");
        }
        pause(EVERY, shutdown).await;
    }
}

/// `asked`: how large a table was when it was asked for last. Who may not analyze does not ask again and again.
async fn round(applier: &Applier, asked: &mut HashMap<String, i64>) -> Result<(), StoreError> {
    for table in applier.store.outgrown().await? {
        let before = asked.get(&table.table).copied().unwrap_or_default();
        if table.pages > before.saturating_mul(2) {
            applier.store.analyze(&table).await?;
            asked.insert(table.table, table.pages);
        }
    }
    Ok(())
}
