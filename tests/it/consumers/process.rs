//! A consumer example as a process: installed once, started, read line by line, stopped as systemd would.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::NamedTempFile;

use super::example;

/// How long a step may take on a busy two-core machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs the commands that install an example's packages into `target/consumers/{language}`, unless the files
/// that name the packages are still those of the last time. Gives that folder. Another run of the tests at the same
/// moment waits for the one that installs.
pub(super) fn installed(
    language: &str,
    names: &[&str],
    commands: impl FnOnce(&Path) -> Vec<Command>,
) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let folder = target.join("consumers").join(language);
    let wanted: Vec<_> = names
        .iter()
        .map(|name| fs::read_to_string(example(language).join(name)).unwrap())
        .collect();
    let stamp = folder.join("installed");
    let wanted = wanted.join("\n");
    fs::create_dir_all(target.join("consumers")).unwrap();
    let turn = File::create(folder.with_added_extension("lock")).unwrap();
    turn.lock().unwrap();
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return folder;
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    for name in names {
        fs::copy(example(language).join(name), folder.join(name)).unwrap();
    }
    for mut command in commands(&folder) {
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("{command:?}: {error} (tests/run installs what is needed)"));
        assert!(
            output.status.success(),
            "{command:?}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    fs::write(stamp, wanted).unwrap();
    folder
}

/// A running example.
pub(super) struct Consumer {
    process: Child,
    lines: Receiver<String>,
    errors: NamedTempFile,
}

impl Consumer {
    /// Starts it on a queue.
    pub(super) fn start(mut command: Command, amqp_url: &str, queue: &str) -> Self {
        let errors = NamedTempFile::new().unwrap();
        let mut process = command
            .env("AMQP_URL", amqp_url)
            .env("QUEUE", queue)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors.reopen().unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            process,
            lines,
            errors,
        }
    }

    /// The id and verdict of the next delivery.
    pub(super) fn next(&mut self) -> (Option<String>, String) {
        let line = self
            .lines
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("no delivery:\n{}", self.errors()));
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let id = said["id"].as_str().map(str::to_owned);
        (id, said["verdict"].as_str().unwrap().to_owned())
    }

    /// All up to the first delivery of `id`.
    pub(super) fn until(&mut self, id: &str) -> Vec<(Option<String>, String)> {
        let mut seen = Vec::new();
        loop {
            seen.push(self.next());
            if seen.last().unwrap().0.as_deref() == Some(id) {
                return seen;
            }
            assert!(seen.len() < 100, "{seen:?}");
        }
    }

    /// What it said on stderr.
    pub(super) fn errors(&self) -> String {
        fs::read_to_string(self.errors.path()).unwrap()
    }

    /// SIGTERM; it has to come to an end of its own, and well.
    pub(super) fn stop(mut self) {
        let sent = Command::new("kill")
            .arg(self.process.id().to_string())
            .status()
            .unwrap();
        assert!(sent.success());
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not stop:\n{}", self.errors());
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(status.success(), "{status}:\n{}", self.errors());
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
