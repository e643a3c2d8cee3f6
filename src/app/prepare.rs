//! Prepares the database: its schema, what the feed counts from, and since when the accounts are known.
//!
//! A database that is away does not keep the process down: it is prepared as soon as it is back.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Stage, StartError, warn};
use crate::event::ProviderName;
use crate::provider::Registry;
use crate::store::{Store, StoreError};
use crate::time::Timestamp;

/// Between two attempts to prepare the database while it is away.
const COME_AGAIN: Duration = Duration::from_millis(500);

/// How long it is asked why it gives no connection.
const ASK_WHY: Duration = Duration::from_millis(300);

/// Between two attempts to prepare it when the schema itself is the trouble.
const ASK_FOR_HELP: Duration = Duration::from_secs(30);

/// What the database needs before it is used.
#[derive(Debug)]
pub(super) struct Database {
    store: Store,
    migrate: bool,
    accounts: Vec<(ProviderName, String)>,
    /// From when on this process knows the accounts, however late it can note that.
    began_at: Timestamp,
}

impl Database {
    /// Of a process that serves the accounts of `registry` and began at `began_at`.
    pub(super) fn new(store: &Store, migrate: bool, registry: &Registry, began_at: Timestamp) -> Self {
        Self {
            store: store.clone(),
            migrate,
            accounts: accounts(registry),
            began_at,
        }
    }

    /// Prepares the database now, or, if it is away, as soon as it is back.
    pub(super) async fn prepare(self, flows: &Stage) -> Result<(), StartError> {
        match self.prepare_now().await {
            Ok(()) => Ok(()),
            Err(error) if error.is_transient() => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let refusal = self.store.refusal(ASK_WHY).await;
                tracing::warn!(%error, cause, refusal, "the database is not ready; it is prepared when it is");
                flows.tasks.spawn(self.prepare_later(flows.stop.clone()));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Migrates; or, where the operator does that by hand, only settles what the feed counts from. Then notes since
    /// when the accounts are known.
    async fn prepare_now(&self) -> Result<(), StoreError> {
        if self.migrate {
            self.store.migrate().await?;
        } else {
            self.store.renew_feed_epoch().await?;
        }
        self.store
            .know_accounts(self.accounts.clone(), self.began_at)
            .await
    }

    async fn prepare_later(self, stop: CancellationToken) {
        let mut pause = COME_AGAIN;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            match self.prepare_now().await {
                Ok(()) => {
                    tracing::info!("the database is there and up to date");
                    return;
                }
                Err(error) if error.is_transient() => pause = COME_AGAIN,
                Err(error) => {
                    warn(&error, "the database is there, but cannot be brought up to date");
                    pause = ASK_FOR_HELP;
                }
            }
        }
    }
}

/// The accounts that are served.
pub(super) fn accounts(registry: &Registry) -> Vec<(ProviderName, String)> {
    let names = registry
        .iter()
        .map(|account| (account.provider, account.account.clone()));
    names.collect()
}
