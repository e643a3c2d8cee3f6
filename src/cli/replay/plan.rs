//! What a dry run found, for people.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::cli::listing::or_dash;
use crate::cli::output::{Output, Table};

#[derive(Debug, Deserialize)]
struct Plan {
    what: String,
    to: Option<String>,
    matched: u64,
    #[serde(default)]
    matched_at_least: bool,
    would_publish: u64,
    refused: Vec<Refused>,
    never_verified: u64,
    examined: u64,
    outcomes: BTreeMap<String, u64>,
    orders_changed: u64,
    orders: Vec<Changed>,
    failing: Vec<Failing>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    reason: String,
    count: u64,
    example: String,
}

#[derive(Debug, Deserialize)]
struct Changed {
    order_id: String,
    before: Standing,
    after: Standing,
    order_paid: bool,
    attention: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Standing {
    status: String,
    paid: i64,
    refunded: i64,
    reversed: i64,
}

#[derive(Debug, Deserialize)]
struct Failing {
    event_id: String,
    reason: String,
}

impl Standing {
    /// Status and totals in minor units.
    fn words(&self) -> String {
        format!(
            "{} (paid {}, refunded {}, reversed {})",
            self.status, self.paid, self.refunded, self.reversed
        )
    }
}

/// Shows it.
pub(super) fn show(out: &mut Output, answer: &Value) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.value(answer)?);
    }
    let plan: Plan = Deserialize::deserialize(answer)?;
    let to = plan.to.as_deref().unwrap_or("everybody");
    let at_least = if plan.matched_at_least { "at least " } else { "" };
    out.line(&format!(
        "would send {at_least}{} of {at_least}{} matching {} to {to}",
        plan.would_publish, plan.matched, plan.what
    ))?;
    if !plan.refused.is_empty() {
        let mut table = Table::new(["refused", "why", "such as"]);
        for refused in &plan.refused {
            table.row([&refused.count.to_string(), &refused.reason, &refused.example]);
        }
        out.table(&table)?;
    }
    if plan.never_verified > 0 {
        out.line(&format!(
            "not among them: {} notifications in quarantine, which were never verified (payhook quarantine reverify)",
            plan.never_verified
        ))?;
    }
    if plan.examined == 0 {
        return Ok(out.line("no worker would see them: no order changes")?);
    }
    let ends: Vec<String> = plan
        .outcomes
        .iter()
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    out.line(&format!(
        "of the first {}, read by today's mapping: {}",
        plan.examined,
        ends.join(", ")
    ))?;
    let among = if plan.examined < plan.would_publish {
        format!(
            " by these {} alone; what the rest would do is not known",
            plan.examined
        )
    } else {
        String::new()
    };
    out.line(&format!(
        "orders that would change: {}{among}",
        plan.orders_changed
    ))?;
    if !plan.orders.is_empty() {
        let mut table = Table::new(["order", "now", "then", "needs a human"]);
        for order in &plan.orders {
            let attention = order.attention.join(", ");
            let attention = Some(attention.as_str()).filter(|codes| !codes.is_empty());
            let ships = if order.order_paid {
                ", order.paid is written"
            } else {
                ""
            };
            table.row([
                &order.order_id,
                &order.before.words(),
                &format!("{}{ships}", order.after.words()),
                or_dash(attention),
            ]);
        }
        out.table(&table)?;
    }
    if !plan.failing.is_empty() {
        let mut table = Table::new(["cannot be applied", "why"]);
        for failing in &plan.failing {
            table.row([&failing.event_id, &failing.reason]);
        }
        out.table(&table)?;
    }
    Ok(())
}
