//! What a replay would do, before it is done.
//!
//! Counts everything that matches, or as much of it as a short time allows. Then reads a sample with today's mapping and
//! applies it to its orders as a worker would, in a transaction that is rolled back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use serde::Serialize;

use super::{Replays, Rules};
use crate::event::{Event, EventId, Reading};
use crate::orders::apply::{ApplyError, Item, OrderChange, preview};
use crate::orders::transition::Standing;
use crate::store::orders::OrderKey;
use crate::store::replays::{COUNTED_AT_MOST, Candidate, Group, Place, ReplayFilter, What};
use crate::store::{Bisection, StoreError};

/// The most events that are read for what would come of them.
const SAMPLE: u16 = 2000;
/// How long they are searched for.
const SEARCH: Duration = Duration::from_secs(2);
/// How long they are judged.
const JUDGING: Duration = Duration::from_secs(5);
/// Events read and judged together; their bodies are in memory at once.
const CHUNK: usize = 64;
/// The most examples of one thing.
const EXAMPLES: usize = 20;
/// How often some of it is judged anew because an order moved in the same moment.
const TRIES: u32 = 3;

/// What would be done.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
pub struct Plan {
    /// What matches.
    pub matched: i64,
    /// There was too much to look at: what follows, and `matched`, are at least so many.
    pub matched_at_least: bool,
    /// Of these: what would be sent again.
    pub would_publish: i64,
    /// Of these: what would not, and why.
    pub refused: Vec<PlannedRefusal>,
    /// Notifications of the same accounts and time that were refused when they came: they are no events and are
    /// never replayed. See `quarantine`.
    pub never_verified: i64,
    /// How many events were read and judged for what follows, from the oldest on. None where no worker would see
    /// what is sent.
    pub examined: usize,
    /// How they would end, by outcome.
    pub outcomes: BTreeMap<&'static str, usize>,
    /// How many orders would change.
    pub orders_changed: usize,
    /// Which, and how; the first of them.
    pub orders: Vec<PlannedOrder>,
    /// Events that could not be applied, and why; the first of them.
    pub failing: Vec<PlannedFailure>,
}

/// What would not be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PlannedRefusal {
    /// Why.
    pub reason: String,
    /// How many.
    pub count: i64,
    /// One of them.
    pub example: String,
}

/// An event that no worker could apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PlannedFailure {
    /// Which.
    pub event_id: EventId,
    /// Why.
    pub reason: String,
}

/// An order that would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PlannedOrder {
    /// Which.
    pub order_id: String,
    /// How it stands.
    pub before: PlannedStanding,
    /// How it would.
    pub after: PlannedStanding,
    /// Whether `order.paid` would be written.
    pub order_paid: bool,
    /// What would then need a human.
    pub attention: Vec<&'static str>,
}

/// How an order stands; amounts in minor units of its currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PlannedStanding {
    /// Its status.
    pub status: &'static str,
    /// Paid.
    pub paid: i64,
    /// Refunded, gross.
    pub refunded: i64,
    /// Of that, come back.
    pub reversed: i64,
}

impl Replays {
    /// What sending again `what` of `merchant` that `filter` finds would do. Writes nothing.
    pub async fn plan(
        &self,
        what: What,
        merchant: &str,
        filter: &ReplayFilter,
        rules: &Rules,
    ) -> Result<Plan, StoreError> {
        let counted = self
            .store
            .count_replayed(what, merchant, filter, None, COUNTED_AT_MOST)
            .await?;
        let mut plan = Plan::of_groups(&counted.groups, rules);
        plan.matched_at_least = counted.at_least;
        if what == What::Events {
            plan.never_verified = self.store.never_verified(merchant, filter).await?;
        }
        if rules.reaches_workers(what) && plan.would_publish > 0 {
            let candidates = self.sample(what, merchant, filter).await?;
            self.examine(&mut plan, &candidates, rules).await?;
        }
        Ok(plan)
    }

    /// The first that match, as far as they are found in a moment.
    async fn sample(
        &self,
        what: What,
        merchant: &str,
        filter: &ReplayFilter,
    ) -> Result<Vec<Candidate>, StoreError> {
        let began = Instant::now();
        let mut at = Place::default();
        let mut sample = Vec::new();
        while began.elapsed() < SEARCH {
            let most = SAMPLE.saturating_sub(u16::try_from(sample.len()).unwrap_or(SAMPLE));
            let look = self
                .store
                .replay_look(what, merchant, filter, (&at, None), most)
                .await?;
            sample.extend(look.found);
            match look.upto {
                Some(upto) if !look.last && sample.len() < usize::from(SAMPLE) => at = upto,
                _ => break,
            }
        }
        Ok(sample)
    }

    /// Judges them, the oldest first, some at a time: on SQLite a transaction keeps the recorder waiting. An order whose
    /// events are in two of them is judged twice by how it stands, and counted once.
    async fn examine(
        &self,
        plan: &mut Plan,
        candidates: &[Candidate],
        rules: &Rules,
    ) -> Result<(), StoreError> {
        let began = Instant::now();
        let ids: Vec<EventId> = candidates
            .iter()
            .filter(|one| {
                let account = one.provider.as_deref().zip(one.account.as_deref());
                rules.refusal(account, &one.kind).is_none()
            })
            .map(|one| EventId::from_text(&*one.id))
            .collect();
        let mut changes = BTreeMap::new();
        for chunk in ids.chunks(CHUNK) {
            if began.elapsed() > JUDGING {
                break;
            }
            let readable = self.read(plan, chunk).await?;
            let items: Vec<Item<'_>> = readable
                .iter()
                .map(|(event, reading)| Item { event, reading })
                .collect();
            self.judge(plan, &mut changes, items).await?;
        }
        plan.changes(changes.into_values().collect());
        Ok(())
    }

    /// Reads events with today's mapping.
    async fn read(&self, plan: &mut Plan, ids: &[EventId]) -> Result<Vec<(Arc<Event>, Reading)>, StoreError> {
        let registry = self.registry.load_full();
        let mut events = Vec::with_capacity(ids.len());
        for read in self.store.events_by_id(ids).await? {
            plan.examined = plan.examined.saturating_add(1);
            match read {
                Ok(event) => events.push(event),
                Err(unreadable) => plan.fails(unreadable.id, unreadable.reason),
            }
        }
        events.sort_by(|one, other| one.id.cmp(&other.id));
        let mut readable = Vec::with_capacity(events.len());
        for event in events {
            match registry.read(&event) {
                Ok(reading) => readable.push((event, reading)),
                Err(reason) => plan.fails(event.id.clone(), reason),
            }
        }
        Ok(readable)
    }

    /// Judges `items`, in parts around those that the database refuses.
    async fn judge(
        &self,
        plan: &mut Plan,
        changes: &mut BTreeMap<OrderKey, OrderChange>,
        items: Vec<Item<'_>>,
    ) -> Result<(), StoreError> {
        let mut parts = Bisection::of(items);
        let mut tries = 1;
        while let Some(part) = parts.take() {
            let mut tx = self.store.begin().await?;
            // Never committed: what was locked or recorded for it is rolled back.
            match preview(&mut tx, &part, &self.policy, self.clock.now()).await {
                Ok(found) => {
                    tx.rollback().await?;
                    for applied in &found.applied {
                        plan.counts(applied.outcome.as_str());
                    }
                    for change in found.changes {
                        merge(changes, change);
                    }
                }
                Err(ApplyError::Store(error @ StoreError::Refused(_))) => {
                    if let Some(refused) = parts.halve(part) {
                        plan.fails(refused.event.id.clone(), error.to_string());
                    }
                }
                Err(ApplyError::Contended) if tries < TRIES => {
                    tries += 1;
                    parts.put_back(part);
                }
                Err(ApplyError::Contended) => return Err(StoreError::timed_out()),
                Err(ApplyError::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }
}

/// From how the order stands to where it ends.
fn merge(changes: &mut BTreeMap<OrderKey, OrderChange>, change: OrderChange) {
    match changes.entry(change.order.clone()) {
        Entry::Vacant(vacant) => {
            vacant.insert(change);
        }
        Entry::Occupied(mut known) => {
            let known = known.get_mut();
            known.after = change.after;
            known.ships |= change.ships;
            for code in change.attention {
                if !known.attention.contains(&code) {
                    known.attention.push(code);
                }
            }
        }
    }
}

impl Plan {
    fn of_groups(groups: &[Group], rules: &Rules) -> Self {
        let mut plan = Self::default();
        for group in groups {
            plan.matched = plan.matched.saturating_add(group.found);
            let account = group.provider.as_deref().zip(group.account.as_deref());
            let Some(reason) = rules.refusal(account, &group.kind) else {
                plan.would_publish = plan.would_publish.saturating_add(group.found);
                continue;
            };
            match plan.refused.iter_mut().find(|known| known.reason == reason) {
                Some(known) => known.count = known.count.saturating_add(group.found),
                None => plan.refused.push(PlannedRefusal {
                    reason,
                    count: group.found,
                    example: group.example.clone(),
                }),
            }
        }
        plan
    }

    fn counts(&mut self, outcome: &'static str) {
        let count = self.outcomes.entry(outcome).or_default();
        *count = count.saturating_add(1);
    }

    fn fails(&mut self, event_id: EventId, reason: String) {
        self.counts("failing");
        if self.failing.len() < EXAMPLES {
            self.failing.push(PlannedFailure { event_id, reason });
        }
    }

    fn changes(&mut self, changes: Vec<OrderChange>) {
        self.orders_changed = changes.len();
        self.orders = changes
            .into_iter()
            .take(EXAMPLES)
            .map(|change| PlannedOrder {
                order_id: change.order.order_id,
                before: standing(&change.before),
                after: standing(&change.after),
                order_paid: change.ships,
                attention: change.attention,
            })
            .collect();
    }
}

fn standing(stands: &Standing) -> PlannedStanding {
    PlannedStanding {
        status: stands.status.as_str(),
        paid: stands.totals.paid,
        refunded: stands.totals.refunded,
        reversed: stands.totals.reversed,
    }
}
