//! The judgement of a 2C2P notification step by step, and what would make it pass; never on the request path.

use super::TwoCTwoP;
use super::token::Token;
use crate::event::{Identity, Notification};
use crate::provider::{Explanation, Step};

pub(super) fn explain(scheme: &TwoCTwoP, notification: &Notification) -> Explanation {
    let mut explanation = Explanation::default();
    let mut step = |check: &str, ok: bool, found: &str| {
        explanation.steps.push(Step {
            check: check.to_owned(),
            ok,
            found: found.to_owned(),
        });
    };
    let token = match Token::in_body(&notification.body) {
        Ok(token) => token,
        Err(refusal) => {
            step("body", false, &refusal.detail);
            if notification.body.starts_with(b"notifyResponse=") {
                explanation.hint = Some(
                    "This is a form notice of the Payment Action API. Its token is encrypted for another key and is not \
                     taken here; refunds are told by the backend notification with code 4120."
                        .to_owned(),
                );
            }
            return explanation;
        }
    };
    step("body", true, "JSON with a token of three parts");
    let hs256 = token.names_hs256();
    step(
        "token header",
        hs256,
        if hs256 {
            "names HS256"
        } else {
            "does not name HS256, the only one accepted"
        },
    );
    let held = token.is_signed_with(scheme.secret.bytes());
    step(
        "signature",
        held,
        if held {
            "holds with the account's secret"
        } else {
            "does not hold"
        },
    );
    explanation.signed = Some(token.signed().as_bytes().to_vec());
    if !held {
        explanation.hint = hex_decoded(scheme, &token);
        return explanation;
    }
    let (.., reading) = scheme.understand(&token);
    let (ok, found) = match &reading.identity {
        _ if reading.kind == "other.unreadable" => (
            false,
            "the claims cannot be read; kept as other.unreadable".to_owned(),
        ),
        Identity::Ok => (true, format!("response code {}", reading.provider_event_type)),
        Identity::Mismatch(which) => (false, format!("{which}: recorded, not applied")),
    };
    explanation.steps.push(Step {
        check: "claims".to_owned(),
        ok,
        found,
    });
    explanation
}

/// The secret looks like hex, and some tools decode it.
fn hex_decoded(scheme: &TwoCTwoP, token: &Token<'_>) -> Option<String> {
    let decoded = hex::decode(scheme.secret.bytes()).ok()?;
    token
        .is_signed_with(&decoded)
        .then(|| "The sender signed with the secret decoded from hex, though its text is the key.".to_owned())
}
