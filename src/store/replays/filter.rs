//! Which events or messages a replay is about. Absent parts do not restrict.
//!
//! For messages the words mean: of this order, of orders with such a trade, under this routing key, written in
//! that span. A message has no outcome and no event key.

use serde::{Deserialize, Serialize};
use sqlx::{Database, Encode, QueryBuilder, Type};

use super::What;
use crate::event::ProviderName;
use crate::store::EventFilter;
use crate::time::Timestamp;

/// Stored with the replay as it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayFilter {
    /// From this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderName>,
    /// To this account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Of this type; of messages the routing key.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// About this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_id: Option<String>,
    /// About this trade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trade_id: Option<String>,
    /// Under this key; events only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_key: Option<String>,
    /// That ended so; events only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Received, or written, at this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Received, or written, before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl ReplayFilter {
    /// Every text in it.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        [
            &self.account,
            &self.kind,
            &self.order_id,
            &self.trade_id,
            &self.event_key,
            &self.outcome,
        ]
        .into_iter()
        .filter_map(|text| text.as_deref())
    }

    /// The first part that has no meaning for `what`.
    pub fn meaningless(&self, what: What) -> Option<&'static str> {
        match what {
            What::Orders if self.outcome.is_some() => Some("outcome"),
            What::Orders if self.event_key.is_some() => Some("event_key"),
            What::Orders | What::Events => None,
        }
    }

    /// Whether an index finds the few that match.
    pub(super) fn is_indexed(&self) -> bool {
        self.order_id.is_some() || self.trade_id.is_some() || self.event_key.is_some()
    }

    /// As the list of events is filtered.
    pub(crate) fn of_events(&self, merchant: &str) -> EventFilter {
        EventFilter {
            merchant: merchant.to_owned(),
            provider: self.provider,
            account: self.account.clone(),
            kind: self.kind.clone(),
            order_id: self.order_id.clone(),
            trade_id: self.trade_id.clone(),
            event_key: self.event_key.clone(),
            outcome: self.outcome.clone(),
            since: self.since,
            until: self.until,
        }
    }

    /// Adds its conditions on `messages m`, but for the merchant's own.
    pub(super) fn narrow_messages<'a, DB>(&'a self, sql: &mut QueryBuilder<'a, DB>, merchant: &'a str)
    where
        DB: Database,
        &'a str: Encode<'a, DB> + Type<DB>,
        i64: Encode<'a, DB> + Type<DB>,
        Timestamp: Encode<'a, DB> + Type<DB>,
    {
        let texts = [
            (" and m.routing_key = ", self.kind.as_deref()),
            (" and m.order_id = ", self.order_id.as_deref()),
        ];
        for (condition, value) in texts {
            if let Some(value) = value {
                sql.push(condition).push_bind(value);
            }
        }
        let of_trades = [
            (" and t.provider = ", self.provider.map(ProviderName::as_str)),
            (" and t.account = ", self.account.as_deref()),
            (" and t.trade_id = ", self.trade_id.as_deref()),
        ];
        if of_trades.iter().any(|(_, value)| value.is_some()) {
            sql.push(" and m.order_id in (select t.order_id from trades t where t.merchant = ")
                .push_bind(merchant);
            for (condition, value) in of_trades {
                if let Some(value) = value {
                    sql.push(condition).push_bind(value);
                }
            }
            sql.push(")");
        }
        let times = [
            (" and m.created_at >= ", self.since),
            (" and m.created_at < ", self.until),
        ];
        for (condition, at) in times {
            if let Some(at) = at {
                sql.push(condition).push_bind(at);
            }
        }
    }
}
