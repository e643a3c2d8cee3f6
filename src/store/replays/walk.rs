//! What a filter finds, a look at a time in the order of arrival, and where it ends.
//!
//! A look is bounded by the rows it goes over, not by those it finds: a filter that matches little takes many looks,
//! and each of them gets on.

use sqlx::{Database, Encode, FromRow, QueryBuilder, Type};

use super::{Place, ReplayFilter, What};
use crate::event::EventId;
use crate::store::event_list::{EventFilter, narrow};
use crate::store::{Store, StoreError, Tx, on_pool, on_tx};

use crate::time::Timestamp;

const NEWEST_EVENT: &str =
    "select cast(0 as bigint) as position, id from events where merchant = $1 order by id desc limit 1";
const NEWEST_MESSAGE: &str =
    "select position, id from messages where merchant = $1 order by position desc, id desc limit 1";

const EVENT_PLACES: &str = "select cast(0 as bigint) as position, e.id from events e where e.merchant = ";
const MESSAGE_PLACES: &str = "select m.position, m.id from messages m where m.merchant = ";

const EVENTS: &str = "select cast(0 as bigint) as position, e.id, e.provider, e.account, e.type as kind \
     from events e left join event_outcomes o on o.event_id = e.id where e.merchant = ";
const MESSAGES: &str = "select m.position, m.id, cast(null as text) as provider, cast(null as text) as account, \
     m.routing_key as kind from messages m where m.merchant = ";

/// The most rows of one look.
pub const WINDOW: i64 = 5000;

/// An event or message that a filter finds.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Candidate {
    /// In the order of the messages' commits; of events nothing.
    pub position: i64,
    /// Its id.
    pub id: String,
    /// Of an event.
    pub provider: Option<String>,
    /// Of an event.
    pub account: Option<String>,
    /// An event's type, a message's routing key.
    pub kind: String,
}

impl Candidate {
    /// Where a walk stands behind it.
    pub fn place(&self) -> Place {
        Place {
            position: self.position,
            id: self.id.clone(),
        }
    }
}

/// The end of a walk that begins now.
pub(super) async fn newest(tx: &mut Tx, what: What, merchant: &str) -> Result<Place, StoreError> {
    let sql = match what {
        What::Events => NEWEST_EVENT,
        What::Orders => NEWEST_MESSAGE,
    };
    let found: Option<Place> = on_tx!(tx, |conn| sqlx::query_as(sql)
        .bind(merchant)
        .fetch_optional(conn)
        .await)?;
    Ok(found.unwrap_or_default())
}

/// A look at what comes next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What the filter finds in it, the oldest first.
    pub found: Vec<Candidate>,
    /// Where the next one begins; absent: nothing was there.
    pub upto: Option<Place>,
    /// Nothing comes behind it.
    pub last: bool,
}

impl Store {
    /// Up to `limit` of what `filter` finds after `after` and up to `end` (absent: all). Looks at no more than
    /// [`WINDOW`] rows, however few of them match, unless an index finds those that do.
    pub async fn replay_look(
        &self,
        what: What,
        merchant: &str,
        filter: &ReplayFilter,
        (after, end): (&Place, Option<&Place>),
        limit: u16,
    ) -> Result<Look, StoreError> {
        let first = first_place(what, filter, after);
        let after = first.as_ref().unwrap_or(after);
        let border = if filter.is_indexed() {
            None
        } else {
            self.border(what, merchant, (after, end), WINDOW).await?
        };
        let within = border.as_ref().or(end);
        let found = self
            .candidates(what, merchant, filter, (after, within), limit)
            .await?;
        let full = found.len() >= usize::from(limit);
        let upto = if full { None } else { border };
        Ok(Look {
            last: !full && upto.is_none(),
            upto: upto.or_else(|| found.last().map(Candidate::place)),
            found,
        })
    }

    /// Where the `rows`th of what a merchant has after `after` stands; `None`: there are fewer up to `end`.
    pub(super) async fn border(
        &self,
        what: What,
        merchant: &str,
        (after, end): (&Place, Option<&Place>),
        rows: i64,
    ) -> Result<Option<Place>, StoreError> {
        let rows = rows.saturating_sub(1);
        Ok(on_pool!(self, |pool| {
            let mut sql = border(what, merchant, (after, end), rows);
            sql.build_query_as().fetch_optional(pool).await
        })?)
    }

    async fn candidates(
        &self,
        what: What,
        merchant: &str,
        filter: &ReplayFilter,
        span: (&Place, Option<&Place>),
        limit: u16,
    ) -> Result<Vec<Candidate>, StoreError> {
        let of_events = filter.of_events(merchant);
        Ok(on_pool!(self, |pool| {
            let mut sql = QueryBuilder::new("");
            candidates(&mut sql, what, merchant, (filter, &of_events), span, limit);
            sql.build_query_as().fetch_all(pool).await
        })?)
    }

    /// How the database would carry out a look at events, line by line: for the tests that keep it off a walk over
    /// everybody's.
    #[doc(hidden)]
    pub async fn explain_replay_look(
        &self,
        merchant: &str,
        filter: &ReplayFilter,
        span: (&Place, Option<&Place>),
    ) -> Result<Vec<String>, StoreError> {
        let of_events = filter.of_events(merchant);
        Ok(match self {
            Self::Postgres(pool) => {
                let mut sql = QueryBuilder::new("explain ");
                candidates(&mut sql, What::Events, merchant, (filter, &of_events), span, 250);
                let mut lines: Vec<String> = sql.build_query_scalar().fetch_all(pool).await?;
                let mut sql = QueryBuilder::new("explain ");
                push_border(&mut sql, What::Events, merchant, span, WINDOW);
                lines.extend(sql.build_query_scalar::<String>().fetch_all(pool).await?);
                lines
            }
            Self::Sqlite(pools) => {
                let mut sql = QueryBuilder::new("explain query plan ");
                candidates(&mut sql, What::Events, merchant, (filter, &of_events), span, 250);
                let mut rows: Vec<(i64, i64, i64, String)> =
                    sql.build_query_as().fetch_all(&pools.reader).await?;
                let mut sql = QueryBuilder::new("explain query plan ");
                push_border(&mut sql, What::Events, merchant, span, WINDOW);
                rows.extend(sql.build_query_as().fetch_all(&pools.reader).await?);
                rows.into_iter().map(|(.., line)| line).collect()
            }
        })
    }
}

/// Ids of events begin with the millisecond of their arrival: what came before `since` need not be looked at.
pub(super) fn first_place(what: What, filter: &ReplayFilter, after: &Place) -> Option<Place> {
    let since = filter.since.filter(|_| what == What::Events)?;
    let id = EventId::least(since);
    (id > after.id).then_some(Place { position: 0, id })
}

fn border<'a, DB>(
    what: What,
    merchant: &'a str,
    span: (&'a Place, Option<&'a Place>),
    rows: i64,
) -> QueryBuilder<'a, DB>
where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
    String: Encode<'a, DB> + Type<DB>,
    i64: Encode<'a, DB> + Type<DB>,
    Timestamp: Encode<'a, DB> + Type<DB>,
{
    let mut sql = QueryBuilder::new("");
    push_border(&mut sql, what, merchant, span, rows);
    sql
}

fn push_border<'a, DB>(
    sql: &mut QueryBuilder<'a, DB>,
    what: What,
    merchant: &'a str,
    span: (&'a Place, Option<&'a Place>),
    rows: i64,
) where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
    String: Encode<'a, DB> + Type<DB>,
    i64: Encode<'a, DB> + Type<DB>,
    Timestamp: Encode<'a, DB> + Type<DB>,
{
    match what {
        What::Events => sql.push(EVENT_PLACES),
        What::Orders => sql.push(MESSAGE_PLACES),
    }
    .push_bind(merchant);
    push_span(sql, what, span);
    push_order(sql, what);
    sql.push(" limit 1 offset ").push_bind(rows);
}

fn candidates<'a, DB>(
    sql: &mut QueryBuilder<'a, DB>,
    what: What,
    merchant: &'a str,
    (filter, of_events): (&'a ReplayFilter, &'a EventFilter),
    span: (&'a Place, Option<&'a Place>),
    limit: u16,
) where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
    String: Encode<'a, DB> + Type<DB>,
    i64: Encode<'a, DB> + Type<DB>,
    Timestamp: Encode<'a, DB> + Type<DB>,
{
    match what {
        What::Events => {
            sql.push(EVENTS).push_bind(merchant);
            narrow(sql, of_events);
        }
        What::Orders => {
            sql.push(MESSAGES).push_bind(merchant);
            filter.narrow_messages(sql, merchant);
        }
    }
    push_span(sql, what, span);
    push_order(sql, what);
    sql.push(" limit ").push_bind(i64::from(limit));
}

fn push_order<DB: Database>(sql: &mut QueryBuilder<'_, DB>, what: What) {
    sql.push(match what {
        What::Events => " order by e.id",
        What::Orders => " order by m.position, m.id",
    });
}

/// What comes after one place and up to another.
pub(super) fn push_span<'a, DB>(
    sql: &mut QueryBuilder<'a, DB>,
    what: What,
    (after, end): (&'a Place, Option<&'a Place>),
) where
    DB: Database,
    &'a str: Encode<'a, DB> + Type<DB>,
    String: Encode<'a, DB> + Type<DB>,
    i64: Encode<'a, DB> + Type<DB>,
    Timestamp: Encode<'a, DB> + Type<DB>,
{
    let bounds = [(" > ", Some(after)), (" <= ", end)];
    for (compared, place) in bounds {
        let Some(place) = place else { continue };
        match what {
            What::Events => {
                sql.push(" and e.id").push(compared).push_bind(place.id.as_str());
            }
            What::Orders => {
                sql.push(" and (m.position, m.id)")
                    .push(compared)
                    .push("(")
                    .push_bind(place.position)
                    .push(", ")
                    .push_bind(place.id.as_str())
                    .push(")");
            }
        }
    }
}
