//! Why an Alipay notification was judged as it was, for an operator; never on the request path.
//!
//! The steps are the verifier's own functions. A hint is given only for a change that was made to the message
//! or the settings and with which the signature then held, or for what is plainly so.

use std::borrow::Cow;

use super::form::{self, Form};
use super::{Alipay, content, reading};
use crate::event::{Identity, Notification};
use crate::provider::respelled::{html_unescaped, replaced, transcoded};
use crate::provider::signature::{Digest, mac};
use crate::provider::{Explanation, Reason, Refusal, Step};

/// Pairs of parameters are tried only below this count: they grow with its square.
const MAX_PAIRED: usize = 48;

/// The judgement, step by step.
pub(super) fn explain(scheme: &Alipay, notification: &Notification) -> Explanation {
    let mut explanation = Explanation::default();
    let form = match Alipay::form(notification) {
        Ok(form) => form,
        Err(refusal) => {
            step(&mut explanation, "form body", Err(&refusal));
            explanation.hint = body_hint(scheme, &notification.body);
            return explanation;
        }
    };
    step(
        &mut explanation,
        "form body",
        Ok(format!("{} parameters", form.iter().count()).into()),
    );
    let charset = format!(
        "values are {}, by the signed charset field or for want of it",
        content::charset(&form).name()
    );
    step(&mut explanation, "charset", Ok(charset.into()));
    explanation.signed = Some(form.signed(false));

    let pinned = scheme.check_sign_type(&form);
    let named = if form.get("sign_type").is_some() {
        "named and pinned alike"
    } else {
        "not named"
    };
    step(
        &mut explanation,
        "sign_type",
        pinned.as_ref().map(|()| named.into()),
    );
    match scheme.check_signature(&form) {
        Ok(genuine) => {
            explanation.signed = Some(form.signed(genuine.keeps_sign_type));
            let rule = if genuine.keeps_sign_type {
                "with sign_type kept"
            } else {
                "without sign_type"
            };
            step(
                &mut explanation,
                "signature",
                Ok(format!("holds with key {}, {rule}", genuine.key_id).into()),
            );
            if pinned.is_err() {
                let pinned = scheme.sign_type;
                explanation.hint = Some(format!(
                    "the signature holds as {pinned}; only sign_type names another algorithm"
                ));
            } else {
                after_signature(scheme, notification, &form, &mut explanation);
            }
        }
        Err(refusal) => {
            step(&mut explanation, "signature", Err(&refusal));
            explanation.hint = body_hint(scheme, &notification.body)
                .or_else(|| form_hint(scheme, &form))
                .or_else(|| settings_hint(scheme, &form));
        }
    }
    explanation
}

fn after_signature(scheme: &Alipay, notification: &Notification, form: &Form, explanation: &mut Explanation) {
    let sound = Alipay::check_unambiguous(form);
    step(
        explanation,
        "parameters",
        sound.as_ref().map(|()| "can be read in one way only".into()),
    );
    let sent = Alipay::check_time(form, notification.received_at);
    step(
        explanation,
        "notify_time",
        sent.as_ref()
            .map(|sent| format!("sent {sent}, inside the window").into()),
    );
    if sent.is_err_and(|refusal| refusal.reason == Reason::OutsideWindow) {
        explanation.hint = Alipay::sent(form).ok().map(|sent| {
            let off = sent.secs().saturating_sub(notification.received_at.secs());
            format!(
                "the signature holds; judged at its send time {sent}, {off:+} s from the arrival, it passes"
            )
        });
    }
    if let Ok(read) = reading::read(&content::of(form), &scheme.owner) {
        let (ok, found) = match read.identity {
            Identity::Ok => (
                true,
                "app_id and seller_id are this account's, as far as given".to_owned(),
            ),
            Identity::Mismatch(why) => (false, why),
        };
        explanation.steps.push(Step {
            check: "identity".to_owned(),
            ok,
            found,
        });
    }
}

fn step(explanation: &mut Explanation, check: &str, outcome: Result<Cow<'static, str>, &Refusal>) {
    let (ok, found) = match outcome {
        Ok(found) => (true, found.into_owned()),
        Err(refusal) => (false, refusal.detail.clone()),
    };
    explanation.steps.push(Step {
        check: check.to_owned(),
        ok,
        found,
    });
}

fn holds(scheme: &Alipay, form: &Form) -> bool {
    scheme.check_signature(form).is_ok()
}

/// Changes to the body as a whole.
fn body_hint(scheme: &Alipay, body: &[u8]) -> Option<String> {
    let mut tries = vec![
        (
            "a line end or blank was added around the body",
            body.trim_ascii().to_vec(),
        ),
        (
            "the body's `&` were escaped to `&amp;`",
            replaced(body, b"&amp;", b"&"),
        ),
    ];
    if let Ok(decoded) = form::decode(body) {
        tries.push(("the whole body was percent-encoded a second time", decoded));
    }
    let passes = |body: &[u8]| Form::parse(body).is_ok_and(|form| holds(scheme, &form));
    tries
        .into_iter()
        .find(|(_, tried)| tried != body && passes(tried))
        .map(|(what, _)| what.to_owned())
}

/// Changes to parameters.
fn form_hint(scheme: &Alipay, form: &Form) -> Option<String> {
    let each = |what, change: fn(&[u8]) -> Option<Vec<u8>>| value_hint(scheme, form, what, change);
    each("a filter HTML-escaped the value", |v| Some(html_unescaped(v)))
        .or_else(|| {
            let filled = changed(form, |_, v| (!v.is_empty()).then(|| v.to_vec()))?;
            holds(scheme, &filled)
                .then(|| "the sender signed without the parameters that are empty".to_owned())
        })
        .or_else(|| {
            each(
                "it was not signed and came in on the way (the query of notify_url?)",
                |_| None,
            )
        })
        .or_else(|| plus_hint(scheme, form))
        .or_else(|| each("the value was percent-encoded twice", |v| form::decode(v).ok()))
        .or_else(|| {
            each("the value was percent-decoded twice", |v| {
                Some(form::encode(v).into_bytes())
            })
        })
        .or_else(|| charset_hint(scheme, form))
        .or_else(|| pair_hint(scheme, form))
}

/// A `+` that became a space: in one value, and in the signature too, which never holds a space of its own.
fn plus_hint(scheme: &Alipay, form: &Form) -> Option<String> {
    let what = "a `+` of the value was turned into a space";
    let mended = |v: &[u8]| Some(replaced(v, b" ", b"+"));
    value_hint(scheme, form, what, mended).or_else(|| {
        let sign_alone = |n: &str, v: &[u8]| if n == "sign" { mended(v) } else { Some(v.to_vec()) };
        let hint = value_hint(scheme, &changed(form, sign_alone)?, what, mended)?;
        Some(format!("{hint}, and sign"))
    })
}

/// One parameter changed, or all but the signature; `None` from `change` drops it.
fn value_hint(
    scheme: &Alipay,
    form: &Form,
    what: &str,
    change: fn(&[u8]) -> Option<Vec<u8>>,
) -> Option<String> {
    let one = form.iter().map(|(name, _)| name).find(|name| {
        let tried = changed(form, |n, v| if n == *name { change(v) } else { Some(v.to_vec()) });
        tried.is_some_and(|form| holds(scheme, &form))
    });
    if let Some(name) = one {
        return Some(format!("{what}: parameter {name}"));
    }
    let all = changed(
        form,
        |n, v| if n == "sign" { Some(v.to_vec()) } else { change(v) },
    )?;
    holds(scheme, &all).then(|| format!("{what}: all parameters"))
}

/// Two parameters that came in together.
fn pair_hint(scheme: &Alipay, form: &Form) -> Option<String> {
    let names: Vec<&str> = form
        .iter()
        .map(|(name, _)| name)
        .filter(|n| !n.starts_with("sign"))
        .collect();
    if names.len() > MAX_PAIRED {
        return None;
    }
    let pairs = names
        .iter()
        .enumerate()
        .flat_map(|(at, a)| names.iter().skip(at.saturating_add(1)).map(move |b| (*a, *b)));
    pairs.into_iter().find_map(|(a, b)| {
        let form = changed(form, |n, v| (n != a && n != b).then(|| v.to_vec()))?;
        holds(scheme, &form).then(|| {
            format!(
                "parameters {a} and {b} were not signed and came in on the way (the query of notify_url?)"
            )
        })
    })
}

fn charset_hint(scheme: &Alipay, form: &Form) -> Option<String> {
    // The same conversion for every value; a value that it does not fit stays as it is.
    let kinds = [
        "converted from GBK to UTF-8",
        "converted from GB18030 to UTF-8",
        "converted from UTF-8 to GBK",
        "read as Latin-1 and written as UTF-8",
    ];
    kinds.into_iter().find_map(|kind| {
        let form = changed(form, |_, v| {
            let before = transcoded(v).into_iter().find(|(what, _)| *what == kind);
            Some(before.map_or_else(|| v.to_vec(), |(_, bytes)| bytes))
        })?;
        holds(scheme, &form).then(|| format!("the values were {kind} on the way"))
    })
}

/// Changes to the account's settings.
fn settings_hint(scheme: &Alipay, form: &Form) -> Option<String> {
    let (other, named) = match scheme.digest {
        Digest::Sha256 => (Digest::Sha1, "RSA"),
        Digest::Sha1 => (Digest::Sha256, "RSA2"),
    };
    let signature = form.get("sign").and_then(mac::decode_base64)?;
    for (id, key) in &scheme.keys {
        if [false, true]
            .iter()
            .any(|keep| key.verify(other, &form.signed(*keep), &signature).is_ok())
        {
            return Some(format!(
                "with key {id} the signature holds as {named}; the account pins {}",
                scheme.sign_type
            ));
        }
    }
    let own = |subject: &str| subject.contains(&scheme.owner.app_id);
    scheme
        .keys
        .iter()
        .find(|(_, key)| key.certificate().is_some_and(|c| own(&c.subject)))
        .map(|(id, _)| {
            format!("certificate {id} names this app_id: it is the application's own, not Alipay's")
        })
}

/// `form` with each value changed or, for `None`, dropped; `None` if nothing changed.
fn changed(form: &Form, change: impl Fn(&str, &[u8]) -> Option<Vec<u8>>) -> Option<Form> {
    let parameters = form
        .iter()
        .filter_map(|(n, v)| change(n, v).map(|v| (n.to_owned(), v)))
        .collect();
    Form::of(parameters).ok().filter(|new| new != form)
}
