//! `payhook verify`: judges a request from a file as ingress would, and says why step by step.
//!
//! The same code path as a request that arrives; only the explanation is extra. Exit 0 verified, 1 refused,
//! 2 when there is nothing to judge: no such account, no readable file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::Globals;
use super::failure::{DONE, FAILED, Misuse};
use super::output::{Output, Table};
use crate::event::text::visible;
use crate::event::{Notification, ProviderName};
use crate::provider::request_file::RequestFile;
use crate::provider::{Explanation, Judgement, Outcome, Reason, Refusal, Registered, Registry, Step};
use crate::time::{Clock, Timestamp};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The account, as in its notify path: PROVIDER/NAME
    #[arg(long, value_name = "PROVIDER/NAME")]
    account: String,
    /// The request: request line, headers, empty line, then every byte is body; LF or CRLF
    #[arg(long, value_name = "FILE.http")]
    request: PathBuf,
    /// When it arrived: RFC 3339 or seconds since 1970 [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<String>,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    judgement: Judgement,
    hint: Option<String>,
    at: Timestamp,
    steps: Vec<Step>,
    /// The signed string, every character visible.
    signed: Option<String>,
}

/// Judges the file and prints what came of it.
pub(super) fn run(args: &Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let (_, registry) = globals.load_accounts()?;
    let account = find(&registry, &args.account)?;
    let at = match &args.at {
        None => Clock::system().now(),
        Some(text) => {
            moment(text).ok_or_else(|| Misuse::usage("--at is neither RFC 3339 nor seconds since 1970"))?
        }
    };
    let report = judge(&registry, account, read(&args.request)?, at);
    print(&report, &mut globals.output())?;
    let verified = report.judgement.verdict == Outcome::Verified;
    Ok(ExitCode::from(if verified { DONE } else { FAILED }))
}

fn find<'a>(registry: &'a Registry, name: &str) -> Result<&'a Registered, Misuse> {
    let (provider, account) = name
        .split_once('/')
        .ok_or_else(|| Misuse::usage("--account is PROVIDER/NAME"))?;
    let provider: ProviderName = provider
        .parse()
        .map_err(|_| Misuse::usage("--account names no known provider"))?;
    let found = registry.get(provider, account).map(AsRef::as_ref);
    found.ok_or_else(|| Misuse::usage(format!("no account {name} is configured")))
}

fn moment(text: &str) -> Option<Timestamp> {
    text.parse()
        .ok()
        .map(Timestamp::from_secs)
        .or_else(|| Timestamp::parse_rfc3339(text))
}

fn read(path: &Path) -> Result<RequestFile, Misuse> {
    let file = std::fs::read(path).map_err(|error| Misuse::unreadable(path, error))?;
    RequestFile::parse(&file).map_err(|error| Misuse::usage(format!("{}: {error}", path.display())))
}

fn judge(registry: &Registry, account: &Registered, request: RequestFile, at: Timestamp) -> Report {
    let post = request.method == "POST";
    let notification: Notification = request.arriving(at);
    let (result, explanation) = if post {
        (
            account.judge(&notification),
            registry.explain(account, &notification),
        )
    } else {
        let found = "not POST: no notification, and answered 405".to_owned();
        let step = Step {
            check: "method".to_owned(),
            ok: false,
            found: found.clone(),
        };
        (
            Err(Refusal::new(Reason::Malformed, found)),
            Explanation {
                steps: vec![step],
                ..Explanation::default()
            },
        )
    };
    Report {
        judgement: Judgement::of(&result),
        hint: explanation.hint,
        at,
        steps: explanation.steps,
        signed: explanation.signed.map(|signed| visible(&signed)),
    }
}

fn print(report: &Report, out: &mut Output) -> std::io::Result<()> {
    if out.is_json() {
        return out.value(report);
    }
    let judged = &report.judgement;
    match (judged.reason, &judged.detail) {
        (Some(reason), detail) => out.line(&format!(
            "refused: {reason}: {}",
            detail.as_deref().unwrap_or_default()
        ))?,
        (None, Some(detail)) => out.line(&format!("verified, and needs a human: {detail}"))?,
        (None, None) => out.line("verified")?,
    }
    let mut steps = Table::new(["", "check", "found"]);
    for step in &report.steps {
        steps.row([if step.ok { "ok" } else { "FAILED" }, &step.check, &step.found]);
    }
    out.table(&steps)?;
    if let Some(signed) = &report.signed {
        out.line("")?;
        out.line("signed string:")?;
        out.line(signed)?;
    }
    if let (Some(key), Some(kind)) = (&judged.event_key, &judged.kind) {
        out.line("")?;
        out.line(&format!("event key  {key}"))?;
        out.line(&format!("type       {kind}"))?;
        out.line(&format!(
            "order      {}",
            judged.order_id.as_deref().unwrap_or("-")
        ))?;
    }
    if !judged.facts.is_empty() {
        let mut facts = Table::new(["fact", "key", "order", "amount", "at"]);
        for fact in &judged.facts {
            let amount = fact.amount.map(|amount| amount.to_string()).unwrap_or_default();
            let at = fact.at.map(|at| at.to_string()).unwrap_or_default();
            facts.row([
                fact.fact,
                &fact.key,
                fact.order_id.as_deref().unwrap_or("-"),
                &amount,
                &at,
            ]);
        }
        out.line("")?;
        out.table(&facts)?;
    }
    if let Some(hint) = &report.hint {
        out.line("")?;
        out.line(&format!("hint: {hint}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::output::Captured;
    use super::*;
    use crate::config::{Account, AccountState, KeyMaterial, Scheme, StripeAccount};
    use crate::provider::stripe;

    const BODY: &[u8] = br#"{"id":"evt_1","type":"payment_intent.succeeded","created":1700000000,"data":{"object":{"id":"pi_1","amount_received":500,"currency":"jpy","metadata":{"order_id":"O-1"}}}}"#;

    fn account(name: &str, secret: &str, state: AccountState) -> Account {
        let material = KeyMaterial {
            origin: "test".to_owned(),
            bytes: secret.as_bytes().to_vec().into(),
        };
        Account {
            path: "accounts[0]".to_owned(),
            name: name.to_owned(),
            merchant: "default".to_owned(),
            state,
            rules: crate::event::AccountRules::default(),
            scheme: Scheme::Stripe(StripeAccount {
                signing_secrets: vec![material],
                tolerance: std::time::Duration::from_mins(5),
                order_id_from: vec!["metadata.order_id".to_owned()],
                ..StripeAccount::default()
            }),
        }
    }

    fn registry() -> Registry {
        Registry::build(&[
            account("a", "whsec_a", AccountState::Active),
            account("b", "whsec_b", AccountState::Active),
            account("old", "whsec_a", AccountState::Retired),
        ])
        .unwrap()
    }

    fn judged(name: &str, method: &str, off: i64) -> Report {
        let registry = registry();
        let sent = Timestamp::from_secs(1_700_000_000);
        let head = format!(
            "{method} /notify/{name}\nStripe-Signature: {}\n\n",
            stripe::sign(b"whsec_a", sent, BODY)
        );
        let request = RequestFile::parse(&[head.as_bytes(), BODY].concat()).unwrap();
        let at = Timestamp::from_secs(1_700_000_000 + off);
        judge(&registry, find(&registry, name).unwrap(), request, at)
    }

    fn shown(report: &Report, json: bool) -> String {
        let (mut out, captured) = Captured::output(json);
        print(report, &mut out).unwrap();
        captured.text()
    }

    #[test]
    fn a_verified_request_says_everything_a_program_needs() {
        let report: serde_json::Value =
            serde_json::from_str(&shown(&judged("stripe/a", "POST", 0), true)).unwrap();
        assert_eq!(report["verdict"], "verified");
        assert_eq!(report["identity"], "ok");
        assert_eq!(report["event_key"], "webhook:stripe:a:evt_1");
        assert_eq!(report["type"], "payment.succeeded");
        assert_eq!(report["facts"][0]["amount"]["minor"], 500);
        assert_eq!(report["facts"][0]["key"], "pi_1:paid");
        assert!(report["reason"].is_null() && report["hint"].is_null());
    }

    #[test]
    fn people_see_the_signed_string_and_the_hint() {
        let text = shown(&judged("stripe/a", "POST", 999), false);
        assert!(text.starts_with("refused: outside_window"), "{text}");
        assert!(
            text.contains("1700000000.{\"id\"") && text.contains("hint: ") && text.contains("999 s"),
            "{text}"
        );
        assert!(shown(&judged("stripe/a", "POST", 0), false).contains("500 JPY"));
    }

    #[test]
    fn the_keys_of_another_account_are_tried_and_a_retired_one_refuses() {
        let swapped = judged("stripe/b", "POST", 0);
        assert_eq!(swapped.judgement.reason, Some(Reason::BadSignature));
        assert!(swapped.hint.unwrap().contains("stripe/a"));
        assert_eq!(
            judged("stripe/old", "POST", 0).judgement.reason,
            Some(Reason::RetiredAccount)
        );
        assert_eq!(
            judged("stripe/a", "GET", 0).judgement.reason,
            Some(Reason::Malformed)
        );
    }

    #[test]
    fn what_cannot_be_judged_is_misuse() {
        let registry = registry();
        for name in ["stripe", "stripe/x", "paypal/a", ""] {
            assert!(find(&registry, name).is_err());
        }
        assert!(read(Path::new("/nowhere/x.http")).is_err());
        assert_eq!(moment("2023-11-14T22:13:20Z"), moment("1700000000"));
        assert_eq!(moment("yesterday"), None);
    }
}
