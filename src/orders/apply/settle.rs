//! Lets facts take effect on one order: judged anew, and what differs is noted for writing.

use super::book::{Book, Raised};
use super::words::movement;
use crate::event::{AttentionCode, Currency, EventId, Money};
use crate::orders::fact::OrderFacts;
use crate::orders::ledger::{Entry, missing_entries};
use crate::orders::needs::{Need, needs};
use crate::orders::status::{ClosedBy, Judgement, Status, TradeStatus, judge};
use crate::orders::transition::{Standing, is_shippable};
use crate::store::attention::NewAttention;
use crate::store::facts::FactKey;
use crate::store::ledger::NewEntry;
use crate::store::orders::OrderKey;
use crate::store::trades::TradeKey;

/// What taking effect changed.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) before: Status,
    pub(super) after: Status,
    /// Explanations of what now needs a human.
    pub(super) raised: Vec<String>,
    /// Everything that changed, in words; empty if nothing did.
    pub(super) words: Vec<String>,
}

struct Judged {
    order: Judgement,
    ships: bool,
    needs: Vec<Need>,
    trades: Vec<(TradeKey, Vec<Entry>)>,
}

impl Book {
    /// Lets `facts` take effect, and judges the order. With no facts: judges what a trade has been filled with.
    pub(super) fn settle(&mut self, key: &OrderKey, facts: &[FactKey], event_id: Option<&EventId>) -> Change {
        for fact in facts {
            if let Some(recorded) = self.facts.get_mut(fact) {
                recorded.effective = true;
            }
        }
        let judged = self.with_facts(key, |facts| {
            let order = judge(facts);
            let trades = facts.trades.iter().map(|trade| {
                let trade_key = TradeKey {
                    merchant: key.merchant.clone(),
                    provider: trade.provider.to_owned(),
                    trade_id: trade.trade_id.to_owned(),
                };
                let booked = self.booked.get(&trade_key).map_or(&[][..], Vec::as_slice);
                let missing = missing_entries(trade, booked);
                (trade_key, missing)
            });
            Judged {
                needs: needs(facts, &order),
                ships: ships(facts, &order),
                trades: trades.collect(),
                order,
            }
        });
        let mut words = Vec::new();
        self.settle_trades(key, &judged, event_id, &mut words);
        let (before, after) = self.settle_order(key, &judged.order, judged.ships, &mut words);
        let mut raised = Vec::new();
        for need in judged.needs {
            self.settle_need(key, need, event_id, &mut raised, &mut words);
        }
        Change {
            before,
            after,
            raised,
            words,
        }
    }

    fn settle_trades(
        &mut self,
        order: &OrderKey,
        judged: &Judged,
        event_id: Option<&EventId>,
        words: &mut Vec<String>,
    ) {
        for ((key, missing), of_trade) in judged.trades.iter().zip(&judged.order.trades) {
            for entry in missing {
                words.push(movement(entry.entry_type, entry.amount, entry.currency));
                self.book_entry(order, key, entry, event_id);
            }
            let Some(row) = self.trades.get_mut(key) else {
                continue;
            };
            let was = row.clone();
            of_trade.status.as_str().clone_into(&mut row.status);
            row.late = of_trade.late;
            row.amount = of_trade.paid.or(row.amount);
            row.currency = row.amount.map(|money| money.currency).or(of_trade.currency);
            row.refunded = row.refunded.max(of_trade.refunds.refunded);
            row.reversed = row.reversed.max(of_trade.refunds.reversed);
            if *row != was {
                if row.status != was.status {
                    words.push(format!(
                        "{} trade {} is {}",
                        key.provider, key.trade_id, row.status
                    ));
                }
                self.changed_trades.insert(key.clone());
            }
        }
    }

    fn book_entry(&mut self, order: &OrderKey, trade: &TradeKey, entry: &Entry, event_id: Option<&EventId>) {
        self.booked.entry(trade.clone()).or_default().push(entry.clone());
        self.writes.entries.push(NewEntry {
            trade: trade.clone(),
            order_id: order.order_id.clone(),
            source: entry.source.clone(),
            entry_type: entry.entry_type.as_str(),
            amount: entry.amount,
            currency: entry.currency,
            event_id: event_id.cloned(),
        });
    }

    fn settle_order(
        &mut self,
        key: &OrderKey,
        judged: &Judgement,
        ships: bool,
        words: &mut Vec<String>,
    ) -> (Status, Status) {
        let Some(order) = self.orders.get_mut(key) else {
            return (Status::Pending, Status::Pending);
        };
        let before = order.stands.status;
        let after = before.advance(judged.status);
        order.row.currency = order.row.currency.or(judged.currency);
        let registered = registered_amount(judged.registered, order.row.currency);
        if order.row.amount.is_none() && registered.is_some() {
            order.row.amount = registered;
            if let Some(amount) = judged.registered {
                words.push(format!("registered at {amount}"));
            }
        }
        let totals = order.stands.totals.grown(judged.totals);
        if after != before {
            words.push(match after.closed_by() {
                Some(ClosedBy::Merchant) => "the order is closed by its merchant".to_owned(),
                _ => format!("the order is {}", after.as_str()),
            });
        } else if totals != order.stands.totals && words.is_empty() {
            words.push("a total grew".to_owned());
        }
        if is_shippable(after) && order.began.paid_version.is_none() {
            if !ships && before.rank() == 0 {
                words.push(
                    "paid before its account's `since`, so it is not shipped: no order.paid".to_owned(),
                );
            } else if ships && !order.ships && before.rank() > 0 {
                words.push("not paid before its account's `since` after all: it is shipped".to_owned());
            }
        }
        order.ships = ships;
        order.stands = Standing {
            status: after,
            totals,
            ..order.stands
        };
        (before, after)
    }

    fn settle_need(
        &mut self,
        order: &OrderKey,
        need: Need,
        event_id: Option<&EventId>,
        raised: &mut Vec<String>,
        words: &mut Vec<String>,
    ) {
        let id = (order.merchant.clone(), need.code.as_str(), need.source.clone());
        match (self.raised.get_mut(&id), need.settled) {
            (Some(item), Some(why)) if item.open => {
                item.open = false;
                words.push(format!("{} resolved itself: {why}", need.code));
                self.writes.resolved.push((id, why));
            }
            // What was held back is shown even if it is over already: by it the status may depend on arrival.
            (None, Some(why)) if need.code == AttentionCode::PaidAfterClose => {
                words.push(format!("{} resolved itself: {why}", need.code));
                self.raise_need(order, need, event_id);
                self.raised.insert(id.clone(), Raised { open: false });
                self.writes.resolved.push((id, why));
            }
            (None, None) => {
                raised.push(need.explanation.clone());
                self.raise_need(order, need, event_id);
            }
            _ => {}
        }
    }

    fn raise_need(&mut self, order: &OrderKey, need: Need, event_id: Option<&EventId>) {
        let trade = TradeKey {
            merchant: order.merchant.clone(),
            provider: need.provider.clone(),
            trade_id: need.trade_id.clone(),
        };
        let account = self.trades.get(&trade).map(|trade| trade.account.clone());
        self.raise(NewAttention {
            code: need.code,
            source: need.source,
            merchant: order.merchant.clone(),
            provider: need.provider.parse().ok(),
            account,
            order_id: Some(order.order_id.clone()),
            trade_id: Some(need.trade_id),
            event_id: event_id.cloned(),
            explanation: need.explanation,
        });
    }

    /// Notes an attention item for writing; the store lets each be raised once.
    pub(super) fn raise(&mut self, item: NewAttention) {
        let id = (item.merchant.clone(), item.code.as_str(), item.source.clone());
        if self.raised.contains_key(&id) {
            return;
        }
        self.raised.insert(id, Raised { open: true });
        self.writes.attention.push(item);
    }
}

/// Whether the order's payment is one to ship: of the trades that make it paid, leaving out those refunded whole,
/// none is from before its account's `since`. Where one is, the order was shipped by whoever came before, and a
/// second payment is for a human.
fn ships(facts: &OrderFacts<'_>, judged: &Judgement) -> bool {
    let mut counted = facts
        .trades
        .iter()
        .zip(&judged.trades)
        .filter(|(_, judged)| judged.counts && judged.status != TradeStatus::Refunded)
        .peekable();
    counted.peek().is_some() && counted.all(|(trade, _)| trade.ships)
}

/// What `orders.amount` says: the registered amount, in the order's currency. Registered in another, after a
/// payment had settled the currency, it is in the attention item's words only.
fn registered_amount(registered: Option<Money>, currency: Option<Currency>) -> Option<i64> {
    registered
        .filter(|money| Some(money.currency) == currency)
        .map(|money| money.minor)
}
