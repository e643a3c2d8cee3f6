//! Walks one event through the book: what it contradicts, links, fills, settles and wakes, and how it ended.

use std::collections::BTreeSet;

use super::book::Book;
use super::end::Part;
use super::input::Input;
use super::seen::{contradiction, fill, unlinked};
use super::words::kinds;
use super::{Applied, Outcome};
use crate::event::{AttentionCode, Fact, FactKind};
use crate::orders::status::Status;
use crate::store::attention::NewAttention;
use crate::store::facts::FactKey;
use crate::store::orders::OrderKey;

/// The facts of an event, by the order that they belong to.
#[derive(Default)]
struct Sorted {
    orders: Vec<(OrderKey, Vec<FactKey>)>,
    /// Facts that belong to no order yet, with why.
    waiting: Vec<(FactKey, String)>,
}

impl Book {
    /// Applies one event.
    pub(super) fn step(&mut self, input: &Input) -> Applied {
        let mut parts = Vec::new();
        let noted = self.writes.history.len();
        if let Some(refusal) = &input.refusal {
            let order = input.names.first().map(|order| input.order_key(order));
            let explanation = refusal.explanation.clone();
            parts.push(self.complain(input, refusal.code, refusal.source.clone(), order, explanation));
        }
        self.writes.counted.extend(input.not_applied.clone());
        let linked = self.link(input, &mut parts);
        let sorted = self.sort(input, &linked.1, &mut parts);
        for (key, reason) in &sorted.waiting {
            let fact = self.facts.get(key);
            // It is recorded all the same, and takes effect when its trade is linked.
            let ignored = input
                .ignored
                .filter(|_| fact.is_some_and(|fact| fact.row.fact.trade_id.is_some()));
            parts.push(Part {
                order: None,
                fact: fact.map_or("", |fact| fact.row.fact.kind.as_str()).to_owned(),
                outcome: ignored.map_or(Outcome::Parked, |_| Outcome::Unmapped),
                reason: ignored.map_or_else(|| reason.clone(), str::to_owned),
                before: Status::Pending,
                after: Status::Pending,
                moved: fact.is_some_and(|fact| fact.fresh),
            });
        }
        for (order, told) in &sorted.orders {
            self.concern(input, order, told, linked.0.contains(&order.order_id), &mut parts);
        }
        let applied = self.finish(input, parts);
        if input.registers() {
            // Before what it let go.
            self.history_begins_with_the_last(noted);
        }
        applied
    }

    /// Teaches the event's links: the orders that gained a trade, and the trades that are another order's.
    fn link(&mut self, input: &Input, parts: &mut Vec<Part>) -> (BTreeSet<String>, BTreeSet<String>) {
        let mut gained = BTreeSet::new();
        let mut contradicted = BTreeSet::new();
        for (trade_id, order_id) in input.taught() {
            let key = input.trade_key(trade_id);
            let Some(row) = self.trades.get_mut(&key) else {
                continue;
            };
            match row.order_id.clone() {
                None => {
                    row.order_id = Some(order_id.clone());
                    self.changed_trades.insert(key);
                    gained.insert(order_id.clone());
                }
                Some(known) if known != *order_id => {
                    contradicted.insert(trade_id.clone());
                    let source = format!("{}:{trade_id}:order:{order_id}", input.provider);
                    let explanation = format!(
                        "{} trade {trade_id} belongs to order {known}, but an event says order {order_id}: \
                         it was not applied",
                        input.provider
                    );
                    let order = Some(input.order_key(&known));
                    parts.push(self.complain(input, AttentionCode::FactConflict, source, order, explanation));
                }
                Some(_) => {}
            }
        }
        (gained, contradicted)
    }

    /// Sorts the told facts by order; what contradicts a known fact is shown to a human, and what repeats one
    /// fills what its trade did not know.
    fn sort(&mut self, input: &Input, contradicted: &BTreeSet<String>, parts: &mut Vec<Part>) -> Sorted {
        let mut sorted = Sorted::default();
        let add =
            |orders: &mut Vec<(OrderKey, Vec<FactKey>)>, order: OrderKey, fact: Option<FactKey>| match orders
                .iter_mut()
                .find(|(known, _)| *known == order)
            {
                Some((_, facts)) => facts.extend(fact),
                None => orders.push((order, fact.into_iter().collect())),
            };
        for fact in input.told() {
            if fact
                .trade_id
                .as_ref()
                .is_some_and(|trade| contradicted.contains(trade))
            {
                continue;
            }
            let key = input.fact_key(fact);
            let trade = fact.trade_id.as_deref().map(|trade| input.trade_key(trade));
            let order = self.order_of(&input.merchant, &input.provider, fact);
            let known = self.facts.get(&key);
            let row = trade.as_ref().and_then(|trade| self.trades.get(trade));
            if let Some(why) = known.and_then(|known| contradiction(known, fact, row)) {
                let source = format!("{}:{}", input.provider, key.key);
                parts.push(self.complain(input, AttentionCode::FactConflict, source, order, why));
                continue;
            }
            let row = trade.as_ref().and_then(|trade| self.trades.get_mut(trade));
            let ships = input.ships(fact);
            if row.is_some_and(|row| fill(row, fact, ships)) {
                self.changed_trades.extend(trade.clone());
            }
            match order {
                Some(order) => add(&mut sorted.orders, order, Some(key)),
                None => sorted.waiting.push((key, unlinked(fact))),
            }
        }
        for (trade_id, _) in input.taught() {
            let row = self.trades.get(&input.trade_key(trade_id));
            let order = row.and_then(|row| row.order_id.as_deref());
            if let Some(order) = order.filter(|_| !contradicted.contains(trade_id)) {
                add(&mut sorted.orders, input.order_key(order), None);
            }
        }
        sorted
    }

    /// Everything the event means for one order.
    fn concern(
        &mut self,
        input: &Input,
        order: &OrderKey,
        told: &[FactKey],
        gained: bool,
        parts: &mut Vec<Part>,
    ) {
        let registers = told
            .iter()
            .any(|key| self.is_kind(key, FactKind::OrderRegistered));
        let event_id = input.event_id.as_ref();
        let own: Vec<FactKey> = told
            .iter()
            .filter(|key| {
                self.facts
                    .get(key)
                    .is_some_and(|known| !known.effective && known.row.event_id.as_ref() == event_id)
            })
            .cloned()
            .collect();
        if let Some(row) = self
            .orders
            .get_mut(order)
            .filter(|row| row.row.parked_until.is_some())
        {
            if registers || self.creates {
                row.row.parked_until = None;
            } else {
                parts.push(self.parked(order, told, "the order waits for its registration"));
                return;
            }
        }
        // What waited became known first; but a registration is what it waited for.
        if !registers {
            self.wake(order, &own);
        }
        let (ready, waits): (Vec<FactKey>, Vec<FactKey>) = own
            .into_iter()
            .partition(|key| self.facts.get(key).is_some_and(|known| self.is_eligible(known)));
        let change = self.settle(order, &ready, event_id);
        if !waits.is_empty() {
            let reason = "nobody signed this: it waits for the verified payment of its trade";
            parts.push(self.parked(order, &waits, reason));
        }
        if waits.is_empty() || !ready.is_empty() || !change.words.is_empty() {
            let told: Vec<&Fact> = input
                .told()
                .iter()
                .filter(|fact| told.contains(&input.fact_key(fact)))
                .collect();
            parts.push(self.judge_part(order, &told, &ready, &change, gained));
        }
        self.wake(order, &[]);
        self.release(order);
    }

    fn is_kind(&self, key: &FactKey, kind: FactKind) -> bool {
        self.facts
            .get(key)
            .is_some_and(|known| known.row.fact.kind == kind)
    }

    /// Something that only a human can settle: raised once, and the event says so each time.
    fn complain(
        &mut self,
        input: &Input,
        code: AttentionCode,
        source: String,
        order: Option<OrderKey>,
        explanation: String,
    ) -> Part {
        // An item names its order even if there is none of that name yet.
        let order_id = order.as_ref().map(|order| order.order_id.clone());
        let order = order.filter(|order| self.orders.contains_key(order));
        let status = order
            .as_ref()
            .and_then(|order| self.orders.get(order))
            .map_or(Status::Pending, |order| order.stands.status);
        let id = (input.merchant.clone(), code.as_str(), source.clone());
        let ended = input.event_id.as_ref().and_then(|id| self.ended.get(id.as_str()));
        let moved = !self.raised.contains_key(&id) && ended.is_none_or(|ended| ended != "attention");
        self.raise(NewAttention {
            code,
            source,
            merchant: input.merchant.clone(),
            provider: input.provider_name(),
            account: input.account.clone(),
            order_id,
            trade_id: input.trade.clone(),
            event_id: input.event_id.clone(),
            explanation: explanation.clone(),
        });
        Part {
            order,
            fact: kinds(&input.facts),
            outcome: Outcome::Attention,
            reason: explanation,
            before: status,
            after: status,
            moved,
        }
    }
}
