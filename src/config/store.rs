//! `[store]`: which database, and how it is used.
//!
//! Keys: `url` (or `url_file`), `migrate`, `max_connections`, `acquire_timeout`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::keys::Keys;

/// The `[store]` section.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// For `Store::open`; a SQLite path is absolute here. May hold a password.
    pub url: SecretString,
    /// The SQLite file; `None` on Postgres and in memory.
    pub sqlite_file: Option<PathBuf>,
    /// Whether `serve` migrates.
    pub migrate: bool,
    /// Of one daemon.
    pub max_connections: u32,
    /// How long a caller waits for one.
    pub acquire_timeout: Duration,
}

impl StoreConfig {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        let (url, sqlite_file) = place(keys);
        Self {
            url,
            sqlite_file,
            migrate: keys.boolean("migrate"),
            max_connections: keys.integer("max_connections", 2..=1000),
            acquire_timeout: keys.duration(
                "acquire_timeout",
                Duration::from_millis(50)..=Duration::from_mins(1),
            ),
        }
    }

    /// Whether it is a Postgres server rather than a SQLite file.
    pub fn is_postgres(&self) -> bool {
        is_postgres(self.url.expose_secret())
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

fn place(keys: &mut Keys<'_>) -> (SecretString, Option<PathBuf>) {
    let nowhere = (SecretString::from(String::new()), None);
    let Some(url) = keys.secret_text("url") else {
        return nowhere;
    };
    let text = url.expose_secret();
    if is_postgres(text) {
        return (url, None);
    }
    let Some(rest) = text.strip_prefix("sqlite:") else {
        keys.problem("url", "must be sqlite:PATH or postgres://USER@HOST/DATABASE");
        return nowhere;
    };
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (name, query) = rest
        .split_once('?')
        .map_or((rest, None), |(name, query)| (name, Some(query)));
    if name == ":memory:" {
        return (url, None);
    }
    if name.is_empty() {
        keys.problem("url", "names no file: sqlite:PATH");
        return nowhere;
    }
    let Ok(name) = percent_encoding::percent_decode_str(name).decode_utf8() else {
        keys.problem("url", "holds a path that is not UTF-8");
        return nowhere;
    };
    let file = keys.resolve(&name);
    if let Some(url) = sqlite_url(&file, query) {
        return (SecretString::from(url), Some(file));
    }
    keys.problem("url", "lies in a folder whose name is not UTF-8");
    nowhere
}

/// The URL that names exactly `file`, whatever stands in its folder's name.
fn sqlite_url(file: &Path, query: Option<&str>) -> Option<String> {
    let path = file
        .to_str()?
        .replace('%', "%25")
        .replace('?', "%3F")
        .replace('#', "%23");
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("sqlite:{path}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_url_characters_is_still_that_folder() {
        let url = sqlite_url(Path::new("/srv/50% off?/payhook.db"), Some("mode=rwc")).unwrap();
        let options: sqlx::sqlite::SqliteConnectOptions = url.parse().unwrap();
        assert_eq!(options.get_filename(), Path::new("/srv/50% off?/payhook.db"));
    }
}
