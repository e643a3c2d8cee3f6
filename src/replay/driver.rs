//! Moves running replays on: a page at a time, at the pace that was asked for, while the outbox is not behind.
//!
//! Every process with a worker has one. A replay is driven by whoever holds its lease; when that process dies,
//! another goes on from the last page that was committed as soon as the lease has run out.

use std::collections::HashMap;
use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Replays;
use crate::store::StoreError;
use crate::store::replays::{Candidate, Held, Judged, Moved, What};
use crate::telemetry::causes;
use crate::telemetry::metrics::names;

/// Between two rounds while something runs.
const TICK: Duration = Duration::from_millis(200);
/// Between two looks while nothing does.
const IDLE: Duration = Duration::from_millis(500);
/// Leases are renewed so often; they hold several times as long.
const RENEW: Duration = Duration::from_secs(3);
/// How long a replay rests that has a trouble of its own.
const REST: Duration = Duration::from_secs(30);
/// How long the store may take to count or to find a page: less than a lease holds, or two processes would take
/// the replay from each other for ever.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a replay may have in the outbox: what is behind it must not wait for all of it.
const OUTSTANDING: i64 = 1000;
/// The most in one page.
const PAGE: u32 = 250;

/// Drives replays for one process.
#[derive(Debug)]
pub struct Driver {
    replays: Replays,
    process: String,
    /// Those that this process drives.
    driven: HashMap<String, Driven>,
    renew_at: Instant,
}

/// A replay that this process drives.
#[derive(Clone, Copy, Debug)]
struct Driven {
    /// When it was last moved.
    moved: Instant,
    /// It was tried to count what it is about; without a count it goes on as well.
    counted: bool,
    /// A trouble of its own lets it rest until then.
    rests: Option<Instant>,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Replays that this process drives.
    pub driven: usize,
    /// Handed to the outbox.
    pub sent: u64,
}

impl Driver {
    /// `process` names this process in leases; it must differ between processes that share a store.
    pub fn new(replays: Replays, process: &str) -> Self {
        Self {
            replays,
            process: process.to_owned(),
            driven: HashMap::new(),
            renew_at: Instant::now(),
        }
    }

    /// Until `shutdown`; then others may go on at once.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let pause = match self.step().await {
                Ok(Round { driven: 0, .. }) => IDLE,
                Ok(_) => TICK,
                Err(error) => {
                    tracing::warn!(error = %causes(&error), "replays rest: the store does not answer");
                    RENEW
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        if !self.driven.is_empty()
            && let Err(error) = self.replays.store.give_up_replays(&self.process).await
        {
            tracing::debug!(%error, "replays not given up; their leases run out by themselves");
        }
    }

    /// One round: every replay that this process may drive is moved on as far as its pace allows.
    pub async fn step(&mut self) -> Result<Round, StoreError> {
        if self.driven.is_empty() || self.renew_at <= Instant::now() {
            self.lease().await?;
        }
        let mut round = Round::default();
        let mut away = None;
        let mut moved = false;
        let ids: Vec<String> = self.driven.keys().cloned().collect();
        for id in ids {
            match self.move_on(&id).await {
                Ok(Some(sent)) => {
                    moved = true;
                    round.sent = round.sent.saturating_add(sent);
                }
                Ok(None) => drop(self.driven.remove(&id)),
                // The store is away, or only this one's query takes too long: the others tell.
                Err(error) if error.is_transient() => {
                    self.rest(&id, RENEW);
                    away = Some(error);
                }
                // This one's own trouble: the others go on.
                Err(error) => {
                    tracing::error!(error = %causes(&error), replay.id = id, "a replay cannot go on; tried again later");
                    self.rest(&id, REST);
                }
            }
        }
        round.driven = self.driven.len();
        match away {
            Some(error) if !moved => Err(error),
            _ => Ok(round),
        }
    }

    fn rest(&mut self, id: &str, pause: Duration) {
        if let Some(driven) = self.driven.get_mut(id) {
            driven.rests = Some(Instant::now() + pause);
        }
    }

    async fn lease(&mut self) -> Result<(), StoreError> {
        let leased = self.replays.store.lease_replays(&self.process).await?;
        self.driven.retain(|id, _| leased.contains(id));
        for id in leased {
            // A new one begins with one tick's worth.
            let moved = Instant::now().checked_sub(TICK).unwrap_or_else(Instant::now);
            self.driven.entry(id).or_insert(Driven {
                moved,
                counted: false,
                rests: None,
            });
        }
        self.renew_at = Instant::now() + RENEW;
        Ok(())
    }

    /// `None`: it is not ours any more, or has ended.
    async fn move_on(&mut self, id: &str) -> Result<Option<u64>, StoreError> {
        let store = self.replays.store.clone();
        let Some(driven) = self.driven.get(id).copied() else {
            return Ok(None);
        };
        if driven.rests.is_some_and(|until| until > Instant::now()) {
            return Ok(Some(0));
        }
        let Some(held) = store.held_replay(id, &self.process).await? else {
            return Ok(None);
        };
        if held.total.is_none() && !driven.counted {
            if let Some(driven) = self.driven.get_mut(id) {
                driven.counted = true;
            }
            let counting = store.count_replay(&held, &self.process);
            match tokio::time::timeout(PATIENCE, counting).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(error = %causes(&error), replay.id = id, "a replay goes on without being counted");
                }
                Err(_) => tracing::warn!(replay.id = id, "too much to count: a replay goes on without it"),
            }
        }
        let waiting = store.outstanding(id, OUTSTANDING).await?;
        if held.walked {
            if waiting.unpublished > 0 {
                return Ok(Some(0));
            }
            if store.finish_replay(&held, &self.process).await? {
                tracing::info!(replay.id = id, replay.sent = held.sent, "replay done");
            }
            return Ok(None);
        }
        let room = u32::try_from(OUTSTANDING.saturating_sub(waiting.rows)).unwrap_or_default();
        let most = allowance(&held, driven.moved).min(room).min(PAGE);
        if most == 0 {
            return Ok(Some(0));
        }
        let looking = self.page(&held, u16::try_from(most).unwrap_or(u16::MAX));
        let Ok(page) = tokio::time::timeout(PATIENCE, looking).await else {
            tracing::warn!(replay.id = id, "finding a page takes too long; tried again later");
            self.rest(id, REST);
            return Ok(Some(0));
        };
        let page = page?;
        match store.move_replay(&held, &page, &self.process).await? {
            Moved::Lost => Ok(None),
            Moved::Sent(sent) => {
                if let Some(driven) = self.driven.get_mut(id) {
                    driven.moved = Instant::now();
                }
                counter!(names::REPLAYED, "what" => held.what.as_str()).increment(sent);
                Ok(Some(sent))
            }
        }
    }

    /// The next page, judged by today's rules.
    async fn page(&self, held: &Held, limit: u16) -> Result<Judged, StoreError> {
        let found = self
            .replays
            .store
            .replay_candidates(
                held.what,
                &held.merchant,
                &held.filter,
                (&held.at, Some(&held.end)),
                limit,
            )
            .await?;
        let rules = self.replays.rules(held.queue.as_deref());
        let mut page = Judged {
            upto: found.last().map(Candidate::place),
            last: found.len() < usize::from(limit),
            ..Judged::default()
        };
        for candidate in found {
            let refusal = match &rules {
                Ok(rules) => rules.refusal(account_of(held.what, &candidate), &candidate.kind),
                // Declared when it was asked for, and not any more.
                Err(unknown) => Some(unknown.to_string()),
            };
            match refusal {
                None => page.send.push(candidate),
                Some(why) => {
                    let count = page.refused.entry(why).or_default();
                    *count = count.saturating_add(1);
                }
            }
        }
        Ok(page)
    }
}

/// How many the pace allows since the last page; what was not used in a second is not saved up.
fn allowance(held: &Held, moved: Instant) -> u32 {
    let millis = u64::try_from(moved.elapsed().as_millis())
        .unwrap_or(1000)
        .min(1000);
    let allowed = u64::from(held.per_second).saturating_mul(millis).div_euclid(1000);
    u32::try_from(allowed).unwrap_or(u32::MAX)
}

fn account_of(what: What, candidate: &Candidate) -> Option<(&str, &str)> {
    match what {
        What::Events => candidate.provider.as_deref().zip(candidate.account.as_deref()),
        What::Orders => None,
    }
}
