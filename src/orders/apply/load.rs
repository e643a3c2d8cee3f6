//! Reads and locks what a batch touches, and records its facts.
//!
//! Trades before orders, each in key order over the whole batch: two workers wait for each other, never in a
//! circle. Which orders there are to lock is known only once the trades are locked, since a trade may be linked
//! already.

use std::collections::{BTreeMap, BTreeSet};

use super::book::{Book, Order, Raised, Recorded, Wait};
use super::input::Input;
use super::plan::Plan;
use super::{ApplyError, Item, Policy, Unknown};
use crate::event::{AttentionCode, Currency, EventId, Fact, FactKind, Identity};
use crate::orders::ledger::{Entry, EntryType};
use crate::orders::status::{Status, Totals};
use crate::orders::transition::Standing;
use crate::store::accounts::{self, AccountKey, UNDER_WAY};
use crate::store::facts::{self, FactKey, FactRow, NewFact};
use crate::store::ledger::EntryRow;
use crate::store::orders::{OrderKey, OrderRow};
use crate::store::trades::{TradeKey, TradeRow};
use crate::store::{StoreError, Tx, attention, history, ledger, locks, orders, trades};
use crate::time::Timestamp;

/// The keys of those events about another account that an operator has let pass.
pub(super) async fn accepted_mismatches(
    tx: &mut Tx,
    items: &[Item<'_>],
) -> Result<BTreeSet<String>, StoreError> {
    let about: Vec<(&str, &str)> = items
        .iter()
        .filter(|item| matches!(item.reading.identity, Identity::Mismatch(_)))
        .map(|item| (item.event.merchant.as_str(), item.event.key.as_str()))
        .collect();
    let sources = attention::resolved_with(tx, AttentionCode::IdentityMismatch, "apply_once", &about).await?;
    Ok(sources.into_iter().collect())
}

/// Settles for each input whose account gives no `since` from when on that account's payments are shipped: from
/// when the store first knew it. One that no daemon has noted yet is known from its first event.
pub(super) async fn settle_since(tx: &mut Tx, inputs: &mut [Input]) -> Result<(), StoreError> {
    let mut unknown: BTreeMap<AccountKey, Timestamp> = BTreeMap::new();
    for (account, received_at) in inputs.iter().filter_map(Input::asks_since) {
        let first = unknown.entry(account).or_insert(received_at);
        *first = received_at.min(*first);
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let known = accounts::known_since(tx, &unknown).await?;
    for input in inputs {
        if let Some((account, _)) = input.asks_since() {
            input.since = known.get(&account).map(|at| at.minus(UNDER_WAY));
        }
    }
    Ok(())
}

/// Everything that `inputs` touch, locked; their new facts are recorded.
pub(super) async fn load(
    tx: &mut Tx,
    inputs: &[Input],
    policy: &Policy,
    now: Timestamp,
) -> Result<Book, ApplyError> {
    let mut book = Book {
        creates: policy.unknown == Unknown::Create,
        ..Book::default()
    };
    read_trades(tx, &mut book, inputs).await?;
    let plan = Plan::new(&book, inputs);
    read_orders(tx, &mut book, &plan, policy, now).await?;
    if plan
        .registered
        .iter()
        .any(|order| book.trades_of(order).iter().any(|key| !plan.locked.contains(key)))
    {
        return Err(ApplyError::Contended);
    }
    let fresh = record(tx, inputs, &plan, now).await?;
    read_facts(tx, &mut book, inputs, fresh).await?;
    read_ledger(tx, &mut book).await?;
    let keys: Vec<OrderKey> = book.orders.keys().cloned().collect();
    for (merchant, code, source, state) in attention::of_orders(tx, &keys).await? {
        if let Some(code) = AttentionCode::from_text(&code) {
            let raised = Raised {
                open: state == "open",
            };
            book.raised.insert((merchant, code.as_str(), source), raised);
        }
    }
    read_parked(tx, &mut book, &plan).await?;
    read_outcomes(tx, &mut book, inputs).await?;
    Ok(book)
}

/// How the events of the batch ended, and those that wait for what it may bring. The latter are locked: an event
/// that waits for two orders is judged by one transaction after the other, and the last finds nothing waiting.
async fn read_outcomes(tx: &mut Tx, book: &mut Book, inputs: &[Input]) -> Result<(), StoreError> {
    let told: BTreeSet<&EventId> = inputs
        .iter()
        .filter_map(|input| input.event_id.as_ref())
        .collect();
    let by_fact = book
        .facts
        .values()
        .filter(|known| !known.effective && !known.fresh);
    let mut waiting: BTreeSet<EventId> = by_fact.filter_map(|known| known.row.event_id.clone()).collect();
    waiting.extend(book.parked.iter().map(|(event, _)| event.clone()));
    let told: Vec<&EventId> = told
        .into_iter()
        .filter(|event| !waiting.contains(*event))
        .collect();
    let waiting: Vec<&EventId> = waiting.iter().collect();
    book.ended.extend(history::outcomes(tx, &told).await?);
    book.ended.extend(history::lock_outcomes(tx, &waiting).await?);
    for (event, order) in history::parked_orders(tx, &waiting).await? {
        book.parked_orders.entry(event).or_default().push(order);
    }
    Ok(())
}

/// Locks the trades that `inputs` name, and reads those that exist.
async fn read_trades(tx: &mut Tx, book: &mut Book, inputs: &[Input]) -> Result<(), StoreError> {
    let mut named: BTreeMap<TradeKey, String> = BTreeMap::new();
    for input in inputs {
        let told = input.told().iter().filter_map(|fact| fact.trade_id.as_ref());
        for trade_id in told.chain(input.taught().iter().map(|(trade, _)| trade)) {
            named
                .entry(input.trade_key(trade_id))
                .or_insert_with(|| input.account.clone().unwrap_or_default());
        }
    }
    // A registration lets everything take effect that waits for it, so it changes all the order's trades.
    let registered: Vec<OrderKey> = inputs
        .iter()
        .flat_map(|input| input.told().iter().map(move |fact| (input, fact)))
        .filter(|(_, fact)| fact.kind == FactKind::OrderRegistered)
        .filter_map(|(input, fact)| Some(input.order_key(fact.order_id.as_deref()?)))
        .collect();
    for row in trades::of_orders(tx, &registered).await? {
        named.entry(row.key).or_insert(row.account);
    }
    let keys: Vec<&TradeKey> = named.keys().collect();
    locks::lock_trades(tx, &keys).await?;
    insert_trades(book, trades::read(tx, &keys).await?);
    for (key, account) in named {
        if !book.trades.contains_key(&key) {
            book.new_trades.insert(key.clone());
            book.trades.insert(key.clone(), TradeRow::new(key, &account));
        }
    }
    Ok(())
}

fn insert_trades(book: &mut Book, rows: Vec<TradeRow>) {
    for row in rows {
        book.trades.entry(row.key.clone()).or_insert(row);
    }
}

/// Locks the orders of `plan`, and reads those that exist with all their trades.
async fn read_orders(
    tx: &mut Tx,
    book: &mut Book,
    plan: &Plan,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), StoreError> {
    let keys: Vec<&OrderKey> = plan.create.iter().chain(&plan.also).collect();
    locks::lock_orders(tx, &keys).await?;
    for row in orders::read(tx, &keys).await? {
        book.orders.insert(row.key.clone(), order(row, false)?);
    }
    let existing: Vec<OrderKey> = book.orders.keys().cloned().collect();
    insert_trades(book, trades::of_orders(tx, &existing).await?);
    let parked_until = match policy.unknown {
        Unknown::Create => None,
        Unknown::Park => Some(now.plus(policy.park_deadline)),
    };
    for key in &plan.create {
        if !book.orders.contains_key(key) {
            let row = OrderRow::new(key.clone(), parked_until);
            book.orders.insert(key.clone(), order(row, true)?);
        }
    }
    Ok(())
}

fn order(row: OrderRow, is_new: bool) -> Result<Order, StoreError> {
    let status = Status::from_text(&row.status, row.closed_by.as_deref())
        .ok_or_else(|| StoreError::corrupt("orders", format!("status of order {}", row.key.order_id)))?;
    let began = Standing {
        status,
        totals: Totals {
            paid: row.paid,
            refunded: row.refunded,
            reversed: row.reversed,
        },
        version: row.version,
        paid_version: row.paid_version,
    };
    Ok(Order {
        is_new,
        before: row.clone(),
        row,
        began,
        stands: began,
        ships: false,
    })
}

/// Records what is new, in the order of the events. Facts that belong to nothing lock nothing, so they come
/// last, by key.
async fn record(
    tx: &mut Tx,
    inputs: &[Input],
    plan: &Plan,
    now: Timestamp,
) -> Result<Vec<FactRow>, StoreError> {
    let mut told: BTreeSet<FactKey> = BTreeSet::new();
    let mut new: Vec<NewFact<'_>> = Vec::new();
    for (input, contradicted) in inputs.iter().zip(&plan.contradicted) {
        for fact in input.told() {
            let refused = fact
                .trade_id
                .as_ref()
                .is_some_and(|trade| contradicted.contains(trade));
            if !refused && told.insert(input.fact_key(fact)) {
                new.push(NewFact {
                    merchant: &input.merchant,
                    provider: &input.provider,
                    fact,
                    event_id: input.event_id.as_ref(),
                });
            }
        }
    }
    let belongs = |fact: &Fact| fact.trade_id.is_some() || fact.order_id.is_some();
    let (mut sorted, mut lone): (Vec<_>, Vec<_>) = new.into_iter().partition(|new| belongs(new.fact));
    lone.sort_by_key(|new| (new.merchant, new.provider, new.fact.key.as_str()));
    sorted.extend(lone);
    facts::record(tx, &sorted, now).await
}

/// `fresh`: the facts that this batch has recorded. A trade or order that is new has no others.
async fn read_facts(
    tx: &mut Tx,
    book: &mut Book,
    inputs: &[Input],
    fresh: Vec<FactRow>,
) -> Result<(), StoreError> {
    let recorded: BTreeSet<FactKey> = fresh.iter().map(FactRow::key).collect();
    let add = |book: &mut Book, rows: Vec<FactRow>| {
        for row in rows {
            let fresh = recorded.contains(&row.key());
            let recorded = Recorded {
                fresh,
                stepped: !fresh,
                effective: false,
                row,
            };
            book.facts.insert(recorded.row.key(), recorded);
        }
    };
    add(book, fresh);
    let (trades, orders) = (book.existing_trades(), book.existing_orders());
    add(book, facts::of(tx, &trades, &orders).await?);
    // Known, but under another trade; or belonging to nothing.
    let elsewhere: Vec<FactKey> = inputs
        .iter()
        .flat_map(|input| input.told().iter().map(|fact| input.fact_key(fact)))
        .filter(|key| !book.facts.contains_key(key))
        .collect();
    add(book, facts::by_key(tx, &elsewhere).await?);
    // What is known took effect if it could; the unsigned ones after the payments that they wait for.
    for unsigned in [false, true] {
        let effective: Vec<FactKey> = book
            .facts
            .iter()
            .filter(|(_, known)| !known.fresh && known.row.fact.unsigned.is_some() == unsigned)
            .filter(|(_, known)| book.is_eligible(known))
            .map(|(key, _)| key.clone())
            .collect();
        for key in effective {
            if let Some(known) = book.facts.get_mut(&key) {
                known.effective = true;
            }
        }
    }
    Ok(())
}

/// The events that wait for what this batch links, registers, or needs no registration any more. An event that waits
/// has made the row of what it waits for.
async fn read_parked(tx: &mut Tx, book: &mut Book, plan: &Plan) -> Result<(), StoreError> {
    let trades: Vec<TradeKey> = plan.gained.difference(&book.new_trades).cloned().collect();
    for (event, trade) in history::parked_by_trade(tx, &trades).await? {
        book.parked.push((event, Wait::Trade(trade)));
    }
    let mut orders: BTreeSet<OrderKey> = plan.registered.iter().cloned().collect();
    if book.creates {
        let parked = book
            .orders
            .values()
            .filter(|order| order.row.parked_until.is_some());
        orders.extend(parked.map(|order| order.row.key.clone()));
    }
    let is_new = |key: &OrderKey| book.orders.get(key).is_some_and(|order| order.is_new);
    let orders: Vec<OrderKey> = orders.into_iter().filter(|key| !is_new(key)).collect();
    for (event, order) in history::parked_by_order(tx, &orders).await? {
        book.parked.push((event, Wait::Order(order)));
    }
    Ok(())
}

async fn read_ledger(tx: &mut Tx, book: &mut Book) -> Result<(), StoreError> {
    for row in ledger::of_trades(tx, &book.existing_trades()).await? {
        let entry = entry(&row)?;
        let trade = TradeKey {
            merchant: row.merchant,
            provider: row.provider,
            trade_id: row.trade_id,
        };
        book.booked.entry(trade).or_default().push(entry);
    }
    Ok(())
}

fn entry(row: &EntryRow) -> Result<Entry, StoreError> {
    let corrupt = || {
        StoreError::corrupt(
            "ledger_entries",
            format!("entry {} of {}", row.entry_type, row.source),
        )
    };
    Ok(Entry {
        entry_type: EntryType::from_text(&row.entry_type).ok_or_else(corrupt)?,
        source: row.source.clone(),
        amount: row.amount,
        currency: Currency::new(&row.currency).map_err(|_| corrupt())?,
    })
}
