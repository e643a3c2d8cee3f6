//! What is wrong with a configuration: every problem at once, each with its key path, none with a value.
//!
//! A value may be a secret that stands under the wrong key, so messages say what was expected instead.

use std::fmt;

use super::account::AccountProblem;

/// One thing to mend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Problem {
    /// `server.max_body`, `accounts[1].api_v3_key`, or a place in the text.
    pub path: String,
    /// In words.
    pub message: String,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl From<AccountProblem> for Problem {
    fn from(AccountProblem { path, message }: AccountProblem) -> Self {
        Self { path, message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// Where it was read from.
    pub origin: String,
    /// What is wrong with it, never empty.
    pub problems: Vec<Problem>,
}

impl ConfigErrors {
    /// A single problem with the whole.
    pub(super) fn one(origin: impl Into<String>, problem: Problem) -> Self {
        Self {
            origin: origin.into(),
            problems: vec![problem],
        }
    }
}

impl fmt::Display for ConfigErrors {
    /// One line, then one line for each problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration ({}) cannot be used:", self.origin)?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
