//! When the feed's positions begin to mean something else.
//!
//! Positions come from a counter of the database. A restore or a failover sets that counter back, to where new
//! rows take positions that readers have already passed; or to another cluster whose counter stands lower than
//! every stored row. So an *epoch* begins whenever that may have happened, with a floor: up to the floor the
//! history before it and after it are the same. A cursor names its epoch, and the first epoch that began after
//! it draws it back to that floor; the reader repeats what lies between, and misses nothing. An epoch is named
//! by the moment it began, so that one which a restore undid is never taken for one that came later.
//!
//! - SQLite: every start of the daemon begins one, since a file is put back only while nothing runs. Its floor
//!   is the last row; a cursor that was given before the start is never beyond it, unless the file was put back.
//! - Postgres, stored ids above the cluster's own, as after a restore into a new cluster: positions get a base,
//!   so that new rows come after the stored ones, and the floor is the last stored row.
//! - Postgres, another cluster or timeline than was known, as after a failover that lost commits: the floor is
//!   the *mark*, a position that was noted at most about a minute before.
//!
//! `migrate` looks, and so does the sampler every few seconds. What a daemon that ran on through a restore
//! wrote before that look stands at positions of the younger cluster, far below the rest: then the floor is
//! below those, and readers repeat all that lies above. Restore with the daemons stopped.

use sqlx::{FromRow, PgConnection, PgPool};

use super::Stream;
use crate::store::{OpenTransaction, SqlitePools, Store, StoreError, heard};

const LOCK: &str = "select pg_advisory_xact_lock(716300921101)";
const LATEST: &str =
    "select epoch, base, mark, cluster from feed_epochs where stream = 'events' order by epoch desc limit 1";
const OWN: &str = "select pg_current_xact_id()::text::bigint";
// The largest position by each merchant's end of the index: no scan of the table.
const STORED: &str = "with recursive
    e(merchant) as (select min(merchant) from events
        union all select (select min(merchant) from events where merchant > e.merchant) from e where e.merchant is not null),
    m(merchant) as (select min(merchant) from messages
        union all select (select min(merchant) from messages where merchant > m.merchant) from m where m.merchant is not null),
    r(merchant) as (select min(merchant) from replays_sent
        union all select (select min(merchant) from replays_sent where merchant > r.merchant) from r where r.merchant is not null)
    select coalesce(greatest(
        (select max((select max(position) from events t where t.merchant = e.merchant)) from e),
        (select max((select max(position) from messages t where t.merchant = m.merchant)) from m),
        (select max((select max(position) from replays_sent t where t.merchant = r.merchant)) from r)), 0)";
// Rows at or below $1 that are newer than any above it. Scans, but only after a restore.
const OUT_OF_LINE: &str = "select least(
        (select min(position) from events
          where position <= $1 and id > (select max(id) from events where position > $1)),
        (select min(position) from messages
          where position <= $1 and created_at > (select max(created_at) from messages where position > $1)))";
const NO_TIMEOUT: &str = "set local statement_timeout = 0";
const MARK: &str =
    "update feed_epochs set mark = $2, cluster = case when $3 = '' then cluster else $3 end where epoch = $1";
const BEGIN_POSTGRES: &str = "insert into feed_epochs (stream, epoch, base, floor, mark, cluster)
    select stream, greatest($1 + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint), $2, $3, $4, $5
      from (values ('events'), ('orders')) as streams (stream)";
const BEGIN_SQLITE: &str = "insert into feed_epochs (stream, epoch, base, floor, mark, cluster)
    select $1, max(latest.epoch + 1, cast(unixepoch('subsec') * 1000000 as integer)), 0, last.position, last.position, ''
      from (select max(epoch) as epoch from feed_epochs) as latest,
           (select coalesce(max(seq), 0) as position from sqlite_sequence where name = $2) as last";
const CLUSTER: &str = "select system_identifier::text || '/'
        || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) from pg_control_system()";

#[derive(FromRow)]
struct Latest {
    epoch: i64,
    base: i64,
    mark: i64,
    cluster: String,
}

/// What has become of the counter since the mark.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It went on.
    Same,
    /// It went on, but perhaps not from where readers saw it last.
    Moved,
    /// It stands below what is stored.
    Behind,
}

fn judge(latest: &Latest, cluster: &str, own: i64, stored: i64) -> Found {
    if latest.base.saturating_add(own) <= stored.max(latest.mark) {
        Found::Behind
    } else if !cluster.is_empty() && !latest.cluster.is_empty() && cluster != latest.cluster {
        Found::Moved
    } else {
        Found::Same
    }
}

impl Store {
    /// Begins an epoch of the feed if the counter behind its positions may have been set back, else notes how
    /// far that has come. Part of [`Store::migrate`]; call it where a daemon starts without migrating.
    pub async fn renew_feed_epoch(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(pool) => renew_postgres(pool).await,
            Self::Sqlite(pools) => begin_sqlite(pools).await,
        }
    }
}

async fn begin_sqlite(pools: &SqlitePools) -> Result<(), StoreError> {
    let mut tx = OpenTransaction::begin(&pools.writer, "begin immediate").await?;
    for (stream, table) in [(Stream::Events, "events"), (Stream::Orders, "messages")] {
        sqlx::query(BEGIN_SQLITE)
            .bind(stream.as_str())
            .bind(table)
            .execute(&mut *tx)
            .await?;
    }
    Ok(tx.end("commit").await?)
}

async fn renew_postgres(pool: &PgPool) -> Result<(), StoreError> {
    let cluster = cluster(pool).await?;
    let (mut tx, latest, stored, own) = heard(async {
        let mut tx = OpenTransaction::begin(pool, "begin").await?;
        sqlx::query(LOCK).execute(&mut *tx).await?;
        let latest: Latest = sqlx::query_as(LATEST).fetch_one(&mut *tx).await?;
        // In this order: what is stored when it is read stands below an id that is taken afterwards. The other way
        // round, whatever was committed in between looks like rows from the future.
        let stored: i64 = sqlx::query_scalar(STORED).fetch_one(&mut *tx).await?;
        let own: i64 = sqlx::query_scalar(OWN).fetch_one(&mut *tx).await?;
        Ok((tx, latest, stored, own))
    })
    .await?;
    match judge(&latest, &cluster, own, stored) {
        Found::Same => {
            let mark = sqlx::query(MARK)
                .bind(latest.epoch)
                .bind(latest.base.saturating_add(own))
                .bind(&cluster)
                .execute(&mut *tx);
            heard(mark).await?;
        }
        Found::Moved => begin_postgres(&mut tx, &latest, latest.base, latest.mark, own, &cluster).await?,
        Found::Behind => {
            let last = stored.max(latest.mark);
            let base = last.saturating_add(1).saturating_sub(own);
            sqlx::query(NO_TIMEOUT).execute(&mut *tx).await?;
            // Waits for every transaction that has written with the old base, and holds up those to come.
            for table in ["events", "messages", "replays_sent"] {
                let sql = format!(
                    "alter table {table} alter column position set default (pg_current_xact_id()::text::bigint + {base})"
                );
                sqlx::query(&sql).execute(&mut *tx).await?;
            }
            let out_of_line: Option<i64> = sqlx::query_scalar(OUT_OF_LINE)
                .bind(latest.base.saturating_add(own))
                .fetch_one(&mut *tx)
                .await?;
            let floor = out_of_line.map_or(stored, |lowest| lowest.saturating_sub(1));
            begin_postgres(&mut tx, &latest, base, floor, own, &cluster).await?;
        }
    }
    Ok(heard(tx.end("commit")).await?)
}

async fn begin_postgres(
    conn: &mut PgConnection,
    latest: &Latest,
    base: i64,
    floor: i64,
    own: i64,
    cluster: &str,
) -> Result<(), StoreError> {
    let begin = sqlx::query(BEGIN_POSTGRES)
        .bind(latest.epoch)
        .bind(base)
        .bind(floor)
        .bind(base.saturating_add(own))
        .bind(cluster)
        .execute(conn);
    heard(begin).await?;
    tracing::warn!(
        feed.floor = floor,
        "the database was restored or failed over: readers of the feed go on from before that"
    );
    Ok(())
}

/// The cluster's identifier and timeline; empty where the server does not tell.
pub(super) async fn cluster(pool: &PgPool) -> Result<String, StoreError> {
    match heard(sqlx::query_scalar(CLUSTER).fetch_one(pool)).await {
        Ok(cluster) => Ok(cluster),
        Err(sqlx::Error::Database(_)) => Ok(String::new()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_begins_when_the_counter_may_have_been_set_back() {
        let latest = |cluster: &str| Latest {
            epoch: 1,
            base: 100,
            mark: 500,
            cluster: cluster.to_owned(),
        };
        for (known, cluster, own, stored, found) in [
            ("a/1", "a/1", 401, 500, Found::Same),
            ("a/1", "a/1", 400, 500, Found::Behind),
            ("a/1", "a/1", 401, 501, Found::Behind),
            ("a/1", "b/1", 3, 501, Found::Behind),
            ("a/1", "a/2", 401, 500, Found::Moved),
            ("", "a/1", 401, 500, Found::Same),
            ("a/1", "", 401, 500, Found::Same),
        ] {
            assert_eq!(
                judge(&latest(known), cluster, own, stored),
                found,
                "{known} {cluster} {own}"
            );
        }
    }
}
