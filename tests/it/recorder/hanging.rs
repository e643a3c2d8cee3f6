//! Commits that hang, as they do while a synchronous standby is gone.

use sqlx::{Connection as _, Executor as _, PgConnection};

use super::*;
use crate::support::servers::PrivatePostgres;
use payhook::store::StoreOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_commits_that_hang_are_left_behind_on_the_server() {
    let postgres = PrivatePostgres::start();
    let store = Store::open(&postgres.url(), &StoreOptions::default())
        .await
        .unwrap();
    store.migrate().await.unwrap();
    let recording = store.dedicated(&StoreOptions {
        max_connections: 3,
        ..StoreOptions::default()
    });
    let mut by_hand = PgConnection::connect(&postgres.url()).await.unwrap();
    let options = RecorderOptions::new(Duration::from_millis(100), "daemon-1");
    let running = start(&recording, options);
    let mut number = 0;
    recorded(&running, &mut number).await;

    let hang = "alter system set synchronous_standby_names = 'nobody'";
    by_hand.execute(hang).await.unwrap();
    by_hand.execute("select pg_reload_conf()").await.unwrap();
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        number += 1;
        let fresh = Arc::new(event(&number.to_string(), b"fresh"));
        let known = Arc::new(event("1", b"fresh"));
        let (fresh, _) = tokio::join!(running.recorder.record(fresh), running.recorder.record(known));
        // The first ones may still be quicker than the server's own news of its setting.
        assert!(
            matches!(fresh, Err(Unrecorded::Unavailable) | Ok(Recorded::Fresh)),
            "{fresh:?}"
        );
    }
    let behind: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity where wait_event = 'SyncRep' and query like '%insert into events%'",
    )
    .fetch_one(&mut by_hand)
    .await
    .unwrap();
    assert!((1..=13).contains(&behind), "{behind}");

    by_hand
        .execute("alter system reset synchronous_standby_names")
        .await
        .unwrap();
    by_hand.execute("select pg_reload_conf()").await.unwrap();
    recorded(&running, &mut number).await;
    running.end().await;
}

/// Sends new events until one is recorded in its time.
async fn recorded(running: &Running, number: &mut usize) {
    let until = Instant::now() + PATIENCE;
    loop {
        *number += 1;
        let fresh = Arc::new(event(&number.to_string(), b"fresh"));
        if running.recorder.record(fresh).await == Ok(Recorded::Fresh) {
            return;
        }
        assert!(Instant::now() < until, "nothing is recorded");
    }
}
