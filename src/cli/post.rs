//! Posts a notification to a running daemon, as its provider would.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::HeaderMap;
use serde::Serialize;

use crate::event::Notification;

/// Longer than any answer of payhook's takes.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The sending side of a notify endpoint.
#[derive(Debug)]
pub(super) struct Post {
    http: reqwest::Client,
    server: String,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answered {
    /// HTTP status.
    pub(super) status: u16,
    /// `Content-Type`, if there is one.
    pub(super) content_type: Option<String>,
    /// The body.
    pub(super) body: String,
    /// From the first byte sent to the last byte read, in microseconds.
    pub(super) micros: u64,
}

impl Post {
    /// To the public listener at `server`, such as `http://127.0.0.1:8080`.
    pub(super) fn to(server: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .build()
            .context("cannot make an HTTP client")?;
        Ok(Self {
            http,
            server: server.trim_end_matches('/').to_owned(),
        })
    }

    /// Sends `notification` and reads the whole answer.
    pub(super) async fn send(&self, notification: &Notification) -> anyhow::Result<Answered> {
        let url = format!("{}{}", self.server, notification.path);
        let began = Instant::now();
        let mut headers = HeaderMap::with_capacity(notification.headers.len());
        for (name, value) in &notification.headers {
            // The client frames the body itself.
            if name != http::header::CONTENT_LENGTH && name != http::header::HOST {
                headers.append(name, value.clone());
            }
        }
        let answer = self
            .http
            .post(&url)
            .headers(headers)
            .body(notification.body.clone())
            .send()
            .await
            .with_context(|| {
                format!(
                    "no answer from {}: is `payhook serve` running there?",
                    self.server
                )
            })?;
        let status = answer.status().as_u16();
        let content_type = answer.headers().get(http::header::CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let body = answer.text().await.context("the answer broke off")?;
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(Answered {
            status,
            content_type,
            body,
            micros,
        })
    }
}
