//! Signs a sample's request for any moment, with the throw-away keys.
//!
//! Only the send time and the signature are made anew; what the notification says stays as it is, so a
//! sample sent twice is a duplicate. A forged one is signed over one byte more than it has.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{SampleError, key, key_text};
use crate::config::AlipaySignType;
use crate::event::ProviderName;
use crate::provider::request_file::RequestFile;
use crate::provider::signature::RsaSigner;
use crate::provider::wechatpay::sign::V3Signer;
use crate::provider::{alipay, antom, stripe};
use crate::time::Timestamp;

/// The WeChat Pay public key id of the sample account.
pub const WECHATPAY_KEY_ID: &str = "PUB_KEY_ID_0119000000002026030100000000000001";
/// The serial of its platform certificate.
pub const WECHATPAY_SERIAL: &str = "57A1C2D3E4F5061728394A5B6C7D8E9F001122";

/// What is signed behind the rest: nothing, or a byte that is not sent.
const GENUINE: &[u8] = b"";
const FORGED: &[u8] = b"!";

/// `request` as sent at `at`. Schemes that sign no send time (2C2P, WeChat v2) leave it as it is.
pub fn sign(
    provider: ProviderName,
    request: RequestFile,
    at: Timestamp,
    genuine: bool,
) -> Result<RequestFile, SampleError> {
    let tail = if genuine { GENUINE } else { FORGED };
    match provider {
        ProviderName::Alipay => alipay(request, at, tail),
        ProviderName::Wechatpay if request.body.starts_with(b"<") => Ok(request),
        ProviderName::Wechatpay => wechatpay(request, at, tail),
        ProviderName::Stripe => stripe(request, at, tail),
        ProviderName::TwoCTwoP => Ok(request),
        ProviderName::Antom => antom(request, at, tail),
    }
}

/// WeChat's side of the sample account, under the key that `serial` names.
pub fn wechatpay_signer(serial: &str) -> Result<V3Signer, SampleError> {
    let pem = if serial == WECHATPAY_SERIAL {
        "wechatpay_platform_private.pem"
    } else {
        "wechatpay_private.pem"
    };
    V3Signer::new(rsa(pem)?, serial, key("wechatpay_apiv3.key")?).map_err(|_| SampleError::Key)
}

fn rsa(name: &'static str) -> Result<RsaSigner, SampleError> {
    RsaSigner::from_pem(key_text(name)?).map_err(|_| SampleError::Key)
}

fn alipay(mut request: RequestFile, at: Timestamp, tail: &[u8]) -> Result<RequestFile, SampleError> {
    let time = at.local_text("%Y-%m-%d %H:%M:%S", 480);
    let signer = rsa("alipay_private.pem")?;
    let body = alipay::resign(&signer, AlipaySignType::Rsa2, &request.body, &time, tail);
    let body = body.map_err(|_| SampleError::Key)?;
    request.body = body.into();
    Ok(request)
}

fn wechatpay(mut request: RequestFile, at: Timestamp, tail: &[u8]) -> Result<RequestFile, SampleError> {
    let text = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    let signer = wechatpay_signer(text("wechatpay-serial").unwrap_or(WECHATPAY_KEY_ID))?;
    let nonce = format!("{:032x}", at.micros());
    let signed = [&request.body, tail].concat();
    let headers = signer
        .headers(&signed, at, &nonce)
        .map_err(|_| SampleError::Key)?;
    let probe = text("wechatpay-signature").is_some_and(|value| value.starts_with(PROBE));
    for (name, value) in &headers {
        request.headers.insert(name.clone(), value.clone());
    }
    if probe {
        let value = headers
            .get("wechatpay-signature")
            .map(HeaderValue::as_bytes)
            .unwrap_or_default();
        insert(
            &mut request.headers,
            "wechatpay-signature",
            &[PROBE.as_bytes(), value].concat(),
        )?;
    }
    Ok(request)
}

/// How a signature begins that must not verify.
const PROBE: &str = "WECHATPAY/SIGNTEST/";

fn stripe(mut request: RequestFile, at: Timestamp, tail: &[u8]) -> Result<RequestFile, SampleError> {
    let secret = key("stripe_signing_secret.key")?.trim_ascii();
    let value = stripe::sign(secret, at, &[&request.body, tail].concat());
    insert(&mut request.headers, "stripe-signature", value.as_bytes())?;
    Ok(request)
}

fn antom(mut request: RequestFile, at: Timestamp, tail: &[u8]) -> Result<RequestFile, SampleError> {
    let time = at.local_text("%Y-%m-%dT%H:%M:%S+08:00", 480);
    let client = request
        .headers
        .get("client-id")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let body = [&request.body, tail].concat();
    let value = antom::sign(&rsa("antom_private.pem")?, &request.path, client, &time, &body);
    let value = value.map_err(|_| SampleError::Key)?;
    insert(&mut request.headers, "request-time", time.as_bytes())?;
    insert(&mut request.headers, "signature", value.as_bytes())?;
    Ok(request)
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &[u8]) -> Result<(), SampleError> {
    let value = HeaderValue::from_bytes(value).map_err(|_| SampleError::Request)?;
    headers.insert(HeaderName::from_static(name), value);
    Ok(())
}
