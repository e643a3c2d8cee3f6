//! How an order is printed: the status and what brought it about come first, then what needs a human, then the
//! payments, every event with its reason, and every movement of money.

use serde::Deserialize;
use serde_json::Value;

use crate::cli::listing::{money, or_dash};
use crate::cli::output::{Output, Table};

/// What the tables show of an order.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
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
    updated_at: Option<String>,
    #[serde(default)]
    trades: Vec<Payment>,
    #[serde(default)]
    history: Vec<Line>,
    #[serde(default)]
    ledger: Vec<Movement>,
    #[serde(default)]
    attention: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Payment {
    provider: String,
    account: String,
    trade_id: String,
    status: String,
    amount: Option<i64>,
    refunded: i64,
    currency: Option<String>,
    paid_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Line {
    at: String,
    event_id: Option<String>,
    fact: String,
    outcome: String,
    reason: String,
    before: String,
    after: String,
}

#[derive(Debug, Deserialize)]
struct Movement {
    at: String,
    entry_type: String,
    source: String,
    amount: i64,
    currency: String,
    event_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Item {
    id: String,
    code: String,
    state: String,
    explanation: String,
    actions: Vec<String>,
    created_at: String,
}

impl Row {
    fn money(&self, minor: i64) -> String {
        money(Some(minor), self.currency.as_deref())
    }

    /// `paid since 2026-…: the trade was paid (payment_succeeded)`; where nothing has moved the status, the last
    /// that was told all the same, such as a dispute about a payment that nobody has told of.
    fn standing(&self) -> String {
        let closed_by = self
            .closed_by
            .as_deref()
            .map_or(String::new(), |who| format!(" by the {who}"));
        let status = format!("{}{closed_by}", self.status);
        let told = |line: &Line| match line.fact.as_str() {
            "" => format!("{}: {}", line.at, line.reason),
            fact => format!("{}: {} ({fact})", line.at, line.reason),
        };
        let turn = self.history.iter().rfind(|line| line.before != line.after);
        match (turn.filter(|line| line.after == self.status), self.history.last()) {
            (Some(line), _) => format!("{status} since {}", told(line)),
            (None, Some(line)) => format!("{status}; last told at {}", told(line)),
            (None, None) => status,
        }
    }
}

pub(super) fn table(orders: &[Row]) -> Table {
    let mut table = Table::new([
        "order",
        "status",
        "registered",
        "paid",
        "refunded",
        "version",
        "updated",
    ]);
    for order in orders {
        table.row([
            &order.order_id,
            &order.status,
            &money(order.amount, order.currency.as_deref()),
            &order.money(order.paid),
            &order.money(order.refunded),
            &order.version.to_string(),
            or_dash(order.updated_at.as_deref()),
        ]);
    }
    table
}

/// One order for people.
pub(super) fn show(out: &mut Output, answer: &Value) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.value(answer)?);
    }
    let order: Row = Deserialize::deserialize(answer)?;
    out.line(&format!(
        "order {} ({}), version {}",
        order.order_id, order.merchant, order.version
    ))?;
    out.line(&order.standing())?;
    out.line(&format!(
        "registered {}, paid {}, refunded {}, reversed {}",
        money(order.amount, order.currency.as_deref()),
        order.money(order.paid),
        order.money(order.refunded),
        order.money(order.reversed),
    ))?;
    section(out, "attention", &attention(&order.attention))?;
    section(out, "trades", &trades(&order.trades))?;
    section(out, "history, oldest first", &history(&order.history))?;
    section(out, "ledger", &ledger(&order.ledger))
}

/// A titled table; nothing at all for an empty one.
fn section(out: &mut Output, title: &str, table: &Table) -> anyhow::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    out.line("")?;
    out.line(&format!("{title}:"))?;
    Ok(out.table(table)?)
}

fn attention(items: &[Item]) -> Table {
    let mut table = Table::new(["since", "code", "state", "what", "ways out", "id"]);
    for item in items {
        let actions = item.actions.join(", ");
        table.row([
            &item.created_at,
            &item.code,
            &item.state,
            &item.explanation,
            &actions,
            &item.id,
        ]);
    }
    table
}

fn trades(trades: &[Payment]) -> Table {
    let mut table = Table::new([
        "trade", "provider", "account", "status", "amount", "refunded", "paid at",
    ]);
    for trade in trades {
        let currency = trade.currency.as_deref();
        table.row([
            &trade.trade_id,
            &trade.provider,
            &trade.account,
            &trade.status,
            &money(trade.amount, currency),
            &money(Some(trade.refunded), currency),
            or_dash(trade.paid_at.as_deref()),
        ]);
    }
    table
}

fn history(lines: &[Line]) -> Table {
    let mut table = Table::new(["at", "fact", "outcome", "status", "why", "event"]);
    for line in lines {
        let status = if line.before == line.after {
            line.after.clone()
        } else {
            format!("{} -> {}", line.before, line.after)
        };
        table.row([
            &line.at,
            &line.fact,
            &line.outcome,
            &status,
            &line.reason,
            or_dash(line.event_id.as_deref()),
        ]);
    }
    table
}

fn ledger(entries: &[Movement]) -> Table {
    let mut table = Table::new(["at", "entry", "amount", "source", "event"]);
    for entry in entries {
        table.row([
            &entry.at,
            &entry.entry_type,
            &money(Some(entry.amount), Some(&entry.currency)),
            &entry.source,
            or_dash(entry.event_id.as_deref()),
        ]);
    }
    table
}
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::listing::show_page;

    /// Clears the screen, reverses the line, rings, and breaks the row.
    const HOSTILE: &str = "\u{1b}[2J\u{202e}\u{7}\r\nforged row";

    fn answer() -> Value {
        serde_json::json!({
            "merchant": "default", "order_id": HOSTILE, "status": "paid", "closed_by": null, "currency": "CNY",
            "amount": 8888, "paid": 8888, "refunded": 0, "reversed": 0, "version": 1,
            "created_at": "2026-11-29T04:05:06Z", "updated_at": "2026-11-29T04:05:06Z",
            "trades": [{"provider": "alipay", "account": "shop", "trade_id": HOSTILE, "status": "paid",
                "amount": 8888, "refunded": 0, "currency": "CNY", "paid_at": null}],
            "history": [
                {"at": "2026-11-29T04:05:07Z", "event_id": "e1", "fact": "payment_succeeded", "outcome": "applied",
                 "reason": format!("trade {HOSTILE} was paid"), "before": "pending", "after": "paid"},
                {"at": "2026-11-29T04:06:07Z", "event_id": "e2", "fact": "trade_closed", "outcome": "stale",
                 "reason": "the trade was already paid", "before": "paid", "after": "paid"}],
            "ledger": [{"entry_type": "payment", "source": HOSTILE, "amount": 8888, "currency": "CNY",
                "event_id": "e1", "at": "2026-11-29T04:05:07Z"}],
            "attention": [{"id": "a1", "code": "paid_twice", "state": "open", "explanation": HOSTILE,
                "actions": ["keep", "dismiss"], "created_at": "2026-11-29T04:05:07Z"}],
        })
    }

    fn printed(json: bool, print: impl FnOnce(&mut Output)) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        print(&mut Output::to(json, file.reopen().unwrap()));
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn the_status_and_its_reason_come_first() {
        let text = printed(false, |out| show(out, &answer()).unwrap());
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].starts_with("paid since 2026-11-29T04:05:07Z: trade "),
            "{text}"
        );
        assert_eq!(
            lines[2],
            "registered 88.88 CNY, paid 88.88 CNY, refunded 0.00 CNY, reversed 0.00 CNY"
        );
        for told in ["pending -> paid", "the trade was already paid", "keep, dismiss"] {
            assert!(text.contains(told), "{told} in {text}");
        }
    }

    #[test]
    fn an_order_that_has_not_moved_tells_what_is_known_of_it() {
        let mut order = answer();
        order["status"] = "pending".into();
        order["history"] = json!([{"at": "2026-11-29T04:05:07Z", "event_id": "e1", "fact": "dispute_opened",
            "outcome": "attention", "reason": "the payer disputes stripe trade pi_1", "before": "pending", "after": "pending"}]);
        let text = printed(false, |out| show(out, &order).unwrap());
        let said = "pending; last told at 2026-11-29T04:05:07Z: the payer disputes stripe trade pi_1 (dispute_opened)";
        assert_eq!(text.lines().nth(1), Some(said), "{text}");
        order["history"] = json!([]);
        let text = printed(false, |out| show(out, &order).unwrap());
        assert_eq!(text.lines().nth(1), Some("pending"), "{text}");
    }

    #[test]
    fn what_a_stranger_wrote_never_reaches_the_terminal_as_it_stands() {
        let page = serde_json::json!({"items": [answer()], "next_cursor": HOSTILE});
        let shown = [
            printed(false, |out| show(out, &answer()).unwrap()),
            printed(true, |out| show(out, &answer()).unwrap()),
            printed(false, |out| show_page(out, &page, "none", table).unwrap()),
            printed(true, |out| show_page(out, &page, "none", table).unwrap()),
        ];
        for text in shown {
            let raw = text
                .chars()
                .any(|c| c != '\n' && (c.is_control() || c == '\u{202e}'));
            assert!(!raw, "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
        }
    }

    #[test]
    fn json_is_what_the_api_said() {
        let text = printed(true, |out| show(out, &answer()).unwrap());
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), answer());
    }
}
