//! Notifications made elsewhere, from the published rules by other code than payhook's: `tests/data`.

use payhook::event::Notification;
use payhook::provider::request_file::RequestFile;
use payhook::time::Timestamp;

use super::signed::{notification, root};

/// The accounts that they are for.
pub(crate) fn accounts() -> String {
    format!(
        r#"
[[accounts]]
provider = "alipay"
name = "recorded"
app_id = "2021000000000001"
public_key_file = "{data}/alipay/derived_pub.pem"

[[accounts]]
provider = "wechatpay"
name = "recorded"
mch_id = "1900000001"
api_v3_key = "ThisIsA32ByteApiV3KeyForTests000"
api_v2_key = "TestV2ApiKey0123456789abcdefghij"
public_keys = [
  {{ id = "PUB_KEY_ID_0119000000002024030100000000000001", file = "{data}/wechatpay/derived_pub.pem" }},
  {{ id = "5157F09EFDC096DE15EBE81A47057A7232F1B8E1", file = "{data}/wechatpay/derived_old_platform_pub.pem" }} ]
"#,
        data = root().join("tests/data").display()
    )
}

/// All of them with name and account, each arriving when it says it was sent.
pub(crate) fn all() -> Vec<(String, &'static str, Notification)> {
    let mut all = Vec::new();
    for (folder, extension, account) in [
        ("alipay", "body", "alipay/recorded"),
        ("wechatpay", "http", "wechatpay/recorded"),
    ] {
        let files = std::fs::read_dir(root().join("tests/data").join(folder)).unwrap();
        for path in files.map(|file| file.unwrap().path()) {
            if path.extension().is_some_and(|e| e == extension) {
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let notification = one(&name);
                all.push((name, account, notification));
            }
        }
    }
    all.sort_by(|(left, ..), (right, ..)| left.cmp(right));
    all
}

/// The one whose file is called `name`, arriving when it says it was sent.
pub(crate) fn one(name: &str) -> Notification {
    let data = root().join("tests/data");
    if let Ok(body) = std::fs::read(data.join("alipay").join(format!("{name}.body"))) {
        let received_at = notify_time(&body).unwrap_or(Timestamp::from_secs(0));
        return Notification {
            received_at,
            ..notification("/notify/alipay/recorded", &[], body)
        };
    }
    let file = std::fs::read(data.join("wechatpay").join(format!("{name}.http"))).unwrap();
    let request = RequestFile::parse(&file).unwrap();
    let sent = request
        .headers
        .get("wechatpay-timestamp")
        .map(|value| value.to_str().unwrap().parse().unwrap());
    request.arriving(Timestamp::from_secs(sent.unwrap_or_default()))
}

/// An Alipay body's own send time.
fn notify_time(body: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(body).ok()?;
    let value = text
        .split('&')
        .find_map(|pair| pair.strip_prefix("notify_time="))?;
    let value = percent_encoding::percent_decode_str(value).decode_utf8().ok()?;
    payhook::time::parse_local("%Y-%m-%d %H:%M:%S", &value.replace('+', " "), 480)
}
