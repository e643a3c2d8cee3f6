//! A notification in a file: request line, headers, an empty line, and every byte after it is the body.
//!
//! What `verify` and the samples read, and what a proxy's capture is easily brought into. Lines end in LF or
//! CRLF, the body is taken as it stands: a trailing newline an editor put there is a byte of it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::event::Notification;
use crate::time::Timestamp;

/// The most that is taken of each part; ingress is stricter.
const MAX_LINE: usize = 64 * 1024;
const MAX_HEADERS: usize = 256;
const MAX_BODY: usize = 16 * 1024 * 1024;

/// A request as it was written down.
#[derive(Clone, Debug)]
pub struct RequestFile {
    /// `POST`, if it is a notification.
    pub method: String,
    /// The target's path without its query, as in [`Notification::path`].
    pub path: String,
    /// The headers, in order.
    pub headers: HeaderMap,
    /// Every byte after the empty line.
    pub body: Bytes,
}

/// Why a file is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFileError {
    /// Not `METHOD target`.
    #[error("line 1 is no request line (POST /path HTTP/1.1)")]
    RequestLine,
    /// Not `name: value`.
    #[error("line {0} is no header (name: value)")]
    Header(usize),
    /// A line, the number of headers or the body is beyond what is taken.
    #[error("line {0} is where it becomes too large")]
    TooLarge(usize),
    /// No empty line, so no one can tell where the body begins.
    #[error("no empty line between headers and body")]
    NoBody,
}

impl RequestFile {
    /// Reads a file's bytes; any bytes are taken, none make it panic.
    pub fn parse(file: &[u8]) -> Result<Self, RequestFileError> {
        let mut lines = Lines {
            rest: file,
            number: 0,
        };
        let (method, path) = request_line(lines.next_line()?).ok_or(RequestFileError::RequestLine)?;
        let mut headers = HeaderMap::new();
        loop {
            let line = lines.next_line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = header(line).ok_or(RequestFileError::Header(lines.number))?;
            headers.append(name, value);
            if headers.len() > MAX_HEADERS {
                return Err(RequestFileError::TooLarge(lines.number));
            }
        }
        if lines.rest.len() > MAX_BODY {
            return Err(RequestFileError::TooLarge(lines.number.saturating_add(1)));
        }
        Ok(Self {
            method,
            path,
            headers,
            body: Bytes::copy_from_slice(lines.rest),
        })
    }

    /// As if it had arrived at `at`.
    pub fn arriving(self, at: Timestamp) -> Notification {
        Notification {
            path: self.path,
            headers: self.headers,
            body: self.body,
            received_at: at,
            remote_addr: None,
        }
    }

    /// The same request as a file, LF line ends. Header names are written in lower case.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = format!("{} {} HTTP/1.1\n", self.method, self.path).into_bytes();
        for (name, value) in &self.headers {
            file.extend_from_slice(name.as_str().as_bytes());
            file.extend_from_slice(b": ");
            file.extend_from_slice(value.as_bytes());
            file.push(b'\n');
        }
        file.push(b'\n');
        file.extend_from_slice(&self.body);
        file
    }
}

struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Result<&'a [u8], RequestFileError> {
        self.number = self.number.saturating_add(1);
        let within = self.rest.get(..MAX_LINE).unwrap_or(self.rest);
        let Some(end) = within.iter().position(|b| *b == b'\n') else {
            let too_large = within.len() < self.rest.len();
            return Err(match (too_large, self.number) {
                (true, line) => RequestFileError::TooLarge(line),
                (false, 1) => RequestFileError::RequestLine,
                (false, _) => RequestFileError::NoBody,
            });
        };
        let (line, rest) = self.rest.split_at_checked(end).unwrap_or_default();
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// `POST /path[?query] [HTTP/1.1]`; a whole URL is taken for its path.
fn request_line(line: &[u8]) -> Option<(String, String)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next());
    let known = version.is_none_or(|version| version.starts_with("HTTP/"));
    if words.next().is_some()
        || !known
        || method.is_empty()
        || !method.bytes().all(|b| b.is_ascii_uppercase())
    {
        return None;
    }
    let after_scheme = target
        .strip_prefix("http://")
        .or_else(|| target.strip_prefix("https://"));
    let path = match after_scheme {
        Some(url) => url.find('/').map_or("/", |at| url.get(at..).unwrap_or("/")),
        None => target,
    };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    path.starts_with('/')
        .then(|| (method.to_owned(), path.to_owned()))
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|b| *b == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    let value = value.strip_prefix(b":")?.trim_ascii();
    Some((
        HeaderName::from_bytes(name).ok()?,
        HeaderValue::from_bytes(value).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lf_and_crlf_read_alike_and_the_body_is_untouched() {
        for end in ["\n", "\r\n"] {
            let head = [
                "POST /notify/stripe/a?x=1 HTTP/1.1",
                "Host: a",
                "X-Two:  b ",
                "x-two: c",
                "",
                "",
            ]
            .join(end);
            let file = RequestFile::parse(&[head.as_bytes(), b"{}\r\n\r\n\xff"].concat()).unwrap();
            assert_eq!(
                (file.method.as_str(), file.path.as_str()),
                ("POST", "/notify/stripe/a")
            );
            assert_eq!(
                file.headers.get_all("x-two").iter().collect::<Vec<_>>(),
                ["b", "c"]
            );
            assert_eq!(file.body.as_ref(), b"{}\r\n\r\n\xff");
        }
    }

    #[test]
    fn an_empty_body_is_a_body_and_a_missing_empty_line_is_not() {
        assert_eq!(RequestFile::parse(b"POST /\n\n").unwrap().body.len(), 0);
        assert_eq!(
            RequestFile::parse(b"POST /\na: b\n").unwrap_err(),
            RequestFileError::NoBody
        );
        assert_eq!(
            RequestFile::parse(b"POST /\na: b").unwrap_err(),
            RequestFileError::NoBody
        );
    }

    #[test]
    fn what_is_no_request_says_where() {
        for odd in [
            "",
            "\n",
            "hello",
            "hello\n\n",
            "post / HTTP/1.1\n\n",
            "POST / HTTP/1.1 x\n\n",
            "POST x\n\n",
        ] {
            assert_eq!(
                RequestFile::parse(odd.as_bytes()).unwrap_err(),
                RequestFileError::RequestLine,
                "{odd:?}"
            );
        }
        assert_eq!(
            RequestFile::parse(b"POST /\na: b\nword\n\n").unwrap_err(),
            RequestFileError::Header(3)
        );
        let long = format!("POST /\na: {}\n\n", "x".repeat(MAX_LINE));
        assert_eq!(
            RequestFile::parse(long.as_bytes()).unwrap_err(),
            RequestFileError::TooLarge(2)
        );
        let many = format!("POST /\n{}\n", "a: b\n".repeat(MAX_HEADERS + 1));
        assert!(matches!(
            RequestFile::parse(many.as_bytes()),
            Err(RequestFileError::TooLarge(_))
        ));
    }

    #[test]
    fn a_url_is_taken_for_its_path() {
        let path = |target: &str| {
            RequestFile::parse(format!("POST {target}\n\n").as_bytes())
                .unwrap()
                .path
        };
        assert_eq!(path("https://pay.example/notify/x?y"), "/notify/x");
        assert_eq!(path("http://pay.example"), "/");
        assert_eq!(path("/a%2Fb"), "/a%2Fb");
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_and_what_reads_reads_back(file in "(POST /a\n)?([a-z]{1,3}: [ -~]{0,9}\n){0,3}\n?\\PC{0,20}", tail in proptest::collection::vec(any::<u8>(), 0..40)) {
            let file = [file.as_bytes(), &tail].concat();
            if let Ok(read) = RequestFile::parse(&file) {
                let again = RequestFile::parse(&read.to_bytes()).unwrap();
                prop_assert_eq!((again.path, again.headers, again.body), (read.path, read.headers, read.body));
            }
        }
    }
}
