//! What is sent to nobody: 404 for whoever asks, and said to the operator.

use crate::support::daemon::{Daemon, Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notify_url_with_a_slip_in_it_is_in_log_and_metrics() {
    let mut daemon = Daemon::new(&Setup::default());
    daemon.start().await;
    let client = reqwest::Client::new();
    let long = format!("/notify/stripe/{}", "x".repeat(2000));
    for path in [
        "/notify/stripe/laod?token=secret",
        "/notify/strpe/load",
        "/callback",
        &long,
    ] {
        let answer = client
            .post(daemon.notify_url(path))
            .body("{}")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
    // A look around is not a notification.
    let answer = client
        .get(daemon.notify_url("/favicon.ico"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 404);
    let (_, metrics) = daemon.get("/metrics").await;
    let counted = "payhook_notifications_total{provider=\"none\",account=\"none\",outcome=\"refused\",reason=\"no_account\"} 4";
    assert!(
        metrics.as_str().unwrap().lines().any(|line| line == counted),
        "{metrics}"
    );
    let log = daemon.log();
    assert_eq!(log.matches("no account has this path").count(), 4, "{log}");
    assert!(
        log.contains("/notify/stripe/laod") && !log.contains("secret") && !log.contains(&"x".repeat(300)),
        "{log}"
    );
}
