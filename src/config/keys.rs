//! One table of the configuration, read key by key.
//!
//! Each call takes one key out, judges it and notes a problem under its path; what is left over at the end is
//! unknown. A key that cannot be used yields a stand-in, so that reading goes on and every problem is found;
//! a configuration with problems is never handed out.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use toml::{Table, Value};

use super::problem::Problem;
use super::spell::spell;

/// What is still to be read of one table.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    path: String,
    given: Table,
    defaults: Table,
    context: Context<'a>,
    problems: Vec<Problem>,
}

/// What all tables of one configuration share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    /// Relative paths start here.
    pub(super) dir: &'a Path,
    /// Values that came as text from the environment.
    pub(super) filled: &'a BTreeMap<String, String>,
}

/// A list item and its own path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) path: String,
    pub(super) text: String,
}

impl<'a> Keys<'a> {
    /// A table found at `path`, with what holds where it is silent.
    pub(super) fn new(path: impl Into<String>, given: Table, defaults: Table, context: Context<'a>) -> Self {
        Self {
            path: path.into(),
            given,
            defaults,
            context,
            problems: Vec::new(),
        }
    }

    /// The full path of a key.
    pub(super) fn at(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// This table's own path.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Notes a problem with a key of this table.
    pub(super) fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.problem_at(self.at(key), message);
    }

    /// Notes a problem at a full path, with the variable that the value came from.
    pub(super) fn problem_at(&mut self, path: String, message: impl Into<String>) {
        let mut message = message.into();
        if let Some(how) = self.context.filled.get(&path) {
            message = format!("{message} ({how})");
        }
        self.problems.push(Problem { path, message });
    }

    /// Whether a problem with this key has been noted.
    pub(super) fn is_broken(&self, key: &str) -> bool {
        let path = self.at(key);
        self.problems.iter().any(|problem| problem.path == path)
    }

    /// Whether a problem with this key, its file or one of its items has been noted.
    pub(super) fn is_broken_below(&self, key: &str) -> bool {
        let path = self.at(key);
        self.problems
            .iter()
            .any(|problem| problem.path.starts_with(&path))
    }

    /// Gives up on the keys that are left: nobody can say whether they are known.
    pub(super) fn forget(&mut self) {
        self.given.clear();
    }

    /// Whether the operator gave this key.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }

    /// The names of the keys that are given, in order.
    pub(super) fn names(&self) -> Vec<String> {
        self.given.keys().cloned().collect()
    }

    /// Takes a key as given.
    pub(super) fn take_given(&mut self, key: &str) -> Option<Value> {
        self.given.remove(key)
    }

    /// Takes a key as given, else its default.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        let default = self.defaults.remove(key);
        self.given.remove(key).or(default)
    }

    /// Text that may be absent; never empty.
    pub(super) fn maybe_text(&mut self, key: &str) -> Option<String> {
        let value = self.take(key)?;
        self.as_text(self.at(key), value)
    }

    /// Text that must be there.
    pub(super) fn text(&mut self, key: &str) -> String {
        if !self.given.contains_key(key) && !self.defaults.contains_key(key) {
            self.problem(key, "is missing");
        }
        self.maybe_text(key).unwrap_or_default()
    }

    /// Text that `parse` turns into something else; `expected` completes "must be …".
    pub(super) fn parsed<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(key);
        if self.is_broken(key) {
            return None;
        }
        let parsed = parse(&text);
        if parsed.is_none() {
            self.problem(key, format!("must be {expected}"));
        }
        parsed
    }

    /// A time within bounds.
    pub(super) fn duration(&mut self, key: &str, bounds: RangeInclusive<Duration>) -> Duration {
        let expected = format!(
            "a time such as \"300s\" or \"25h\", from {} to {}",
            spell(*bounds.start()),
            spell(*bounds.end())
        );
        let within = |text: &str| {
            humantime::parse_duration(text)
                .ok()
                .filter(|found| bounds.contains(found))
        };
        self.parsed(key, &expected, within).unwrap_or_default()
    }

    /// A size in bytes within bounds.
    pub(super) fn size(&mut self, key: &str, bounds: RangeInclusive<u64>) -> usize {
        let expected = format!(
            "a size such as \"1MiB\" or \"512KB\", from {} to {}",
            ByteSize(*bounds.start()),
            ByteSize(*bounds.end())
        );
        let within = |text: &str| {
            let bytes = text.parse::<ByteSize>().ok()?.as_u64();
            bounds
                .contains(&bytes)
                .then(|| usize::try_from(bytes).ok())
                .flatten()
        };
        self.parsed(key, &expected, within).unwrap_or_default()
    }

    /// A whole number within bounds.
    pub(super) fn integer(&mut self, key: &str, bounds: RangeInclusive<u32>) -> u32 {
        let found = match self.take(key) {
            Some(Value::Integer(number)) => u32::try_from(number).ok(),
            Some(Value::String(text)) if self.is_filled(key) => text.trim().parse().ok(),
            Some(_) => None,
            None => {
                self.problem(key, "is missing");
                return 0;
            }
        };
        found.filter(|number| bounds.contains(number)).unwrap_or_else(|| {
            self.problem(
                key,
                format!(
                    "must be a whole number from {} to {}",
                    bounds.start(),
                    bounds.end()
                ),
            );
            0
        })
    }

    /// `true` or `false`, or absent.
    pub(super) fn maybe_boolean(&mut self, key: &str) -> Option<bool> {
        match self.take(key)? {
            Value::Boolean(found) => return Some(found),
            Value::String(text) if self.is_filled(key) => {
                if let Ok(found) = text.trim().parse() {
                    return Some(found);
                }
            }
            _ => {}
        }
        self.problem(key, "must be true or false");
        None
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, key: &str) -> bool {
        self.maybe_boolean(key).unwrap_or_default()
    }

    /// A list of texts, none empty; from the environment it is separated by commas.
    pub(super) fn list(&mut self, key: &str) -> Vec<Item> {
        let path = self.at(key);
        let values = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => values,
            Some(Value::String(text)) if self.is_filled(key) => text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(|item| Value::String(item.to_owned()))
                .collect(),
            Some(other) => {
                self.problem(key, format!("must be a list of strings, not {}", kind(&other)));
                return Vec::new();
            }
        };
        let items = values.into_iter().enumerate().filter_map(|(n, value)| {
            let path = format!("{path}[{n}]");
            self.as_text(path.clone(), value).map(|text| Item { path, text })
        });
        items.collect()
    }

    /// A list of tables, each read by `read`.
    pub(super) fn tables<T>(&mut self, key: &str, mut read: impl FnMut(&mut Keys<'a>) -> T) -> Vec<T> {
        let path = self.at(key);
        let values = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => values,
            Some(other) => {
                self.problem(key, format!("must be a list of tables, not {}", kind(&other)));
                return Vec::new();
            }
        };
        let mut found = Vec::with_capacity(values.len());
        for (n, value) in values.into_iter().enumerate() {
            let path = format!("{path}[{n}]");
            match value {
                Value::Table(table) => {
                    let mut keys = Keys::new(path, table, Table::new(), self.context);
                    found.push(read(&mut keys));
                    self.problems.append(&mut keys.finish());
                }
                other => self.problem_at(path, format!("must be a table, not {}", kind(&other))),
            }
        }
        found
    }

    /// One section, read by `read`.
    pub(super) fn section<T>(&mut self, key: &str, read: impl FnOnce(&mut Keys<'a>) -> T) -> T {
        let defaults = match self.defaults.remove(key) {
            Some(Value::Table(table)) => table,
            _ => Table::new(),
        };
        let given = match self.given.remove(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(other) => {
                self.problem(key, format!("must be a section, not {}", kind(&other)));
                Table::new()
            }
        };
        let mut keys = Keys::new(self.at(key), given, defaults, self.context);
        let found = read(&mut keys);
        self.problems.append(&mut keys.finish());
        found
    }

    /// A path, relative to the configuration's folder.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.context.dir.join(path)
    }

    /// Whatever is left over is unknown; gives all problems of this table.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        for key in std::mem::take(&mut self.given).keys() {
            self.problem(key, "is not a known key");
        }
        self.problems
    }

    fn is_filled(&self, key: &str) -> bool {
        self.context.filled.contains_key(&self.at(key))
    }

    /// A non-empty string, or a problem at `path`.
    pub(super) fn as_text(&mut self, path: String, value: Value) -> Option<String> {
        match value {
            Value::String(text) if text.trim().is_empty() => self.problem_at(path, "is empty"),
            Value::String(text) => return Some(text),
            other => self.problem_at(path, format!("must be a string in quotes, not {}", kind(&other))),
        }
        None
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}
