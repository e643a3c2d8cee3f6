//! Every sample through the registry: what it must come to, and that no change of it passes.
//!
//! The committed files are exactly what `cases` makes; `PAYHOOK_BLESS=1 cargo test --test it samples` writes
//! them anew (the diff is the review), after which the samples inside the binary are older until
//! `src/samples/mod.rs` is compiled again.

mod alipay;
mod antom;
mod cases;
mod stripe;
mod twoctwop;
mod wechatpay;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use payhook::config::Config;
use payhook::event::{Notification, ProviderName};
use payhook::provider::{Judgement, Registered, Registry, Verdict};
use payhook::samples::{self, Expected, ExpectedAck, Sample};
use payhook::time::Timestamp;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let path = folder().join("payhook.toml");
    let loaded = Config::load_with(Some(&path), Registry::build);
    loaded.unwrap_or_else(|errors| panic!("{errors}")).1
});

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("provider-samples")
}

/// The account that a request's path names.
fn account(provider: ProviderName, path: &str) -> &'static Registered {
    let name = path.rsplit('/').next().unwrap();
    REGISTRY.get(provider, name).unwrap()
}

fn blessing() -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "a switch of this test alone, for whoever writes samples"
    )]
    let bless = std::env::var("PAYHOOK_BLESS");
    bless.is_ok()
}

/// What the code makes of `notification` now.
fn observed(title: &str, provider: ProviderName, sent: Timestamp, notification: &Notification) -> Expected {
    let account = account(provider, &notification.path);
    let result = account.judge(notification);
    let verdict = result
        .as_ref()
        .map_or_else(|refusal| refusal.reason.verdict(), |_| Verdict::Accepted);
    let ack = account.scheme.ack(verdict, &notification.body);
    let mut judged = serde_json::to_value(Judgement::of(&result)).unwrap();
    let members = judged.as_object_mut().unwrap();
    members.remove("detail");
    members.insert("title".to_owned(), title.into());
    members.insert("sent".to_owned(), sent.to_string().into());
    members.insert("at".to_owned(), notification.received_at.to_string().into());
    let ack = ExpectedAck {
        status: verdict.status().as_u16(),
        content_type: ack.content_type.map(str::to_owned),
        body: String::from_utf8(ack.body.to_vec()).unwrap(),
    };
    members.insert("ack".to_owned(), serde_json::to_value(ack).unwrap());
    serde_json::from_value(judged).unwrap()
}

fn name(sample: &Sample) -> String {
    format!("{}/{}", sample.provider, sample.case)
}

fn all() -> Vec<Sample> {
    samples::all().unwrap()
}

#[test]
fn the_committed_samples_are_what_their_cases_make() {
    let mut written = BTreeSet::new();
    for case in cases::all() {
        let dir = folder().join(case.provider.as_str()).join(case.name);
        let request = case.signed().unwrap();
        let notification = request.clone().arriving(case.at());
        let expected = observed(case.title, case.provider, case.sent, &notification);
        let files = [
            (dir.join("request.http"), request.to_bytes()),
            (
                dir.join("expected.json"),
                (serde_json::to_string_pretty(&expected).unwrap() + "\n").into_bytes(),
            ),
        ];
        for (path, want) in files {
            if blessing() {
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(&path, &want).unwrap();
            }
            let found = std::fs::read(&path).unwrap_or_default();
            assert_eq!(
                String::from_utf8_lossy(&found),
                String::from_utf8_lossy(&want),
                "{}",
                path.display()
            );
            written.insert(path);
        }
    }
    let embedded = samples::files();
    for (path, contents) in &embedded {
        let on_disk = std::fs::read(folder().join(path)).unwrap_or_default();
        assert!(
            *contents == on_disk,
            "{} inside the binary is older: compile src/samples/mod.rs again",
            path.display()
        );
    }
    let cases = embedded.iter().filter(|(path, _)| path.components().count() == 3);
    let found: BTreeSet<_> = cases.map(|(path, _)| folder().join(path)).collect();
    assert_eq!(
        found, written,
        "a file that no case makes, or a case that is not inside the binary"
    );
}

#[test]
fn every_sample_comes_to_what_it_must() {
    for sample in all() {
        let expected = &sample.expected;
        let observed = observed(
            &expected.title,
            sample.provider,
            expected.sent,
            &sample.as_recorded(),
        );
        assert_eq!(&observed, expected, "{}", name(&sample));
    }
}

#[test]
fn every_provider_has_its_share() {
    for (provider, least) in [
        (ProviderName::Alipay, 8),
        (ProviderName::Wechatpay, 8),
        (ProviderName::Stripe, 8),
        (ProviderName::TwoCTwoP, 4),
        (ProviderName::Antom, 4),
    ] {
        let own: Vec<_> = all()
            .into_iter()
            .filter(|sample| sample.provider == provider)
            .collect();
        assert!(own.len() >= least, "{provider}");
        let (paid, again) = (&own[0].expected, &own[1].expected);
        assert_eq!(paid.kind.as_deref(), Some("payment.succeeded"), "{provider}");
        assert_eq!(
            paid.event_key, again.event_key,
            "{provider}: the second is the first, resent"
        );
        assert!(
            own.iter()
                .any(|sample| sample.expected.reason.as_deref() == Some("bad_signature")),
            "{provider}"
        );
        assert!(samples::find(provider, &own[0].case).unwrap().is_some());
    }
}

#[test]
fn a_resent_sample_is_the_same_event_with_the_same_content() {
    for provider in ProviderName::ALL {
        let fingerprint = |case: &str| {
            let sample = samples::find(provider, case).unwrap().unwrap();
            account(provider, &sample.request.path)
                .judge(&sample.as_recorded())
                .unwrap()
                .fingerprint
        };
        assert!(
            fingerprint("01-paid").agrees_with(&fingerprint("02-paid-again")),
            "{provider}"
        );
    }
}

#[test]
fn a_sample_signed_for_now_says_what_it_said() {
    let now = Timestamp::parse_rfc3339("2027-01-02T03:04:05.678901Z").unwrap();
    for sample in all() {
        let notification = sample.sent_now(now).unwrap();
        let judged = Judgement::of(&account(sample.provider, &sample.request.path).judge(&notification));
        let expected = &sample.expected;
        assert_eq!(
            judged.reason.map(|reason| reason.to_string()),
            expected.reason,
            "{}",
            name(&sample)
        );
        let key = judged.event_key.map(|key| key.to_string());
        assert_eq!(key, expected.event_key, "{}", name(&sample));
        assert_eq!(judged.kind, expected.kind, "{}", name(&sample));
    }
}

/// Verified, and by a signature: a v2 refund is encrypted only, so not every change of it can be seen.
fn valid() -> impl Iterator<Item = Sample> {
    all()
        .into_iter()
        .filter(|sample| sample.expected.verdict == "verified" && sample.case != "14-v2-refund")
}

#[test]
fn no_changed_byte_of_a_body_passes() {
    for sample in valid() {
        let body = &sample.request.body;
        // A step that is no power of two meets every kind of place within a few samples.
        for at in (0..body.len()).step_by(5) {
            let mut changed = body.to_vec();
            changed[at] ^= 1;
            let notification = Notification {
                body: changed.into(),
                ..sample.as_recorded()
            };
            let judged = account(sample.provider, &sample.request.path).judge(&notification);
            assert!(judged.is_err(), "{} with byte {at} changed", name(&sample));
        }
        for body in [body.slice(1..), body.slice(..body.len() - 1), Bytes::new()] {
            let notification = Notification {
                body,
                ..sample.as_recorded()
            };
            assert!(
                account(sample.provider, &sample.request.path)
                    .judge(&notification)
                    .is_err(),
                "{} cut",
                name(&sample)
            );
        }
    }
}

#[test]
fn no_signed_header_can_be_missing_doubled_or_changed() {
    let unsigned = ["content-type", "user-agent", "wechatpay-signature-type"];
    for sample in valid() {
        let names: Vec<_> = sample.request.headers.keys().cloned().collect();
        for header in names.iter().filter(|header| !unsigned.contains(&header.as_str())) {
            let refused = |change: &dyn Fn(&mut Notification), what: &str| {
                let mut notification = sample.as_recorded();
                change(&mut notification);
                let judged = account(sample.provider, &sample.request.path).judge(&notification);
                assert!(judged.is_err(), "{} with {header} {what}", name(&sample));
            };
            let value = sample.request.headers[header].clone();
            let longer = http::HeaderValue::from_bytes(&[value.as_bytes(), b"0"].concat()).unwrap();
            refused(&|n| drop(n.headers.remove(header)), "missing");
            refused(&|n| assert!(n.headers.append(header, value.clone())), "doubled");
            refused(&|n| drop(n.headers.insert(header, longer.clone())), "changed");
        }
    }
}

#[test]
fn moved_by_a_day_and_two_hours_no_signed_time_passes() {
    let timeless =
        |sample: &Sample| sample.provider == ProviderName::TwoCTwoP || sample.case.contains("-v2-");
    let day = Duration::from_hours(26);
    for sample in valid() {
        for received_at in [sample.expected.at.plus(day), sample.expected.at.minus(day)] {
            let notification = Notification {
                received_at,
                ..sample.as_recorded()
            };
            let judged = account(sample.provider, &sample.request.path).judge(&notification);
            assert_eq!(
                judged.is_ok(),
                timeless(&sample),
                "{} at {received_at}",
                name(&sample)
            );
        }
    }
}
