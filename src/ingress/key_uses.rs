//! Which key verified what came last, noted in passing and written once a minute.
//!
//! A request only leaves a time behind; the task that writes it is nobody's way. What a crash loses is at most the
//! last minute's notes, so a key that is in use shows that it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::provider::Registered;
use crate::store::key_uses::KeyUse;
use crate::store::{Store, StoreError};
use crate::time::Timestamp;

/// Between two writes.
const EVERY: Duration = Duration::from_mins(1);

/// What was noted since the last write; clones share it.
#[derive(Clone, Debug, Default)]
pub struct KeyUses(Arc<Mutex<Notes>>);

/// By the account's address: after a reload `#1` may be another key, and the account another value.
type Notes = HashMap<usize, Note>;

#[derive(Debug)]
struct Note {
    account: Arc<Registered>,
    /// Key id and arrival.
    last: Vec<(String, Timestamp)>,
}

impl KeyUses {
    /// Notes that the account's key `id` verified what arrived at `at`.
    pub(super) fn note(&self, account: &Arc<Registered>, id: &str, at: Timestamp) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let note = notes.entry(Arc::as_ptr(account).addr()).or_insert_with(|| Note {
            account: Arc::clone(account),
            last: Vec::new(),
        });
        match note.last.iter_mut().find(|(known, _)| known == id) {
            Some((_, last)) => *last = at.max(*last),
            None => note.last.push((id.to_owned(), at)),
        }
    }

    /// Writes what was noted; if that fails, it is noted again.
    pub async fn save(&self, store: &Store) -> Result<(), StoreError> {
        let notes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if notes.is_empty() {
            return Ok(());
        }
        let saved = store
            .save_key_uses(notes.values().flat_map(Note::uses).collect())
            .await;
        if saved.is_err() {
            for note in notes.into_values() {
                for (id, at) in note.last {
                    self.note(&note.account, &id, at);
                }
            }
        }
        saved
    }

    /// Writes until `stop`, and then once more.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        loop {
            let stopping = tokio::select! {
                () = stop.cancelled() => true,
                () = tokio::time::sleep(EVERY) => false,
            };
            if let Err(error) = self.save(&store).await {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "when each key last verified something was not written");
            }
            if stopping {
                return;
            }
        }
    }
}

impl Note {
    fn uses(&self) -> impl Iterator<Item = KeyUse> {
        let keys = self.account.scheme.keys();
        self.last.iter().filter_map(move |(id, at)| {
            let key = keys.iter().find(|key| key.id == *id)?;
            Some(KeyUse {
                provider: self.account.provider,
                account: self.account.account.clone(),
                fingerprint: key.fingerprint.clone(),
                verified_at: *at,
            })
        })
    }
}
