//! One event, or one decision, in the form that is applied.

use std::collections::BTreeSet;

use super::book::Concern;
use super::{Item, OwnFact};
use crate::event::{AttentionCode, Event, EventId, Fact, FactKind, Identity, ProviderName};
use crate::store::facts::FactKey;
use crate::store::orders::OrderKey;
use crate::store::trades::TradeKey;

/// Whose facts they are that come from no provider.
pub(super) const OWN: &str = "payhook";

/// What a registration's key says beside the order's id.
pub(super) const REGISTERED: &str = "registered";

/// What is to be applied.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) merchant: String,
    pub(super) provider: String,
    pub(super) account: Option<String>,
    pub(super) event_id: Option<EventId>,
    /// The event's key, which its refusals go by.
    pub(super) event_key: Option<String>,
    pub(super) facts: Vec<Fact>,
    /// (trade id, order id): what the signed part teaches.
    pub(super) links: Vec<(String, String)>,
    /// Orders it names: they have it in their history even if it says nothing.
    pub(super) names: Vec<String>,
    /// Why it is not applied.
    pub(super) refusal: Option<Refusal>,
    /// The trade it speaks of, of several the first.
    pub(super) trade: Option<String>,
}

/// What an event may be refused for, by the account or the version that read it.
const REFUSALS: [AttentionCode; 3] = [
    AttentionCode::IdentityMismatch,
    AttentionCode::EventUnreadable,
    AttentionCode::AmountUnreadable,
];

/// Why an event is not applied but shown to a human.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: AttentionCode,
    pub(super) source: String,
    pub(super) explanation: String,
}

/// ` (order O-1, trade T-1, 88.88 CNY)`: as far as the event says.
fn about(event: &Event) -> String {
    let named = |what: &str, id: &Option<String>| id.as_ref().map(|id| format!("{what} {id}"));
    let parts = [
        named("order", &event.order_id),
        named("trade", &event.trade_id),
        event.amount.map(|amount| amount.to_string()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return String::new();
    }
    format!(" ({})", parts.join(", "))
}

impl Input {
    /// An event; `accepted`: the keys of events that an operator let pass although they are about another
    /// account.
    pub(super) fn of_event(item: &Item<'_>, accepted: &BTreeSet<String>) -> Self {
        let (event, reading) = (item.event, item.reading);
        let key = event.key.as_str();
        let refuse = |code, explanation| {
            Some(Refusal {
                code,
                source: key.to_owned(),
                explanation,
            })
        };
        let about = about(event);
        let refusal = match (&reading.identity, &reading.unreadable, &reading.amount_unreadable) {
            (Identity::Mismatch(what), ..) if !accepted.contains(key) => refuse(
                AttentionCode::IdentityMismatch,
                format!("genuine, but not about this account: {what}; it was not applied{about}"),
            ),
            (_, Some(why), _) => refuse(
                AttentionCode::EventUnreadable,
                format!("genuine, but it cannot be understood: {why}; nothing was applied{about}"),
            ),
            (_, None, Some(why)) => refuse(
                AttentionCode::AmountUnreadable,
                format!("an amount cannot be taken as it stands: {why}; nothing was applied{about}"),
            ),
            _ => None,
        };
        let mut input = Self {
            merchant: event.merchant.clone(),
            provider: event.provider.as_str().to_owned(),
            account: Some(event.account.clone()),
            event_id: Some(event.id.clone()),
            event_key: Some(key.to_owned()),
            facts: reading.facts.clone(),
            links: Vec::new(),
            names: reading
                .order_id
                .iter()
                .chain(reading.orders.iter().map(|part| &part.order_id))
                .cloned()
                .collect(),
            refusal,
            trade: event
                .trade_id
                .clone()
                .or_else(|| reading.facts.iter().find_map(|fact| fact.trade_id.clone())),
        };
        for fact in &mut input.facts {
            if matches!(fact.kind, FactKind::PaymentProcessing | FactKind::PaymentFailed) {
                // These two are ordered by time, so they need one.
                fact.at = fact.at.or(Some(event.occurred_at));
            }
            if fact.unsigned.is_some() {
                // What nobody signed must not stand in the way of the same fact told by somebody who did.
                fact.key.push_str(":unsigned");
            }
        }
        input.links = links(&input.facts, &reading.links);
        input
    }

    /// A decision of the merchant or an operator.
    pub(super) fn of_own(merchant: &str, own: &OwnFact) -> Self {
        let (provider, fact) = match own {
            OwnFact::Registered { order_id, amount } => (
                OWN,
                Fact::of_order(FactKind::OrderRegistered, order_id, REGISTERED).with_amount(Some(*amount)),
            ),
            OwnFact::Closed { order_id } => (
                OWN,
                Fact::of_order(FactKind::MerchantClosed, order_id, "merchant_closed"),
            ),
            OwnFact::PaymentAccepted {
                attention_id,
                provider,
                trade_id,
            } => (
                provider.as_str(),
                decision(FactKind::PaymentAccepted, trade_id, attention_id),
            ),
            OwnFact::PaymentKept {
                attention_id,
                provider,
                trade_id,
            } => (
                provider.as_str(),
                decision(FactKind::PaymentKept, trade_id, attention_id),
            ),
        };
        Self {
            merchant: merchant.to_owned(),
            provider: provider.to_owned(),
            account: None,
            event_id: None,
            event_key: None,
            names: fact.order_id.iter().cloned().collect(),
            trade: fact.trade_id.clone(),
            facts: vec![fact],
            links: Vec::new(),
            refusal: None,
        }
    }

    /// The items that an earlier refusal of this event may have raised, if it is not refused now.
    pub(super) fn refused_no_more(&self) -> impl Iterator<Item = Concern> {
        let key = self.event_key.iter().filter(|_| self.refusal.is_none());
        key.flat_map(|key| REFUSALS.map(|code| (self.merchant.clone(), code.as_str(), key.clone())))
    }

    /// Whether it registers an order.
    pub(super) fn registers(&self) -> bool {
        self.facts
            .iter()
            .any(|fact| fact.kind == FactKind::OrderRegistered)
    }

    /// The provider, unless it is ourselves.
    pub(super) fn provider_name(&self) -> Option<ProviderName> {
        self.provider.parse().ok()
    }

    pub(super) fn trade_key(&self, trade_id: &str) -> TradeKey {
        TradeKey {
            merchant: self.merchant.clone(),
            provider: self.provider.clone(),
            trade_id: trade_id.to_owned(),
        }
    }

    pub(super) fn order_key(&self, order_id: &str) -> OrderKey {
        OrderKey {
            merchant: self.merchant.clone(),
            order_id: order_id.to_owned(),
        }
    }

    pub(super) fn fact_key(&self, fact: &Fact) -> FactKey {
        FactKey {
            merchant: self.merchant.clone(),
            provider: self.provider.clone(),
            key: fact.key.clone(),
        }
    }

    /// The facts that are to be recorded, and the trades and orders to be locked: none of a refused event.
    pub(super) fn told(&self) -> &[Fact] {
        if self.refusal.is_some() { &[] } else { &self.facts }
    }

    /// The links that are to be believed.
    pub(super) fn taught(&self) -> &[(String, String)] {
        if self.refusal.is_some() { &[] } else { &self.links }
    }
}

/// What an operator decided about a trade: one fact for each attention item.
fn decision(kind: FactKind, trade_id: &str, attention_id: &str) -> Fact {
    let mut fact = Fact::of_trade(kind, trade_id, "");
    attention_id.clone_into(&mut fact.key);
    fact
}

/// Facts that carry both ids teach the link, and so does the reading; what nobody signed teaches nothing.
fn links(facts: &[Fact], read: &[(String, String)]) -> Vec<(String, String)> {
    let unsigned: BTreeSet<&str> = facts
        .iter()
        .filter(|fact| fact.unsigned.is_some())
        .filter_map(|fact| fact.trade_id.as_deref())
        .collect();
    let told = facts
        .iter()
        .filter_map(|fact| Some((fact.trade_id.clone()?, fact.order_id.clone()?)));
    let mut links: Vec<(String, String)> = Vec::new();
    for (trade, order) in told.chain(read.iter().cloned()) {
        if unsigned.contains(trade.as_str())
            || links.iter().any(|link| *link == (trade.clone(), order.clone()))
        {
            continue;
        }
        links.push((trade, order));
    }
    links
}
