//! Writing events: one statement and one commit for a batch and its outbox rows.
//!
//! [`Writer::insert_fresh`] stores what is new in a batch; the unique constraint on the event key decides (I2). The
//! others are repeats, for [`Writer::compare_repeats`](super::repeats). The recorder and `reverify` both store events by
//! these functions. Rows are sorted by key, so that two daemons with overlapping batches wait for each other in one order instead of deadlocking.
//!
//! Postgres takes columns as arrays and not a list of values: one text for every batch size is prepared once,
//! where 256 sizes with up to 5 376 parameters each would hardly ever be found prepared.

use std::collections::HashSet;
use std::sync::Arc;

use sqlx::{PgConnection, QueryBuilder, Sqlite};

use super::lease::KeptLease;
use super::outbox::CLAIM;
use super::time::db_now;
use super::{Store, StoreError, Tx, heard};
use crate::crash;
use crate::event::{Event, EventId, Money};
use crate::time::micros;

/// Most events in one batch.
pub const BATCH_ROWS: usize = 256;

/// Most bytes of bodies, contents and headers in one batch, unless a single event is longer.
pub const BATCH_BYTES: usize = 4 * 1024 * 1024;

const INSERT_POSTGRES: &str = "with fresh as (
    insert into events (id, event_key, provider, account, merchant, type, provider_event_type, subject,
        order_id, trade_id, refund_id, amount, currency, orders, occurred_at, received_at, fingerprint,
        headers, body, content, remote_addr)
    select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::text[]::jsonb[],
        $15::timestamptz[], $16::timestamptz[], $17::bytea[], $18::text[]::jsonb[], $19::bytea[], $20::bytea[],
        $21::text[])
    on conflict (event_key) do nothing
    returning id)
insert into outbox (id, kind, event_id, created_at, due_at, claimed_by)
select id, 'event', id, now.at, now.at + $22 * interval '1 microsecond', $23
  from fresh, (select clock_timestamp() as at) as now
returning id";

const INSERT_SQLITE: &str = "insert into events (id, event_key, provider, account, merchant, type, \
    provider_event_type, subject, order_id, trade_id, refund_id, amount, currency, orders, occurred_at, \
    received_at, fingerprint, headers, body, content, remote_addr) ";

const OUTBOX_SQLITE: &str = "insert into outbox (id, kind, event_id, created_at, due_at, claimed_by) \
    select id, 'event', id, now.at, now.at + ";

/// The result of recording an event. Each is acked as a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Stored, with its outbox row.
    Fresh,
    /// Stored before, with the same content.
    Duplicate {
        /// The earlier copy.
        event_id: EventId,
    },
    /// The key was stored before with other signed content (I4): both contents are kept.
    Conflict {
        /// The first one.
        event_id: EventId,
    },
}

impl Store {
    /// Stores what is new in `batch`, durably, and returns for each event whether it was new. Of events with one key
    /// the first is stored. With a `claimant` (this process's id) the outbox rows are born claimed by it.
    ///
    /// All or nothing; a batch is at most [`BATCH_ROWS`] and [`BATCH_BYTES`] (see [`batch_bytes`]).
    pub async fn insert_fresh(
        &self,
        batch: &[Arc<Event>],
        claimant: Option<&str>,
    ) -> Result<Vec<bool>, StoreError> {
        let mut writer = self.writer();
        let fresh = writer.insert_fresh(batch, claimant).await;
        writer.rest();
        fresh
    }

    /// A writer for batch after batch.
    pub fn writer(&self) -> Writer {
        Writer {
            store: self.clone(),
            lease: KeptLease::default(),
        }
    }
}

/// Stores batches and compares repeats, on a connection that it keeps from one call to the next.
#[derive(Debug)]
pub struct Writer {
    pub(super) store: Store,
    pub(super) lease: KeptLease,
}

impl Writer {
    /// Like [`Store::insert_fresh`]. Dropping the future closes the connection.
    pub async fn insert_fresh(
        &mut self,
        batch: &[Arc<Event>],
        claimant: Option<&str>,
    ) -> Result<Vec<bool>, StoreError> {
        let rows = sorted_once(batch);
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let claim = claimant.map_or(0, |_| micros(CLAIM));
        let fresh = match &self.store {
            Store::Postgres(pool) => {
                let mut lease = self.lease.take(pool).await?;
                let answer = heard(insert_postgres(lease.conn()?, &rows, claim, claimant)).await;
                let fresh = self.lease.end(lease, answer)?;
                if !fresh.is_empty() {
                    self.lease.did();
                }
                fresh
            }
            Store::Sqlite(_) => insert_sqlite(self.store.begin().await?, &rows, claim, claimant).await?,
        };
        let fresh: HashSet<String> = fresh.into_iter().collect();
        Ok(batch
            .iter()
            .map(|event| fresh.contains(event.id.as_str()))
            .collect())
    }

    /// Returns the connection to its pool.
    pub fn rest(&mut self) {
        self.lease.give_back();
    }
}

/// The bytes that an event counts towards [`BATCH_BYTES`].
pub fn batch_bytes(event: &Event) -> usize {
    let content = event.content.as_ref().map_or(0, bytes::Bytes::len);
    event
        .body
        .len()
        .saturating_add(event.headers.len())
        .saturating_add(content)
}

/// The events sorted by key, the first of each key.
fn sorted_once(batch: &[Arc<Event>]) -> Vec<&Event> {
    let mut rows: Vec<&Event> = batch.iter().map(Arc::as_ref).collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows.dedup_by(|later, first| later.key == first.key);
    rows
}

async fn insert_postgres(
    conn: &mut PgConnection,
    rows: &[&Event],
    claim: i64,
    claimant: Option<&str>,
) -> Result<Vec<String>, sqlx::Error> {
    macro_rules! column {
        (|$event:ident| $value:expr) => {
            rows.iter().map(|$event| $value).collect::<Vec<_>>()
        };
    }
    let query = sqlx::query_scalar(INSERT_POSTGRES)
        .bind(column!(|e| e.id.as_str()))
        .bind(column!(|e| e.key.as_str()))
        .bind(column!(|e| e.provider.as_str()))
        .bind(column!(|e| e.account.as_str()))
        .bind(column!(|e| e.merchant.as_str()))
        .bind(column!(|e| e.kind.as_str()))
        .bind(column!(|e| e.provider_event_type.as_str()))
        .bind(column!(|e| e.subject.as_deref()))
        .bind(column!(|e| e.order_id.as_deref()))
        .bind(column!(|e| e.trade_id.as_deref()))
        .bind(column!(|e| e.refund_id.as_deref()))
        .bind(column!(|e| e.amount.map(|amount| amount.minor)))
        .bind(column!(|e| currency(e.amount.as_ref())))
        .bind(column!(|e| orders(e)))
        .bind(column!(|e| e.occurred_at))
        .bind(column!(|e| e.received_at))
        .bind(column!(|e| e.fingerprint.to_bytes()))
        .bind(column!(|e| e.headers.as_str()))
        .bind(column!(|e| &e.body[..]))
        .bind(column!(|e| e.content.as_deref()))
        .bind(column!(|e| e.remote_addr.map(|addr| addr.to_string())))
        .bind(claim)
        .bind(claimant);
    // One statement is written and committed in one: there is nothing between the two to stop at.
    crash::point(crash::Point::RecorderWritten);
    query.fetch_all(conn).await
}

async fn insert_sqlite(
    mut tx: Tx,
    rows: &[&Event],
    claim: i64,
    claimant: Option<&str>,
) -> Result<Vec<String>, StoreError> {
    let Tx::Sqlite(conn) = &mut tx else {
        return Err(sqlx::Error::WorkerCrashed.into());
    };
    let mut sql = QueryBuilder::<Sqlite>::new(INSERT_SQLITE);
    sql.push_values(rows, |mut row, e| {
        row.push_bind(e.id.as_str())
            .push_bind(e.key.as_str())
            .push_bind(e.provider.as_str())
            .push_bind(e.account.as_str())
            .push_bind(e.merchant.as_str())
            .push_bind(e.kind.as_str())
            .push_bind(e.provider_event_type.as_str())
            .push_bind(e.subject.as_deref())
            .push_bind(e.order_id.as_deref())
            .push_bind(e.trade_id.as_deref())
            .push_bind(e.refund_id.as_deref())
            .push_bind(e.amount.map(|amount| amount.minor))
            .push_bind(currency(e.amount.as_ref()))
            .push_bind(orders(e))
            .push_bind(e.occurred_at)
            .push_bind(e.received_at)
            .push_bind(e.fingerprint.to_bytes())
            .push_bind(e.headers.as_str())
            .push_bind(&e.body[..])
            .push_bind(e.content.as_deref())
            .push_bind(e.remote_addr.map(|addr| addr.to_string()));
    });
    sql.push(" on conflict do nothing returning id");
    let fresh: Vec<String> = sql.build_query_scalar().fetch_all(&mut **conn).await?;
    if !fresh.is_empty() {
        let mut sql = QueryBuilder::<Sqlite>::new(OUTBOX_SQLITE);
        sql.push_bind(claim).push(", ").push_bind(claimant);
        sql.push(concat!(
            " from events, (select ",
            db_now!(sqlite),
            " as at) as now where id in ("
        ));
        let mut ids = sql.separated(", ");
        for id in &fresh {
            ids.push_bind(id);
        }
        sql.push(")");
        sql.build().execute(&mut **conn).await?;
    }
    crash::point(crash::Point::RecorderWritten);
    tx.commit().await?;
    Ok(fresh)
}

pub(super) fn currency(amount: Option<&Money>) -> Option<&str> {
    amount.map(|amount| amount.currency.as_str())
}

/// A combined event's orders as JSON.
fn orders(event: &Event) -> Option<String> {
    if event.orders.is_empty() {
        return None;
    }
    // Text and integers: nothing here can fail to be JSON.
    serde_json::to_string(&event.orders).ok()
}
