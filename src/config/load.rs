//! From a place to a [`Config`]: finds the text, reads every section, and hands out all or nothing.
//!
//! `parse` is pure but for the key files it reads; `load` adds the file lookup and this process's environment.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use toml::Table;

use super::account::{Account, AccountProblem};
use super::broker::BrokerConfig;
use super::environment::Environment;
use super::keys::{Context, Keys};
use super::log::LogConfig;
use super::orders::OrdersConfig;
use super::problem::{ConfigErrors, Problem};
use super::retention::RetentionConfig;
use super::server::ServerConfig;
use super::store::StoreConfig;
use super::token::{self, Token};
use super::worker::WorkerConfig;
use super::{accounts, layers};

/// Everything that was decided.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listeners.
    pub server: ServerConfig,
    /// The database.
    pub store: StoreConfig,
    /// Where messages go.
    pub broker: BrokerConfig,
    /// How events are applied.
    pub worker: WorkerConfig,
    /// Unknown orders.
    pub orders: OrdersConfig,
    /// How long things are kept.
    pub retention: RetentionConfig,
    /// What is said on stderr.
    pub log: LogConfig,
    /// Who may use the private API.
    pub tokens: Vec<Token>,
    /// At which providers.
    pub accounts: Vec<Account>,
    /// What all but the accounts was read from; tells whether any of it has changed.
    pub settings: Settings,
    /// Where it was read from.
    pub source: Source,
    /// What relative paths start from; absolute.
    pub dir: PathBuf,
}

/// SHA-256 over every section but the accounts, as it was given. Secrets went into it: it is compared, never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Settings([u8; 32]);

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settings")
    }
}

impl Settings {
    fn of(given: &Table) -> Self {
        let mut hash = Sha256::new();
        for (section, value) in given.iter().filter(|(section, _)| *section != "accounts") {
            hash.update(format!("{section} = {value:?}\n"));
        }
        Self(hash.finalize().into())
    }
}

/// Where a configuration was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This file.
    File(PathBuf),
    /// The embedded example alone.
    BuiltIn,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::BuiltIn => f.write_str("built-in defaults"),
        }
    }
}

impl Config {
    /// `explicit`, else `PAYHOOK_CONFIG`, else `./payhook.toml`, else the built-in defaults.
    pub fn load(explicit: Option<&Path>) -> Result<Self, ConfigErrors> {
        Self::load_with(explicit, |_| Ok(())).map(|(config, ())| config)
    }

    /// [`Self::load`], with the accounts' keys judged by `build` and its problems among the others:
    /// `Config::load_with(path, Registry::build)`.
    pub fn load_with<T>(
        explicit: Option<&Path>,
        build: impl FnOnce(&[Account]) -> Result<T, Vec<AccountProblem>>,
    ) -> Result<(Self, T), ConfigErrors> {
        let environment = Environment::of_process();
        let (source, text) = find(explicit, &environment)?;
        let dir = match &source {
            Source::File(path) => path.parent().unwrap_or(Path::new("")),
            Source::BuiltIn => Path::new(""),
        };
        let unusable = |error: std::io::Error| {
            ConfigErrors::one(
                source.to_string(),
                Problem::new("folder", format!("cannot be told: {error}")),
            )
        };
        let dir = if dir.as_os_str().is_empty() {
            std::env::current_dir()
        } else {
            std::path::absolute(dir)
        };
        read(&text, &dir.map_err(unusable)?, &environment, source, build)
    }

    /// From `text`, as if it were a file in `dir`.
    pub fn parse(text: &str, dir: &Path, environment: &Environment) -> Result<Self, ConfigErrors> {
        Self::parse_with(text, dir, environment, |_| Ok(())).map(|(config, ())| config)
    }

    /// [`Self::parse`], with the accounts' keys judged by `build`.
    pub fn parse_with<T>(
        text: &str,
        dir: &Path,
        environment: &Environment,
        build: impl FnOnce(&[Account]) -> Result<T, Vec<AccountProblem>>,
    ) -> Result<(Self, T), ConfigErrors> {
        read(text, dir, environment, Source::BuiltIn, build)
    }
}

fn find(explicit: Option<&Path>, environment: &Environment) -> Result<(Source, String), ConfigErrors> {
    let named = explicit
        .map(Path::to_owned)
        .or_else(|| environment.filled("PAYHOOK_CONFIG").map(PathBuf::from));
    let path = named.clone().unwrap_or_else(|| PathBuf::from("payhook.toml"));
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((Source::File(path), text)),
        // Only the file that nobody named may be missing.
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            Ok((Source::BuiltIn, String::new()))
        }
        Err(error) => {
            let origin = path.display().to_string();
            Err(ConfigErrors::one(
                origin,
                Problem::new("file", format!("cannot be read: {error}")),
            ))
        }
    }
}

fn read<T>(
    text: &str,
    dir: &Path,
    environment: &Environment,
    source: Source,
    build: impl FnOnce(&[Account]) -> Result<T, Vec<AccountProblem>>,
) -> Result<(Config, T), ConfigErrors> {
    let layers::Layers {
        given,
        defaults,
        filled,
        mut problems,
    } = layers::lay(text, environment);
    let settings = Settings::of(&given);
    let mut keys = Keys::new("", given, defaults, Context { dir, filled: &filled });
    let config = Config {
        server: keys.section("server", ServerConfig::read),
        store: keys.section("store", StoreConfig::read),
        broker: keys.section("broker", BrokerConfig::read),
        worker: keys.section("worker", WorkerConfig::read),
        orders: keys.section("orders", OrdersConfig::read),
        retention: keys.section("retention", RetentionConfig::read),
        log: keys.section("log", LogConfig::read),
        tokens: token::read_all(&mut keys),
        accounts: accounts::read_all(&mut keys),
        settings,
        source,
        dir: dir.to_owned(),
    };
    problems.append(&mut keys.finish());
    problems.extend(config.retention.against(&config.accounts));
    let built = build(&config.accounts).map_err(|found| {
        // What is missing here is not also unusable there.
        let news: Vec<_> = found
            .into_iter()
            .filter(|later| !problems.iter().any(|earlier| covers(&later.path, &earlier.path)))
            .collect();
        problems.extend(news.into_iter().map(Problem::from));
    });
    // One problem a place: the first that was seen is the cause of the others.
    let mut said = BTreeSet::new();
    problems.retain(|problem| said.insert(spelling(&problem.path).to_owned()));
    problems.sort();
    match built {
        Ok(built) if problems.is_empty() => Ok((config, built)),
        _ => Err(ConfigErrors {
            origin: config.source.to_string(),
            problems,
        }),
    }
}

/// `x` and `x_file` are one place.
fn spelling(path: &str) -> &str {
    path.strip_suffix("_file").unwrap_or(path)
}

/// Whether `inner` is the place `outer` or lies inside it: `x[0]` and `x.y` inside `x`.
fn covers(outer: &str, inner: &str) -> bool {
    let rest = spelling(inner).strip_prefix(spelling(outer));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']))
}
