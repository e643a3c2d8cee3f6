//! What each provider hears, to the byte, for every way a notification can end.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use payhook::provider::signature::mac::hmac_sha256;
use payhook::provider::signature::{Digest, RsaSigner};
use payhook::provider::wechatpay::sign::{Method, v2_payment};

use super::*;
use crate::support::rabbit::until;
use crate::support::store::on_both_stores;
use crate::support::traffic::{Happening, Sender, Signers, Telling, keys};

const V2_SECRET: &[u8] = b"0123456789abcdef0123456789ABCDEF";
const TWOCTWOP_SECRET: &[u8] = b"throw-away-secret-of-these-tests";

/// Accounts beside those of the traffic.
fn accounts() -> String {
    let keys = keys();
    format!(
        r#"
[[accounts]]
provider = "wechatpay"
name = "v2"
mch_id = "1900000001"
api_v2_key = "{}"

[[accounts]]
provider = "2c2p"
name = "th"
merchant_id = "JT01"
secret_key = "{}"

[[accounts]]
provider = "antom"
name = "global"
client_id = "SANDBOX_0000"
public_key_file = "{}/antom_public.pem"
"#,
        String::from_utf8_lossy(V2_SECRET),
        String::from_utf8_lossy(TWOCTWOP_SECRET),
        keys.display()
    )
}

/// One scheme: a genuine request, a forged one, one that is not what the scheme sends, and its answers.
struct Case {
    genuine: traffic::Request,
    forged: traffic::Request,
    malformed: Option<traffic::Request>,
    content_type: Option<&'static str>,
    success: &'static str,
    failure: &'static str,
    unavailable: &'static str,
}

fn request(path: &'static str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> traffic::Request {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    traffic::Request {
        path,
        headers,
        body: body.into(),
    }
}

fn told(sender: Sender) -> traffic::Request {
    let telling = Telling {
        sender,
        order_id: "order-1".to_owned(),
        trade_id: "4200000001202611290000000001".to_owned(),
        amount: 8888,
        number: 1,
        happening: Happening::Paid,
    };
    Signers::new().sign(&telling, now())
}

/// The last byte of the body is another one.
fn bent(request: &traffic::Request, from: &str, to: &str) -> traffic::Request {
    let body = String::from_utf8(request.body.clone()).unwrap();
    assert!(body.contains(from), "{body}");
    traffic::Request {
        body: body.replacen(from, to, 1).into_bytes(),
        ..request.clone()
    }
}

fn two_c_two_p() -> traffic::Request {
    let claims = r#"{"merchantID":"JT01","invoiceNo":"ORDER-1","amount":100.5,"currencyCode":"THB","tranRef":"2868821","transactionDateTime":"20261129190000","respCode":"0000","respDesc":"Success"}"#;
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    let mac = URL_SAFE_NO_PAD.encode(hmac_sha256(TWOCTWOP_SECRET, &[signed.as_bytes()]));
    request(
        "/notify/2c2p/th",
        &[("content-type", "application/json")],
        format!(r#"{{"payload":"{signed}.{mac}"}}"#),
    )
}

fn antom() -> traffic::Request {
    let body = r#"{"notifyType":"PAYMENT_RESULT","result":{"resultCode":"SUCCESS","resultStatus":"S","resultMessage":"success"},"paymentRequestId":"ORDER-1","paymentId":"202611291940108001001","paymentAmount":{"value":"8888","currency":"USD"},"paymentTime":"2026-11-29T04:00:00-08:00"}"#;
    let time = now().to_string();
    let signer =
        RsaSigner::from_pem(&std::fs::read_to_string(keys().join("antom_private.pem")).unwrap()).unwrap();
    let signed = format!("POST /notify/antom/global\nSANDBOX_0000.{time}.{body}");
    let signature = STANDARD.encode(signer.sign(Digest::Sha256, signed.as_bytes()).unwrap());
    let signature = signature
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D");
    let signature = format!("algorithm=RSA256, keyVersion=1, signature={signature}");
    request(
        "/notify/antom/global",
        &[
            ("client-id", "SANDBOX_0000"),
            ("request-time", &time),
            ("signature", &signature),
        ],
        body,
    )
}

fn wechat_v2() -> traffic::Request {
    let fields = [
        ("appid", "wx0000000000000001"),
        ("mch_id", "1900000001"),
        ("nonce_str", "5d2b6c2a8db53831f7eda20af46e531c"),
        ("result_code", "SUCCESS"),
        ("return_code", "SUCCESS"),
        ("out_trade_no", "ORDER-1"),
        ("transaction_id", "1004400740201409030005092168"),
        ("time_end", "20261129200000"),
        ("total_fee", "8888"),
    ];
    request(
        "/notify/wechatpay/v2",
        &[("content-type", "text/xml")],
        v2_payment(&fields, Method::Md5, V2_SECRET),
    )
}

const V2_FAIL: &str =
    "<xml><return_code><![CDATA[FAIL]]></return_code><return_msg><![CDATA[refused]]></return_msg></xml>";

fn cases() -> Vec<Case> {
    let (alipay, v3, stripe) = (told(Sender::Alipay), told(Sender::Wechat), told(Sender::Stripe));
    let (v2, two_c_two_p, antom) = (wechat_v2(), two_c_two_p(), antom());
    vec![
        Case {
            forged: bent(&alipay, "88%2E88", "88%2E89"),
            malformed: Some(request("/notify/alipay/load", &[], "app_id=1&app_id=2")),
            genuine: alipay,
            content_type: Some("text/plain"),
            success: "success",
            failure: "fail",
            unavailable: "fail",
        },
        Case {
            forged: bent(&v3, "}", " }"),
            malformed: None,
            genuine: v3,
            content_type: Some("application/json"),
            success: r#"{"code":"SUCCESS","message":"成功"}"#,
            failure: r#"{"code":"FAIL","message":"refused"}"#,
            unavailable: r#"{"code":"FAIL","message":"unavailable"}"#,
        },
        Case {
            forged: bent(&v2, "8888", "8889"),
            malformed: Some(request(
                "/notify/wechatpay/v2",
                &[("content-type", "text/xml")],
                "<xml><a>",
            )),
            genuine: v2,
            content_type: Some("text/xml"),
            success: "<xml><return_code><![CDATA[SUCCESS]]></return_code><return_msg><![CDATA[OK]]></return_msg></xml>",
            failure: V2_FAIL,
            unavailable: V2_FAIL,
        },
        Case {
            forged: bent(&stripe, "8888", "8889"),
            malformed: None,
            genuine: stripe,
            content_type: Some("application/json"),
            success: r#"{"received":true}"#,
            failure: r#"{"error":"refused"}"#,
            unavailable: r#"{"error":"refused"}"#,
        },
        Case {
            forged: bent(
                &two_c_two_p,
                "payload\":\"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e",
                "payload\":\"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.f",
            ),
            malformed: Some(request("/notify/2c2p/th", &[], "no token")),
            genuine: two_c_two_p,
            content_type: None,
            success: "",
            failure: "",
            unavailable: "",
        },
        Case {
            forged: bent(&antom, "8888", "8889"),
            malformed: None,
            genuine: antom,
            content_type: Some("application/json"),
            success: r#"{"result":{"resultCode":"SUCCESS","resultStatus":"S","resultMessage":"success"}}"#,
            failure: r#"{"error":"refused"}"#,
            unavailable: r#"{"error":"refused"}"#,
        },
    ]
}

fn heard(answer: &Answer, case: &Case, status: u16, body: &str) {
    let path = case.genuine.path;
    assert_eq!(String::from_utf8_lossy(&answer.body), body, "{path} {status}");
    assert_eq!(answer.status, status, "{path}");
    assert_eq!(
        answer.header("content-type"),
        case.content_type,
        "{path} {status}"
    );
    assert_eq!(
        answer.header("retry-after").is_some(),
        status == 503,
        "{path} {status}"
    );
}

on_both_stores! {
    /// E09.
    async fn every_answer_is_exact(fresh) {
        let public = Public::with(&fresh, &accounts());
        let cases = cases();
        for case in &cases {
            // Recorded, and the same again: a duplicate hears the same.
            for _ in 0..2 {
                heard(&public.post(&case.genuine).await, case, 200, case.success);
            }
            heard(&public.post(&case.forged).await, case, 401, case.failure);
            if let Some(malformed) = &case.malformed {
                heard(&public.post(malformed).await, case, 400, case.failure);
            }
        }
        assert_eq!(fresh.number("select count(*) from events").await, 6);
        let deliveries = async || fresh.number("select count(*) from deliveries").await == 6;
        until("the deliveries of the duplicates to be written", deliveries).await;
        fresh.by_hand("alter table events rename to events_away").await.unwrap();
        for case in &cases {
            heard(&public.post(&case.genuine).await, case, 503, case.unavailable);
        }
        fresh.by_hand("alter table events_away rename to events").await.unwrap();
        heard(&public.post(&cases[0].genuine).await, &cases[0], 200, cases[0].success);
        // Draining: the body is not read, and still it is the provider's own form.
        public.health.begin_drain();
        for case in &cases {
            heard(&public.post(&case.genuine).await, case, 503, case.unavailable);
        }
        public.end().await;
        assert_eq!(fresh.number("select count(*) from events").await, 6);
        let malformed = cases.iter().filter(|case| case.malformed.is_some()).count();
        assert_eq!(fresh.number("select count(*) from quarantine where reason = 'malformed'").await,
            i64::try_from(malformed).unwrap());
        assert_eq!(fresh.number("select count(*) from quarantine").await, i64::try_from(6 + malformed).unwrap());
    }

    async fn what_was_refused_is_kept_as_it_came(fresh) {
        let public = Public::over(&fresh);
        let mut forged = told(Sender::Stripe);
        forged.body = b"\x00\xff not what was signed".to_vec();
        forged.headers.push(("cookie".to_owned(), "canary".to_owned()));
        assert_eq!(public.post(&forged).await.status, StatusCode::UNAUTHORIZED);
        public.end().await;
        let kept = fresh.texts(
            "select provider || ' ' || account || ' ' || merchant || ' ' || reason || ' ' || path || ' ' || remote_addr || ' ' || sender
               from quarantine").await;
        assert_eq!(kept, ["stripe load default bad_signature /notify/stripe/load 192.0.2.7 192.0.2.0/24"]);
        let hex = if fresh.is_postgres() { "encode(body, 'hex')" } else { "lower(hex(body))" };
        assert_eq!(fresh.texts(&format!("select {hex} from quarantine")).await, [hex_of(&forged.body)]);
        let headers = fresh.texts("select cast(headers as text) from quarantine").await;
        assert!(headers[0].contains("stripe-signature") && !headers[0].contains("canary"), "{headers:?}");
    }

    async fn a_retired_account_refuses_and_keeps(fresh) {
        let public = Public::over(&fresh);
        let text = traffic::accounts().replace("name = \"load\"", "name = \"load\"\nstate = \"retired\"");
        let retired = Config::parse_with(&text, &std::env::temp_dir(), &Environment::default(), Registry::build);
        public.registry.store(Arc::new(retired.unwrap().1));
        let answer = public.post(&told(Sender::Stripe)).await;
        assert_eq!((answer.status, answer.body.as_slice()), (StatusCode::UNAUTHORIZED, b"{\"error\":\"refused\"}".as_slice()));
        public.end().await;
        assert_eq!(fresh.texts("select reason from quarantine").await, ["retired_account"]);
        assert_eq!(fresh.number("select count(*) from events").await, 0);
    }

    async fn a_conflict_is_acked_and_kept(fresh) {
        let public = Public::over(&fresh);
        let first = told(Sender::Stripe);
        let other = resigned(&bent(&first, "8888", "9999"));
        for request in [&first, &other, &first, &other] {
            assert_eq!(public.post(request).await.status, StatusCode::OK);
        }
        assert_eq!(fresh.number("select count(*) from events").await, 1);
        assert_eq!(fresh.number("select count(*) from event_conflicts").await, 1);
        assert_eq!(fresh.number("select count(*) from attention").await, 1);
    }

    async fn fifty_copies_at_once_are_fifty_acks_and_one_event(fresh) {
        let public = Public::over(&fresh);
        let request = told(Sender::Alipay);
        let answers = futures_util::future::join_all((0..50).map(|_| public.post(&request))).await;
        for answer in answers {
            assert_eq!((answer.status, answer.body.as_slice()), (StatusCode::OK, b"success".as_slice()));
        }
        assert_eq!(fresh.number("select count(*) from events").await, 1);
        assert_eq!(fresh.number("select count(*) from outbox").await, 1);
    }

    async fn nothing_else_is_there(fresh) {
        let public = Public::over(&fresh);
        let ask = async |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::from("x")).unwrap();
            let answer = public.ask(request).await;
            assert_eq!(answer.body, b"", "{method} {path}");
            (answer.status.as_u16(), answer.header("allow").map(str::to_owned))
        };
        for path in ["/", "/healthz", "/metrics", "/v1/events", "/notify", "/notify/stripe", "/notify/stripe/load/",
            "/notify/stripe/unknown", "/notify/unknown/load", "/notify/stripe/lo%61d", "/notify/Stripe/load"] {
            assert_eq!(ask("POST", path).await, (404, None), "{path}");
        }
        // Known or not, the same answer: a path tells nothing about accounts.
        for path in ["/notify/stripe/load", "/notify/stripe/unknown", "/notify/unknown/x"] {
            for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
                assert_eq!(ask(method, path).await, (405, Some("POST".to_owned())), "{method} {path}");
            }
        }
    }
}

/// Signed again, as the provider would have sent it.
fn resigned(request: &traffic::Request) -> traffic::Request {
    let at = now().secs().to_string();
    let mac = hmac_sha256(
        traffic::STRIPE_SECRET.as_bytes(),
        &[at.as_bytes(), b".", &request.body],
    );
    let signature = format!("t={at},v1={}", hex::encode(mac));
    traffic::Request {
        headers: vec![("stripe-signature".to_owned(), signature)],
        ..request.clone()
    }
}

fn hex_of(bytes: &[u8]) -> String {
    hex::encode(bytes)
}
