//! Python packages for a test, in a virtual environment below `target/`, installed once for each list of them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::services::required;

/// The interpreter beside the packages that `requirements` lists. `None`, said loudly, where they can't be had and
/// the tests may do without.
pub(crate) fn python(requirements: &Path) -> Option<PathBuf> {
    match installed(requirements) {
        Ok(python) => Some(python),
        Err(missing) => {
            assert!(!required(), "{missing}");
            #[expect(clippy::print_stderr, reason = "whoever runs the tests must see it")]
            {
                eprintln!("not run, for want of Python packages: {missing}");
            }
            None
        }
    }
}

/// Tests that want the same packages at the same moment wait for the one that installs them. An error says what is
/// missing.
fn installed(requirements: &Path) -> Result<PathBuf, String> {
    let list = fs::read(requirements).unwrap();
    let name = payhook::event::Fingerprint::over([list.as_slice()]).to_string();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{}", &name[..12]));
    let python = folder.join("bin/python");
    let complete = folder.join("complete");
    let turn = File::create(folder.with_added_extension("lock")).unwrap();
    turn.lock().unwrap();
    if !complete.exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder))?;
        run(Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--requirement",
            ])
            .arg(requirements))?;
        fs::write(&complete, "").map_err(|error| error.to_string())?;
    }
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), String> {
    let ran = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if ran.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr)))
}
