//! Each filter of the events' list picks its own, alone and with others, page by page.

use std::fmt::Write as _;

use payhook::event::EventId;
use payhook::store::EventFilter;
use payhook::time::Timestamp;

use super::*;
use crate::support::rabbit::until;

/// What the lists are asked for, and which events answer it.
struct Planted {
    id: String,
    provider: &'static str,
    account: &'static str,
    kind: &'static str,
    at: i64,
}

const PROVIDERS: [&str; 3] = ["stripe", "alipay", "wechatpay"];
const ACCOUNTS: [&str; 2] = ["shop", "shop-eu"];
const TYPES: [&str; 4] = [
    "payment.succeeded",
    "payment.failed",
    "refund.succeeded",
    "other.noted",
];

/// `count` events, each a second after the one before, of kinds that take turns unevenly.
async fn plant(fresh: &FreshStore, count: usize) -> Vec<Planted> {
    let mut planted = Vec::new();
    let mut rows = Vec::new();
    let body = blob(fresh, b"{}");
    for n in 0..count {
        let at = i64::try_from(n).unwrap() * 1_000_000;
        let event = Planted {
            id: format!("{}-e{n}", EventId::least(Timestamp::from_micros(at))),
            provider: PROVIDERS[n * n % 7 % 3],
            account: ACCOUNTS[n / 5 % 2],
            kind: TYPES[n * 3 % 11 % 4],
            at,
        };
        let Planted {
            id,
            provider,
            account,
            kind,
            ..
        } = &event;
        let order = if n == 6 { "A/../测 试?" } else { "ORDER-1" };
        rows.push(format!(
            "('{id}', 'webhook:{provider}:{account}:e{n}', '{provider}', '{account}', 'default', '{kind}', 'x', '{order}',
              'pi_e{n}', {at}, {at}, {body}, '[]', {body})"
        ));
        planted.push(event);
    }
    let rows = rows.join(", ");
    let columns = "id, event_key, provider, account, merchant, type, provider_event_type, order_id, trade_id, \
        occurred_at, received_at, fingerprint, headers, body";
    fresh
        .by_hand(&format!("insert into events ({columns}) values {rows}"))
        .await
        .unwrap();
    planted
}

async fn found(api: &Api, query: &str, limit: u32) -> Vec<String> {
    api.walk(OPS, &format!("/v1/events?{query}"), limit, "id").await
}

on_both_stores! {
    async fn each_filter_picks_its_own(fresh) {
        let planted = plant(&fresh, 7).await;
        let id = |n: usize| planted[n].id.as_str();
        fresh.by_hand(&format!("insert into event_outcomes (event_id, outcome, reason, decided_at) values ('{}', 'stale', 'late', 7)", id(2))).await.unwrap();
        fresh.by_hand(&format!("insert into event_orders (event_id, merchant, order_id) values ('{}', 'default', 'LINKED')", id(3))).await.unwrap();
        for n in [0, 2, 5] {
            let sql = format!("insert into outbox (id, kind, event_id, created_at, due_at) values ('{0}', 'event', '{0}', 1, 1)", id(n));
            fresh.by_hand(&sql).await.unwrap();
        }
        let api = Api::over(&fresh);
        let cases = [
            ("order_id=A%2F..%2F%E6%B5%8B%20%E8%AF%95%3F", vec![6]),
            ("order_id=LINKED", vec![3]),
            ("trade_id=pi_e4", vec![4]),
            ("event_key=webhook:stripe:shop:e0", vec![0]),
            ("event_key=webhook:stripe:shop:e0&type=other.noted", vec![]),
            ("outcome=stale", vec![2]),
            ("outcome=none", vec![5, 0]),
            ("outcome=none&until=1970-01-01T00:00:05Z", vec![0]),
            ("since=1970-01-01T00:00:05Z", vec![6, 5]),
            ("until=1970-01-01T00:00:01Z", vec![0]),
            ("since=1970-01-01T00:00:02.000001Z&until=1970-01-01T08:00:03.000001%2B08:00", vec![3]),
            ("account=elsewhere", vec![]),
            ("type=dispute.opened", vec![]),
            ("provider=antom", vec![]),
        ];
        for (query, expected) in cases {
            let expected: Vec<&str> = expected.into_iter().map(id).collect();
            assert_eq!(found(&api, query, 50).await, expected, "{query}");
        }
    }

    async fn an_event_that_does_not_read_hides_no_other(fresh) {
        let planted = plant(&fresh, 3).await;
        fresh.by_hand("insert into events (id, event_key, provider, account, merchant, type, provider_event_type, amount, currency,
            occurred_at, received_at, fingerprint, headers, body)
            select id || '-odd', event_key || '-odd', provider, account, merchant, type, provider_event_type, 5, 'XXXX',
            occurred_at, received_at, fingerprint, headers, body from events").await.unwrap();
        if fresh.is_postgres() {
            // Nothing is read from above the oldest transaction of the whole server, and that may be another test's.
            let above = "select count(*) from events
                where position >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
            until("all of them can be read", async || fresh.number(above).await == 0).await;
        }
        let api = Api::over(&fresh);
        let page = api.json(OPS, "/v1/events").await;
        assert_eq!(page["items"].as_array().unwrap().len(), 6, "an operator sees all of them");
        let odd = format!("/v1/events/{}-odd", planted[1].id);
        assert_eq!(api.json(OPS, &odd).await["amount"], serde_json::Value::Null);
        // The planted ones have a fingerprint that does not read either: nothing is handed out, and the reader gets on.
        let feed = api.json(OPS, "/v1/feed?stream=events&limit=2").await;
        let next = feed["next_cursor"].as_str().unwrap();
        let feed = api.json(OPS, &format!("/v1/feed?stream=events&limit=500&after={next}")).await;
        assert_eq!(feed["items"], serde_json::json!([]));
        assert_ne!(feed["next_cursor"], next);
    }

    async fn more_kinds_than_are_worth_it_are_found_all_the_same(fresh) {
        let (api, body) = (Api::over(&fresh), blob(&fresh, b"{}"));
        for n in 0..600_usize {
            let id = format!("{}-m{n}", EventId::least(Timestamp::from_micros(i64::try_from(n).unwrap() * 1_000_000)));
            fresh.by_hand(&format!("insert into events (id, event_key, provider, account, merchant, type, provider_event_type,
                occurred_at, received_at, fingerprint, headers, body) values ('{id}', 'k{n}', 'stripe', 'a{}', 'default',
                'other.t{}', 'x', {n}000000, {n}000000, {body}, '[]', {body})", n % 3, n / 3)).await.unwrap();
        }
        assert_eq!(found(&api, "provider=stripe", 500).await.len(), 600);
        assert_eq!(found(&api, "account=a1", 500).await.len(), 200);
        assert_eq!(found(&api, "type=other.t7", 500).await.len(), 3);
    }

    async fn kinds_are_found_page_by_page_newest_first(fresh) {
        let planted = plant(&fresh, 120).await;
        let api = Api::over(&fresh);
        let all = |given: &[&'static str]| given.iter().map(|one| Some(*one)).chain([None]).collect::<Vec<_>>();
        for provider in all(&PROVIDERS) {
            for account in all(&ACCOUNTS) {
                for kind in all(&TYPES) {
                    let mut query = "since=1970-01-01T00:00:10Z".to_owned();
                    for (name, part) in [("provider", provider), ("account", account), ("type", kind)] {
                        if let Some(part) = part {
                            write!(query, "&{name}={part}").unwrap();
                        }
                    }
                    let matches = |event: &&Planted| event.at >= 10_000_000
                        && provider.is_none_or(|part| part == event.provider)
                        && account.is_none_or(|part| part == event.account)
                        && kind.is_none_or(|part| part == event.kind);
                    let expected: Vec<&str> = planted.iter().rev().filter(matches).map(|event| event.id.as_str()).collect();
                    assert_eq!(found(&api, &query, 7).await, expected, "{query}");
                }
            }
        }
    }
}

/// SQLite has nothing but its indexes to go by; Postgres reads the whole of a table as small as a test's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_is_found_by_an_index_in_its_order() {
    FreshStore::with_sqlite(|fresh| async move {
        plant(&fresh, 600).await;
        fresh
            .by_hand(
                "insert into event_outcomes (event_id, outcome, reason, decided_at)
            select id, case when id like '%9' then 'dead' else 'applied' end, '', 1 from events",
            )
            .await
            .unwrap();
        let filter = |of: fn(&mut EventFilter)| {
            let mut filter = EventFilter {
                merchant: "default".to_owned(),
                ..EventFilter::default()
            };
            of(&mut filter);
            filter
        };
        let cases = [
            (filter(|_| {}), "events_by_merchant"),
            (
                filter(|f| f.kind = Some("refund.succeeded".to_owned())),
                "events_by_kind",
            ),
            (
                filter(|f| f.account = Some("shop-eu".to_owned())),
                "events_by_kind",
            ),
            (
                filter(|f| {
                    f.kind = Some("refund.succeeded".to_owned());
                    f.outcome = Some("applied".to_owned());
                }),
                "events_by_kind",
            ),
            (
                filter(|f| f.outcome = Some("dead".to_owned())),
                "event_outcomes_by_outcome",
            ),
        ];
        for (filter, index) in cases {
            let plan = fresh.store.explain_events(&filter).await.unwrap().join("\n");
            assert!(
                plan.contains(index) && !plan.contains("TEMP B-TREE FOR ORDER"),
                "{filter:?}:\n{plan}"
            );
            assert!(
                !plan.lines().any(|line| ["SCAN e", "SCAN o"].contains(&line)),
                "{filter:?}:\n{plan}"
            );
        }
    })
    .await;
}
