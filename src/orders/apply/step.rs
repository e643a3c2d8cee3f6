//! Walks one event through the book: what it contradicts, links, fills, settles and wakes, and how it ended.

use std::collections::{BTreeMap, BTreeSet};

use super::book::{Book, Recorded, Wait};
use super::input::Input;
use super::settle::Change;
use super::words::{Line, kinds, too_late};
use super::{Applied, Outcome};
use crate::event::{AttentionCode, EventId, Fact, FactKind, Money};
use crate::orders::status::Status;
use crate::store::attention::NewAttention;
use crate::store::facts::FactKey;
use crate::store::history::NewOutcome;
use crate::store::orders::OrderKey;
use crate::store::trades::TradeRow;

/// How one order, or nothing, was concerned.
struct Part {
    order: Option<OrderKey>,
    fact: String,
    outcome: Outcome,
    reason: String,
    before: Status,
    after: Status,
    /// Something was changed, raised or took effect.
    moved: bool,
}

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
        if let Some(refusal) = &input.refusal {
            let order = input.names.first().map(|order| input.order_key(order));
            let explanation = refusal.explanation.clone();
            parts.push(self.complain(input, refusal.code, refusal.source.clone(), order, explanation));
        }
        let linked = self.link(input, &mut parts);
        let sorted = self.sort(input, &linked.1, &mut parts);
        for (key, reason) in &sorted.waiting {
            let fact = self.facts.get(key);
            parts.push(Part {
                order: None,
                fact: fact.map_or("", |fact| fact.row.fact.kind.as_str()).to_owned(),
                outcome: Outcome::Parked,
                reason: reason.clone(),
                before: Status::Pending,
                after: Status::Pending,
                moved: fact.is_some_and(|fact| fact.fresh),
            });
        }
        for (order, told) in &sorted.orders {
            self.concern(input, order, told, linked.0.contains(&order.order_id), &mut parts);
        }
        self.finish(input, parts)
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
            if row.is_some_and(|row| fill(row, fact)) {
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
            if registers {
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

    /// Ends the parked events whose facts others had told first: with those they have taken effect.
    fn release(&mut self, order: &OrderKey) {
        let waits = |wait: &Wait| match wait {
            Wait::Order(key) => key == order,
            Wait::Trade(key) => {
                let row = self.trades.get(key);
                key.merchant == order.merchant
                    && row.and_then(|row| row.order_id.as_ref()) == Some(&order.order_id)
            }
        };
        let told_nothing_else = |event: &EventId| {
            let mut facts = self.facts.values();
            facts.all(|known| known.effective || known.row.event_id.as_ref() != Some(event))
        };
        let ended: Vec<EventId> = self
            .parked
            .iter()
            .filter(|(event, wait)| {
                self.ended
                    .get(event.as_str())
                    .is_some_and(|ended| ended == "parked")
                    && waits(wait)
                    && told_nothing_else(event)
            })
            .map(|(event, _)| event.clone())
            .collect();
        for event in ended {
            let status = self.status_of(Some(order));
            let part = Part {
                order: Some(order.clone()),
                fact: String::new(),
                outcome: Outcome::AlreadyApplied,
                reason: "had waited; everything in it was known".to_owned(),
                before: status,
                after: status,
                moved: false,
            };
            if self
                .ended
                .get(event.as_str())
                .is_some_and(|ended| ended == "parked")
            {
                self.note(Some(&event), &part);
                self.decide(Some(&event), part.outcome, &part.reason);
            }
        }
    }

    fn is_kind(&self, key: &FactKey, kind: FactKind) -> bool {
        self.facts
            .get(key)
            .is_some_and(|known| known.row.fact.kind == kind)
    }

    fn parked(&self, order: &OrderKey, facts: &[FactKey], reason: &str) -> Part {
        let status = self
            .orders
            .get(order)
            .map_or(Status::Pending, |order| order.stands.status);
        let facts: Vec<&Recorded> = facts.iter().filter_map(|key| self.facts.get(key)).collect();
        Part {
            order: Some(order.clone()),
            fact: kinds(facts.iter().map(|known| &known.row.fact)),
            outcome: Outcome::Parked,
            reason: reason.to_owned(),
            before: status,
            after: status,
            moved: facts.iter().any(|known| known.fresh),
        }
    }

    /// Lets whatever waited for `order` and may go now take effect, event by event in the order of becoming
    /// known; `but` are the facts of the event at hand.
    fn wake(&mut self, order: &OrderKey, but: &[FactKey]) {
        let mut groups: BTreeMap<(i64, Option<EventId>), Vec<FactKey>> = BTreeMap::new();
        let mut first: BTreeMap<Option<EventId>, i64> = BTreeMap::new();
        let mut waiting: Vec<&Recorded> = self
            .facts
            .values()
            .filter(|known| !known.effective && known.stepped)
            .filter(|known| {
                let row = &known.row;
                self.order_of(&row.merchant, &row.provider, &row.fact).as_ref() == Some(order)
                    && !but.contains(&row.key())
                    && self.is_eligible(known)
            })
            .collect();
        waiting.sort_by_key(|known| known.row.id);
        for known in waiting {
            let event = known.row.event_id.clone();
            let at = *first.entry(event.clone()).or_insert(known.row.id);
            groups.entry((at, event)).or_default().push(known.row.key());
        }
        for ((_, event_id), keys) in groups {
            let change = self.settle(order, &keys, event_id.as_ref());
            let facts: Vec<Fact> = keys
                .iter()
                .filter_map(|key| self.facts.get(key))
                .map(|known| known.row.fact.clone())
                .collect();
            let told: Vec<&Fact> = facts.iter().collect();
            let mut part = self.judge_part(order, &told, &keys, &change, false);
            part.reason = format!("had waited; {}", part.reason);
            self.note(event_id.as_ref(), &part);
            self.decide(event_id.as_ref(), part.outcome, &part.reason);
        }
    }

    /// How facts that took effect on an order ended. `told`: all that the event says about it; `new`: those of
    /// them that took effect now.
    fn judge_part(
        &self,
        order: &OrderKey,
        told: &[&Fact],
        new: &[FactKey],
        change: &Change,
        gained: bool,
    ) -> Part {
        let fresh: Vec<&Fact> = new
            .iter()
            .filter_map(|key| self.facts.get(key))
            .map(|known| &known.row.fact)
            .collect();
        let kept = fresh
            .iter()
            .map(|fact| self.unmoved(order, fact))
            .min_by_key(|outcome| outcome.precedence());
        let (outcome, reason) = if let [first, ..] = change.raised.as_slice() {
            (Outcome::Attention, first.clone())
        } else if !change.words.is_empty() {
            (Outcome::Applied, change.words.join("; "))
        } else if gained {
            (
                Outcome::Applied,
                "the trade is linked to the order now".to_owned(),
            )
        } else {
            let names = kinds(fresh.iter().copied());
            match kept {
                None => (Outcome::AlreadyApplied, "everything in it was known".to_owned()),
                Some(Outcome::Stale) => (Outcome::Stale, too_late(&names, change.after)),
                Some(Outcome::AlreadyApplied) => (
                    Outcome::AlreadyApplied,
                    format!("{names}: a second view of money that is booked already"),
                ),
                Some(outcome) => (outcome, format!("{names}: noted, nothing changes by it")),
            }
        };
        Part {
            order: Some(order.clone()),
            fact: kinds(told.iter().copied()),
            outcome,
            reason,
            before: change.before,
            after: change.after,
            moved: gained || !new.is_empty() || !change.words.is_empty() || !change.raised.is_empty(),
        }
    }

    /// How a new fact ended that changed nothing.
    fn unmoved(&self, order: &OrderKey, fact: &Fact) -> Outcome {
        let refunded = || {
            self.trades_of(order)
                .iter()
                .filter_map(|key| self.trades.get(key))
                .filter(|row| Some(&row.key.trade_id) == fact.trade_id.as_ref())
                .map(|row| row.refunded)
                .max()
        };
        match fact.kind {
            FactKind::PaymentProcessing
            | FactKind::PaymentFailed
            | FactKind::TradeClosed
            | FactKind::MerchantClosed
            | FactKind::TradeFinished
            | FactKind::RefundAbnormal
            | FactKind::PaymentAccepted => Outcome::Stale,
            FactKind::RefundedTotal if fact.amount.map(|money| money.minor) < refunded() => Outcome::Stale,
            FactKind::RefundSucceeded | FactKind::RefundedTotal => Outcome::AlreadyApplied,
            FactKind::PaymentSucceeded
            | FactKind::OrderRegistered
            | FactKind::RefundFailed
            | FactKind::DisputeOpened
            | FactKind::DisputeWon
            | FactKind::DisputeLost
            | FactKind::DisputeFundsWithdrawn
            | FactKind::DisputeFundsReinstated => Outcome::Applied,
        }
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
            order_id: order.as_ref().map(|order| order.order_id.clone()),
            trade_id: input.facts.iter().find_map(|fact| fact.trade_id.clone()),
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

    /// The event's own end: its parts by precedence, noted unless this is a mere repetition.
    fn finish(&mut self, input: &Input, mut parts: Vec<Part>) -> Applied {
        for key in input.facts.iter().map(|fact| input.fact_key(fact)) {
            if let Some(known) = self.facts.get_mut(&key) {
                known.stepped = true;
            }
        }
        let waits = input
            .facts
            .iter()
            .map(|fact| match (&fact.trade_id, &fact.order_id) {
                (Some(trade), _) => Some(Wait::Trade(input.trade_key(trade))),
                (None, order) => order.as_ref().map(|order| Wait::Order(input.order_key(order))),
            });
        let orders = parts.iter().filter(|part| part.outcome == Outcome::Parked);
        let orders = orders.filter_map(|part| part.order.clone().map(Wait::Order));
        if let Some(event) = &input.event_id {
            let waits = waits.flatten().chain(orders);
            self.parked.extend(waits.map(|wait| (event.clone(), wait)));
        }
        if parts.is_empty() {
            parts.extend(self.unmapped(input));
        }
        let outcome = parts
            .iter()
            .map(|part| part.outcome)
            .min_by_key(|outcome| outcome.precedence())
            .unwrap_or(Outcome::Unmapped);
        let mut reasons: Vec<&str> = Vec::new();
        for part in parts.iter().filter(|part| part.outcome == outcome) {
            if !reasons.contains(&part.reason.as_str()) {
                reasons.push(&part.reason);
            }
        }
        let reason = reasons.join("; ");
        let event_id = input.event_id.as_ref();
        let ended = event_id
            .and_then(|id| self.ended.get(id.as_str()))
            .map(String::as_str);
        let repeated = parts.iter().all(|part| !part.moved)
            && ended.is_some_and(|ended| {
                ended == outcome.as_str()
                    || outcome == Outcome::AlreadyApplied && !matches!(ended, "parked" | "dead" | "unmapped")
            });
        if !repeated {
            for part in &parts {
                self.note(event_id, part);
            }
            self.decide(event_id, outcome, &reason);
        }
        Applied {
            event_id: input.event_id.clone(),
            outcome,
            reason,
        }
    }

    /// One part for each order that the event names, or one for none.
    fn unmapped(&self, input: &Input) -> Vec<Part> {
        let part = |order: Option<OrderKey>| Part {
            before: self.status_of(order.as_ref()),
            after: self.status_of(order.as_ref()),
            order,
            fact: String::new(),
            outcome: Outcome::Unmapped,
            reason: "it says nothing that moves an order".to_owned(),
            moved: false,
        };
        let named = input.names.iter().map(|order| input.order_key(order));
        let known: Vec<Part> = named
            .filter(|order| self.orders.contains_key(order))
            .map(|order| part(Some(order)))
            .collect();
        if known.is_empty() { vec![part(None)] } else { known }
    }

    fn status_of(&self, order: Option<&OrderKey>) -> Status {
        order
            .and_then(|order| self.orders.get(order))
            .map_or(Status::Pending, |order| order.stands.status)
    }

    fn note(&mut self, event_id: Option<&EventId>, part: &Part) {
        let Some(order) = &part.order else { return };
        self.writes.history.push(Line {
            order: order.clone(),
            event_id: event_id.cloned(),
            fact: part.fact.clone(),
            outcome: part.outcome,
            reason: part.reason.clone(),
            before: part.before,
            after: part.after,
        });
        if let Some(event_id) = event_id {
            self.writes.concerns.insert((event_id.clone(), order.clone()));
        }
    }

    fn decide(&mut self, event_id: Option<&EventId>, outcome: Outcome, reason: &str) {
        let Some(event_id) = event_id else { return };
        self.ended
            .insert(event_id.as_str().to_owned(), outcome.as_str().to_owned());
        let decided = NewOutcome {
            event_id: event_id.clone(),
            outcome: outcome.as_str(),
            reason: reason.to_owned(),
        };
        self.writes.outcomes.insert(event_id.as_str().to_owned(), decided);
    }
}

fn unlinked(fact: &Fact) -> String {
    match &fact.trade_id {
        Some(trade) => format!("trade {trade} is not linked to an order yet"),
        None => format!("{} names neither an order nor a trade", fact.kind.as_str()),
    }
}

/// Why `fact` cannot be the fact that is known under its key.
fn contradiction(known: &Recorded, fact: &Fact, trade: Option<&TradeRow>) -> Option<String> {
    let was = &known.row.fact;
    if let (Some(one), Some(other)) = (&was.trade_id, &fact.trade_id)
        && one != other
    {
        return Some(format!(
            "{} was told of trade {one}, and now of trade {other}",
            fact.key
        ));
    }
    let pays = fact.kind == FactKind::PaymentSucceeded;
    let is_money = pays
        || matches!(
            fact.kind,
            FactKind::OrderRegistered
                | FactKind::RefundSucceeded
                | FactKind::RefundedTotal
                | FactKind::DisputeOpened
                | FactKind::DisputeWon
                | FactKind::DisputeLost
                | FactKind::DisputeFundsWithdrawn
                | FactKind::DisputeFundsReinstated
        );
    if !is_money || fact.unsigned.is_some() {
        return None;
    }
    let booked = if pays {
        trade.and_then(|trade| trade.amount)
    } else {
        None
    }
    .or(was.amount)?;
    let told = fact.amount?;
    let assumed = fact.currency_assumed || was.currency_assumed && !pays;
    let same =
        |one: Money, other: Money| one.minor == other.minor && (assumed || one.currency == other.currency);
    (!same(booked, told)).then(|| {
        format!(
            "{} was told with {booked}, and now with {told}: the first stays booked",
            fact.key
        )
    })
}

/// Fills what the trade did not know; whether it did.
fn fill(row: &mut TradeRow, fact: &Fact) -> bool {
    if fact.unsigned.is_some() {
        return false;
    }
    let was = row.clone();
    match fact.kind {
        FactKind::PaymentSucceeded => {
            row.amount = row.amount.or(fact.amount);
            row.currency = row.amount.map(|money| money.currency).or(row.currency);
            row.paid_at = row.paid_at.or(fact.at);
        }
        FactKind::PaymentProcessing => row.processing_at = row.processing_at.max(fact.at),
        _ => {}
    }
    *row != was
}
