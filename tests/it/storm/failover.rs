//! The primary is lost and its standby promoted: with synchronous replication nothing acked goes with it.

use super::super::support::proxy::{Network, Proxy};
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_synchronous_standby_has_everything_acked() {
    let (primary, standby) = tokio::task::spawn_blocking(|| {
        let primary = PrivatePostgres::start_with(&["synchronous_standby_names=standby"]);
        let standby = primary.standby();
        (primary, standby)
    })
    .await
    .unwrap();
    let proxy = Proxy::before(&primary.url()).await;
    let mut daemon = Daemon::new(&Setup {
        store: Some(&proxy.instead(&primary.url())),
        patient: false,
        ..Setup::default()
    });
    daemon.start().await;
    let daemon = Arc::new(Mutex::new(daemon));
    let stories = stories(57, scale(80), "f");
    let load = Load::new(&stories, 58);
    let signers = Signers::new();
    let daemons = [daemon.clone()];
    let primary = Arc::new(Mutex::new(primary));
    let failover = async {
        load.reach(40).await;
        in_thread(&primary, PrivatePostgres::kill).await;
        let standby = tokio::task::spawn_blocking(move || {
            standby.promote();
            standby
        })
        .await
        .unwrap();
        proxy.redirect(&standby.url());
        proxy.set(Network::Cut);
        proxy.set(Network::Open);
        standby
    };
    let ((), standby) = tokio::join!(send(&load, &signers, &daemons), failover);
    judge(&*daemon.lock().await, &stories).await;
    drop(standby);
}
