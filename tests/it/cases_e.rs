//! What bit HTTP receivers and their databases elsewhere: one test per case that nothing else shows. The others are
//! named where they are shown; `cases` lists them all.

use futures_util::future::join_all;
use payhook::event::{Currency, Money, Notification, ProviderName};
use payhook::orders::apply::{Item, OwnFact, apply, apply_fact};
use payhook::provider::Registry;
use payhook::provider::wechatpay::sign::Method;

use crate::orders::cast::{self, CREATE, ORDER, told};
use crate::support::listener::Listener;
use crate::support::signed::{
    ANTOM_PAID, STRIPE_PAID, Senders, TWOCTWOP_PAID, WECHAT_PAID, WECHAT_V2_PAID, accounts, alipay_paid,
    registry_of,
};
use crate::support::store::FreshStore;

/// A payment of every scheme, with the account that it is for.
fn everybody() -> Vec<(&'static str, Notification)> {
    let senders = Senders::new();
    vec![
        ("alipay/shop-cn", senders.alipay(&alipay_paid())),
        (
            "wechatpay/shop-cn",
            senders.wechat_event("TRANSACTION.SUCCESS", WECHAT_PAID),
        ),
        (
            "wechatpay/shop-cn",
            senders.wechat_v2(&WECHAT_V2_PAID, Method::Md5),
        ),
        ("stripe/shop-intl", Senders::stripe(STRIPE_PAID.as_bytes())),
        ("2c2p/shop-th", Senders::twoctwop(TWOCTWOP_PAID)),
        ("antom/shop-sg", senders.antom(ANTOM_PAID.as_bytes())),
    ]
}

fn judged(registry: &Registry, account: &str, notification: &Notification) -> bool {
    let (provider, name) = account.split_once('/').unwrap();
    let account = registry.get(provider.parse().unwrap(), name).unwrap();
    account.judge(notification).is_ok()
}

/// No connection is leaked by callers that go away, and a full pool makes nobody wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e04_two_hundred_posts_at_once_are_answered_and_half_of_them_may_go_away() {
    Listener::with_postgres(&accounts(), async |listener| {
        let sent: Vec<Notification> = (0..200)
            .map(|n| {
                Senders::stripe(
                    STRIPE_PAID
                        .replace("evt_1PtestPaid", &format!("evt_{n}"))
                        .as_bytes(),
                )
            })
            .collect();
        let answers = join_all(sent.iter().enumerate().map(|(n, notification)| {
            let listener = &listener;
            async move {
                let post = listener.post(notification);
                if n % 2 == 1 {
                    // Gone as soon as it has asked.
                    return tokio::time::timeout(std::time::Duration::from_millis(1), post)
                        .await
                        .ok();
                }
                Some(post.await)
            }
        }))
        .await;
        for answer in answers.iter().flatten() {
            assert!([200, 503].contains(&answer.status), "{answer:?}");
        }
        // Whoever asks next is served: nothing is held by those who went.
        for notification in &sent {
            assert_eq!(listener.post(notification).await.status, 200);
        }
        assert_eq!(listener.keys().await.len(), 200);
    })
    .await;
}

/// What no JSON column would take is stored as it came, and applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e05_e06_a_nul_or_half_a_surrogate_in_a_text_is_kept_byte_for_byte() {
    Listener::with_postgres(&accounts(), async |listener| {
        let odd = STRIPE_PAID.replace("caf\\u00e9", "a\\u0000b \\ud800 c \\udc00");
        assert_ne!(odd, STRIPE_PAID);
        let answer = listener.post(&Senders::stripe(odd.as_bytes())).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let bodies = listener
            .fresh
            .texts("select convert_from(body, 'utf8') from events")
            .await;
        assert_eq!(bodies, [odd]);
        let registry = registry_of(&accounts());
        let key = &listener.keys().await[0];
        let key = payhook::event::EventKey::from_text(key);
        let event = listener.fresh.store.event_by_key(&key).await.unwrap().unwrap();
        let scheme = &registry.get(ProviderName::Stripe, "shop-intl").unwrap().scheme;
        let reading = scheme.read(event.content(), &event.provider_event_type).unwrap();
        let mut tx = listener.fresh.store.begin().await.unwrap();
        let item = Item {
            event: &event,
            reading: &reading,
        };
        let applied = apply(&mut tx, &[item], &CREATE, cast::now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(applied[0].outcome.as_str(), "applied");
        let view = listener
            .fresh
            .store
            .order("default", "ORDER-1004")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(view.head.status, "paid");
    })
    .await;
}

/// Only the headers that the README lists matter: a proxy may change, add or drop any other.
#[test]
fn e08_what_a_proxy_does_to_other_headers_changes_no_verdict() {
    let registry = registry_of(&accounts());
    for (account, notification) in everybody() {
        assert!(judged(&registry, account, &notification), "{account}");
        let mut changed = notification.clone();
        for (name, value) in [
            ("accept-encoding", "gzip, br"),
            ("cdn-loop", "cloudflare"),
            ("content-type", "application/octet-stream"),
            ("host", "other.example"),
            ("user-agent", "proxy"),
            ("via", "1.1 proxy"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-proto", "https"),
        ] {
            changed.headers.insert(name, value.parse().unwrap());
        }
        assert!(
            judged(&registry, account, &changed),
            "{account} with other headers"
        );
        changed.headers.remove("content-type");
        changed.headers.remove("host");
        assert!(judged(&registry, account, &changed), "{account} with fewer");
    }
}

/// The order is registered in a transaction that is still open when its payment is applied: that waits for the
/// row, sees the registration, and neither is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e16_a_payment_waits_for_an_open_registration_and_is_held_against_it() {
    FreshStore::with_postgres(async |fresh| {
        let cast::Act::Event(event) = told(
            ProviderName::Alipay,
            "e16",
            Some(ORDER),
            vec![cast::paid("T1", 100)],
        ) else {
            unreachable!("it is an event");
        };
        fresh
            .store
            .insert_fresh(&[std::sync::Arc::new(event.0.clone())], None)
            .await
            .unwrap();
        let mut open = fresh.store.begin().await.unwrap();
        let registered = OwnFact::Registered {
            order_id: ORDER.to_owned(),
            amount: Money::new(90, Currency::CNY),
        };
        apply_fact(&mut open, "default", &registered, &CREATE, cast::now())
            .await
            .unwrap();
        let payment = async {
            let mut tx = fresh.store.begin().await.unwrap();
            let item = Item {
                event: &event.0,
                reading: &event.1,
            };
            let applied = apply(&mut tx, &[item], &CREATE, cast::now()).await.unwrap();
            tx.commit().await.unwrap();
            applied
        };
        let commit = async {
            // The payment has come as far as the lock.
            let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                           and wait_event_type = 'Lock'";
            while fresh.number(waiting).await == 0 {
                tokio::task::yield_now().await;
            }
            open.commit().await.unwrap();
        };
        let (applied, ()) = tokio::join!(payment, commit);
        assert_eq!(applied[0].outcome.as_str(), "attention");
        let view = fresh.store.order("default", ORDER).await.unwrap().unwrap();
        assert_eq!((view.head.status.as_str(), view.head.paid), ("pending", 100));
        assert_eq!(
            fresh.texts("select code from attention").await,
            ["amount_mismatch"]
        );
        assert_eq!(fresh.texts("select status from trades").await, ["held"]);
    })
    .await;
}
