//! Moves running replays on: a page at a time, at the pace that was asked for, while the outbox is not behind.
//!
//! Every process with a worker has one. A replay is driven by whoever holds its lease; when that process dies,
//! another goes on from the last page that was committed as soon as the lease has run out.
//!
//! Processes need not have the same configuration. One that does not declare the replay's queue gives the lease up,
//! says why in the replay and rests, so that another may go on; if none can, the replay waits. An account that this
//! process does not know is left to others in the same way, but not for ever, since accounts come to an end: when
//! nobody has gone on within minutes, what came to it is refused. Where there can be no other process (SQLite) that
//! is at once.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Replays;
use super::pace::{allowance, at_once, used};
use super::page::Stranger;
use crate::store::StoreError;
use crate::store::replays::{Held, Moved};
use crate::telemetry::causes;
use crate::telemetry::metrics::names;

/// From one round to the next while something runs.
const TICK: Duration = Duration::from_millis(100);
/// Between two looks while nothing does.
const IDLE: Duration = Duration::from_millis(500);
/// Leases are renewed so often; they hold several times as long.
const RENEW: Duration = Duration::from_secs(3);
/// How long a replay rests that has a trouble of its own.
const REST: Duration = Duration::from_secs(30);
/// How long the store may take to count or to find a page: less than a lease holds, or two processes would take
/// the replay from each other for ever.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rows that all replays of this process together may have in the outbox. A fresh event, and its `order.paid`, wait
/// behind them in the outbox and in the workers' queue, however many replays run.
const OUTSTANDING: i64 = 1000;
/// The most in one page: other writers come in between two.
const PAGE: u32 = 250;
/// How long one replay is moved on in a round, a page at a time.
const TURN: Duration = Duration::from_millis(200);

/// Drives replays for one process.
#[derive(Debug)]
pub struct Driver {
    replays: Replays,
    process: String,
    /// Those that this process drives.
    driven: HashMap<String, Driven>,
    /// Those that it has left to others, and until when.
    left: HashMap<String, Instant>,
    /// The accounts that nobody else knew either, by replay.
    nobodys: HashMap<String, BTreeSet<(String, String)>>,
    renew_at: Instant,
}

/// A replay that this process drives.
#[derive(Clone, Copy, Debug)]
struct Driven {
    /// Up to when the pace has been used.
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
            left: HashMap::new(),
            nobodys: HashMap::new(),
            renew_at: Instant::now(),
        }
    }

    /// Until `shutdown`; then others may go on at once.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let began = Instant::now();
            let pause = match self.step().await {
                Ok(Round { driven: 0, .. }) => IDLE,
                // A round at every tick, and a fifth of the time for others however slow it is.
                Ok(_) => TICK.saturating_sub(began.elapsed()).max(began.elapsed() / 4),
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
            match self.turn(&id).await {
                Ok(Turn { sent, ours }) => {
                    moved |= ours;
                    round.sent = round.sent.saturating_add(sent);
                    if !ours {
                        self.driven.remove(&id);
                    }
                }
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
        let now = Instant::now();
        self.left.retain(|_, until| *until > now);
        let left = self.left.keys().map(String::as_str);
        let leased = self.replays.store.lease_replays(&self.process, left).await?;
        self.driven.retain(|id, _| leased.contains(id));
        self.left.retain(|_, until| *until > Instant::now());
        let (driven, left) = (&self.driven, &self.left);
        self.nobodys
            .retain(|id, _| driven.contains_key(id) || left.contains_key(id));
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

    /// Page after page, as far as pace, outbox and time allow.
    async fn turn(&mut self, id: &str) -> Result<Turn, StoreError> {
        let began = Instant::now();
        let mut all = 0_u64;
        loop {
            let (sent, ours) = match self.move_on(id).await? {
                Step::Rests => {
                    return Ok(Turn {
                        sent: all,
                        ours: true,
                    });
                }
                Step::Gone => (0, false),
                Step::Moved(sent) => (sent, true),
            };
            all = all.saturating_add(sent);
            if !ours || began.elapsed() >= TURN {
                return Ok(Turn { sent: all, ours });
            }
        }
    }

    /// One page.
    async fn move_on(&mut self, id: &str) -> Result<Step, StoreError> {
        let store = self.replays.store.clone();
        let Some(driven) = self.driven.get(id).copied() else {
            return Ok(Step::Gone);
        };
        if driven.rests.is_some_and(|until| until > Instant::now()) {
            return Ok(Step::Rests);
        }
        let Some(held) = store.held_replay(id, &self.process).await? else {
            return Ok(Step::Gone);
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
                return Ok(Step::Rests);
            }
            self.nobodys.remove(id);
            if store.finish_replay(&held, &self.process).await? {
                tracing::info!(replay.id = id, replay.sent = held.sent, "replay done");
            }
            return Ok(Step::Gone);
        }
        let share = share(self.driven.len());
        let room = share.saturating_sub(u32::try_from(waiting.rows).unwrap_or(u32::MAX));
        let allowed = allowance(held.per_second, driven.moved, Instant::now());
        let most = allowed.min(room).min(PAGE);
        // Few small pages are cheaper than many tiny ones.
        let least = at_once(held.per_second, TICK, PAGE).min(share.div_ceil(2));
        if most < least {
            return Ok(Step::Rests);
        }
        let Ok(rules) = self.replays.rules(held.queue.as_deref()) else {
            return self.leave(&held, Stranger::queue(&held)).await;
        };
        let nobodys = self.nobodys.entry(id.to_owned()).or_default();
        let looking = self
            .replays
            .page(nobodys, &held, &rules, u16::try_from(most).unwrap_or(u16::MAX));
        let Ok(page) = tokio::time::timeout(PATIENCE, looking).await else {
            tracing::warn!(replay.id = id, "finding a page takes too long; tried again later");
            self.rest(id, REST);
            return Ok(Step::Rests);
        };
        let page = match page? {
            Ok(page) => page,
            Err(stranger) => return self.leave(&held, stranger).await,
        };
        match store.move_replay(&held, &page, &self.process).await? {
            Moved::Lost => Ok(Step::Gone),
            Moved::Sent(sent) => {
                if let Some(driven) = self.driven.get_mut(id) {
                    driven.moved = used(driven.moved, held.per_second, sent, Instant::now());
                }
                counter!(names::REPLAYED, "what" => held.what.as_str()).increment(sent);
                Ok(Step::Moved(sent))
            }
        }
    }

    /// Lets another process go on with what this one does not know.
    async fn leave(&mut self, held: &Held, stranger: Stranger) -> Result<Step, StoreError> {
        let Stranger(why) = stranger;
        tracing::warn!(replay.id = held.id, why, "a replay is left to other processes");
        self.replays.store.leave_replay(held, &self.process, &why).await?;
        self.left.insert(held.id.clone(), Instant::now() + REST);
        Ok(Step::Gone)
    }
}

/// Returns the part of [`OUTSTANDING`] that each of `replays` may have.
fn share(replays: usize) -> u32 {
    let replays = i64::try_from(replays).unwrap_or(i64::MAX).max(1);
    u32::try_from(OUTSTANDING.div_euclid(replays).max(1)).unwrap_or(1)
}

/// What a round did for one replay.
struct Turn {
    sent: u64,
    /// This process still drives it.
    ours: bool,
}

/// What became of one page.
enum Step {
    /// It was handed over, or nothing in it matched.
    Moved(u64),
    /// Not now.
    Rests,
    /// It is not ours any more, or has ended.
    Gone,
}
