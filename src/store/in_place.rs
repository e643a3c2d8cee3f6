//! Whether the SQLite file that was opened still stands where it was opened.
//!
//! A file that is moved, deleted or replaced goes on taking writes through the connection that has it open, and what was
//! written is gone after the next start, which opens the path. So every write is preceded by a look at the path. Nothing is
//! closed or opened again meanwhile: put back, the file and the log beside it are whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file as it was opened. `None`: there is none, the database is in memory.
#[derive(Clone, Debug)]
pub(super) struct InPlace(Option<Arc<Opened>>);

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    identity: Identity,
}

#[cfg(unix)]
type Identity = (u64, u64);

/// Device and inode.
#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::metadata(path)?;
    Ok((file.dev(), file.ino()))
}

#[cfg(not(unix))]
type Identity = ();

/// Whether it exists: an open file cannot be moved here.
#[cfg(not(unix))]
fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::metadata(path).map(drop)
}

impl InPlace {
    /// Notes the file at `path`, which is open already.
    pub(super) fn of(path: &Path) -> Self {
        let opened = identity(path).map(|identity| Opened {
            path: path.to_owned(),
            identity,
        });
        Self(opened.ok().map(Arc::new))
    }

    /// Returns an error if another file or none stands at the path.
    pub(super) fn check(&self) -> Result<(), sqlx::Error> {
        let Some(opened) = &self.0 else {
            return Ok(());
        };
        match identity(&opened.path) {
            Ok(found) if found == opened.identity => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Err(io::Error::other(format!(
                "the database file {} was moved, deleted or replaced while it is open: nothing is written until that \
                 file is put back, or payhook is restarted on the one that stands there",
                opened.path.display()
            ))
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_file_counts_only_where_it_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (file, elsewhere) = (folder.path().join("a.db"), folder.path().join("b.db"));
        std::fs::write(&file, b"").unwrap();
        let open = InPlace::of(&file);
        open.check().unwrap();
        std::fs::rename(&file, &elsewhere).unwrap();
        open.check().unwrap_err();
        std::fs::write(&file, b"").unwrap();
        open.check().unwrap_err();
        std::fs::rename(&elsewhere, &file).unwrap();
        open.check().unwrap();
    }

    #[test]
    fn a_database_in_memory_has_no_place() {
        InPlace::of(Path::new(":memory:")).check().unwrap();
    }
}
