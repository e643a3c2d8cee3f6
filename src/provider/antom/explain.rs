//! Why an Antom notification was judged as it was, for an operator; never on the request path.
//!
//! When the signature does not hold it is tried over what path, body and header may have been before a proxy
//! or a framework touched them. A hint is given only for what then held.

use percent_encoding::percent_decode_str;

use super::header::{self, SignedHeaders};
use super::{Antom, Body, signed};
use crate::event::Notification;
use crate::provider::{Explanation, Step, raw_json, variants, window};

/// The judgement, step by step.
pub(super) fn explain(antom: &Antom, notification: &Notification) -> Explanation {
    let mut explanation = Explanation::default();
    let mut step = |check: &str, outcome: Result<String, String>| {
        let (ok, found) = outcome.map_or_else(|why| (false, why), |found| (true, found));
        explanation.steps.push(Step {
            check: check.to_owned(),
            ok,
            found,
        });
        ok
    };
    let headers = match SignedHeaders::of(notification) {
        Ok(headers) => headers,
        Err(refusal) => {
            step("headers", Err(refusal.detail));
            explanation.hint = header_hint(antom, notification);
            return explanation;
        }
    };
    step(
        "headers",
        Ok("signature, client-id and request-time stand there once each".to_owned()),
    );
    let ours = antom.check_client(&headers).map(|()| "this account's".to_owned());
    let ours = step("client-id", ours.map_err(|refusal| refusal.detail));
    let path = antom.path(notification);
    let holds = antom.check_signature(&headers, notification);
    let holds = step(
        "signature",
        holds
            .map(|()| format!("holds for path {path}"))
            .map_err(|refusal| refusal.detail),
    );
    let in_time = window::check(headers.sent, notification.received_at);
    let in_time = in_time.map(|()| format!("sent {}, inside the window", headers.sent));
    let in_time = step("request-time", in_time.map_err(|refusal| refusal.detail));
    if holds {
        let text = raw_json::readable(&notification.body).map_err(str::to_owned);
        let read = text.and_then(|text| Body::read(text.as_bytes()));
        step(
            "content",
            read.map(|body| format!("of type {}", body.reading(antom.capture).provider_event_type)),
        );
    }
    explanation.signed = Some(signed(path, &headers, &notification.body));
    explanation.hint = match (holds, ours, in_time) {
        (true, false, _) => {
            Some("the signature holds; only client-id is not the account's client_id".to_owned())
        }
        (true, true, false) => {
            let off = headers
                .sent
                .secs()
                .saturating_sub(notification.received_at.secs());
            let sent = headers.sent;
            Some(format!(
                "the signature holds; judged at its send time {sent}, {off:+} s from the arrival, it passes"
            ))
        }
        (true, true, true) => None,
        (false, ..) => {
            path_hint(antom, notification, &headers).or_else(|| body_hint(antom, notification, &headers))
        }
    };
    explanation
}

/// Other paths under which it may have been signed.
fn path_hint(antom: &Antom, notification: &Notification, headers: &SignedHeaders<'_>) -> Option<String> {
    let here = antom.path(notification);
    let arrived = notification.path.split('?').next().unwrap_or_default();
    let mut paths = vec![
        notification.path.clone(),
        arrived.to_owned(),
        format!("{here}/"),
        here.to_owned() + "?",
    ];
    paths.push(here.trim_end_matches('/').to_owned());
    paths.push(percent_decode_str(here).decode_utf8_lossy().into_owned());
    // A proxy put something before it.
    paths.extend(
        here.match_indices('/')
            .skip(1)
            .filter_map(|(at, _)| here.get(at..))
            .map(str::to_owned),
    );
    // Antom repeats the address it calls in some bodies.
    paths.extend(notify_url_paths(&notification.body));
    let held = paths.into_iter().find(|path| {
        path != here
            && antom
                .holds(&signed(path, headers, &notification.body), &headers.signature)
                .is_ok()
    })?;
    Some(format!(
        "Antom signed the path {held}, not {here}: set notify_path = \"{held}\""
    ))
}

fn notify_url_paths(body: &[u8]) -> Vec<String> {
    let url = serde_json::from_slice::<serde_json::Value>(body)
        .ok()
        .and_then(|body| body.get("notifyUrl")?.as_str()?.parse::<http::Uri>().ok());
    url.map_or_else(Vec::new, |url| {
        let whole = url.path_and_query().map(|path| path.as_str().to_owned());
        [Some(url.path().to_owned()), whole]
            .into_iter()
            .flatten()
            .collect()
    })
}

/// Other spellings of the body.
fn body_hint(antom: &Antom, notification: &Notification, headers: &SignedHeaders<'_>) -> Option<String> {
    let path = antom.path(notification);
    let holds = |body: &[u8]| {
        antom
            .holds(&signed(path, headers, body), &headers.signature)
            .is_ok()
    };
    let body = &notification.body;
    if let Some(variant) = variants::of_json(body)
        .into_iter()
        .find(|variant| holds(&variant.body))
    {
        return Some(format!("the body was changed on the way: {}", variant.happened));
    }
    holds(body.trim_ascii())
        .then(|| "the body was changed on the way: blanks were added around it".to_owned())
}

/// Spellings of a signature that could not be read.
fn header_hint(antom: &Antom, notification: &Notification) -> Option<String> {
    let value = notification.header("signature")?;
    let spaceless = value.replace([' ', '\t'], "");
    let once = header::signature_text(value).ok();
    let once = once.map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
    let signature = |text: &str| format!("signature={text}");
    [
        ("spaces or tabs were put inside its elements", Some(spaceless)),
        ("it was percent-encoded twice", once.as_deref().map(signature)),
        (
            "its `+` were turned into spaces",
            once.map(|text| signature(&text.replace(' ', "+"))),
        ),
    ]
    .into_iter()
    .find(|(_, spelling)| {
        let mut mended = notification.clone();
        let Some(value) = spelling.as_ref().and_then(|spelling| spelling.parse().ok()) else {
            return false;
        };
        mended.headers.insert("signature", value);
        SignedHeaders::of(&mended).is_ok_and(|headers| antom.check_signature(&headers, &mended).is_ok())
    })
    .map(|(what, _)| format!("the signature header was changed on the way: {what}"))
}
