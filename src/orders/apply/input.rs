//! One event, or one decision, in the form that is applied.

use std::collections::BTreeSet;
use std::time::Duration;

use super::book::Concern;
use super::{Item, OwnFact};
use crate::event::{AttentionCode, Event, EventId, Fact, FactKind, Identity, NoOrder, ProviderName, Reading};
use crate::store::accounts::AccountKey;
use crate::store::attention::NewAttention;
use crate::store::attention_group::Counted;
use crate::store::facts::FactKey;
use crate::store::orders::OrderKey;
use crate::store::trades::TradeKey;
use crate::time::Timestamp;

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
    /// Why it is not applied, and the item that counts its kind.
    pub(super) not_applied: Option<Counted>,
    /// Why nobody has to look while its trade is linked to no order.
    pub(super) ignored: Option<&'static str>,
    /// The trade it speaks of, of several the first.
    pub(super) trade: Option<String>,
    /// When it arrived and when, by its provider, it happened; absent for what is our own.
    pub(super) times: Option<Times>,
    /// Payments before it are not shipped; `None`: every payment is.
    pub(super) since: Option<Timestamp>,
}

/// An event's times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) received_at: Timestamp,
    pub(super) occurred_at: Timestamp,
    /// It is the payment's own message, so what happened then is the payment.
    pub(super) of_payment: bool,
}

/// How long after a payment a provider may still tell of its refund or end: what tells of those and does not say
/// when the payment was made may tell of one that is as old.
const LONGEST_AFTER: Duration = Duration::from_hours(366 * 24);

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

fn ignored(reading: &Reading) -> Option<&'static str> {
    if reading.follows_trade {
        return Some("it does not say whose it is, and its payment is none of ours so far");
    }
    let ignores = reading.rules.no_order == NoOrder::Ignore;
    ignores.then_some("no order id is found, and the account ignores such payments")
}

fn not_applied(event: &Event, reading: &Reading) -> Option<Counted> {
    let (provider, account) = (event.provider.as_str(), event.account.as_str());
    Some(Counted {
        item: NewAttention {
            code: AttentionCode::NotApplied,
            source: Counted::group(provider, account, &event.provider_event_type),
            merchant: event.merchant.clone(),
            provider: Some(event.provider),
            account: Some(event.account.clone()),
            order_id: None,
            trade_id: None,
            event_id: Some(event.id.clone()),
            explanation: format!("{provider}/{account}: {}", reading.not_applied.as_ref()?),
        },
        events: vec![event.id.clone()],
    })
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
            not_applied: refusal.is_none().then(|| not_applied(event, reading)).flatten(),
            refusal,
            ignored: ignored(reading),
            since: reading.rules.since,
            times: Some(Times {
                received_at: event.received_at,
                occurred_at: event.occurred_at,
                of_payment: event.kind == "payment.succeeded",
            }),
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
            not_applied: None,
            ignored: None,
            times: None,
            since: None,
        }
    }

    /// The account whose `since` is to be looked up, and when the event arrived: it tells of a payment, and the
    /// configuration gives none.
    pub(super) fn asks_since(&self) -> Option<(AccountKey, Timestamp)> {
        let pays = |fact: &Fact| fact.kind == FactKind::PaymentSucceeded;
        let asks = self.since.is_none() && self.told().iter().any(pays);
        let account = self.account.clone().filter(|_| asks)?;
        Some(((self.provider.clone(), account), self.times?.received_at))
    }

    /// Whether `fact`, told by this event, shows that its trade's payment is not from before the account's `since`.
    /// Without a time of its own the payment is as old as it may be: it happened with its own message, and up to
    /// [`LONGEST_AFTER`] before any other. So what only looks old is shipped when a message with its time comes.
    pub(super) fn ships(&self, fact: &Fact) -> bool {
        if fact.kind != FactKind::PaymentSucceeded || fact.unsigned.is_some() {
            return false;
        }
        let (Some(since), Some(times)) = (self.since, self.times) else {
            return true;
        };
        let after = if times.of_payment {
            Duration::ZERO
        } else {
            LONGEST_AFTER
        };
        fact.at.unwrap_or_else(|| times.occurred_at.minus(after)) >= since
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
