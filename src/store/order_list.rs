//! Orders as they are listed, newest first, and those that are not listed because they wait for their registration.

use sqlx::QueryBuilder;

use super::view::{ORDERS, OrderHead, OrderRow};
use super::{Store, StoreError, on_pool};
use crate::time::Timestamp;

const PARKED: &str = "select parked_until from orders where merchant = $1 and order_id = $2 \
     and parked_until is not null";

/// Which orders to list.
#[derive(Clone, Debug, Default)]
pub struct OrderFilter {
    /// Only this merchant's.
    pub merchant: String,
    /// Only those that stand so; `parked`: those that wait for their registration, which are not listed
    /// otherwise.
    pub state: Option<String>,
    /// Only those before this one: creation and id of the last order of the page before.
    pub before: Option<(Timestamp, String)>,
    /// At most so many.
    pub limit: i64,
}

impl Store {
    /// Whether notifications of the order wait for its registration.
    pub async fn is_parked(&self, merchant: &str, order_id: &str) -> Result<bool, StoreError> {
        let found: Option<Timestamp> = on_pool!(self, |pool| sqlx::query_scalar(PARKED)
            .bind(merchant)
            .bind(order_id)
            .fetch_optional(pool)
            .await)?;
        Ok(found.is_some())
    }

    /// Orders, newest first.
    pub async fn orders(&self, filter: &OrderFilter) -> Result<Vec<OrderHead>, StoreError> {
        let parked = filter.state.as_deref() == Some("parked");
        let rows: Vec<OrderRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(ORDERS);
            sql.push("merchant = ").push_bind(&filter.merchant);
            sql.push(if parked {
                " and parked_until is not null"
            } else {
                " and parked_until is null"
            });
            if let Some(state) = filter.state.as_ref().filter(|_| !parked) {
                sql.push(" and status = ").push_bind(state);
            }
            if let Some((at, order_id)) = &filter.before {
                sql.push(" and (created_at, order_id) < (")
                    .push_bind(at)
                    .push(", ")
                    .push_bind(order_id)
                    .push(")");
            }
            sql.push(" order by created_at desc, order_id desc limit ")
                .push_bind(filter.limit);
            sql.build_query_as().fetch_all(pool).await
        })?;
        Ok(rows.into_iter().map(OrderHead::from).collect())
    }
}
