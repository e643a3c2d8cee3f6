//! What is measured: payhook in its ways of committing, the programs to compare with, and the server that does
//! nothing. Each is started as a process group with a database of its own, and killed with -9.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;

use crate::hosts::Hosts;
use crate::keys;
use crate::notification::Sender;
use crate::peers::{self, Installed};
use crate::servers::free_port;

/// How long a program may take to answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// A program and a way to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// As it comes, on Postgres.
    Payhook,
    /// As it comes, on SQLite.
    Sqlite,
    Fastapi,
    Express,
    /// The server that does nothing.
    Nothing,
}

impl Subject {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Payhook => "payhook",
            Self::Sqlite => "payhook on SQLite",
            Self::Fastapi => "FastAPI + asyncpg",
            Self::Express => "Express + pg",
            Self::Nothing => "does nothing",
        }
    }

    pub(crate) fn is_payhook(self) -> bool {
        matches!(self, Self::Payhook | Self::Sqlite)
    }

    pub(crate) fn is_sqlite(self) -> bool {
        self == Self::Sqlite
    }

    /// Whether it keeps what it acks.
    pub(crate) fn stores(self) -> bool {
        self != Self::Nothing
    }

    /// Where each sender's notifications go, in the order of `Sender::ALL`.
    pub(crate) fn paths(self) -> Vec<String> {
        let path = |sender: Sender| match (self.is_payhook(), sender) {
            (true, Sender::Wechat) => "/notify/wechatpay/bench".to_owned(),
            (true, sender) => format!("/notify/{}/bench", sender.as_str()),
            (false, sender) => format!("/webhooks/{}", sender.as_str()),
        };
        Sender::ALL.map(path).to_vec()
    }

    /// Rows that must be there for so many acks: events, and what is still or was to be sent.
    pub(crate) fn counts(self) -> [&'static str; 2] {
        if self.is_payhook() {
            [
                "select count(*) from events",
                "select count(*) from (select event_id from outbox where kind = 'event' \
                 union select event_id from event_outcomes) as each_once",
            ]
        } else {
            [
                "select count(*) from webhook_events",
                "select count(*) from outbox",
            ]
        }
    }
}

impl Subject {
    /// Counts what has been acked and is not applied and published yet.
    pub(crate) fn unfinished(self) -> &'static str {
        if self.is_payhook() {
            "select count(*) from outbox"
        } else {
            "select (select count(*) from webhook_events) - (select count(*) from processed_events)"
        }
    }
}

/// How payhook is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// `--role`; empty: all.
    pub(crate) roles: String,
    /// `[broker] url`.
    pub(crate) broker: String,
    /// More lines of `[broker]`.
    pub(crate) broker_more: String,
    /// More sections.
    pub(crate) more: String,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            roles: "ingress".to_owned(),
            broker: "embedded".to_owned(),
            broker_more: String::new(),
            more: String::new(),
        }
    }
}

/// The programs, ready to be started.
pub(crate) struct Programs {
    scratch: PathBuf,
    pub(crate) keys: PathBuf,
    pub(crate) setup: Setup,
    python: Option<Installed>,
    node: Option<Installed>,
}

/// A program that runs.
pub(crate) struct Running {
    pub(crate) subject: Subject,
    process: Child,
    pub(crate) target: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Its database, by URL.
    pub(crate) database: String,
    started: Instant,
    /// From its start to the answer to its first request.
    pub(crate) first_answer: Duration,
    folder: PathBuf,
}

impl Programs {
    /// Installs what `subjects` need.
    pub(crate) fn prepare(scratch: &Path, subjects: &[Subject], setup: Setup) -> anyhow::Result<Self> {
        let keys = scratch.join("keys");
        keys::write(&keys)?;
        let wants = |subject| subjects.contains(&subject);
        Ok(Self {
            scratch: scratch.to_owned(),
            keys,
            setup,
            python: wants(Subject::Fastapi)
                .then(|| peers::python(scratch))
                .transpose()?,
            node: wants(Subject::Express)
                .then(|| peers::node(scratch))
                .transpose()?,
        })
    }

    /// A database with the tables of `subject`, empty.
    pub(crate) fn database(&self, subject: Subject, hosts: &mut Hosts) -> anyhow::Result<String> {
        let folder = self.folder(subject, "")?;
        if subject.is_sqlite() {
            for end in ["", "-wal", "-shm"] {
                drop(fs::remove_file(folder.join(format!("payhook.db{end}"))));
            }
        }
        let database = if subject.is_sqlite() {
            format!("sqlite:{}", folder.join("payhook.db").display())
        } else {
            hosts.database()?
        };
        if subject.is_payhook() {
            // It listens nowhere.
            let file = folder.join("payhook.toml");
            fs::write(&file, self.configuration(&database, (0, 0)))?;
            let out = Command::new(env!("CARGO_BIN_EXE_payhook"))
                .args(["migrate", "--config"])
                .arg(file)
                .output()?;
            let why = String::from_utf8_lossy(&out.stderr);
            anyhow::ensure!(out.status.success(), "payhook migrate: {why}");
        } else if subject.stores() {
            crate::db::Db::new(&database)?.run(&peers::schema()?)?;
        }
        Ok(database)
    }

    fn folder(&self, subject: Subject, beside: &str) -> anyhow::Result<PathBuf> {
        let folder = self
            .scratch
            .join("run")
            .join(format!("{subject:?}{beside}").to_lowercase());
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn configuration(&self, database: &str, ports: (u16, u16)) -> String {
        let (notify, admin) = ports;
        let keys = self.keys.display();
        let Setup {
            broker,
            broker_more,
            more,
            ..
        } = &self.setup;
        format!(
            r#"
[server]
notify_addr = "127.0.0.1:{notify}"
admin_addr = "127.0.0.1:{admin}"

[store]
url = "{database}"

[broker]
url = "{broker}"
{broker_more}

{more}

[[tokens]]
name = "bench"
token = "token-of-the-benchmark-only"
scopes = ["read", "raw", "operate"]

[[accounts]]
provider = "stripe"
name = "bench"
signing_secrets = ["{}"]
livemode = true
# All is signed before it is sent, and an outage lasts.
tolerance = "1h"

[[accounts]]
provider = "alipay"
name = "bench"
app_id = "{}"
seller_id = "{}"
public_key_file = "{keys}/pub.pem"

[[accounts]]
provider = "wechatpay"
name = "bench"
mch_id = "{}"
app_ids = ["{}"]
api_v3_key_file = "{keys}/apiv3.key"
public_keys = [{{ id = "{}", file = "{keys}/pub.pem" }}]
"#,
            keys::STRIPE_SECRET,
            keys::ALIPAY_APP,
            keys::ALIPAY_SELLER,
            keys::WECHAT_MCHID,
            keys::WECHAT_APPID,
            keys::WECHAT_SERIAL,
        )
    }

    /// Starts `subject` on `database` and sends it `first`, whose sender is `sender`, until it acks.
    pub(crate) fn start(
        &self,
        subject: Subject,
        database: &str,
        sender: Sender,
        first: &[u8],
    ) -> anyhow::Result<Running> {
        let mut running = self.spawn(subject, database, "")?;
        let place = Sender::ALL
            .iter()
            .position(|one| *one == sender)
            .unwrap_or_default();
        let path = subject.paths().get(place).cloned().unwrap_or_default();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let request = [head.as_bytes(), first].concat();
        let target = running.target;
        running.first_answer = running.until_answered(target, &request)?;
        Ok(running)
    }

    /// Starts payhook on `database` beside another one, without sending it anything: it need not take
    /// notifications.
    pub(crate) fn start_beside(&self, subject: Subject, database: &str) -> anyhow::Result<Running> {
        let mut running = self.spawn(subject, database, "beside")?;
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let admin = running.admin;
        running.first_answer = running.until_answered(admin, request)?;
        Ok(running)
    }

    fn spawn(&self, subject: Subject, database: &str, beside: &str) -> anyhow::Result<Running> {
        let folder = self.folder(subject, beside)?;
        let ports = (free_port(), free_port());
        let log = File::create(folder.join("log"))?;
        let mut command = match subject {
            Subject::Fastapi | Subject::Express => self.peer(subject, database, ports.0)?,
            Subject::Nothing => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["nothing", "--listen", &format!("127.0.0.1:{}", ports.0)]);
                command
            }
            Subject::Payhook | Subject::Sqlite => {
                let file = folder.join("payhook.toml");
                fs::write(&file, self.configuration(database, ports))?;
                let mut command = Command::new(env!("CARGO_BIN_EXE_payhook"));
                command.args(["serve", "--config"]).arg(file);
                if !self.setup.roles.is_empty() {
                    command.args(["--role", &self.setup.roles]);
                }
                command
            }
        };
        let started = Instant::now();
        let process = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        Ok(Running {
            subject,
            process,
            target: SocketAddr::from(([127, 0, 0, 1], ports.0)),
            admin: SocketAddr::from(([127, 0, 0, 1], ports.1)),
            database: database.to_owned(),
            started,
            first_answer: Duration::ZERO,
            folder,
        })
    }

    fn peer(&self, subject: Subject, database: &str, port: u16) -> anyhow::Result<Command> {
        let (installed, mut command) = if subject == Subject::Fastapi {
            let installed = self.python.as_ref().context("FastAPI is not installed")?;
            let mut command = Command::new("sh");
            command
                .arg(installed.folder.join("run.sh"))
                .env("PYTHON", installed.folder.join("venv/bin/python"));
            (installed, command)
        } else {
            let installed = self.node.as_ref().context("Express is not installed")?;
            let mut command = Command::new("sh");
            command.arg(installed.folder.join("run.sh"));
            (installed, command)
        };
        command
            .current_dir(&installed.folder)
            .env("KEYS_DIR", &self.keys)
            .env("DATABASE_URL", unverified(subject, database))
            .env("STRIPE_SECRET", keys::STRIPE_SECRET)
            .env("WX_APIV3_KEY", keys::WECHAT_KEY)
            .env("WX_SERIAL", keys::WECHAT_SERIAL)
            .env("PORT", port.to_string());
        if self.setup.broker != "embedded" {
            command.env("AMQP_URL", &self.setup.broker);
        }
        Ok(command)
    }
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Asks again and again until the answer is 2xx; how long that was after the start.
    fn until_answered(&mut self, target: SocketAddr, request: &[u8]) -> anyhow::Result<Duration> {
        let name = self.subject.as_str();
        loop {
            match once(target, request) {
                Ok(answer) if answer.starts_with("HTTP/1.1 20") => return Ok(self.started.elapsed()),
                Ok(answer) if answer.starts_with("HTTP/1.1 4") => anyhow::bail!("{name} refuses: {answer}"),
                Ok(_) | Err(_) => {}
            }
            if let Some(status) = self.process.try_wait()? {
                anyhow::bail!("{name} ended with {status}: {}", self.log());
            }
            anyhow::ensure!(
                self.started.elapsed() < PATIENCE,
                "{name} does not answer: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(20)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// `kill -9` of the whole group.
    pub(crate) fn kill(&mut self) {
        let group = format!("-{}", self.process.id());
        drop(
            Command::new("kill")
                .args(["-9", "--", &group])
                .stderr(Stdio::null())
                .status(),
        );
        drop(self.process.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `sslmode=require` encrypts and trusts any certificate, but not to node's pg, which has another word for that.
fn unverified(subject: Subject, database: &str) -> String {
    if subject == Subject::Express {
        database.replace("sslmode=require", "sslmode=no-verify")
    } else {
        database.to_owned()
    }
}

/// Sends a request on a connection of its own and reads until the other side closes.
pub(crate) fn once(target: SocketAddr, request: &[u8]) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
