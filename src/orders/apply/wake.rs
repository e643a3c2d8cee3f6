//! Lets what waited for an order take effect, as soon as it may: events parked by a trade nobody had linked, by an
//! order nobody had registered, or, unsigned, by a payment nobody had verified.

use std::collections::BTreeMap;

use super::Outcome;
use super::book::{Book, Recorded, Wait};
use super::end::Part;
use super::words::kinds;
use crate::event::{EventId, Fact};
use crate::orders::status::Status;
use crate::store::facts::FactKey;
use crate::store::orders::OrderKey;

impl Book {
    /// Ends the parked events whose facts others had told first: with those they have taken effect.
    pub(super) fn release(&mut self, order: &OrderKey) {
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
                self.decide_woken(Some(&event), &part);
            }
        }
    }

    /// Lets whatever waited for `order` and may go now take effect, event by event in the order of becoming
    /// known; `but` are the facts of the event at hand. A payment that wakes lets what waited for it go too.
    pub(super) fn wake(&mut self, order: &OrderKey, but: &[FactKey]) {
        while self.wake_once(order, but) {}
    }

    /// Whether there was any.
    fn wake_once(&mut self, order: &OrderKey, but: &[FactKey]) -> bool {
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
        let any = !groups.is_empty();
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
            self.decide_woken(event_id.as_ref(), &part);
        }
        any
    }

    /// Ends an event of which `part` had waited: by precedence with what stands already, and not while another
    /// part of it still waits. What stays as it was keeps its time too, for the deadline counts from there.
    fn decide_woken(&mut self, event: Option<&EventId>, part: &Part) {
        let Some(event) = event else { return };
        let ended = self.ended.get(event.as_str()).map(String::as_str);
        let needs_a_human = ended == Some(Outcome::Attention.as_str());
        let stands = [
            needs_a_human.then_some(Outcome::Attention),
            self.still_waits(event).then_some(Outcome::Parked),
        ];
        let more_pressing = stands
            .into_iter()
            .flatten()
            .any(|stands| stands.precedence() < part.outcome.precedence());
        if !more_pressing {
            self.decide(Some(event), part.outcome, &part.reason);
        }
    }

    /// Whether a fact of the event has not taken effect, or an order that it concerns is not registered yet.
    fn still_waits(&self, event: &EventId) -> bool {
        let waits = |known: &Recorded| !known.effective && known.row.event_id.as_ref() == Some(event);
        let parked = |order: &OrderKey| {
            let here = self.orders.get(order);
            here.is_none_or(|order| order.row.parked_until.is_some())
        };
        let mut elsewhere = self.parked_orders.get(event).into_iter().flatten();
        self.facts.values().any(waits) || elsewhere.any(parked)
    }

    pub(super) fn parked(&self, order: &OrderKey, facts: &[FactKey], reason: &str) -> Part {
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
}
