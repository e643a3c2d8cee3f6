//! `payhook.token`: the token that is made when none is configured and the private listener is on loopback.
//!
//! It lies beside the SQLite file (else beside the configuration), mode 0600, created with O_EXCL: whoever
//! finds it there uses it, and no one can be made to write through a link.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rand::Rng as _;
use secrecy::{ExposeSecret as _, SecretString};

use super::load::Config;
use super::token::Token;

/// A token file that is of no use.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// Not to be read or written.
    #[error("token file {path}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Half written by a process that died, or something else altogether.
    #[error("token file {path} holds no token; remove it to have a new one made")]
    Empty {
        /// Which.
        path: PathBuf,
    },
}

/// Where it lies for `config`, whether it exists or not.
pub fn token_file(config: &Config) -> PathBuf {
    let beside = config
        .store
        .sqlite_file
        .as_deref()
        .and_then(Path::parent)
        .unwrap_or(&config.dir);
    beside.join("payhook.token")
}

/// The tokens of the private API: the configured ones, else on loopback the local one, made if need be.
pub fn local_tokens(config: &Config) -> Result<Vec<Token>, TokenFileError> {
    if !config.tokens.is_empty() || !config.server.admin_addr.ip().is_loopback() {
        return Ok(config.tokens.clone());
    }
    let path = token_file(config);
    let secret = match make(&path) {
        Ok(secret) => secret,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read_token_file(&path)?,
        Err(source) => return Err(TokenFileError::Io { path, source }),
    };
    Ok(vec![Token::local(secret)])
}

/// The token in a file, without the white space around it.
pub fn read_token_file(path: &Path) -> Result<SecretString, TokenFileError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(4096).read_to_string(&mut text));
    read.map_err(|source| TokenFileError::Io {
        path: path.to_owned(),
        source,
    })?;
    let token = text.trim();
    if token.is_empty() {
        return Err(TokenFileError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(SecretString::from(token))
}

fn make(path: &Path) -> std::io::Result<SecretString> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let mut random = [0_u8; 32];
    rand::rng().fill_bytes(&mut random);
    let secret = SecretString::from(hex::encode(random));
    file.write_all(format!("{}\n", secret.expose_secret()).as_bytes())?;
    file.sync_all()?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn config(dir: &Path, text: &str) -> Config {
        Config::parse(text, dir, &Environment::default()).unwrap()
    }

    #[test]
    fn one_token_is_made_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "");
        let first = local_tokens(&config).unwrap();
        let again = local_tokens(&config).unwrap();
        assert_eq!(first[0].secret.expose_secret(), again[0].secret.expose_secret());
        assert_eq!(first[0].secret.expose_secret().len(), 64);
        let path = token_file(&config);
        assert_eq!(path, dir.path().join("payhook.token"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(
                std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }

    #[test]
    fn it_lies_beside_the_database() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let on_file = config(dir.path(), "store.url = \"sqlite:data/payhook.db\"");
        assert_eq!(token_file(&on_file), dir.path().join("data/payhook.token"));
        let on_server = config(dir.path(), "store.url = \"postgres://u@h/d\"");
        assert_eq!(token_file(&on_server), dir.path().join("payhook.token"));
    }

    #[test]
    fn none_is_made_when_one_is_configured_or_the_listener_is_reachable() {
        let dir = tempfile::tempdir().unwrap();
        let configured = config(dir.path(), "[[tokens]]\nname = \"ops\"\ntoken = \"secret\"");
        assert_eq!(local_tokens(&configured).unwrap()[0].name, "ops");
        let reachable = config(dir.path(), "server.admin_addr = \"0.0.0.0:8081\"");
        assert!(local_tokens(&reachable).unwrap().is_empty());
        assert!(!token_file(&reachable).exists());
    }

    #[test]
    fn a_half_written_file_is_said_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "");
        std::fs::write(token_file(&config), "\n").unwrap();
        assert!(matches!(local_tokens(&config), Err(TokenFileError::Empty { .. })));
    }
}
