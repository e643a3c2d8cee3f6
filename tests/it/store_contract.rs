//! What the database itself refuses, whoever writes (I7, I8), and that both databases are the same.

use std::collections::BTreeSet;

use payhook::store::{Store, StoreOptions};

use crate::support::store::{FreshStore, on_both_stores, patient};

/// One row in every guarded table: what the tests below try to change.
const ROWS: [&str; 13] = [
    "insert into events (id, event_key, provider, account, merchant, type, provider_event_type, occurred_at,
       received_at, fingerprint, headers, body)
     values ('e1', 'webhook:stripe:a:1', 'stripe', 'a', 'm', 'other.x', 'x', 1, 1, $blob, '[]', $blob)",
    "insert into event_conflicts (event_id, fingerprint, received_at, headers, body)
     values ('e1', $blob, 1, '[]', $blob)",
    "insert into messages (id, merchant, routing_key, body, created_at) values ('m/o1/1', 'm', 'order.paid', $blob, 1)",
    "insert into orders (merchant, order_id, status, created_at, updated_at) values ('m', 'o1', 'pending', 1, 1)",
    "insert into trades (merchant, provider, trade_id, account, status, created_at, updated_at)
     values ('m', 'stripe', 't1', 'a', 'unpaid', 1, 1)",
    "insert into facts (merchant, provider, key, kind, recorded_at) values ('m', 'stripe', 'f1', 'paid', 1)",
    "insert into ledger_entries (merchant, provider, source, entry_type, amount, currency, at)
     values ('m', 'stripe', 't1', 'payment', 100, 'CNY', 1)",
    "insert into order_history (id, merchant, order_id, at, fact, outcome, reason, status_before, status_after)
     $overriding values (7, 'm', 'o1', 1, 'paid', 'applied', 'r', 'pending', 'paid')",
    "insert into attention (id, code, source, merchant, explanation, created_at)
     values ('a1', 'event_conflict', 'e1', 'm', 'x', 1)",
    "insert into audit (id, merchant, actor, action, reason, details, at) values ('d1', 'm', 'ops', 'a', 'r', '{}', 1)",
    "insert into event_outcomes (event_id, outcome, reason, decided_at) values ('e1', 'dead', 'r', 1)",
    "insert into dead_letters (id, event_id, error, attempts, created_at) values ('l1', 'e1', 'x', 8, 1)",
    "insert into deliveries (id, event_id, received_at) $overriding values (7, 'e1', 1)",
];

/// Tables that keep what they hold, with an edit that must fail.
const GUARDED: [(&str, &str); 13] = [
    ("events", "update events set order_id = 'other'"),
    (
        "event_conflicts",
        "update event_conflicts set received_at = micros(2)",
    ),
    ("messages", "update messages set order_id = 'other'"),
    (
        "orders",
        "update orders set status = 'pending', version = version + 1",
    ),
    ("trades", "update trades set status = 'unpaid'"),
    ("facts", "update facts set amount = 1"),
    ("ledger_entries", "update ledger_entries set amount = 1"),
    ("order_history", "update order_history set outcome = 'stale'"),
    ("attention", "update attention set explanation = 'other'"),
    ("audit", "update audit set reason = 'other'"),
    // An outcome may be replaced, but not by one that does not exist.
    ("event_outcomes", "update event_outcomes set outcome = 'other'"),
    ("dead_letters", "update dead_letters set error = 'other'"),
    ("deliveries", "update deliveries set received_at = micros(2)"),
];

async fn fill(fresh: &FreshStore) {
    for row in ROWS {
        insert(fresh, row).await.unwrap();
    }
    let pay = "update orders set status = 'paid', paid = 100, version = 1";
    assert_eq!(fresh.by_hand(pay).await.unwrap(), 1);
    let pay = "update trades set status = 'paid', amount = 100, currency = 'CNY', paid_at = micros(1)";
    assert_eq!(fresh.by_hand(pay).await.unwrap(), 1);
}

async fn insert(fresh: &FreshStore, row: &str) -> Result<u64, sqlx::Error> {
    let (blob, overriding) = if fresh.is_postgres() {
        (r"'\x01'::bytea", "overriding system value")
    } else {
        ("x'01'", "")
    };
    fresh
        .by_hand(&row.replace("$blob", blob).replace("$overriding", overriding))
        .await
}

/// Everything in the guarded tables, as text.
async fn contents(fresh: &FreshStore) -> Vec<String> {
    let mut all = Vec::new();
    for (table, _) in GUARDED {
        let sql = if fresh.is_postgres() {
            format!("select t::text from {table} t")
        } else {
            let columns = fresh
                .texts(&format!("select name from pragma_table_info('{table}')"))
                .await;
            format!(
                "select concat_ws('|', quote({})) from {table}",
                columns.join("), quote(")
            )
        };
        all.extend(fresh.texts(&sql).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_sqlite_file_and_what_lies_beside_it_are_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("payhook.db").display());
    let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let files: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(files.len() > 1, "the log lies beside it");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.path().display());
    }
}

on_both_stores! {
    async fn no_guarded_row_can_be_replaced_by_its_hidden_number(fresh) {
        if fresh.is_postgres() {
            return;
        }
        for table in ["orders", "trades", "attention", "event_conflicts", "audit", "idempotency_keys"] {
            let refused = fresh.by_hand(&format!("update or replace {table} set rowid = 1")).await;
            assert!(refused.is_err(), "{table} has a rowid that a REPLACE can collide with");
        }
    }

    async fn a_hand_with_a_shell_can_neither_edit_nor_delete(fresh) {
        fill(&fresh).await;
        let before = contents(&fresh).await;
        for (table, edit) in GUARDED {
            let refused = fresh.by_hand(edit).await;
            assert!(refused.is_err(), "{edit} was taken");
            let refused = fresh.by_hand(&format!("delete from {table}")).await;
            assert!(refused.is_err(), "delete from {table} was taken");
            if fresh.is_postgres() {
                for truncate in [format!("truncate {table}"), format!("truncate {table} cascade")] {
                    assert!(fresh.by_hand(&truncate).await.is_err(), "{truncate} was taken");
                }
            }
        }
        assert_eq!(contents(&fresh).await, before);
    }

    async fn an_insert_can_not_replace_what_is_there(fresh) {
        fill(&fresh).await;
        let before = contents(&fresh).await;
        for row in ROWS {
            if fresh.is_postgres() {
                assert!(insert(&fresh, row).await.is_err(), "{row} was taken twice");
            } else {
                // The bare keyword form and the long one; neither fires delete triggers on this connection.
                for verb in ["insert or replace into", "replace into"] {
                    let taken = insert(&fresh, &row.replacen("insert into", verb, 1)).await.unwrap();
                    // An outcome is replaced when a replay ends otherwise.
                    let replaceable = row.contains("into event_outcomes");
                    assert_eq!(taken, u64::from(replaceable), "{verb}: {row}");
                }
            }
        }
        // An order under the same key with other values: the way to un-pay it.
        let unpay = "insert into orders (merchant, order_id, status, created_at, updated_at) values ('m', 'o1', 'pending', 9, 9)";
        if !fresh.is_postgres() {
            fresh.by_hand(&unpay.replacen("insert", "insert or replace", 1)).await.unwrap();
        }
        assert_eq!(contents(&fresh).await, before);
    }

    async fn what_hangs_on_an_event_goes_only_with_it(fresh) {
        fill(&fresh).await;
        let gone = |table: &str, cutoff: u8| format!(
            "insert into retention_cutoff values (micros({cutoff})); delete from {table}; delete from retention_cutoff");
        for table in ["event_outcomes", "deliveries"] {
            assert!(fresh.by_hand(&gone(table, 1)).await.is_err(), "{table}: of the cut-off is not before it");
            fresh.by_hand("delete from retention_cutoff").await.unwrap();
            fresh.by_hand(&gone(table, 2)).await.unwrap();
            assert_eq!(fresh.number(&format!("select count(*) from {table}")).await, 0, "{table}");
        }
        assert!(fresh.by_hand(&gone("dead_letters", 9)).await.is_err(), "retention leaves dead letters alone");
    }

    async fn only_a_redrive_takes_an_end_back(fresh) {
        fill(&fresh).await;
        let undo = "delete from event_outcomes where outcome = 'dead'";
        assert!(fresh.by_hand(undo).await.is_err(), "its dead letter is open");
        assert_eq!(fresh.by_hand("update dead_letters set redriven_at = micros(5)").await.unwrap(), 1);
        assert!(fresh.by_hand("update dead_letters set redriven_at = micros(6)").await.is_err(), "it was redriven before");
        assert!(fresh.by_hand("update dead_letters set redriven_at = null").await.is_err());
        assert_eq!(fresh.by_hand("update event_outcomes set outcome = 'applied'").await.unwrap(), 1);
        assert!(fresh.by_hand("delete from event_outcomes").await.is_err(), "it did not end dead");
        assert_eq!(fresh.by_hand("update event_outcomes set outcome = 'dead'").await.unwrap(), 1);
        assert_eq!(fresh.by_hand(undo).await.unwrap(), 1);
    }

    async fn no_session_can_turn_the_guards_off(fresh) {
        if !fresh.is_postgres() {
            return;
        }
        let open = "select t.tgrelid::regclass::text || '.' || t.tgname from pg_trigger t join pg_proc f on f.oid = t.tgfoid
            where not t.tgisinternal and f.proname like 'payhook%' and t.tgenabled <> 'A'";
        let open = fresh.texts(open).await;
        assert!(open.is_empty(), "a replica session passes these; `enable always` them: {open:#?}");
        fill(&fresh).await;
        let before = contents(&fresh).await;
        for (table, edit) in GUARDED {
            for verb in [edit.to_owned(), format!("delete from {table}"), format!("truncate {table}")] {
                let refused = fresh.by_hand(&format!("set session_replication_role = replica; {verb}")).await;
                assert!(refused.is_err(), "{verb} was taken");
            }
        }
        assert_eq!(contents(&fresh).await, before);
    }

    async fn an_order_can_not_regress(fresh) {
        fill(&fresh).await;
        for edit in [
            "status = 'processing', version = 2",
            "status = 'closed', closed_by = 'merchant', version = 2",
            "paid = 99, version = 2",
            "paid = 101",
            "paid = 101, version = 3",
            "version = 2",
            "order_id = 'o2'",
            "paid_version = null, version = 0",
        ] {
            let refused = fresh.by_hand(&format!("update orders set {edit} where order_id = 'o1'")).await;
            assert!(refused.is_err(), "{edit} was taken");
        }
        let refund = "update orders set status = 'refunded', refunded = 100, version = 2";
        assert_eq!(fresh.by_hand(refund).await.unwrap(), 1);
        let unrefund = "update orders set status = 'paid', version = 3";
        assert!(fresh.by_hand(unrefund).await.is_err(), "refunded was left without another trade");
    }

    async fn refunded_is_left_only_for_what_another_trade_says(fresh) {
        fill(&fresh).await;
        let orders = async |set: &str| fresh.by_hand(&format!("update orders set {set} where order_id = 'o1'")).await;
        let trade = async |id: &str, set: &str| {
            let done = fresh.by_hand(&format!("update trades set {set} where trade_id = '{id}'")).await;
            assert_eq!(done.unwrap(), 1, "{set}");
        };
        trade("t1", "order_id = 'o1', status = 'refunded', refunded = 100").await;
        orders("status = 'refunded', refunded = 100, version = 2").await.unwrap();
        let second = "insert into trades (merchant, provider, trade_id, account, order_id, status, created_at, updated_at)
            values ('m', 'alipay', 't2', 'a', 'o1', 'unpaid', 1, 1)";
        fresh.by_hand(second).await.unwrap();
        let back = "status = 'paid', paid = 200, version = 3";
        for status in ["unpaid", "closed", "held"] {
            trade("t2", &format!("status = '{status}'")).await;
            assert!(orders(back).await.is_err(), "left for a trade that is {status}");
        }
        trade("t2", "status = 'paid', amount = 100, currency = 'CNY', paid_at = micros(1), order_id = 'o1'").await;
        for wrong in [
            "status = 'pending', version = 3",
            "status = 'closed', closed_by = 'merchant', version = 3",
            "status = 'paid', version = 2",
            "status = 'paid', paid = 99, version = 3",
        ] {
            assert!(orders(wrong).await.is_err(), "{wrong} was taken");
        }
        orders(back).await.unwrap();
        assert!(orders("status = 'pending', version = 4").await.is_err());
        orders("status = 'finished', version = 4").await.unwrap();
        assert!(orders("status = 'paid', version = 5").await.is_err(), "only refunded is left downwards");
        trade("t2", "status = 'refunded', refunded = 100").await;
        orders("status = 'refunded', refunded = 200, version = 5").await.unwrap();
        assert!(orders("status = 'paid', version = 6").await.is_err(), "both are refunded");
    }

    async fn a_late_payment_counts_for_the_order_only_once_it_is_kept(fresh) {
        fill(&fresh).await;
        for row in [
            "insert into orders (merchant, order_id, status, created_at, updated_at) values ('m', 'o2', 'pending', 1, 1)",
            "update orders set status = 'closed', closed_by = 'merchant', version = 1 where order_id = 'o2'",
            "update trades set order_id = 'o2', late = (1 = 1)",
        ] {
            fresh.by_hand(row).await.unwrap();
        }
        let pay = "update orders set status = 'paid', closed_by = null, paid = 100, version = 2 where order_id = 'o2'";
        assert!(fresh.by_hand(pay).await.is_err(), "a merchant's close was left for a payment that is not kept");
        let other = "insert into facts (merchant, provider, key, kind, trade_id, recorded_at)
            values ('m', 'stripe', 'a0', 'payment_accepted', 't1', 1)";
        fresh.by_hand(other).await.unwrap();
        assert!(fresh.by_hand(pay).await.is_err(), "accepting what was held is not keeping what was late");
        let keep = "insert into facts (merchant, provider, key, kind, trade_id, recorded_at)
            values ('m', 'stripe', 'a1', 'payment_kept', 't1', 1)";
        fresh.by_hand(keep).await.unwrap();
        for wrong in ["status = 'pending', closed_by = null", "closed_by = 'provider'", "status = 'refunded', closed_by = null"] {
            let refused = fresh.by_hand(&format!("update orders set {wrong}, version = 2 where order_id = 'o2'")).await;
            assert!(refused.is_err(), "{wrong} was taken");
        }
        assert_eq!(fresh.by_hand(pay).await.unwrap(), 1);
    }

    async fn an_order_is_inserted_at_the_version_that_its_changes_make(fresh) {
        let insert = async |number: usize, status: &str, values: &str| fresh.by_hand(&format!(
            "insert into orders (merchant, order_id, created_at, updated_at, status, paid, refunded, version, paid_version)
             values ('m', 'b{number}', 1, 1, '{status}', {values})")).await;
        for (number, (status, values)) in [
            ("pending", "5, 0, 0, null"),
            ("pending", "0, 0, 1, null"),
            ("pending", "0, 0, 0, 1"),
            ("pending", "0, 0, 1, 1"),
            ("processing", "0, 0, 0, null"),
            ("paid", "5, 0, 0, null"),
            ("paid", "5, 0, 0, 1"),
            ("paid", "5, 0, 1, 0"),
            ("paid", "5, 0, 2, 1"),
            ("paid", "5, 0, 2, 2"),
            ("paid", "-5, 0, 1, 1"),
            ("finished", "5, 0, 1, 1"),
            ("finished", "5, 0, 3, 1"),
            ("finished", "5, 0, 2, 2"),
            ("partially_refunded", "5, 2, 1, 1"),
            ("refunded", "5, 5, 2, 1"),
            ("refunded", "5, 5, 2, null"),
        ].into_iter().enumerate() {
            assert!(insert(number, status, values).await.is_err(), "{status} {values} was taken");
        }
        for (number, (status, values)) in [
            ("pending", "0, 0, 0, null"),
            ("processing", "0, 0, 1, null"),
            ("paid", "5, 0, 1, 1"),
            ("paid", "5, 0, 1, null"),
            ("finished", "5, 0, 2, 1"),
            ("partially_refunded", "5, 2, 2, 1"),
            ("refunded", "5, 5, 1, null"),
        ].into_iter().enumerate() {
            assert_eq!(insert(number, status, values).await.unwrap(), 1, "{status} {values}");
        }
    }

    async fn only_retention_deletes_events_and_only_expired_ones(fresh) {
        fill(&fresh).await;
        fresh.by_hand("insert into retention_cutoff values (1)").await.unwrap();
        assert!(fresh.by_hand("delete from events").await.is_err(), "received at the cut-off is not before it");
        fresh.by_hand("delete from retention_cutoff").await.unwrap();
        fresh.by_hand("insert into retention_cutoff values (2)").await.unwrap();
        assert_eq!(fresh.by_hand("delete from events").await.unwrap(), 1);
        assert_eq!(fresh.number("select count(*) from events").await, 0);
    }

    async fn migrating_again_changes_nothing(fresh) {
        fill(&fresh).await;
        let before = contents(&fresh).await;
        fresh.store.migrate().await.unwrap();
        assert_eq!(contents(&fresh).await, before);
    }
}

const POSTGRES_COLUMNS: &str = "
    select table_name || '.' || column_name || ' '
        || case data_type when 'bigint' then 'integer' when 'boolean' then 'integer' when 'bytea' then 'blob' else data_type end
        || case is_nullable when 'YES' then ' null' else '' end
      from information_schema.columns where table_schema = 'public'";

const SQLITE_COLUMNS: &str = "
    select t.name || '.' || c.name || ' ' || lower(c.type) || iif(c.\"notnull\" or c.pk, '', ' null')
      from sqlite_schema t join pragma_table_info(t.name) c
     where t.type = 'table' and t.name not like 'sqlite_%'";

async fn columns(fresh: FreshStore) -> BTreeSet<String> {
    let sql = if fresh.is_postgres() {
        POSTGRES_COLUMNS
    } else {
        SQLITE_COLUMNS
    };
    let mut columns: BTreeSet<String> = fresh.texts(sql).await.into_iter().collect();
    columns.retain(|column| !column.starts_with("_sqlx_migrations."));
    // Only Postgres has types for times and JSON.
    columns = columns
        .iter()
        .map(|column| {
            column
                .replace("timestamp with time zone", "integer")
                .replace("jsonb", "text")
        })
        .collect();
    assert!(columns.len() > 100, "the query finds the tables: {columns:?}");
    columns
}

#[tokio::test]
async fn both_databases_have_the_same_tables_and_columns() {
    let (tell, mut told) = tokio::sync::mpsc::channel(2);
    let of_postgres = tell.clone();
    FreshStore::with_postgres(|fresh| async move { of_postgres.send(columns(fresh).await).await.unwrap() })
        .await;
    FreshStore::with_sqlite(|fresh| async move { tell.send(columns(fresh).await).await.unwrap() }).await;
    let postgres = told.recv().await.unwrap();
    let sqlite = told.recv().await.unwrap();
    let only_one: Vec<_> = postgres.symmetric_difference(&sqlite).collect();
    assert!(only_one.is_empty(), "in one database only: {only_one:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_database_that_is_not_utf8_is_refused_before_any_table_is_made() {
    FreshStore::with_postgres(|fresh| async move {
        let (server, name) = fresh.url.rsplit_once('/').unwrap();
        let ascii = format!("{name}_ascii");
        let made = format!(
            "create database {ascii} encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'"
        );
        fresh.by_hand(&made).await.unwrap();
        let store = Store::open(&format!("{server}/{ascii}"), &patient())
            .await
            .unwrap();
        let refused = store.migrate().await.unwrap_err();
        assert!(
            refused.to_string().contains("createdb -E UTF8") && !refused.is_transient(),
            "{refused}"
        );
        assert_eq!(store.schema().await.unwrap().applied, None);
        store.close().await;
        fresh
            .by_hand(&format!("drop database {ascii} with (force)"))
            .await
            .unwrap();
    })
    .await;
}
