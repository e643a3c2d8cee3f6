//! What a batch reads of Postgres grows with the batch and not with the tables, though nothing was ever analyzed.

use payhook::store::{Plans, StoreOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::rabbit::until;
use crate::support::store::FreshStore;
use crate::worker::{embedded, finished, paid};

const EVENTS: usize = 6000;

/// Index entries and rows that were read for one event, of any one table. A look-up by the wrong index reads half of what
/// is there: 3000 here.
const MOST: i64 = 300;

const READ: &str = "select t.relname || ' ' || (t.seq_tup_read + coalesce(i.read, 0)) \
    from pg_stat_user_tables t left join (select relid, max(idx_tup_read) as read \
         from pg_stat_user_indexes group by relid) i on i.relid = t.relid \
    where t.relname not like '\\_%' and t.seq_tup_read + coalesce(i.read, 0) > ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_reads_what_it_looks_up_and_no_more() {
    FreshStore::with_postgres(|fresh| async move {
        let fresh = fresh;
        // Statistics are what the worker asks for, and nobody else.
        for table in fresh.texts("select relname::text from pg_stat_user_tables").await {
            let off = format!("alter table {table} set (autovacuum_enabled = off)");
            fresh.by_hand(&off).await.unwrap();
        }
        let lookups = fresh.store.dedicated(&StoreOptions {
            max_connections: 4,
            plans: Plans::Lookups,
            ..StoreOptions::default()
        });
        let (worker, handoffs) = embedded(&lookups, "one", 8);
        let shutdown = CancellationToken::new();
        let mut running = JoinSet::new();
        running.spawn(worker.run(shutdown.clone()));
        for from in (0..EVENTS).step_by(250) {
            let batch: Vec<_> = (from + 1..=from + 250).map(paid).collect();
            lookups.insert_fresh(&batch, None).await.unwrap();
            until("the batch has ended", || async {
                finished(&fresh).await >= i64::try_from(from + 250).unwrap()
            })
            .await;
        }
        shutdown.cancel();
        while running.join_next().await.is_some() {}
        drop(handoffs);
        // What a connection has read is told when it ends.
        lookups.close().await;
        let most = MOST * i64::try_from(EVENTS).unwrap();
        let too_many = fresh.texts(&format!("{READ}{most}")).await;
        assert!(
            too_many.is_empty(),
            "read more than {MOST} for each event: {too_many:?}"
        );
    })
    .await;
}
