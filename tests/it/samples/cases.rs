//! The samples before they are signed: who says what, when, and what it is there to show.
//!
//! Each provider's cases are numbered in the order in which they tell a story: an order paid, told again,
//! refunded in parts, a late close, what must be refused. Times are fixed; nothing here is random.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use payhook::event::ProviderName;
use payhook::provider::request_file::RequestFile;
use payhook::samples::SampleError;
use payhook::samples::sign::sign;
use payhook::time::Timestamp;

/// One sample before it is signed.
pub(crate) struct Case {
    pub(crate) provider: ProviderName,
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// When it is sent.
    pub(crate) sent: Timestamp,
    /// How long it travels.
    pub(crate) late: Duration,
    /// Whether its provider signs it.
    pub(crate) genuine: bool,
    pub(crate) request: RequestFile,
}

impl Case {
    /// Sent `minutes` after the story's beginning, arriving a second later.
    pub(crate) fn new(provider: ProviderName, name: &'static str, title: &'static str, minutes: u64) -> Self {
        let begin = Timestamp::parse_rfc3339("2026-03-02T02:00:00Z").unwrap();
        let request = RequestFile {
            method: "POST".to_owned(),
            path: format!("/notify/{provider}/demo"),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let sent = begin.plus(Duration::from_mins(minutes));
        Self {
            provider,
            name,
            title,
            sent,
            late: Duration::from_secs(1),
            genuine: true,
            request,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.request.headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        );
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.request.body = body.into();
        self
    }

    /// Sent to another account than the usual one.
    pub(crate) fn to(mut self, account: &str) -> Self {
        self.request.path = format!("/notify/{}/{account}", self.provider);
        self
    }

    /// Signed by nobody who has the key.
    pub(crate) fn forged(mut self) -> Self {
        self.genuine = false;
        self
    }

    /// Held up on its way.
    pub(crate) fn late_by(mut self, late: Duration) -> Self {
        self.late = late;
        self
    }

    pub(crate) fn at(&self) -> Timestamp {
        self.sent.plus(self.late)
    }

    pub(crate) fn signed(&self) -> Result<RequestFile, SampleError> {
        sign(self.provider, self.request.clone(), self.sent, self.genuine)
    }
}

/// Every case, in the order of the files.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = super::alipay::cases();
    cases.extend(super::wechatpay::cases());
    cases.extend(super::stripe::cases());
    cases.extend(super::twoctwop::cases());
    cases.extend(super::antom::cases());
    cases
}
