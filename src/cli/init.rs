//! `payhook init`: writes the commented example, which is the documentation of the configuration.
//!
//! Never overwrites a file unless told to; the file is as good as the built-in defaults until it is edited.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;

use super::Globals;
use super::failure::Misuse;
use crate::config::{EXAMPLE, Environment};

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to write [default: --config, else $PAYHOOK_CONFIG, else ./payhook.toml]
    file: Option<PathBuf>,
    /// Overwrite a file that exists
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Written {
    written: String,
}

/// Writes the file and says what to do next.
pub(super) fn run(args: Args, globals: &Globals) -> anyhow::Result<ExitCode> {
    let from_environment = || {
        Environment::of_process()
            .filled("PAYHOOK_CONFIG")
            .map(PathBuf::from)
    };
    let path = args
        .file
        .or_else(|| globals.config.clone())
        .or_else(from_environment);
    let path = path.unwrap_or_else(|| PathBuf::from("payhook.toml"));
    write(&path, args.force)?;
    let mut out = globals.output();
    let written = path.display().to_string();
    if out.is_json() {
        out.value(&Written { written })?;
    } else {
        out.line(&format!(
            "wrote {written}: take the # off an [[accounts]] block and fill it in, then run `payhook check`"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, force: bool) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        // The file system decides whether it exists; looking first would leave a gap.
        options.create_new(true);
    }
    let mut file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Misuse::usage(format!("{} exists; --force overwrites it", path.display())).into());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot write {}", path.display())),
    };
    file.write_all(EXAMPLE.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::failure::{MISUSED, code};

    #[test]
    fn an_existing_file_is_kept_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("payhook.toml");
        write(&path, false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), EXAMPLE);
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(code(&write(&path, false).unwrap_err()), MISUSED);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        write(&path, true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), EXAMPLE);
    }
}
