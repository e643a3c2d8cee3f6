//! The database: whether it answers, how far its schema is, and whether a commit that it confirms is kept.
//!
//! payhook acks what the database has committed. A server that confirms without writing to disk turns each
//! power cut into lost payments, so that is a problem and not a matter of taste.

use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::Finding;
use super::keys::Known;
use crate::config::StoreConfig;
use crate::store::{Inspection, Schema, Store, StoreError, StoreOptions, inspect};
use crate::telemetry::causes;

const WHAT: &str = "store";

/// How long the server has to say why it gives no connection.
const ASK_WHY: Duration = Duration::from_secs(1);

/// Connections of a daemon besides its pool: three to record with, two for notes and conflicts there, six for relay and
/// workers (`app`, `ingress::recorder`).
const BESIDES_THE_POOL: u32 = 11;

/// The least that `store.max_connections` may be.
const SMALLEST_POOL: u32 = 2;

/// All findings of the database, after at most `deadline` and a second, and what it knows of accounts and keys, as far
/// as it can tell.
pub(super) async fn findings(config: &StoreConfig, deadline: Duration) -> (Vec<Finding>, Known) {
    let url = config.url.expose_secret();
    if !config.is_postgres() && config.sqlite_file.is_none() {
        let lost = "lives in memory: everything is lost when the process ends";
        return (vec![Finding::problem(WHAT, lost)], Known::default());
    }
    let options = StoreOptions {
        max_connections: 1,
        acquire_timeout: deadline,
        statement_timeout: deadline,
        ..StoreOptions::default()
    };
    let mut found = match tokio::time::timeout(deadline, inspect(url, &options)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            let why = causes(&error);
            let said = refusal(config, &options)
                .await
                .filter(|said| !why.contains(said.as_str()));
            let message = format!("cannot be used: {why}{}", in_its_words(said));
            return (vec![Finding::problem(WHAT, message)], Known::default());
        }
        Err(_) => {
            let said = refusal(config, &options).await;
            let message = format!(
                "does not answer within {} s{}",
                deadline.as_secs(),
                in_its_words(said)
            );
            return (vec![Finding::problem(WHAT, message)], Known::default());
        }
    };
    let known = match &mut found {
        Inspection::There {
            key_uses, accounts, ..
        } => Known {
            uses: key_uses.take(),
            accounts: accounts.take(),
        },
        _ => Known::default(),
    };
    (judge(config, found), known)
}

/// What Postgres says to one who asks for a connection, if it gives none; a pool only says that time ran out.
async fn refusal(config: &StoreConfig, options: &StoreOptions) -> Option<String> {
    if !config.is_postgres() {
        return None;
    }
    let store = Store::open(config.url.expose_secret(), options).await.ok()?;
    store.refusal(ASK_WHY).await
}

fn in_its_words(said: Option<String>) -> String {
    said.map(|said| format!("; the server says: {said}"))
        .unwrap_or_default()
}

fn judge(config: &StoreConfig, found: Inspection) -> Vec<Finding> {
    let file = || {
        config
            .sqlite_file
            .as_deref()
            .unwrap_or(Path::new("the file"))
            .display()
    };
    match found {
        Inspection::NotYet if config.migrate => {
            let made = format!("{} is not there yet: the first start makes it", file());
            vec![Finding::ok(WHAT, made)]
        }
        Inspection::NotYet => {
            let unmade = format!(
                "{} is not there, and store.migrate is false: run `payhook migrate`",
                file()
            );
            vec![Finding::problem(WHAT, unmade)]
        }
        Inspection::NoFolder(folder) => {
            let nowhere = format!("its folder {} does not exist", folder.display());
            vec![Finding::problem(WHAT, nowhere)]
        }
        Inspection::Unwritable(kind) => {
            vec![Finding::problem(
                WHAT,
                format!("{} cannot be written: {kind}", file()),
            )]
        }
        Inspection::There { schema, settings, .. } => {
            let kind = if config.is_postgres() {
                "Postgres"
            } else {
                "SQLite"
            };
            let mut found = vec![Finding::ok(WHAT, format!("{kind} answers"))];
            found.push(of_schema(&schema, config.migrate));
            found.extend(
                settings
                    .iter()
                    .filter_map(|(name, value)| of_setting(name, value, Wanted::by(config))),
            );
            found
        }
    }
}

fn of_schema(schema: &Schema, migrate: bool) -> Finding {
    let what = "store schema";
    let known = schema.known;
    if schema.is_foreign {
        let other = "was made by another build of payhook and cannot be migrated: use that build, or name a new database";
        return Finding::problem(what, other.to_owned());
    }
    if let Some(version) = schema.broken {
        let broken = format!("migration {version} failed half-way: restore the database, or name a new one");
        return Finding::problem(what, broken);
    }
    match (schema.applied, schema.missing.is_empty(), migrate) {
        (Some(version), _, true) if version > known => Finding::problem(
            what,
            format!(
                "is at version {version} and this binary knows {known}: use the newer binary, or set store.migrate = false"
            ),
        ),
        (Some(version), true, _) => Finding::ok(what, format!("is at version {version}, as it should be")),
        (applied, _, true) => Finding::ok(
            what,
            format!(
                "is at version {}; the next start brings it to {known}",
                applied.unwrap_or(0)
            ),
        ),
        (applied, _, false) => Finding::problem(
            what,
            format!(
                "is at version {} of {known}, and store.migrate is false: run `payhook migrate`",
                applied.unwrap_or(0)
            ),
        ),
    }
}

/// What one setting means for what was acked; `None` for one that is only good to know.
fn of_setting(name: &str, value: &str, wanted: Wanted) -> Option<Finding> {
    let what = format!("store {name}");
    let lossy = |why: &str| Finding::problem(&what, format!("is {value}: {why}"));
    Some(match (name, value) {
        ("fsync", "off") => lossy("a crash of the machine loses or corrupts what was acked; set it to on"),
        ("full_page_writes", "off") => lossy("a power cut can leave torn pages behind; set it to on"),
        ("synchronous_commit", "off" | "local" | "remote_write") => Finding::warning(
            &what,
            format!("is {value} at the server; payhook sets it to on for its own connections"),
        ),
        // 2 is FULL, 3 EXTRA.
        ("synchronous", "0" | "1") => lossy("a power cut loses what was acked"),
        ("synchronous", _) => Finding::ok(&what, "is FULL: a commit is on disk before it is acked"),
        ("journal_mode", "wal") => Finding::ok(&what, "is WAL"),
        ("journal_mode", _) => Finding::warning(
            &what,
            format!("is {value}: the next start sets the file to WAL, unless something else has it open"),
        ),
        (limit, _) if limit.starts_with("connection limit") => return too_few(&what, value, wanted),
        ("fsync" | "full_page_writes" | "synchronous_commit", _) => Finding::ok(&what, format!("is {value}")),
        ("server_version", _) => Finding::ok(&what, value),
        ("server_encoding", "UTF8") => return None,
        ("server_encoding", _) => Finding::problem(&what, StoreError::Encoding(value.to_owned()).to_string()),
        _ => return None,
    })
}

/// The connections that one daemon may ask for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    pool: u32,
    besides: u32,
}

impl Wanted {
    fn by(config: &StoreConfig) -> Self {
        Self {
            pool: config.max_connections,
            besides: BESIDES_THE_POOL,
        }
    }
}

/// A limit below what one daemon may ask for.
fn too_few(what: &str, value: &str, wanted: Wanted) -> Option<Finding> {
    let limit: u32 = value.parse().ok()?;
    let ours = wanted.pool.saturating_add(wanted.besides);
    if ours <= limit {
        return None;
    }
    let mend = match limit.saturating_sub(wanted.besides) {
        pool if pool >= SMALLEST_POOL => format!("lower store.max_connections to {pool}"),
        _ => format!("allow at least {}", wanted.besides.saturating_add(SMALLEST_POOL)),
    };
    Some(Finding::warning(
        what,
        format!("is {limit}, and one daemon may ask for {ours}: {mend}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::config::{Config, Environment};

    fn config(text: &str) -> StoreConfig {
        Config::parse(text, Path::new("/nowhere"), &Environment::default())
            .unwrap()
            .store
    }

    fn schema(applied: Option<i64>, missing: &[i64], broken: Option<i64>) -> Schema {
        Schema {
            applied,
            known: 7,
            missing: missing.to_vec(),
            broken,
            is_foreign: false,
        }
    }

    #[test]
    fn a_database_that_confirms_what_it_may_lose_is_a_problem() {
        let config = config("[store]\nurl = \"postgres://db/payhook\"");
        for (name, value, level) in [
            ("fsync", "off", Some(Level::Problem)),
            ("fsync", "on", Some(Level::Ok)),
            ("full_page_writes", "off", Some(Level::Problem)),
            ("synchronous_commit", "off", Some(Level::Warning)),
            ("synchronous_commit", "remote_apply", Some(Level::Ok)),
            ("server_encoding", "UTF8", None),
            ("server_encoding", "SQL_ASCII", Some(Level::Problem)),
            ("synchronous", "1", Some(Level::Problem)),
            ("synchronous", "2", Some(Level::Ok)),
            ("journal_mode", "wal", Some(Level::Ok)),
            ("journal_mode", "rollback", Some(Level::Warning)),
            ("connection limit of the server", "97", None),
            ("connection limit of the server", "10", Some(Level::Warning)),
            ("connection limit of the role", "26", Some(Level::Warning)),
            ("connection limit of the role", "27", None),
        ] {
            let found = of_setting(name, value, Wanted::by(&config)).map(|finding| finding.level);
            assert_eq!(found, level, "{name} = {value}");
        }
    }

    #[test]
    fn a_schema_that_the_next_start_cannot_use_is_a_problem() {
        for (schema, migrate, level) in [
            (schema(Some(7), &[], None), true, Level::Ok),
            (schema(Some(7), &[], None), false, Level::Ok),
            (schema(Some(6), &[7], None), true, Level::Ok),
            (schema(Some(6), &[7], None), false, Level::Problem),
            (schema(None, &[1, 7], None), false, Level::Problem),
            (schema(Some(8), &[], None), true, Level::Problem),
            (schema(Some(8), &[], None), false, Level::Ok),
            (schema(Some(7), &[], Some(7)), true, Level::Problem),
        ] {
            let found = of_schema(&schema, migrate);
            assert_eq!(found.level, level, "{schema:?} {migrate} {found:?}");
        }
    }

    #[tokio::test]
    async fn a_store_in_memory_is_a_problem() {
        let found = findings(
            &config("[store]\nurl = \"sqlite::memory:\""),
            Duration::from_secs(1),
        )
        .await;
        assert_eq!(found.0[0].level, Level::Problem);
    }
}
