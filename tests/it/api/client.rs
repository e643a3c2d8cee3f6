//! The command line's client against the real router over a real socket.

use payhook::cli::client::Client;
use payhook::cli::failure::{FAILED, MISUSED, code};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// Serves the router until the set is dropped.
pub(super) async fn serve(api: &Api) -> (JoinSet<()>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let app = router(api.state.clone());
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (serving, server)
}

fn client(server: &str, token: &str) -> Client {
    Client::new(server, token.into()).unwrap()
}

on_both_stores! {
    async fn the_client_gives_what_the_api_says(fresh) {
        let api = events::planted(&fresh).await;
        let (_serving, server) = serve(&api).await;
        let ops = client(&server, OPS);
        assert_eq!(ops.get(&["events", "e1"], &[]).await.unwrap(), api.json(OPS, "/v1/events/e1").await);
        let query = [("limit", "2".to_owned()), ("type", "payment.succeeded".to_owned())];
        assert_eq!(
            ops.get(&["events"], &query).await.unwrap(),
            api.json(OPS, "/v1/events?limit=2&type=payment.succeeded").await
        );
        assert_eq!(ops.bytes(&["events", "e1", "raw"]).await.unwrap(), events::BODY);
    }

    async fn what_goes_wrong_is_said_with_its_exit_code(fresh) {
        let api = events::planted(&fresh).await;
        let (serving, server) = serve(&api).await;
        let asked_wrongly = client(&server, OPS).get(&["events"], &[("colour", "red".to_owned())]).await.unwrap_err();
        assert_eq!(code(&asked_wrongly), MISUSED);
        for (token, segments, said) in [
            (OPS, ["events", "a/../b?c"].as_slice(), "not_found"),
            ("wrong", &["events"], "unauthorized"),
            (VIEWER, &["events", "e1", "raw"], "forbidden"),
        ] {
            let error = client(&server, token).get(segments, &[]).await.unwrap_err();
            assert_eq!(code(&error), FAILED);
            assert!(error.to_string().starts_with(said), "{error:#}");
        }
        drop(serving);
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = client(&format!("http://{nobody}"), OPS).get(&["events"], &[]).await.unwrap_err();
        assert_eq!(code(&error), FAILED);
        assert!(format!("{error:#}").contains("is `payhook serve` running there?"), "{error:#}");
        assert!(!format!("{error:#}").contains(OPS));
    }
}
