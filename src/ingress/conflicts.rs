//! Conflicts: what came twice with other content. Kept beside the first contents, and answered.
//!
//! It takes several statements and may wait for locks that nobody else needs: so it has a queue and a connection of
//! its own, beside the [settler](super::settler), and duplicates are answered meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::recorder::{Waiting, fail, in_their_time, in_time};
use super::unrecordable::Unrecordable;
use crate::event::{Event, EventId};
use crate::store::{Recorded, Store, StoreError};

/// What came, and the stored event that it contradicts.
#[derive(Debug)]
pub(super) struct Conflict {
    pub(super) with: EventId,
    pub(super) waiting: Waiting,
}

/// The one who keeps conflicts.
#[derive(Debug)]
pub(super) struct Conflicts {
    /// One that is abandoned at its deadline keeps its connection until the server answers: not one of those that
    /// everybody needs.
    pub(super) aside: Store,
    /// Most at once.
    pub(super) batch: usize,
    pub(super) ack_deadline: Duration,
    pub(super) unrecordable: Arc<Unrecordable>,
}

impl Conflicts {
    /// Until the settler is gone and all are answered.
    pub(super) async fn run(self, mut found: mpsc::Receiver<Conflict>) {
        let mut batch = Vec::new();
        while found.recv_many(&mut batch, self.batch).await > 0 {
            let mut conflicts = in_their_time(std::mem::take(&mut batch), |conflict| &conflict.waiting);
            if conflicts.is_empty() || self.keep(&mut conflicts).await {
                continue;
            }
            for conflict in conflicts {
                let mut alone = in_their_time(vec![conflict], |conflict| &conflict.waiting);
                if !alone.is_empty() {
                    self.keep(&mut alone).await;
                }
            }
        }
    }

    /// Keeps `conflicts` and answers them. `false`: the data of one of several is at fault, and nobody is answered yet.
    async fn keep(&self, conflicts: &mut Vec<Conflict>) -> bool {
        let kept: Vec<(EventId, Arc<Event>)> = conflicts
            .iter()
            .map(|conflict| (conflict.with.clone(), Arc::clone(&conflict.waiting.event)))
            .collect();
        let answer = in_time(self.ack_deadline, self.aside.keep_conflicts(&kept)).await;
        if matches!(answer, Err(StoreError::Refused(_))) && conflicts.len() > 1 {
            return false;
        }
        let answered = conflicts.drain(..);
        match &answer {
            Ok(()) => {
                for Conflict { with, waiting } in answered {
                    waiting.tell(Ok(Recorded::Conflict { event_id: with }));
                }
            }
            Err(error @ StoreError::Refused(_)) => {
                for conflict in answered {
                    self.unrecordable.keep(conflict.waiting, error).await;
                }
            }
            Err(error) => fail(answered.map(|conflict| conflict.waiting).collect(), error),
        }
        true
    }
}
