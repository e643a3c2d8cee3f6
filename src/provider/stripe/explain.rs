//! The judgement of a Stripe notification step by step, and what would make it pass.
//!
//! Never on the request path: when the signature does not hold, it is tried over what the body may have
//! been, and with what a secret is commonly mistaken for. A hint is given only for what held.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Stripe;
use super::header::SignatureHeader;
use super::payload::Payload;
use crate::event::{Identity, Notification, text};
use crate::provider::{Explanation, Step, raw_json, variants};

pub(super) fn explain(stripe: &Stripe, notification: &Notification) -> Explanation {
    let mut explanation = Explanation::default();
    let mut step = |check: &str, ok: bool, found: String| {
        explanation.steps.push(Step {
            check: check.to_owned(),
            ok,
            found,
        });
    };
    let body = &notification.body;
    let header = match SignatureHeader::of(notification) {
        Ok(header) => header,
        Err(refusal) => {
            step("header Stripe-Signature", false, refusal.detail);
            explanation.hint = only_v0(notification).or_else(|| white_space(stripe, notification));
            return explanation;
        }
    };
    step(
        "header Stripe-Signature",
        true,
        format!("t = {}, {} of v1", header.t, header.v1.len()),
    );
    let signer = stripe.signer(&header, body);
    match signer {
        Some(secret) => step(
            "signature",
            true,
            format!("holds with secret {}", secret.info().id),
        ),
        None => step(
            "signature",
            false,
            format!("no v1 holds with any of {} secrets", stripe.secrets.len()),
        ),
    }
    let late = notification
        .received_at
        .secs()
        .saturating_sub(header.signed_at.secs());
    let side = if late < 0 { "after" } else { "before" };
    let in_window = stripe.in_window(&header, notification);
    let tolerance = stripe.tolerance.as_secs();
    step(
        "time window",
        in_window,
        format!(
            "signed {} s {side} its arrival, {tolerance} s are allowed",
            late.unsigned_abs()
        ),
    );
    explanation.signed = Some(header.signed(body));
    if signer.is_none() {
        explanation.hint =
            white_space(stripe, notification).or_else(|| what_would_hold(stripe, &header, body));
        return explanation;
    }
    if !in_window {
        explanation.hint = Some(format!(
            "The signature holds. It was made {} s {side} the arrival: the clock here is off, or the notification was \
             held up or kept. Judged at {} it passes.",
            late.unsigned_abs(),
            header.signed_at
        ));
    }
    explanation.steps.extend(content(stripe, body));
    explanation
}

/// What the body turned out to be.
fn content(stripe: &Stripe, body: &bytes::Bytes) -> Vec<Step> {
    let (.., reading) = stripe.understand(body);
    let readable = raw_json::readable(body).map_err(str::to_owned);
    let payload = readable
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|text| Payload::read(text));
    let found = match &payload {
        Err(why) => format!("kept as other.unreadable: {why}"),
        Ok(payload) if payload.is_thin() => {
            "a thin event: recorded and published, not applied, nothing is fetched".into()
        }
        Ok(_) => format!("a snapshot event of type {}", reading.provider_event_type),
    };
    let identity = match &reading.identity {
        Identity::Ok => "agrees with the account".to_owned(),
        Identity::Mismatch(which) => format!("{which}: recorded, not applied"),
    };
    vec![
        Step {
            check: "content".to_owned(),
            ok: payload.is_ok(),
            found,
        },
        Step {
            check: "identity".to_owned(),
            ok: reading.identity == Identity::Ok,
            found: identity,
        },
    ]
}

fn only_v0(notification: &Notification) -> Option<String> {
    let value = notification.header(super::header::NAME)?;
    let has = |scheme: &str| {
        let mut items = value.split(',').map(text::trim_ows);
        items.any(|item| item.starts_with(scheme))
    };
    (has("v0=") && !has("v1=")).then(|| "The header holds only v0, which is no signature.".to_owned())
}

/// Spaces and tabs inside the elements, where none are allowed.
fn white_space(stripe: &Stripe, notification: &Notification) -> Option<String> {
    let value = notification.header(super::header::NAME)?.replace([' ', '\t'], "");
    let header = SignatureHeader::parse(&value).ok()?;
    stripe.signer(&header, &notification.body)?;
    Some(
        "The signature holds without the spaces and tabs inside the elements of Stripe-Signature: something on the \
         way rewrote the header."
            .to_owned(),
    )
}

/// Tries what is commonly wrong; the first that holds is the hint.
fn what_would_hold(stripe: &Stripe, header: &SignatureHeader<'_>, body: &[u8]) -> Option<String> {
    for variant in variants::of_json(body) {
        if stripe.signer(header, &variant.body).is_some() {
            return Some(format!(
                "The signature holds over the body as it was before this: {}.",
                variant.happened
            ));
        }
    }
    for secret in &stripe.secrets {
        let bytes = secret.bytes();
        let bare = bytes.strip_prefix(b"whsec_").unwrap_or(bytes);
        let mut with_prefix = b"whsec_".to_vec();
        with_prefix.extend_from_slice(bare);
        let tries = [
            (
                Some(bare.to_vec()),
                "without its prefix whsec_, which is part of the key",
            ),
            (
                Some(with_prefix),
                "with the prefix whsec_, which the configured one lacks",
            ),
            (
                STANDARD.decode(bare).ok(),
                "decoded from base64, though its text is the key",
            ),
        ];
        for (key, how) in tries {
            if key.is_some_and(|key| header.is_signed_with(&key, body)) {
                return Some(format!(
                    "The sender signed with secret {} {how}.",
                    text::printable(&secret.info().id)
                ));
            }
        }
    }
    thin(body)
}

/// What kind of event it claims to be is a fact; each destination has a secret of its own.
fn thin(body: &[u8]) -> Option<String> {
    let text = raw_json::readable(body).ok()?;
    Payload::read(&text).ok().filter(Payload::is_thin)?;
    Some(
        "It is a thin event, and destinations of thin events have signing secrets of their own: if that one is not \
         among signing_secrets, add it."
            .to_owned(),
    )
}
