//! How a command that could not do its work ends: the words on stderr and the exit code.
//!
//! 1 is "it ran and failed", 2 is "it was asked wrongly": usage, configuration, a file that cannot be read.
//! The difference is the error's type, wherever it stands in the chain; everything unnamed is a 1.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::config::{ConfigErrors, TokenFileError};
use crate::event::text::printable;
use crate::telemetry::causes;

/// Did what it was asked.
pub const DONE: u8 = 0;
/// Ran, and failed.
pub const FAILED: u8 = 1;
/// Asked wrongly.
pub const MISUSED: u8 = 2;

/// Wrong usage, or a file that cannot be read: exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum Misuse {
    /// Arguments that do not go together or name nothing.
    #[error("{0}")]
    Usage(String),
    /// A file named by the caller.
    #[error("cannot read {path}")]
    Unreadable {
        /// As given.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Misuse {
    /// For an option or argument that cannot be used.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// For a file that could not be read.
    pub fn unreadable(path: &Path, source: std::io::Error) -> Self {
        Self::Unreadable {
            path: path.display().to_string(),
            source,
        }
    }
}

/// The exit code for an error.
pub fn code(error: &anyhow::Error) -> u8 {
    let misused = error
        .chain()
        .any(|cause| cause.is::<Misuse>() || cause.is::<ConfigErrors>() || cause.is::<TokenFileError>());
    if misused { MISUSED } else { FAILED }
}

/// Says on stderr what went wrong, the cause behind each colon, and gives the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let lines = render(error);
    // A stderr that is closed changes nothing about the exit code.
    std::io::stderr()
        .lock()
        .write_all(lines.as_bytes())
        .unwrap_or_default();
    ExitCode::from(code(error))
}

/// One line per line of the message: a list of configuration problems stays a list.
fn render(error: &anyhow::Error) -> String {
    let mut out = String::from("error: ");
    for line in causes(error.as_ref()).lines() {
        out.push_str(&printable(line));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_misuse_is_two_however_deep_it_stands() {
        let plain = anyhow::anyhow!("the server said 500");
        assert_eq!(code(&plain), FAILED);
        let deep: anyhow::Result<()> = Err(Misuse::usage("no such account"))
            .context("verify")
            .context("outer");
        assert_eq!(code(&deep.unwrap_err()), MISUSED);
    }

    #[test]
    fn a_configuration_with_problems_is_two_and_lists_them() {
        let environment = crate::config::Environment::default();
        let text = "colour = 1\nstore.url = 2";
        let errors = crate::config::Config::parse(text, Path::new("/"), &environment).unwrap_err();
        let error = anyhow::Error::from(errors).context("serve");
        assert_eq!(code(&error), MISUSED);
        assert_eq!(render(&error).lines().count(), 3, "{}", render(&error));
    }

    #[test]
    fn what_is_said_obeys_no_escape_sequence() {
        let error = anyhow::anyhow!("bad \u{1b}[31mname\nsecond line");
        assert_eq!(render(&error), "error: bad \\u{1b}[31mname\nsecond line\n");
    }
}
