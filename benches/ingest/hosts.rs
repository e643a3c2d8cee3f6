//! The servers of a run: a Postgres and, where it is needed, a RabbitMQ of its own, with their defaults, in
//! temporary folders. The data lies on the disk that `TMPDIR` names: not on a memory file system, or nothing is
//! measured.

use std::path::Path;

use anyhow::Context as _;

use crate::db::Db;
use crate::machine::Used;
use crate::servers::{PrivatePostgres, PrivateRabbitmq};

/// How every program of a run reaches Postgres: over TCP, as most deployments do.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Link {
    /// Encrypt the connections to Postgres.
    #[arg(long)]
    tls: bool,
    /// Connect over a Unix socket.
    #[arg(long, conflicts_with = "tls")]
    socket: bool,
}

impl Link {
    /// For the record.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self { socket: true, .. } => "Postgres over a Unix socket",
            Self { tls: true, .. } => "Postgres over TCP with TLS",
            Self { .. } => "Postgres over TCP",
        }
    }

    /// The query of a database's URL.
    fn query(self, folder: &Path) -> String {
        match self {
            Self { socket: true, .. } => format!("?host={}", folder.display()),
            Self { tls: true, .. } => "?sslmode=require".to_owned(),
            Self { .. } => "?sslmode=disable".to_owned(),
        }
    }
}

/// The servers that stand behind payhook and the others.
pub(crate) struct Hosts {
    pub(crate) postgres: PrivatePostgres,
    pub(crate) rabbitmq: Option<PrivateRabbitmq>,
    admin: Db,
    made: u32,
    link: Link,
}

/// CPU of the servers at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostsUsed {
    pub(crate) postgres: Used,
    pub(crate) rabbitmq: Used,
}

impl Hosts {
    /// Starts them. `settings` are Postgres's, beyond its defaults.
    pub(crate) fn start(settings: &[&str], rabbitmq: bool, link: Link) -> anyhow::Result<Self> {
        let postgres = if link.tls {
            PrivatePostgres::start_with_tls(settings)
        } else {
            PrivatePostgres::start_with(settings)
        };
        let rabbitmq = rabbitmq.then(PrivateRabbitmq::start);
        if let Some(node) = &rabbitmq {
            node.ctl(&["await_startup"]);
        }
        let admin = Db::new(&postgres.url())?;
        let (fsync, durable) = (
            admin.texts("select current_setting('fsync')")?,
            admin.texts("select current_setting('synchronous_commit')")?,
        );
        anyhow::ensure!(
            fsync == ["on"] && durable == ["on"],
            "Postgres is not durable: fsync {fsync:?}, synchronous_commit {durable:?}"
        );
        Ok(Self {
            postgres,
            rabbitmq,
            admin,
            made: 0,
            link,
        })
    }

    /// Where the data lies.
    pub(crate) fn folder(&self) -> &Path {
        self.postgres.folder()
    }

    /// The URL of a new, empty database.
    pub(crate) fn database(&mut self) -> anyhow::Result<String> {
        self.made += 1;
        let name = format!("round_{}", self.made);
        self.admin.run(&format!("create database {name}"))?;
        let url = self.postgres.url();
        let (server, _) = url.rsplit_once('/').context("a URL without a path")?;
        let query = self.link.query(self.postgres.folder());
        Ok(format!("{server}/{name}{query}"))
    }

    /// Removes a database that [`Self::database`] made.
    pub(crate) fn drop_database(&self, url: &str) -> anyhow::Result<()> {
        let (path, _) = url.split_once('?').unwrap_or((url, ""));
        let (_, name) = path.rsplit_once('/').context("a URL without a path")?;
        self.admin.run(&format!("drop database {name} with (force)"))
    }

    /// Begins with nothing left to be written.
    pub(crate) fn checkpoint(&self) -> anyhow::Result<()> {
        self.admin.run("checkpoint")
    }

    /// How often the write-ahead log has been flushed.
    pub(crate) fn wal_syncs(&self) -> anyhow::Result<u64> {
        let count = self.admin.number("select wal_sync from pg_stat_wal")?;
        Ok(u64::try_from(count)?)
    }

    /// Its version, for the record.
    pub(crate) fn version(&self) -> anyhow::Result<String> {
        let version = self.admin.texts("select current_setting('server_version')")?;
        Ok(version.concat())
    }

    pub(crate) fn used(&self) -> HostsUsed {
        let of = |pid: Option<u32>| pid.map(Used::of).unwrap_or_default();
        HostsUsed {
            postgres: of(self.postgres.pid()),
            rabbitmq: of(self.rabbitmq.as_ref().and_then(PrivateRabbitmq::pid)),
        }
    }
}
