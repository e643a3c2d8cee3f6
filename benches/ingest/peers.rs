//! The programs to compare with, installed under `target/` with the versions that `benches/peers` pins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::keys;

/// Where an installed program lies.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) folder: PathBuf,
}

/// FastAPI and asyncpg, in a virtual environment.
pub(crate) fn python(scratch: &Path) -> anyhow::Result<Installed> {
    let folder = scratch.join("peers/python");
    let wanted = fs::read_to_string(source("python").join("requirements.txt"))?;
    copy(&source("python"), &folder)?;
    let stamp = folder.join("installed.txt");
    if fs::read_to_string(&stamp).ok().as_deref() != Some(&wanted) {
        eprintln!("installing FastAPI and what it needs");
        run(Command::new("python3")
            .args(["-m", "venv"])
            .arg(folder.join("venv")))?;
        run(Command::new(folder.join("venv/bin/pip"))
            .args(["install", "--quiet", "--requirement"])
            .arg(folder.join("requirements.txt")))?;
        fs::write(stamp, wanted)?;
    }
    Ok(Installed { folder })
}

/// Express and pg, with their modules.
pub(crate) fn node(scratch: &Path) -> anyhow::Result<Installed> {
    let folder = scratch.join("peers/node");
    let wanted = fs::read_to_string(source("node").join("package-lock.json"))?;
    copy(&source("node"), &folder)?;
    let stamp = folder.join("installed.txt");
    if fs::read_to_string(&stamp).ok().as_deref() != Some(&wanted) {
        eprintln!("installing Express and what it needs");
        run(Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&folder))?;
        fs::write(stamp, wanted)?;
    }
    Ok(Installed { folder })
}

/// The tables that all of them use.
pub(crate) fn schema() -> anyhow::Result<String> {
    Ok(fs::read_to_string(
        keys::repository().join("benches/peers/schema.sql"),
    )?)
}

fn source(name: &str) -> PathBuf {
    keys::repository().join("benches/peers").join(name)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    let why = String::from_utf8_lossy(&out.stderr);
    anyhow::ensure!(out.status.success(), "{command:?}: {why}");
    Ok(())
}
