//! The command line as a client of the private API: where it is, with which token, and what its errors mean.
//!
//! Server: `--server`, else `PAYHOOK_SERVER`, else `admin_addr` of the configuration. Token: `--token-file`,
//! else `PAYHOOK_TOKEN`, else `payhook.token` where `serve` leaves it. The configuration is read only for what
//! is still missing then, so that a command works on a machine that has none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use clap::Args;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::Globals;
use super::failure::Misuse;
use crate::config::{Config, Environment, TokenFileError, read_token_file, token_file};
use crate::event::new_id;
use crate::time::Clock;

/// Longer than the server takes to give up by itself.
const TIMEOUT: Duration = Duration::from_secs(15);

/// However long the server asks to wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// All but the unreserved characters of RFC 3986 section 2.3, for a path's own words must stay as they are; and
/// dots, since a URL takes an unencoded `..` for a step.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// How to reach a running payhook.
#[derive(Clone, Debug, Default, Args)]
pub struct Connection {
    /// The private listener [default: $PAYHOOK_SERVER, else admin_addr of the configuration]
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// File that holds the token [default: the token in $PAYHOOK_TOKEN, else payhook.token beside the SQLite file or the configuration]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl Connection {
    /// A client for what was asked for.
    pub(super) fn open(&self, globals: &Globals) -> anyhow::Result<Client> {
        self.resolve(&Environment::of_process(), || Ok(globals.load()?))
    }

    fn resolve(
        &self,
        environment: &Environment,
        load: impl Fn() -> anyhow::Result<Config>,
    ) -> anyhow::Result<Client> {
        let named = self
            .server
            .as_deref()
            .or_else(|| environment.filled("PAYHOOK_SERVER"));
        let server = match named {
            Some(server) => server.to_owned(),
            None => format!("http://{}", reachable(load()?.server.admin_addr)),
        };
        let token = if let Some(path) = &self.token_file {
            read_token_file(path).map_err(|error| match error {
                TokenFileError::Io { path, source } => Misuse::unreadable(&path, source),
                TokenFileError::Empty { .. } => Misuse::usage(error.to_string()),
            })?
        } else if let Some(token) = environment.filled("PAYHOOK_TOKEN") {
            SecretString::from(token.trim())
        } else {
            let config = load()?;
            read_token_file(&token_file(&config)).map_err(|error| {
                let made = if config.tokens.is_empty() {
                    "the first `payhook serve` makes it"
                } else {
                    "none is made where the configuration has [[tokens]]"
                };
                let else_ = "else name one with --token-file, or give the token in $PAYHOOK_TOKEN";
                Misuse::usage(format!("{error}: {made}; {else_}"))
            })?
        };
        Client::new(&server, token)
    }
}

/// An address to listen on is not always one to connect to.
pub(super) fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

/// A client of one server with one token.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    server: String,
    token: SecretString,
}

impl Client {
    /// For `server`, such as `http://127.0.0.1:8081`.
    pub fn new(server: &str, token: SecretString) -> anyhow::Result<Self> {
        let url: Url = server
            .parse()
            .map_err(|error| Misuse::usage(format!("{server} is not a URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Misuse::usage(format!("{server} is not an http or https URL")).into());
        }
        // No proxy: the private listener is close by, and a proxy would be handed the token.
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .build()
            .context("cannot make an HTTP client")?;
        Ok(Self {
            http,
            server: server.trim_end_matches('/').to_owned(),
            token,
        })
    }

    /// The JSON at `/v1/{segments…}`.
    pub async fn get(&self, segments: &[&str], query: &[(&str, String)]) -> anyhow::Result<Value> {
        let response = self.send(segments, query).await?;
        response.json().await.context("the answer is not JSON")
    }

    /// The bytes at `/v1/{segments…}`.
    pub async fn bytes(&self, segments: &[&str]) -> anyhow::Result<Vec<u8>> {
        let response = self.send(segments, &[]).await?;
        let bytes = response.bytes().await.context("the answer broke off")?;
        Ok(bytes.into())
    }

    /// What a POST of `body` to `/v1/{segments…}` answers. One key for all its attempts: however often it has to
    /// be sent, it is done once.
    pub async fn post(&self, segments: &[&str], body: &Value) -> anyhow::Result<Value> {
        let url = self.url(segments)?;
        let key = new_id(Clock::system().now());
        let mut pauses = Pauses::new();
        let mut begun = false;
        loop {
            let sent = self
                .http
                .post(url.clone())
                .bearer_auth(self.token.expose_secret())
                .header("idempotency-key", &key)
                .json(body)
                .send()
                .await;
            let (asked, failure) = match sent {
                Ok(response) if response.status().is_success() => {
                    return response.json().await.context("the answer is not JSON");
                }
                Ok(response) if passes(&response) => (retry_after(&response), refusal(response).await),
                Ok(response) => return Err(refusal(response).await),
                // Nobody is there: nothing was begun that another attempt would have to finish.
                Err(error) if error.is_connect() && !begun => return Err(self.unreachable(error)),
                Err(error) => (None, self.unreachable(error)),
            };
            begun = true;
            let Some(pause) = pauses.next(asked) else {
                return Err(failure);
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn send(&self, segments: &[&str], query: &[(&str, String)]) -> anyhow::Result<Response> {
        let response = self
            .http
            .get(self.url(segments)?)
            .query(query)
            .bearer_auth(self.token.expose_secret())
            .send()
            .await
            .map_err(|error| self.unreachable(error))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refusal(response).await)
        }
    }

    /// Every segment is encoded by itself: an id may hold slashes, dots and white space.
    fn url(&self, segments: &[&str]) -> anyhow::Result<Url> {
        let mut text = format!("{}/v1", self.server);
        for segment in segments {
            if matches!(*segment, "" | "." | "..") {
                // However it is encoded, a URL takes these for steps in the path, not for a name.
                return Err(Misuse::usage(format!("a URL cannot name `{segment}`")).into());
            }
            text.push('/');
            text.extend(utf8_percent_encode(segment, SEGMENT));
        }
        text.parse().with_context(|| format!("{text} is not a URL"))
    }

    fn unreachable(&self, error: reqwest::Error) -> anyhow::Error {
        let hint = if error.is_connect() {
            "; is `payhook serve` running there?"
        } else {
            ""
        };
        anyhow::Error::new(error.without_url()).context(format!("{} does not answer{hint}", self.server))
    }
}

/// Whether the same call may be answered otherwise later. Of conflicts only the one with itself passes, which
/// says when.
fn passes(response: &Response) -> bool {
    let itself = response.status() == StatusCode::CONFLICT && retry_after(response).is_some();
    itself
        || matches!(
            response.status(),
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        )
}

/// When the server asked to come again.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Between the attempts of one call: anything up to a limit that doubles, so that many who wait do not come back
/// together; never sooner than the server asked.
struct Pauses(ExponentialBackoff);

impl Pauses {
    fn new() -> Self {
        let limits = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(200))
            .with_max_delay(Duration::from_secs(10))
            .with_max_times(8);
        Self(limits.build())
    }

    fn next(&mut self, asked: Option<Duration>) -> Option<Duration> {
        let limit = self.0.next()?;
        let jittered = rand::random_range(Duration::ZERO..=limit);
        Some(jittered.saturating_add(asked.unwrap_or_default().min(LONGEST_PAUSE)))
    }
}

/// What a problem document means to somebody at a terminal.
async fn refusal(response: Response) -> anyhow::Error {
    #[derive(Default, Deserialize)]
    struct Problem {
        #[serde(default)]
        code: String,
        #[serde(default)]
        detail: String,
    }
    let status = response.status();
    let Problem { code, detail } = response.json().await.unwrap_or_default();
    if code.is_empty() {
        return anyhow!("the server answered {status}, which is no answer of payhook's");
    }
    let said = format!("{code}: {detail}");
    match status {
        StatusCode::BAD_REQUEST => Misuse::usage(said).into(),
        _ => anyhow!(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::failure::{MISUSED, code};

    fn client(server: &str) -> anyhow::Result<Client> {
        Client::new(server, "secret".into())
    }

    #[test]
    fn an_id_stays_one_segment_whatever_it_holds() {
        let client = client("http://127.0.0.1:8081/").unwrap();
        let url = client.url(&["orders", "../a/b?c#d%2F\t测"]).unwrap();
        assert_eq!(
            url.as_str(),
            "http://127.0.0.1:8081/v1/orders/%2E%2E%2Fa%2Fb%3Fc%23d%252F%09%E6%B5%8B"
        );
        for segment in ["", ".", ".."] {
            assert_eq!(code(&client.url(&["orders", segment]).unwrap_err()), MISUSED);
        }
    }

    #[test]
    fn what_is_not_a_server_is_misuse() {
        for server in ["", "127.0.0.1:8081", "ftp://host", "file:///etc/passwd"] {
            assert_eq!(code(&client(server).unwrap_err()), MISUSED, "{server}");
        }
    }

    #[test]
    fn the_nearest_word_wins_and_the_configuration_comes_last() {
        let dir = tempfile::tempdir().unwrap();
        let text = "server.admin_addr = \"0.0.0.0:9090\"";
        let load = || Ok(Config::parse(text, dir.path(), &Environment::default())?);
        let never = || Err(anyhow!("must not be read"));
        let environment =
            Environment::from([("PAYHOOK_SERVER", "http://env"), ("PAYHOOK_TOKEN", "from-env\n")]);

        let from_env = Connection::default().resolve(&environment, never).unwrap();
        assert_eq!(from_env.server, "http://env");
        assert_eq!(from_env.token.expose_secret(), "from-env");

        let file = dir.path().join("ops.token");
        std::fs::write(&file, "from-file\n").unwrap();
        let given = Connection {
            server: Some("http://flag".to_owned()),
            token_file: Some(file),
        };
        let from_flags = given.resolve(&environment, never).unwrap();
        assert_eq!(from_flags.server, "http://flag");
        assert_eq!(from_flags.token.expose_secret(), "from-file");

        let none = Environment::default();
        let missing = Connection::default().resolve(&none, load).unwrap_err();
        assert_eq!(code(&missing), MISUSED);
        std::fs::write(dir.path().join("payhook.token"), "left-by-serve").unwrap();
        let from_config = Connection::default().resolve(&none, load).unwrap();
        assert_eq!(from_config.server, "http://127.0.0.1:9090");
        assert_eq!(from_config.token.expose_secret(), "left-by-serve");
    }
}
