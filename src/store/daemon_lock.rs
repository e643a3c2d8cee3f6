//! One daemon per SQLite file.
//!
//! Two daemons on one file would each believe that they are the only writer. The lock is the operating
//! system's, on a file beside the database: it ends with the process however that ends, and leaves commands
//! that only read alone. On Postgres several daemons work side by side and no lock is needed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Held for as long as the daemon lives.
#[derive(Debug)]
pub struct DaemonLock {
    _held: File,
}

/// Why the daemon does not start on this file.
#[derive(Debug, thiserror::Error)]
pub enum DaemonLockError {
    /// Another process has it.
    #[error("another payhook daemon is running on {0}: stop it, or use Postgres for several daemons")]
    Taken(PathBuf),
    /// The lock file cannot be made.
    #[error("cannot lock {path}")]
    Unusable {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl DaemonLock {
    /// Takes the lock of the SQLite file `database`, at once or not at all.
    pub fn take(database: &Path) -> Result<Self, DaemonLockError> {
        // One file under two names is one lock: links are followed, as far as the file exists already.
        let database = database.canonicalize().unwrap_or_else(|_| database.to_owned());
        let mut path = database.clone().into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        let unusable = |source| DaemonLockError::Unusable {
            path: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _held: file }),
            Err(TryLockError::WouldBlock) => Err(DaemonLockError::Taken(database)),
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("payhook.db");
        std::fs::write(&database, b"").unwrap();
        let first = DaemonLock::take(&database).unwrap();
        let link = folder.path().join("other-name.db");
        std::os::unix::fs::symlink(&database, &link).unwrap();
        for name in [&database, &link] {
            let second = DaemonLock::take(name);
            assert!(matches!(second, Err(DaemonLockError::Taken(_))), "{second:?}");
        }
        drop(first);
        DaemonLock::take(&link).unwrap();
    }
}
