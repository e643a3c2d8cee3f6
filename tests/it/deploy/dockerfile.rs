//! The Dockerfile without an engine: its COPY lines find what they name and the ignore file lets it through,
//! what was copied is enough to compile, and its RUN lines run.
//!
//! Every run compiles with `cargo check` and packs a binary that is there already; the ignored test runs the
//! lines as they stand, with a release build: `cargo test dockerfile -- --ignored`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{deploy, text};

/// What is done in the build stage, and what is copied out of it.
#[derive(Debug, Default)]
struct Build {
    workdir: PathBuf,
    /// In order: what is copied, what is run.
    steps: Vec<Step>,
    /// Paths in the stage that the image takes.
    taken: Vec<PathBuf>,
    user: String,
}

#[derive(Debug)]
enum Step {
    Copy(Vec<String>),
    Run(String),
}

/// Reads as much as this Dockerfile uses: one instruction a line.
fn read() -> Build {
    let mut build = Build::default();
    let mut stage = 0;
    for line in text("Dockerfile").lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        assert!(!line.ends_with('\\'), "one instruction a line: {line}");
        let (instruction, rest) = line.split_once(' ').unwrap();
        match (instruction, stage) {
            ("FROM", _) => stage += 1,
            ("WORKDIR", 1) => build.workdir = rest.into(),
            ("COPY", 1) => build
                .steps
                .push(Step::Copy(rest.split(' ').map(str::to_owned).collect())),
            ("RUN", 1) => build.steps.push(Step::Run(rest.to_owned())),
            ("COPY", 2) => {
                let mut words = rest.split(' ').filter(|word| !word.starts_with("--chown="));
                assert_eq!(words.next(), Some("--from=build"), "{line}");
                build.taken.push(words.next().unwrap().into());
            }
            ("USER", 2) => rest.clone_into(&mut build.user),
            ("WORKDIR" | "VOLUME" | "EXPOSE" | "STOPSIGNAL" | "ENTRYPOINT" | "CMD", 2) => {}
            // The image has no shell.
            _ => panic!("{line}: not expected in stage {stage}"),
        }
    }
    build
}

/// Copies with times, so that cargo sees no change where there is none.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
        let modified = from.metadata().unwrap().modified().unwrap();
        File::options()
            .append(true)
            .open(to)
            .unwrap()
            .set_modified(modified)
            .unwrap();
    }
}

/// Does what a COPY line says, with the repository as context.
fn copy_all(words: &[String], stage: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ignore = text("Dockerfile.dockerignore");
    let (target, sources) = words.split_last().unwrap();
    for source in sources {
        assert!(
            ignore.lines().any(|line| line == format!("!{source}")),
            "the ignore file keeps {source} away"
        );
        let from = root.join(source);
        assert!(from.exists(), "{source} is not there");
        let to = stage.join(target);
        copy(
            &from,
            &if target == "./" {
                to.join(Path::new(source).file_name().unwrap())
            } else {
                to
            },
        );
    }
}

/// Runs a line in the stage, as a RUN does.
fn sh(line: &str, stage: &Path, target: &Path) {
    let output = Command::new("sh")
        .args(["-ec", line])
        .current_dir(stage)
        .env("CARGO_TARGET_DIR", target)
        .env_remove("CARGO")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{line}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Where the build stage is played; `name` because two tests must not meet in one folder.
fn stage(name: &str) -> PathBuf {
    let stage = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if stage.exists() {
        fs::remove_dir_all(&stage).unwrap();
    }
    fs::create_dir_all(&stage).unwrap();
    stage
}

/// The image's files are there, and its binary starts.
fn judge_image(build: &Build, stage: &Path) {
    assert!(!build.taken.is_empty());
    for taken in &build.taken {
        let path = stage.join(taken.strip_prefix(&build.workdir).unwrap());
        assert!(path.exists(), "nothing makes {}", taken.display());
    }
    let output = Command::new(stage.join("image/payhook"))
        .arg("--version")
        .output()
        .unwrap();
    assert!(output.status.success());
    let user = build.user.split(':').next().unwrap_or_default();
    assert!(
        user.parse::<u32>().is_ok_and(|id| id > 0),
        "a number, so that Kubernetes can tell it is not root: {user:?}"
    );
}

#[test]
fn what_is_copied_compiles_and_is_packed() {
    let build = read();
    let stage = stage("dockerfile");
    // Beside the target folder of this very run, so that the crates are compiled already.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let packed = stage.join("target");
    let mut compiled = false;
    for step in &build.steps {
        match step {
            Step::Copy(words) => copy_all(words, &stage),
            // They change the machine; the ignored test runs them.
            Step::Run(line) if line.starts_with("apt-get ") || line.starts_with("rustup ") => {}
            Step::Run(line) if line.starts_with("cargo build ") => {
                let check = line
                    .replacen("cargo build --release", "cargo check --quiet", 1)
                    .replace(" --target \"$(uname -m)-unknown-linux-musl\"", "");
                assert_eq!(check, "cargo check --quiet --locked --bin payhook");
                sh(&check, &stage, target);
                compiled = true;
                // In place of what the line would have made.
                let folder = "\"$CARGO_TARGET_DIR/$(uname -m)-unknown-linux-musl/release\"";
                let made = format!(
                    "mkdir -p {folder} && cp '{}' {folder}/payhook",
                    env!("CARGO_BIN_EXE_payhook")
                );
                sh(&made, &stage, &packed);
            }
            Step::Run(line) => sh(line, &stage, &packed),
        }
    }
    assert!(compiled);
    judge_image(&build, &stage);
    fs::remove_dir_all(&stage).unwrap();
}

#[test]
#[ignore = "a release build, and packages for the machine"]
fn its_lines_run_as_they_stand() {
    let build = read();
    let stage = stage("dockerfile-release");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let lists = Path::new("/var/lib/apt/lists");
    for step in &build.steps {
        match step {
            Step::Copy(words) => copy_all(words, &stage),
            // All but throwing away the package lists, which are the machine's own.
            Step::Run(line) => {
                let cleaning = format!(" && rm -rf {}/*", lists.display());
                sh(&line.replace(&cleaning, ""), &stage, target);
            }
        }
    }
    judge_image(&build, &stage);
    let binary = stage.join("image/payhook");
    let ldd = Command::new("ldd").arg(&binary).output().unwrap();
    let said = [ldd.stdout, ldd.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.contains("statically linked") || said.contains("not a dynamic executable"),
        "{said}"
    );
    assert!(deploy("Dockerfile").is_file());
}
