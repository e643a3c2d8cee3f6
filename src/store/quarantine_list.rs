//! Refused notifications read again: as an operator sees them, and whole for another judgement.
//!
//! What has been recorded after all leaves the quarantine: its bytes are the event's from then on.

use bytes::Bytes;
use serde::Serialize;
use sqlx::{Database, Encode, FromRow, QueryBuilder, Type};

use super::events::{BATCH_BYTES, BATCH_ROWS};
use super::rows::push_keys;
use super::{Store, StoreError, on_pool, on_tx};
use crate::event::ProviderName;
use crate::time::Timestamp;

const LIST: &str = "select id, provider, account, reason, detail, received_at, remote_addr from quarantine \
    where merchant = ";

const NEWEST: &str = "select max(id) from quarantine where merchant = ";

const WHOLE: &str = "select id, provider, account, reason, detail, received_at, remote_addr, path, \
     cast(headers as text) as headers, body \
    from quarantine where ";

/// The ids of the next page, oldest first, as many as fit: a row's own bytes always do.
const PAGE: &str = "id in (select id from (select id, row_number() over (order by id) as place, \
    sum(bytes) over (order by id) as total from quarantine where merchant = ";

/// Locked in one order: two calls may let go of the same ones.
const RELEASE: &str = "delete from quarantine where id in (select id from quarantine where ";
const RELEASED: (&str, &str) = (" order by id for update)", ")");

/// Which refused notifications. Absent parts do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuarantineFilter {
    /// Whose; never absent.
    pub merchant: String,
    /// That came to this provider's path.
    pub provider: Option<ProviderName>,
    /// To this account's.
    pub account: Option<String>,
    /// Refused for this reason.
    pub reason: Option<String>,
    /// Arrived at this moment or later.
    pub since: Option<Timestamp>,
    /// Arrived before this moment.
    pub until: Option<Timestamp>,
}

/// A refused notification without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Quarantined)]
pub struct QuarantineView {
    /// Its id.
    pub id: String,
    /// Which provider's path it came to.
    pub provider: ProviderName,
    /// Which account's.
    pub account: String,
    /// Which check it failed when it came.
    pub reason: String,
    /// In words.
    pub detail: String,
    /// When it came.
    pub received_at: Timestamp,
    /// From where.
    pub remote_addr: Option<String>,
}

/// A refused notification, whole.
#[derive(Clone)]
pub struct Kept {
    /// What is shown of it.
    pub view: QuarantineView,
    /// The request's path.
    pub path: String,
    /// JSON array of `[name, value]`.
    pub headers: String,
    /// The body.
    pub body: Bytes,
}

impl std::fmt::Debug for Kept {
    /// Without headers and body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

#[derive(FromRow)]
struct ViewRow {
    id: String,
    provider: String,
    account: String,
    reason: String,
    detail: String,
    received_at: Timestamp,
    remote_addr: Option<String>,
}

#[derive(FromRow)]
struct KeptRow {
    #[sqlx(flatten)]
    view: ViewRow,
    path: String,
    headers: String,
    body: Vec<u8>,
}

impl Store {
    /// A page of refused notifications, newest first: those below `before`, at most `limit`.
    pub async fn quarantined(
        &self,
        filter: &QuarantineFilter,
        before: Option<&str>,
        limit: i64,
    ) -> Result<Vec<QuarantineView>, StoreError> {
        let rows: Vec<ViewRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(LIST);
            restrict(&mut sql, filter);
            if let Some(before) = before {
                sql.push(" and id < ").push_bind(before);
            }
            sql.push(" order by id desc limit ").push_bind(limit);
            sql.build_query_as().fetch_all(pool).await
        })?;
        rows.into_iter().map(ViewRow::view).collect()
    }

    /// One of them, whole, if it came to one of this merchant's accounts.
    pub async fn quarantined_whole(&self, merchant: &str, id: &str) -> Result<Option<Kept>, StoreError> {
        let row: Option<KeptRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(WHOLE);
            sql.push("merchant = ").push_bind(merchant);
            sql.push(" and id = ").push_bind(id);
            sql.build_query_as().fetch_optional(pool).await
        })?;
        row.map(KeptRow::kept).transpose()
    }

    /// The newest that matches, where a walk with [`Store::quarantined_page`] ends however many still come.
    pub async fn newest_quarantined(&self, filter: &QuarantineFilter) -> Result<Option<String>, StoreError> {
        let newest: Option<String> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(NEWEST);
            restrict(&mut sql, filter);
            sql.build_query_scalar().fetch_one(pool).await
        })?;
        Ok(newest)
    }

    /// The oldest that match, whole: those after `after` and up to `last`, as many as make one batch of events.
    pub async fn quarantined_page(
        &self,
        filter: &QuarantineFilter,
        after: &str,
        last: &str,
    ) -> Result<Vec<Kept>, StoreError> {
        let rows = i64::try_from(BATCH_ROWS).unwrap_or(i64::MAX);
        // An event's content may be as long again as its body.
        let bytes = i64::try_from(BATCH_BYTES.div_euclid(2)).unwrap_or(i64::MAX);
        let rows: Vec<KeptRow> = on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new(WHOLE);
            sql.push(PAGE);
            restrict(&mut sql, filter);
            sql.push(" and id > ").push_bind(after);
            sql.push(" and id <= ").push_bind(last);
            sql.push(") as next where place <= ").push_bind(rows);
            sql.push(" and (place = 1 or total <= ").push_bind(bytes);
            sql.push(")) order by id");
            sql.build_query_as().fetch_all(pool).await
        })?;
        rows.into_iter().map(KeptRow::kept).collect()
    }

    /// Lets go of those that are events by now, and gives how many of them nobody else had let go of.
    pub async fn release_quarantined(&self, ids: &[String]) -> Result<u64, StoreError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut tx = self.begin().await?;
        let in_order = tx.pick(RELEASED.0, RELEASED.1);
        let released = on_tx!(&mut tx, |conn| {
            let mut sql = QueryBuilder::new(RELEASE);
            push_keys(&mut sql, "id", ids.iter().map(|id| [id.as_str()]));
            sql.push(in_order);
            sql.build().execute(conn).await.map(|done| done.rows_affected())
        })?;
        tx.commit().await?;
        Ok(released)
    }
}

/// Binds the merchant first, then what else was asked for.
fn restrict<'f, DB>(sql: &mut QueryBuilder<'f, DB>, filter: &'f QuarantineFilter)
where
    DB: Database,
    &'f str: Encode<'f, DB> + Type<DB>,
    i64: Encode<'f, DB> + Type<DB>,
    Timestamp: Encode<'f, DB> + Type<DB>,
{
    sql.push_bind(filter.merchant.as_str());
    let texts = [
        (" and provider = ", filter.provider.map(ProviderName::as_str)),
        (" and account = ", filter.account.as_deref()),
        (" and reason = ", filter.reason.as_deref()),
    ];
    for (clause, text) in texts {
        if let Some(text) = text {
            sql.push(clause).push_bind(text);
        }
    }
    let times = [
        (" and received_at >= ", filter.since),
        (" and received_at < ", filter.until),
    ];
    for (clause, at) in times {
        if let Some(at) = at {
            sql.push(clause).push_bind(at);
        }
    }
}

impl ViewRow {
    fn view(self) -> Result<QuarantineView, StoreError> {
        let provider = self
            .provider
            .parse()
            .map_err(|_| StoreError::corrupt("quarantine", format!("provider of {}", self.id)))?;
        Ok(QuarantineView {
            id: self.id,
            provider,
            account: self.account,
            reason: self.reason,
            detail: self.detail,
            received_at: self.received_at,
            remote_addr: self.remote_addr,
        })
    }
}

impl KeptRow {
    fn kept(self) -> Result<Kept, StoreError> {
        Ok(Kept {
            view: self.view.view()?,
            path: self.path,
            headers: self.headers,
            body: Bytes::from(self.body),
        })
    }
}
