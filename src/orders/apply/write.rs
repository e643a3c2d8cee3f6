//! Writes what a batch changed: trades, ledger, orders version by version, history, attention, outcomes, and
//! the messages that tell of it.

use std::collections::BTreeSet;

use super::Outcome;
use super::book::{Book, Order};
use super::message::message;
use super::words::Line;
use crate::event::EventId;
use crate::orders::transition::{Standing, transitions};
use crate::store::attention::{self, Resolution};
use crate::store::attention_group::{self, Counted};
use crate::store::history::{self, NewHistory};
use crate::store::orders::{OrderKey, OrderRow};
use crate::store::trades::{TradeKey, TradeRow};
use crate::store::view::{Reader, views};
use crate::store::{StoreError, Tx, ledger, messages, orders, parked, trades};
use crate::time::Timestamp;

/// The versions that an order goes through in this transaction, each after the one before.
struct Path {
    key: OrderKey,
    began: Standing,
    versions: Vec<Standing>,
}

/// Writes `book`.
pub(super) async fn write(tx: &mut Tx, book: Book, now: Timestamp) -> Result<(), StoreError> {
    let rows = |keys: &BTreeSet<TradeKey>| -> Vec<&TradeRow> {
        keys.iter().filter_map(|key| book.trades.get(key)).collect()
    };
    let changed = book
        .changed_trades
        .difference(&book.new_trades)
        .cloned()
        .collect();
    trades::insert(tx, &rows(&book.new_trades), now).await?;
    trades::update(tx, &rows(&changed), now).await?;
    ledger::insert(tx, &book.writes.entries, now).await?;
    let paths = write_orders(tx, book.orders.values(), now).await?;
    let lines: Vec<NewHistory> = book.writes.history.into_iter().map(history_line).collect();
    history::insert(tx, &lines, now).await?;
    let outcomes: Vec<_> = book.writes.outcomes.into_values().collect();
    history::decide(tx, &outcomes, now).await?;
    let came: Vec<EventId> = outcomes
        .into_iter()
        .filter(|decided| decided.outcome != Outcome::Parked.as_str())
        .map(|decided| decided.event_id)
        .filter(|event| book.writes.had_waited.contains(event))
        .collect();
    parked::settle_overdue(tx, &came, now).await?;
    let concerns: Vec<_> = book.writes.concerns.into_iter().collect();
    history::concern(tx, &concerns).await?;
    let mut raised = book.writes.attention;
    raised.sort_by(|one, other| (one.code, &one.source).cmp(&(other.code, &other.source)));
    for item in &raised {
        attention::raise(tx, item, now).await?;
    }
    let mut counted = book.writes.counted;
    counted.sort_by(|one, other| {
        let key = |counted: &Counted| {
            (
                counted.item.code,
                counted.item.merchant.clone(),
                counted.item.source.clone(),
            )
        };
        key(one).cmp(&key(other))
    });
    for counted in &counted {
        attention_group::count(tx, counted, now).await?;
    }
    for ((merchant, code, source), why) in &book.writes.resolved {
        let resolution = Resolution {
            action: "resolved_itself".to_owned(),
            reason: (*why).to_owned(),
            resolved_by: "payhook".to_owned(),
            resolved_at: now,
        };
        attention::settle(tx, (merchant, code, source), &resolution).await?;
    }
    write_messages(tx, &paths, now).await
}

/// One round for each version: the database wants every version to follow the one before. A new order is inserted
/// at its last.
async fn write_orders(
    tx: &mut Tx,
    orders: impl Iterator<Item = &Order>,
    now: Timestamp,
) -> Result<Vec<Path>, StoreError> {
    let mut new: Vec<OrderRow> = Vec::new();
    let mut rounds: Vec<Vec<OrderRow>> = Vec::new();
    let mut paths = Vec::new();
    for order in orders {
        let versions = transitions(
            &order.began,
            order.stands.status,
            order.stands.totals,
            order.ships,
        );
        let mut rows: Vec<OrderRow> = versions
            .iter()
            .map(|version| row_at(&order.row, version))
            .collect();
        if rows.is_empty() {
            let last = Standing {
                status: order.stands.status,
                ..order.began
            };
            let row = row_at(&order.row, &last);
            if order.is_new || row != order.before {
                rows.push(row);
            }
        }
        if order.is_new {
            new.extend(rows.pop());
            rows.clear();
        }
        for (round, row) in rows.into_iter().enumerate() {
            match rounds.get_mut(round) {
                Some(rows) => rows.push(row),
                None => rounds.push(vec![row]),
            }
        }
        if !versions.is_empty() {
            paths.push(Path {
                key: order.row.key.clone(),
                began: order.began,
                versions,
            });
        }
    }
    orders::insert(tx, &new, now).await?;
    for rows in &rounds {
        orders::update(tx, rows, now).await?;
    }
    Ok(paths)
}

fn row_at(row: &OrderRow, stands: &Standing) -> OrderRow {
    OrderRow {
        status: stands.status.as_str().to_owned(),
        closed_by: stands.status.closed_by().map(|by| by.as_str().to_owned()),
        paid: stands.totals.paid,
        refunded: stands.totals.refunded,
        reversed: stands.totals.reversed,
        version: stands.version,
        paid_version: stands.paid_version,
        ..row.clone()
    }
}

async fn write_messages(tx: &mut Tx, paths: &[Path], now: Timestamp) -> Result<(), StoreError> {
    let keys: Vec<OrderKey> = paths.iter().map(|path| path.key.clone()).collect();
    let found = views(&mut Reader::Tx(tx), &keys).await?;
    let mut written = Vec::new();
    for path in paths {
        let view = found
            .iter()
            .find(|view| view.head.merchant == path.key.merchant && view.head.order_id == path.key.order_id)
            .ok_or_else(|| StoreError::corrupt("orders", "an order that was just written is gone"))?;
        let mut before = path.began;
        for version in &path.versions {
            let message = message(view, &before, version, now)
                .map_err(|_| StoreError::corrupt("orders", "an order that is not JSON"))?;
            written.push(message);
            before = *version;
        }
    }
    messages::insert(tx, &written, now).await
}

fn history_line(line: Line) -> NewHistory {
    NewHistory {
        order: line.order,
        event_id: line.event_id,
        fact: line.fact,
        outcome: line.outcome.as_str(),
        reason: line.reason,
        before: line.before.as_str(),
        after: line.after.as_str(),
    }
}
