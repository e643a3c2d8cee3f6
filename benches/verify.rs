//! Micro-benchmarks of what happens to a notification between socket and database, with allocations counted:
//! `cargo bench --bench verify`.
//!
//! `verify` is everything that the ingress does with a request once it is read: signature, window, key,
//! fingerprint, facts. The other groups are its parts: the bytes that are signed, the resource that is opened,
//! the facts that are read. `event` is what makes a row of it. No I/O, one thread.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark whose input cannot be made has nothing to measure"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use divan::{AllocProfiler, Bencher, black_box};
use payhook::event::Notification;
use payhook::provider::signature::RsaSigner;
use payhook::provider::wechatpay::sign::{Method, V3Signer};
use payhook::provider::{Registered, Registry, alipay, wechatpay};

#[path = "../tests/it/support/signed.rs"]
#[expect(dead_code, reason = "made for the tests; a part is used here")]
mod signed;

use signed::{Senders, accounts, alipay_paid, registry_of};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// One genuine notification of every scheme, by the name that is shown.
const SCHEMES: [&str; 6] = [
    "alipay",
    "wechatpay v3",
    "wechatpay v2",
    "stripe",
    "2c2p",
    "antom",
];

fn main() {
    divan::main();
}

fn notification(scheme: &str) -> Notification {
    let senders = Senders::new();
    match scheme {
        "alipay" => senders.alipay(&alipay_paid()),
        "wechatpay v3" => senders.wechat_event("TRANSACTION.SUCCESS", signed::WECHAT_PAID),
        "wechatpay v2" => senders.wechat_v2(&signed::WECHAT_V2_PAID, Method::HmacSha256),
        "stripe" => Senders::stripe(signed::STRIPE_PAID.as_bytes()),
        "2c2p" => Senders::twoctwop(signed::TWOCTWOP_PAID),
        _ => senders.antom(signed::ANTOM_PAID.as_bytes()),
    }
}

/// The account that a notification is for.
fn account<'a>(registry: &'a Registry, notification: &Notification) -> &'a Registered {
    let name = notification.path.strip_prefix("/notify/").expect("a notify path");
    let (provider, account) = name.split_once('/').expect("an account");
    registry
        .get(provider.parse().unwrap(), account)
        .expect("configured")
}

#[divan::bench(args = SCHEMES)]
fn verify(bencher: Bencher<'_, '_>, scheme: &str) {
    let registry = registry_of(&accounts());
    let notification = notification(scheme);
    let account = account(&registry, &notification);
    bencher.bench(|| account.judge(black_box(&notification)).unwrap());
}

/// A forged one: what it costs to refuse.
#[divan::bench(args = SCHEMES)]
fn refuse(bencher: Bencher<'_, '_>, scheme: &str) {
    let registry = registry_of(&accounts());
    let mut notification = notification(scheme);
    let forged = std::str::from_utf8(&notification.body)
        .unwrap()
        .replace("8888", "8889")
        .replace("88.88", "88.89");
    notification.body = forged.into();
    let account = account(&registry, &notification);
    bencher.bench(|| account.judge(black_box(&notification)).is_err());
}

#[divan::bench(args = SCHEMES)]
fn facts(bencher: Bencher<'_, '_>, scheme: &str) {
    let registry = registry_of(&accounts());
    let notification = notification(scheme);
    let account = account(&registry, &notification);
    let verified = account.judge(&notification).unwrap();
    let event = account.event(&notification, verified);
    bencher.bench(|| {
        let content = black_box(event.content());
        account.scheme.read(content, &event.provider_event_type).unwrap()
    });
}

#[divan::bench(args = SCHEMES)]
fn event(bencher: Bencher<'_, '_>, scheme: &str) {
    let registry = registry_of(&accounts());
    let notification = notification(scheme);
    let account = account(&registry, &notification);
    let verified = account.judge(&notification).unwrap();
    bencher
        .with_inputs(|| verified.clone())
        .bench_values(|verified| account.event(black_box(&notification), verified));
}

#[divan::bench]
fn canonical_alipay(bencher: Bencher<'_, '_>) {
    let body = notification("alipay").body;
    bencher.bench(|| alipay::signed_bytes(black_box(&body)).unwrap());
}

#[divan::bench]
fn canonical_wechatpay(bencher: Bencher<'_, '_>) {
    let notification = notification("wechatpay v3");
    let header = |name: &str| notification.header(name).unwrap().to_owned();
    let (time, nonce) = (header("wechatpay-timestamp"), header("wechatpay-nonce"));
    bencher.bench(|| wechatpay::sign::signed_bytes(&time, &nonce, black_box(&notification.body)));
}

/// The resource, out of base64 and opened.
#[divan::bench]
fn decrypt_wechatpay(bencher: Bencher<'_, '_>) {
    let rsa = RsaSigner::from_pem(&signed::key_file("wechatpay_private.pem")).unwrap();
    let key = signed::key_file("wechatpay_apiv3.key");
    let signer = V3Signer::new(rsa, signed::PUBLIC_KEY_ID, key.as_bytes()).unwrap();
    let body: serde_json::Value = serde_json::from_slice(&notification("wechatpay v3").body).unwrap();
    let part = |name: &str| {
        let found = body.pointer(&format!("/resource/{name}"));
        found.and_then(|part| part.as_str()).unwrap().to_owned()
    };
    let (nonce, aad, sealed) = (part("nonce"), part("associated_data"), part("ciphertext"));
    bencher.bench(|| {
        let sealed = STANDARD.decode(black_box(&sealed)).unwrap();
        signer.open(nonce.as_bytes(), aad.as_bytes(), sealed).unwrap()
    });
}
