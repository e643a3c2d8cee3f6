//! Events with readings, as a provider would give them, and what is left in the store after them.

use std::sync::Arc;
use std::time::Duration;

use payhook::event::{Currency, Event, EventId, Fact, FactKind, Money, Notification, ProviderName, Reading};
use payhook::orders::apply::{Applied, Item, OwnFact, Policy, Unknown, apply, apply_fact};
use payhook::provider::Registry;
use payhook::store::Store;
use payhook::time::Timestamp;

use crate::support::events::event;
use crate::support::store::FreshStore;

pub(crate) const ORDER: &str = "ORDER-1";

pub(crate) const CREATE: Policy = Policy {
    unknown: Unknown::Create,
    park_deadline: Duration::from_hours(24),
};

pub(crate) const PARK: Policy = Policy {
    unknown: Unknown::Park,
    park_deadline: Duration::from_hours(24),
};

/// One thing that may be applied.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Event(Box<(Event, Reading)>),
    Own(OwnFact),
}

pub(crate) fn cny(minor: i64) -> Money {
    Money::new(minor, Currency::CNY)
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_micros(crate::support::events::ARRIVAL)
}

/// An event of `provider`; with `Some(order)`, its facts name that order.
pub(crate) fn told(provider: ProviderName, id: &str, order: Option<&str>, facts: Vec<Fact>) -> Act {
    let mut event = event(id, id.as_bytes());
    event.provider = provider;
    event.order_id = order.map(str::to_owned);
    event.trade_id = facts.iter().find_map(|fact| fact.trade_id.clone());
    let reading = Reading {
        order_id: event.order_id.clone(),
        facts: facts.into_iter().map(|fact| fact.for_order(order)).collect(),
        ..Reading::default()
    };
    Act::Event(Box::new((event, reading)))
}

/// What `provider` reads in `notification`, as an event to apply.
pub(crate) fn read(registry: &Registry, provider: &str, notification: &Notification) -> Act {
    let account = registry
        .iter()
        .find(|account| account.provider.as_str() == provider && account.account != "old")
        .unwrap();
    let verified = account.judge(notification).unwrap();
    let reading = verified.reading.clone();
    let mut event = account.event(notification, verified);
    event.id = EventId::from_text(event.key.as_str());
    Act::Event(Box::new((event, reading)))
}

pub(crate) fn register(minor: i64) -> Act {
    Act::Own(OwnFact::Registered {
        order_id: ORDER.to_owned(),
        amount: cny(minor),
    })
}

pub(crate) fn close() -> Act {
    Act::Own(OwnFact::Closed {
        order_id: ORDER.to_owned(),
    })
}

pub(crate) fn paid(trade: &str, minor: i64) -> Fact {
    Fact::of_trade(FactKind::PaymentSucceeded, trade, "paid").with_amount(Some(cny(minor)))
}

pub(crate) fn of(kind: FactKind, trade: &str, what: &str) -> Fact {
    Fact::of_trade(kind, trade, what)
}

pub(crate) fn total(trade: &str, minor: i64) -> Fact {
    of(FactKind::RefundedTotal, trade, &format!("refunded_total:{minor}")).with_amount(Some(cny(minor)))
}

pub(crate) fn refund(kind: FactKind, trade: &str, id: &str, minor: i64) -> Fact {
    Fact::of_refund(kind, Some(trade), id, kind.as_str()).with_amount(Some(cny(minor)))
}

/// Applies `acts` one transaction each.
pub(crate) async fn play(store: &Store, acts: &[Act], policy: &Policy) -> Vec<Applied> {
    let mut all = Vec::new();
    for act in acts {
        all.extend(batch(store, std::slice::from_ref(act), policy).await);
    }
    all
}

/// Stores the events of `acts`; those stored before stay as they are.
pub(crate) async fn record(store: &Store, acts: &[Act]) {
    let events: Vec<Arc<Event>> = acts
        .iter()
        .filter_map(|act| match act {
            Act::Event(told) => Some(Arc::new(told.0.clone())),
            Act::Own(_) => None,
        })
        .collect();
    store.insert_fresh(&events, None).await.unwrap();
}

/// Applies `acts` in one transaction, own facts each in its call.
pub(crate) async fn batch(store: &Store, acts: &[Act], policy: &Policy) -> Vec<Applied> {
    record(store, acts).await;
    let mut tx = store.begin().await.unwrap();
    let mut all = Vec::new();
    let mut items = Vec::new();
    for act in acts {
        match act {
            Act::Event(told) => items.push(Item {
                event: &told.0,
                reading: &told.1,
            }),
            Act::Own(fact) => {
                all.extend(
                    apply(&mut tx, &std::mem::take(&mut items), policy, now())
                        .await
                        .unwrap(),
                );
                all.push(apply_fact(&mut tx, "default", fact, policy, now()).await.unwrap());
            }
        }
    }
    all.extend(apply(&mut tx, &items, policy, now()).await.unwrap());
    tx.commit().await.unwrap();
    all
}

/// What must be alike whatever the order of arrival: status, totals, ledger sums, and codes ever raised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) status: String,
    pub(crate) totals: String,
    pub(crate) sums: Vec<String>,
    pub(crate) raised: Vec<String>,
    pub(crate) paid_messages: i64,
}

impl End {
    /// Of one order among many.
    pub(crate) async fn of_order(fresh: &FreshStore, order_id: &str) -> Self {
        let of = |what: &str, from: &str| {
            format!("select {what} as line from {from} where order_id = '{order_id}'")
        };
        let standing = "status || ' ' || paid || ' ' || refunded || ' ' || reversed";
        let order = fresh.texts(&of(standing, "orders")).await;
        let (status, totals) = order[0].split_once(' ').unwrap();
        let sum = of("entry_type || ' ' || cast(sum(amount) as text)", "ledger_entries");
        let paid = format!("{} and routing_key = 'order.paid'", of("count(*)", "messages"));
        Self {
            status: status.to_owned(),
            totals: totals.to_owned(),
            sums: fresh
                .texts(&format!("{sum} group by entry_type order by line"))
                .await,
            raised: fresh
                .texts(&format!("{} order by line", of("code", "attention")))
                .await,
            paid_messages: fresh.number(&paid).await,
        }
    }

    /// Of the one order in the store.
    pub(crate) async fn of(fresh: &FreshStore) -> Self {
        let order = fresh
            .texts("select status || ' ' || paid || ' ' || refunded || ' ' || reversed from orders")
            .await;
        let [order] = order.as_slice() else {
            panic!("not one order: {order:?}")
        };
        let (status, totals) = order.split_once(' ').unwrap();
        let sums = "select trade_id || ' ' || entry_type || ' ' || currency || ' ' || cast(sum(amount) as text) as line \
             from ledger_entries group by trade_id, entry_type, currency order by line";
        Self {
            status: status.to_owned(),
            totals: totals.to_owned(),
            sums: fresh.texts(sums).await,
            raised: fresh.texts("select code from attention order by code").await,
            paid_messages: fresh
                .number("select count(*) from messages where routing_key = 'order.paid'")
                .await,
        }
    }

    /// Whether a human has to decide, so that the status may depend on the order of arrival.
    pub(crate) fn humans_decide(&self) -> bool {
        let codes = [
            "paid_after_close",
            "paid_twice",
            "amount_mismatch",
            "currency_mismatch",
        ];
        self.raised.iter().any(|raised| codes.contains(&raised.as_str()))
    }
}
