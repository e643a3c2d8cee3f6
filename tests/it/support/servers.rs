//! Private servers for tests that kill them: a Postgres and a RabbitMQ of the test's own, in a temporary
//! folder, on ports of their own. The shared servers are never touched.
//!
//! Each server is a process group, so that `kill -9` reaches all of it. Dropping one kills it and removes its
//! folder. Startup is awaited by connecting, with a deadline that names the log.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Where the ports that [`free_port`] gives out begin.
const LOWEST_PORT: u32 = 10_000;

/// How long a server may take to come up on a busy two-core machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A port that is free, that this process has not given out before, and that the kernel gives to nobody: a server
/// may take ten seconds to listen and is killed and started again on the same port, and a port of the range for
/// `bind(0)` and for outgoing connections would meanwhile be taken by another test.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let kernels = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first: u32 = kernels
        .split_whitespace()
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or(32_768);
    let ours = LOWEST_PORT..first.max(LOWEST_PORT + 1);
    let width = ours.end - ours.start;
    (0..width)
        .find_map(|_| {
            // Another run beside this one starts somewhere else.
            let nth = GIVEN.fetch_add(1, Ordering::Relaxed);
            let port = ours.start + (process::id().wrapping_mul(97).wrapping_add(nth)) % width;
            let port = u16::try_from(port).ok()?;
            TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
        })
        .expect("a free port below the kernel's own range")
}

/// A process in its own group.
#[derive(Debug)]
struct Group(Child);

impl Group {
    fn spawn(command: &mut Command, log: &Path) -> Self {
        let out = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .process_group(0);
        Self(
            command
                .spawn()
                .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}")),
        )
    }

    /// Kills all of it and waits until all of it is gone: the leader's end says nothing of the others, and a
    /// server that is still dying holds its port and its name against the one that is to follow.
    fn kill(&mut self) {
        let leader = self.0.id();
        let killed = Command::new("kill")
            .args(["-9", "--", &format!("-{leader}")])
            .stderr(Stdio::null())
            .status();
        assert!(killed.is_ok(), "kill is not there");
        drop(self.0.wait());
        let until = Instant::now() + PATIENCE;
        while alive(leader) {
            assert!(Instant::now() < until, "process group {leader} does not die");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether a process of group `leader` still runs; one that only waits to be reaped does not. Of a process that is
/// killed the first thread may wait to be reaped while others still hold its files.
fn alive(leader: u32) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc");
    processes.filter_map(Result::ok).any(|process| {
        let threads = || fs::read_dir(process.path().join("task")).map_or(0, Iterator::count);
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // `pid (name) state parent group …`, and a name may hold anything.
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let state = fields.next();
        fields.nth(1).and_then(|group| group.parse().ok()) == Some(leader)
            && (state != Some("Z") || threads() > 1)
    })
}

/// Whether a process has `folder` as its working directory.
fn works_in(folder: &Path) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc");
    let mut folders = processes.filter_map(|process| fs::read_link(process.ok()?.path().join("cwd")).ok());
    folders.any(|cwd| cwd == folder)
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until nothing accepts on `port`: the threads of a killed process end one by one, and its listener with the last.
fn await_refused(port: u16) {
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(Instant::now() < until, "{port} is still listened on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until something accepts on `port`.
fn await_port(port: u16, what: &str, log: &Path) {
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            Instant::now() < until,
            "{what} did not come up on {port}:\n{}",
            fs::read_to_string(log).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A Postgres of the test's own, with the defaults that durability needs.
#[derive(Debug)]
pub(crate) struct PrivatePostgres {
    dir: TempDir,
    bin: PathBuf,
    port: u16,
    settings: Vec<String>,
    process: Option<Group>,
}

impl PrivatePostgres {
    /// `initdb`, then start. The newest installed version is used.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings of the caller's, such as `track_commit_timestamp=on`.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let mut server = Self::initialized(settings);
        server.restart();
        server
    }

    /// The same with TLS beside plain connections, under a certificate that it signed itself for `localhost` and
    /// `127.0.0.1`: `?sslmode=require`, or `verify-full` with `sslrootcert` = [`Self::certificate`].
    pub(crate) fn start_with_tls(settings: &[&str]) -> Self {
        let mut server = Self::initialized(settings);
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = server.data().join("server.key");
        fs::write(server.certificate(), made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((uid, gid)) = postgres_user() {
            chown(&key, Some(uid), Some(gid)).unwrap();
        }
        server.settings.push("ssl=on".to_owned());
        server.restart();
        server
    }

    /// The certificate of a server with TLS.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.data().join("server.crt")
    }

    fn initialized(settings: &[&str]) -> Self {
        let bin = fs::read_dir("/usr/lib/postgresql")
            .expect("Debian's postgresql package (./tests/run installs it)")
            .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
            .filter(|bin| bin.join("initdb").exists())
            .max()
            .expect("an installed Postgres with initdb");
        let dir = tempfile::Builder::new().prefix("payhook-pg-").tempdir().unwrap();
        let server = Self {
            dir,
            bin,
            port: free_port(),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            process: None,
        };
        if let Some((uid, gid)) = postgres_user() {
            chown(server.dir.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut initdb = server.command("initdb");
        initdb
            .args([
                "-U",
                "postgres",
                "-A",
                "trust",
                "--no-sync",
                "-E",
                "UTF8",
                "--locale=C",
            ])
            .arg(server.data());
        succeed(&mut initdb);
        server
    }

    /// A streaming standby of this server, named `standby` in its `pg_stat_replication`; started, and read-only until
    /// [`Self::promote`].
    pub(crate) fn standby(&self) -> Self {
        let dir = tempfile::Builder::new().prefix("payhook-pg-").tempdir().unwrap();
        let mut standby = Self {
            dir,
            bin: self.bin.clone(),
            port: free_port(),
            settings: Vec::new(),
            process: None,
        };
        if let Some((uid, gid)) = postgres_user() {
            chown(standby.dir.path(), Some(uid), Some(gid)).unwrap();
        }
        let primary = format!(
            "host=127.0.0.1 port={} user=postgres application_name=standby",
            self.port
        );
        let mut copy = standby.command("pg_basebackup");
        copy.args(["-R", "-X", "stream", "-c", "fast", "-d", &primary, "-D"])
            .arg(standby.data());
        succeed(&mut copy);
        standby.restart();
        standby
    }

    /// Makes a standby a primary.
    pub(crate) fn promote(&self) {
        succeed(
            self.command("pg_ctl")
                .args(["promote", "-w", "-D"])
                .arg(self.data()),
        );
    }

    /// Starts it again on the same data and port (after [`Self::kill`]), and waits until it takes queries.
    pub(crate) fn restart(&mut self) {
        let log = self.dir.path().join("log");
        let port = self.port.to_string();
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(self.data())
            .args(["-p", &port, "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "max_connections=100", "-c"])
            .arg(format!("unix_socket_directories={}", self.dir.path().display()))
            .args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        // A postmaster killed with -9 leaves its lock file behind; the test knows that it is dead.
        drop(fs::remove_file(self.data().join("postmaster.pid")));
        self.process = Some(Group::spawn(&mut command, &log));
        await_port(self.port, "Postgres", &log);
        let until = Instant::now() + PATIENCE;
        while !self
            .command("pg_isready")
            .args(["-q", "-h", "127.0.0.1", "-p", &port])
            .status()
            .unwrap()
            .success()
        {
            assert!(Instant::now() < until, "Postgres is not ready");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// `kill -9` of the whole server. Each backend is a session of its own, and one that has not yet noticed that the
    /// postmaster is gone holds the shared memory against the next one.
    pub(crate) fn kill(&mut self) {
        self.process = None;
        let until = Instant::now() + PATIENCE;
        while works_in(&self.data()) {
            assert!(Instant::now() < until, "a backend does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        await_refused(self.port);
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The first of its processes, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|group| group.0.id())
    }

    /// The folder of all its files.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Where to connect.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(self.dir.path());
        if let Some((uid, gid)) = postgres_user() {
            command.uid(uid).gid(gid);
        }
        command
    }
}

/// Runs `command` to its end.
fn succeed(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Postgres refuses to run as root: as root, the ids of the user `postgres`.
fn postgres_user() -> Option<(u32, u32)> {
    let id = |args: &[&str]| -> u32 {
        let out = Command::new("id").args(args).output().unwrap();
        String::from_utf8(out.stdout)
            .unwrap()
            .trim()
            .parse()
            .expect("a numeric id")
    };
    (id(&["-u"]) == 0).then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
}

/// A RabbitMQ node of the test's own.
#[derive(Debug)]
pub(crate) struct PrivateRabbitmq {
    dir: TempDir,
    port: u16,
    management_port: u16,
    dist_port: u16,
    epmd_port: u16,
    process: Option<Group>,
}

impl PrivateRabbitmq {
    /// Starts a new node with an empty data folder.
    pub(crate) fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("payhook-mq-").tempdir().unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        fs::write(dir.path().join("plugins"), "[rabbitmq_management].").unwrap();
        let management_port = free_port();
        fs::write(
            dir.path().join("rabbitmq.conf"),
            format!(
                "loopback_users = none\nlog.console.level = warning\n\
                 management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management_port}\n"
            ),
        )
        .unwrap();
        let mut node = Self {
            dir,
            port: free_port(),
            management_port,
            dist_port: free_port(),
            epmd_port: free_port(),
            process: None,
        };
        node.restart();
        node
    }

    /// Starts it again on the same ports, with whatever data is there.
    pub(crate) fn restart(&mut self) {
        let log = self.dir.path().join("log");
        self.process = Some(Group::spawn(&mut self.command("rabbitmq-server"), &log));
        await_port(self.port, "RabbitMQ", &log);
    }

    /// `kill -9` of the whole node.
    pub(crate) fn kill(&mut self) {
        self.process = None;
        await_refused(self.port);
    }

    /// Removes all its data; it must have been killed.
    pub(crate) fn wipe(&mut self) {
        assert!(self.process.is_none(), "kill the node first");
        fs::remove_dir_all(self.dir.path().join("data")).unwrap();
    }

    /// Runs `rabbitmqctl` against it and returns what it printed.
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        let out = self.command("rabbitmqctl").args(args).output().unwrap();
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let why = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success(),
            "rabbitmqctl {args:?}: {why}\nits log:\n{log}"
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The first of its processes, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|group| group.0.id())
    }

    /// Where to connect.
    pub(crate) fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }

    /// Where its management API answers.
    pub(crate) fn management_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.management_port)
    }

    fn command(&self, program: &str) -> Command {
        let dir = self.dir.path();
        let mut command = Command::new(Path::new("/usr/lib/rabbitmq/bin").join(program));
        command
            .env("HOME", dir.join("home"))
            .env("RABBITMQ_NODENAME", format!("payhook{}@localhost", self.port))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", self.port.to_string())
            .env("RABBITMQ_DIST_PORT", self.dist_port.to_string())
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            .env("RABBITMQ_CONFIG_FILE", dir.join("rabbitmq.conf"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_MNESIA_BASE", dir.join("data"))
            .env("RABBITMQ_LOG_BASE", dir)
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join("plugins"))
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+sbwt none");
        command
    }
}

impl Drop for PrivateRabbitmq {
    fn drop(&mut self) {
        self.kill();
        // The node's own name server is a daemon of its own and not in the group.
        drop(
            Command::new("epmd")
                .args(["-port", &self.epmd_port.to_string(), "-kill"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status(),
        );
    }
}

#[test]
fn private_servers_come_up_die_and_come_back() {
    let mut postgres = PrivatePostgres::start();
    assert!(postgres.pid().is_some() && postgres.folder().is_dir());
    postgres.kill();
    assert!(TcpStream::connect(("127.0.0.1", postgres.port())).is_err());
    postgres.restart();
    let mut rabbitmq = PrivateRabbitmq::start();
    assert!(rabbitmq.pid().is_some());
    rabbitmq.kill();
    rabbitmq.wipe();
    rabbitmq.restart();
    rabbitmq.ctl(&["await_startup"]);
    assert!(TcpStream::connect(("127.0.0.1", rabbitmq.port())).is_ok());
}
