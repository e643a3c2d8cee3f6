//! One request from its head to its answer.
//!
//! Only raw bytes are looked at: a form or JSON extractor would decode what is signed as it was sent. Verifying
//! runs right here and not on a blocking thread: it takes some 20 µs, which is what the hop would cost, and
//! the number in flight is limited. What is refused is logged by account and reason, as far as there are not too
//! many lines, never with what was sent.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::Method;
use metrics::{Counter, counter};
use tokio::time::Instant;

use super::body::{self, NoBody, Read};
use super::{Ingress, Unrecorded, origin, reply};
use crate::crash;
use crate::event::{Notification, ProviderName, text};
use crate::provider::{Reason, Refusal, Registered, Verdict, Verified};
use crate::store::Recorded;
use crate::telemetry::metrics::names;

/// So much of a path that leads nowhere is in the log, in bytes.
const LONGEST_PATH: usize = 200;

/// Answers any request to the public listener.
pub(super) async fn receive(State(ingress): State<Ingress>, request: Request) -> Response {
    let began = Instant::now();
    let Some((provider, account)) = segments(request.uri().path()) else {
        return ingress.stray(&request);
    };
    if request.method() != Method::POST {
        return reply::wrong_method();
    }
    let registry = ingress.registry.load();
    let known = provider
        .parse()
        .ok()
        .and_then(|provider: ProviderName| registry.get(provider, account));
    let Some(account) = known.map(Arc::clone) else {
        return ingress.stray(&request);
    };
    drop(registry);
    let response = ingress.answer(&account, request).await;
    account.meters.answered(began.elapsed());
    response
}

/// `/notify/{provider}/{account}`, exactly: an account has one spelling, and Antom signs it.
fn segments(path: &str) -> Option<(&str, &str)> {
    let (provider, account) = path.strip_prefix("/notify/")?.split_once('/')?;
    let whole = !provider.is_empty() && !account.is_empty() && !account.contains('/');
    whole.then_some((provider, account))
}

/// What was sent to nobody.
pub(super) fn strays() -> Counter {
    let nobody = "none";
    counter!(
        names::NOTIFICATIONS,
        "provider" => nobody, "account" => nobody, "outcome" => "refused", "reason" => "no_account"
    )
}

impl Ingress {
    /// There is nothing here. Money may be behind it all the same: a `notify_url` with a slip in it is called until the
    /// provider gives up.
    fn stray(&self, request: &Request) -> Response {
        if request.method() == Method::POST {
            strays().increment(1);
            if let Some(withheld) = self.strays.pass() {
                tracing::warn!(
                    path = text::cut(request.uri().path(), LONGEST_PATH),
                    withheld = (withheld > 0).then_some(withheld),
                    "no account has this path: does a notify_url have a slip in it?"
                );
            }
        }
        reply::not_found()
    }

    async fn answer(&self, account: &Arc<Registered>, request: Request) -> Response {
        let received_at = self.clock.now();
        let (head, request_body) = request.into_parts();
        let unavailable = |body: &[u8]| {
            account.meters.count("unavailable", "none");
            reply::verdict(account, Verdict::Unavailable, body)
        };
        if self.health.is_draining() {
            return unavailable(reply::unread(&head.headers));
        }
        let (body, _large) = match self.body(request_body).await {
            Ok(Read { bytes, permit }) => (bytes, permit),
            Err(NoBody::NoRoom) => return unavailable(reply::unread(&head.headers)),
            Err(why) => {
                tracing::info!(provider = %account.provider, account = account.account, ?why, "no body");
                account.meters.count("refused", "no_body");
                return reply::no_body(why);
            }
        };
        let Ok(_place) = self.in_flight.try_acquire() else {
            return unavailable(&body);
        };
        let peer = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
        let notification = Notification {
            path: head.uri.path().to_owned(),
            remote_addr: origin::origin(peer, &head.headers, &self.server.trusted_proxies),
            headers: head.headers,
            body,
            received_at,
        };
        let verdict = match account.judge(&notification) {
            Ok(verified) => self.record(account, &notification, verified).await,
            Err(refusal) => self.refuse(account, &notification, &refusal),
        };
        crash::point(crash::Point::IngressBeforeAck);
        reply::verdict(account, verdict, &notification.body)
    }

    async fn body(&self, body: Body) -> Result<Read<'_>, NoBody> {
        body::read(body, self.server.max_body, self.server.body_timeout, &self.large).await
    }

    async fn record(
        &self,
        account: &Arc<Registered>,
        notification: &Notification,
        verified: Verified,
    ) -> Verdict {
        let received_at = notification.received_at;
        if let Some(signed_at) = verified.signed_at {
            account.meters.clock_offset(received_at, signed_at);
        }
        account.meters.key_verified(&verified.key_id, received_at);
        self.key_uses.note(account, &verified.key_id, received_at);
        let event = Arc::new(account.event(notification, verified));
        let key = event.key.clone();
        match self.recorder.record(event).await {
            Ok(recorded) => {
                let outcome = match recorded {
                    Recorded::Fresh => {
                        self.senders.note(account, notification.remote_addr, received_at);
                        "recorded"
                    }
                    Recorded::Duplicate { .. } => "duplicate",
                    Recorded::Conflict { event_id } => {
                        tracing::warn!(event.key = %key, event.id = %event_id,
                            "the same event came with other content: both are kept, the first one counts");
                        "conflict"
                    }
                };
                account.meters.count(outcome, "none");
                Verdict::Accepted
            }
            Err(Unrecorded::Unrecordable) => {
                account.meters.count("refused", Reason::Unrecordable.as_str());
                Reason::Unrecordable.verdict()
            }
            Err(Unrecorded::Overloaded | Unrecorded::Unavailable) => {
                account.meters.count("unavailable", "none");
                Verdict::Unavailable
            }
        }
    }

    fn refuse(&self, account: &Registered, notification: &Notification, refusal: &Refusal) -> Verdict {
        let Refusal { reason, detail } = refusal;
        account.meters.count("refused", reason.as_str());
        if *reason == Reason::Probe {
            tracing::debug!(provider = %account.provider, account = account.account, "signature probe refused, as it should be");
        } else if let Some(withheld) = account.meters.refusals.pass() {
            tracing::warn!(
                provider = %account.provider,
                account = account.account,
                %reason,
                detail,
                remote_addr = notification.remote_addr.map(tracing::field::display),
                withheld = (withheld > 0).then_some(withheld),
                "notification refused"
            );
        }
        self.quarantine.keep(account, notification, refusal);
        reason.verdict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notify_path_has_one_spelling() {
        assert_eq!(segments("/notify/alipay/shop-cn"), Some(("alipay", "shop-cn")));
        for other in [
            "/",
            "/notify",
            "/notify/alipay",
            "/notify/alipay/",
            "/notify//a",
            "/notify/a/b/",
            "/notify/a/b/c",
            "//notify/a/b",
        ] {
            assert_eq!(segments(other), None, "{other}");
        }
    }
}
