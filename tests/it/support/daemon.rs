//! The real binary, as a user runs it: started, killed with -9, started again on the same ports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::servers::free_port;
use super::traffic::{Request, accounts};

/// How long a daemon may take to answer on a busy two-core machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A `payhook serve` process with a folder of its own.
pub(crate) struct Daemon {
    dir: TempDir,
    notify_port: u16,
    admin_port: u16,
    process: Option<Child>,
    environment: Vec<(String, String)>,
    role: Option<&'static str>,
}

/// What a daemon is started with.
pub(crate) struct Setup<'a> {
    /// `[store] url`; `None`: a SQLite file in the daemon's folder.
    pub(crate) store: Option<&'a str>,
    /// `[broker] url`.
    pub(crate) broker: &'a str,
    /// `[broker] prefix`.
    pub(crate) prefix: &'a str,
    /// More lines of `[broker]`, such as `queues`.
    pub(crate) broker_more: &'a str,
    /// Answers late rather than not at all: a machine that stalls is no store that does. Where everything is sent again
    /// until it is acked the deadlines are as they come.
    pub(crate) patient: bool,
}

impl Default for Setup<'_> {
    /// As it starts for whoever has no services.
    fn default() -> Self {
        Self {
            store: None,
            broker: "embedded",
            prefix: "payhook",
            broker_more: "",
            patient: true,
        }
    }
}

impl Daemon {
    /// Writes the configuration; starts nothing yet.
    pub(crate) fn new(setup: &Setup<'_>) -> Self {
        let dir = tempfile::Builder::new().prefix("payhook-d-").tempdir().unwrap();
        let (notify_port, admin_port) = (free_port(), free_port());
        let store = setup
            .store
            .map_or_else(|| "sqlite:payhook.db".to_owned(), str::to_owned);
        let Setup {
            broker,
            prefix,
            broker_more,
            ..
        } = setup;
        let (answers, connects) = if setup.patient {
            ("ack_deadline = \"60s\"", "acquire_timeout = \"30s\"")
        } else {
            ("", "")
        };
        let config = format!(
            r#"
[server]
notify_addr = "127.0.0.1:{notify_port}"
admin_addr = "127.0.0.1:{admin_port}"
{answers}

[store]
url = "{store}"
{connects}

[broker]
url = "{broker}"
prefix = "{prefix}"
{broker_more}

[[tokens]]
name = "ops"
token = "test-token-of-this-daemon"
scopes = ["read", "raw", "operate"]
{}"#,
            accounts()
        );
        fs::write(dir.path().join("payhook.toml"), config).unwrap();
        Self {
            dir,
            notify_port,
            admin_port,
            process: None,
            environment: Vec::new(),
            role: None,
        }
    }

    /// Has it do a part of the work only, from the next start on.
    pub(crate) fn role(&mut self, role: &'static str) {
        self.role = Some(role);
    }

    /// Sets a variable for every start from now on.
    pub(crate) fn env(&mut self, name: &str, value: &str) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Forgets the variables set so far.
    pub(crate) fn clear_env(&mut self) {
        self.environment.clear();
    }

    /// Starts it and returns at once.
    pub(crate) fn spawn(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())
            .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_payhook"));
        command
            .args(["serve", "--config"])
            .arg(self.config())
            .args(self.role.map(|role| format!("--role={role}")))
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Starts it and waits until it can take a notification.
    pub(crate) async fn start(&mut self) {
        self.spawn();
        self.ready().await;
    }

    /// Waits until `/readyz` says yes.
    pub(crate) async fn ready(&mut self) {
        let until = Instant::now() + PATIENCE;
        let client = reqwest::Client::new();
        let url = format!("http://127.0.0.1:{}/readyz", self.admin_port);
        loop {
            if client
                .get(&url)
                .send()
                .await
                .is_ok_and(|answer| answer.status() == 200)
            {
                return;
            }
            if let Some(status) = self.process.as_mut().and_then(|child| child.try_wait().unwrap()) {
                panic!("the daemon ended with {status}:\n{}", self.log());
            }
            assert!(Instant::now() < until, "the daemon is not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.process.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// SIGTERM, then waits for its end; the exit status.
    pub(crate) fn terminate(&mut self) -> std::process::ExitStatus {
        let mut child = self.process.take().expect("a running daemon");
        let sent = Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(sent.success());
        child.wait().unwrap()
    }

    /// Whether the process is still there (a crash point ends it).
    pub(crate) fn is_running(&mut self) -> bool {
        self.process
            .as_mut()
            .is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Its configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("payhook.toml")
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What it has logged, over all starts.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Where providers call.
    pub(crate) fn notify_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.notify_port)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running daemon").id()
    }

    /// The most memory it has had at once, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Sends a signed request; `None` when there was no answer at all.
    pub(crate) async fn notify(&self, client: &reqwest::Client, request: &Request) -> Option<(u16, Vec<u8>)> {
        let mut post = client
            .post(self.notify_url(request.path))
            .body(request.body.clone());
        for (name, value) in &request.headers {
            post = post.header(name, value);
        }
        let answer = post.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.bytes().await.ok()?.to_vec()))
    }

    /// `GET` on the private API.
    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let url = format!("http://127.0.0.1:{}{path}", self.admin_port);
        let answer = reqwest::Client::new()
            .get(url)
            .bearer_auth("test-token-of-this-daemon")
            .send()
            .await
            .expect("an answer");
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Who calls its private API, also while it is away.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            http: reqwest::Client::builder().timeout(PATIENCE).build().unwrap(),
            base: format!("http://127.0.0.1:{}", self.admin_port),
        }
    }

    /// Runs the command line against it: (exit code, stdout, stderr).
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String, String) {
        let out = Command::new(env!("CARGO_BIN_EXE_payhook"))
            .args(args)
            .arg("--config")
            .arg(self.config())
            .env("PAYHOOK_TOKEN", "test-token-of-this-daemon")
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            out.status.code().unwrap_or(-1),
            text(out.stdout),
            text(out.stderr),
        )
    }
}

/// A program that uses the private API.
pub(crate) struct Caller {
    http: reqwest::Client,
    base: String,
}

/// What a call was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// A stored answer.
    pub(crate) replayed: bool,
    pub(crate) retry_after: Option<String>,
    pub(crate) text: String,
}

impl Caller {
    /// `POST` of `body` under `key`; `None` when there was no whole answer.
    pub(crate) async fn post(&self, path: &str, key: &str, body: &Value) -> Option<Answered> {
        let post = self
            .http
            .post(format!("{}{path}", self.base))
            .bearer_auth("test-token-of-this-daemon")
            .header("idempotency-key", key);
        let answer = post.json(body).send().await.ok()?;
        let header = |name: &str| Some(answer.headers().get(name)?.to_str().unwrap().to_owned());
        Some(Answered {
            status: answer.status().as_u16(),
            replayed: header("idempotent-replayed").is_some(),
            retry_after: header("retry-after"),
            text: answer.text().await.ok()?,
        })
    }
}

impl Answered {
    /// The code of a problem.
    pub(crate) fn code(&self) -> Option<String> {
        let document: Value = serde_json::from_str(&self.text).ok()?;
        Some(document["code"].as_str()?.to_owned())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            #[expect(clippy::print_stderr, reason = "the log of a failed test's daemon")]
            for line in tail.iter().rev() {
                eprintln!("daemon: {line}");
            }
        }
    }
}
