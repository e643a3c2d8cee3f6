//! Orders as they are shown: in the API, and as the data of an order message. One shape for both.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::{FromRow, QueryBuilder};

use super::attention::{AttentionRow, AttentionView, SELECT as ATTENTION};
use super::orders::OrderKey;
use super::rows::push_keys;
use super::{Store, StoreError, Tx, on_pool};
use crate::time::Timestamp;

pub(super) const ORDERS: &str = "select merchant, order_id, status, closed_by, currency, amount, paid, refunded, reversed, \
     version, parked_until, created_at, updated_at from orders where ";
const TRADES: &str = "select merchant, order_id, provider, account, trade_id, status, amount, refunded, currency, \
     paid_at from trades where ";
const HISTORY: &str = "select merchant, order_id, at, event_id, fact, outcome, reason, status_before, status_after \
     from order_history where ";
const LEDGER: &str = "select merchant, order_id, entry_type, source, amount, currency, event_id, at, provider, \
     trade_id from ledger_entries where ";

/// An order without what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct OrderHead {
    /// Whose.
    pub merchant: String,
    /// The merchant's id.
    pub order_id: String,
    /// How it stands.
    pub status: String,
    /// `merchant` or `provider`, if it is closed.
    pub closed_by: Option<String>,
    /// The currency of the amounts.
    pub currency: Option<String>,
    /// Registered.
    pub amount: Option<i64>,
    /// Billed.
    pub paid: i64,
    /// Refunded, gross.
    pub refunded: i64,
    /// Of that, come back.
    pub reversed: i64,
    /// Raised by one with every change of status or total.
    pub version: i64,
    /// When it became known.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// It waits until then for its registration; absent unless it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_until: Option<Timestamp>,
}

/// An order with all that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Order)]
pub struct OrderView {
    /// The order itself.
    #[serde(flatten)]
    pub head: OrderHead,
    /// The payments.
    pub trades: Vec<TradeView>,
    /// Every event, what it did, and why it did nothing; oldest first.
    pub history: Vec<HistoryView>,
    /// The movements of money, oldest first.
    pub ledger: Vec<LedgerView>,
    /// What needs, or needed, a human; oldest first.
    pub attention: Vec<AttentionView>,
}

/// A trade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Trade)]
pub struct TradeView {
    /// The provider.
    pub provider: String,
    /// The account.
    pub account: String,
    /// The provider's id.
    pub trade_id: String,
    /// How it stands.
    pub status: String,
    /// What it was billed.
    pub amount: Option<i64>,
    /// Refunded, gross.
    pub refunded: i64,
    /// The currency of both.
    pub currency: Option<String>,
    /// When it was paid.
    pub paid_at: Option<Timestamp>,
}

/// A line of history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = HistoryLine)]
pub struct HistoryView {
    /// When it was applied.
    pub at: Timestamp,
    /// The event; absent for what the merchant itself said.
    pub event_id: Option<String>,
    /// What it told.
    pub fact: String,
    /// How it ended.
    pub outcome: String,
    /// Why, in words.
    pub reason: String,
    /// The order's status before.
    pub before: String,
    /// And after.
    pub after: String,
}

/// A movement of money.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = LedgerEntry)]
pub struct LedgerView {
    /// `payment`, `refund`, `refund_reversal`, `dispute`, `dispute_reversal`.
    pub entry_type: String,
    /// What moved it.
    pub source: String,
    /// Signed minor units.
    pub amount: i64,
    /// The currency.
    pub currency: String,
    /// The event that told it.
    pub event_id: Option<String>,
    /// When it was booked.
    pub at: Timestamp,
    /// The provider.
    pub provider: String,
    /// The trade.
    pub trade_id: Option<String>,
}

#[derive(FromRow)]
pub(super) struct OrderRow {
    merchant: String,
    order_id: String,
    status: String,
    closed_by: Option<String>,
    currency: Option<String>,
    amount: Option<i64>,
    paid: i64,
    refunded: i64,
    reversed: i64,
    version: i64,
    parked_until: Option<Timestamp>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<OrderRow> for OrderHead {
    fn from(row: OrderRow) -> Self {
        Self {
            merchant: row.merchant,
            order_id: row.order_id,
            status: row.status,
            closed_by: row.closed_by,
            currency: row.currency,
            amount: row.amount,
            paid: row.paid,
            refunded: row.refunded,
            reversed: row.reversed,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
            parked_until: row.parked_until,
        }
    }
}

#[derive(FromRow)]
struct TradeRow {
    merchant: String,
    order_id: String,
    provider: String,
    account: String,
    trade_id: String,
    status: String,
    amount: Option<i64>,
    refunded: i64,
    currency: Option<String>,
    paid_at: Option<Timestamp>,
}

#[derive(FromRow)]
struct HistoryRow {
    merchant: String,
    order_id: String,
    at: Timestamp,
    event_id: Option<String>,
    fact: String,
    outcome: String,
    reason: String,
    status_before: String,
    status_after: String,
}

#[derive(FromRow)]
struct LedgerRow {
    merchant: String,
    order_id: String,
    entry_type: String,
    source: String,
    amount: i64,
    currency: String,
    event_id: Option<String>,
    at: Timestamp,
    provider: String,
    trade_id: Option<String>,
}

/// Where to read: a pool, or inside the transaction that has just written.
#[derive(Debug)]
pub enum Reader<'a> {
    /// What is committed.
    Store(&'a Store),
    /// What this transaction sees.
    Tx(&'a mut Tx),
}

/// Runs one statement wherever `$reader` reads.
macro_rules! on_reader {
    ($reader:expr, |$conn:ident| $body:expr) => {
        match $reader {
            Reader::Store(store) => on_pool!(store, |$conn| $body),
            Reader::Tx(tx) => $crate::store::on_tx!(tx, |$conn| $body),
        }
    };
}

/// The rows of one table for some orders, in the order of `$order_by`.
macro_rules! rows_of {
    ($reader:expr, $select:expr, $orders:expr, $order_by:expr) => {
        on_reader!(&mut *$reader, |conn| {
            let mut sql = QueryBuilder::new($select);
            push_keys(
                &mut sql,
                "merchant, order_id",
                $orders.iter().map(OrderKey::parts),
            );
            sql.push($order_by);
            sql.build_query_as().fetch_all(conn).await
        })
    };
}

/// `orders` with all that belongs to them; those that do not exist are left out.
pub async fn views(reader: &mut Reader<'_>, orders: &[OrderKey]) -> Result<Vec<OrderView>, StoreError> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let heads: Vec<OrderRow> = rows_of!(reader, ORDERS, orders, "")?;
    let mut views: BTreeMap<OrderKey, OrderView> = heads
        .into_iter()
        .map(|row| {
            let head = OrderHead::from(row);
            let key = OrderKey {
                merchant: head.merchant.clone(),
                order_id: head.order_id.clone(),
            };
            (key, empty(head))
        })
        .collect();
    let mut of = |merchant: String, order_id: String, add: &mut dyn FnMut(&mut OrderView)| {
        if let Some(view) = views.get_mut(&OrderKey { merchant, order_id }) {
            add(view);
        }
    };
    let trades: Vec<TradeRow> = rows_of!(reader, TRADES, orders, " order by created_at, provider, trade_id")?;
    for row in trades {
        let mut trade = Some(TradeView {
            provider: row.provider,
            account: row.account,
            trade_id: row.trade_id,
            status: row.status,
            amount: row.amount,
            refunded: row.refunded,
            currency: row.currency,
            paid_at: row.paid_at,
        });
        of(row.merchant, row.order_id, &mut |view| {
            view.trades.extend(trade.take());
        });
    }
    let history: Vec<HistoryRow> = rows_of!(reader, HISTORY, orders, " order by id")?;
    for row in history {
        let mut line = Some(HistoryView {
            at: row.at,
            event_id: row.event_id,
            fact: row.fact,
            outcome: row.outcome,
            reason: row.reason,
            before: row.status_before,
            after: row.status_after,
        });
        of(row.merchant, row.order_id, &mut |view| {
            view.history.extend(line.take());
        });
    }
    let ledger: Vec<LedgerRow> = rows_of!(reader, LEDGER, orders, " order by id")?;
    for row in ledger {
        let mut entry = Some(LedgerView {
            entry_type: row.entry_type,
            source: row.source,
            amount: row.amount,
            currency: row.currency,
            event_id: row.event_id,
            at: row.at,
            provider: row.provider,
            trade_id: row.trade_id,
        });
        of(row.merchant, row.order_id, &mut |view| {
            view.ledger.extend(entry.take());
        });
    }
    let attention: Vec<AttentionRow> = rows_of!(reader, ATTENTION, orders, " order by id")?;
    for row in attention {
        let item = AttentionView::from(row);
        let Some(order_id) = item.order_id.clone() else {
            continue;
        };
        let merchant = item.merchant.clone();
        let mut item = Some(item);
        of(merchant, order_id, &mut |view| view.attention.extend(item.take()));
    }
    Ok(views.into_values().collect())
}

fn empty(head: OrderHead) -> OrderView {
    OrderView {
        head,
        trades: Vec::new(),
        history: Vec::new(),
        ledger: Vec::new(),
        attention: Vec::new(),
    }
}

impl Store {
    /// One order; `None` too while it is parked.
    pub async fn order(&self, merchant: &str, order_id: &str) -> Result<Option<OrderView>, StoreError> {
        let key = OrderKey {
            merchant: merchant.to_owned(),
            order_id: order_id.to_owned(),
        };
        let found = views(&mut Reader::Store(self), &[key]).await?;
        Ok(found.into_iter().find(|view| view.head.parked_until.is_none()))
    }
}
