//! The text of a configuration, its defaults and the environment, laid over each other as tables.
//!
//! Order: `PAYHOOK__SECTION__KEY` over the file over the embedded example. `${ENV_VAR}` is filled into the
//! file's strings after parsing, so that a value can never become syntax. What the keys mean is for `keys`
//! and the sections.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::EXAMPLE;
use super::environment::Environment;
use super::problem::Problem;

/// Sections whose keys the environment can override.
const SECTIONS: [&str; 7] = [
    "server",
    "store",
    "broker",
    "worker",
    "orders",
    "retention",
    "log",
];
/// Their prefix in the environment.
const OVERRIDE: &str = "PAYHOOK__";
/// The shorthand for `log.filter`.
const LOG: &str = "PAYHOOK_LOG";

/// Tables that still have to be read.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// What the operator said.
    pub(super) given: Table,
    /// What holds otherwise.
    pub(super) defaults: Table,
    /// Values that came as text from the environment, by key path, and how: their type is in their meaning.
    pub(super) filled: BTreeMap<String, String>,
    /// What went wrong on the way.
    pub(super) problems: Vec<Problem>,
}

/// Reads `text` and the environment.
pub(super) fn lay(text: &str, environment: &Environment) -> Layers {
    // The example is part of the program; that it parses is a test, and a missing default says so by name.
    let mut layers = Layers {
        defaults: EXAMPLE.parse().unwrap_or_default(),
        ..Layers::default()
    };
    match text.trim_start_matches('\u{feff}').parse::<Table>() {
        Ok(table) => layers.given = table,
        Err(error) => {
            layers
                .problems
                .push(Problem::new(place(text, error.span()), error.message()));
            return layers;
        }
    }
    let mut fill = Fill {
        environment,
        filled: BTreeMap::new(),
        problems: Vec::new(),
    };
    for (key, value) in &mut layers.given {
        fill.value(key, value);
    }
    layers.filled = fill.filled;
    layers.problems.append(&mut fill.problems);
    for (name, value) in environment.starting(OVERRIDE) {
        layers.overlay(name, value);
    }
    if let Some(filter) = environment.filled(LOG) {
        layers.set("log", "filter", filter, LOG);
    }
    layers
}

/// `line 3, column 9`: never the line itself, which may hold a secret.
fn place(text: &str, span: Option<std::ops::Range<usize>>) -> String {
    let before = span.and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count().saturating_add(1);
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        .saturating_add(1);
    format!("line {line}, column {column}")
}

impl Layers {
    /// One `PAYHOOK__SECTION__KEY`.
    fn overlay(&mut self, rest: &str, value: &str) {
        let variable = format!("{OVERRIDE}{rest}");
        let lower = rest.to_ascii_lowercase();
        match lower.split_once("__") {
            Some((section, key)) if SECTIONS.contains(&section) && (section, key) != ("broker", "queues") => {
                self.set(section, key, value, &variable);
            }
            Some(("tokens" | "accounts", _) | ("broker", "queues")) => self.problems.push(Problem::new(
                variable,
                "a list of tables cannot be overridden; use ${ENV_VAR} inside its strings",
            )),
            _ => self.problems.push(Problem::new(
                variable,
                format!(
                    "must be PAYHOOK__SECTION__KEY, the section one of {}",
                    SECTIONS.join(", ")
                ),
            )),
        }
    }

    /// Puts `value` over whatever the file says, under the same name or as `x_file`.
    fn set(&mut self, section: &str, key: &str, value: &str, variable: &str) {
        let table = self
            .given
            .entry(section)
            .or_insert_with(|| Value::Table(Table::new()));
        let Some(table) = table.as_table_mut() else { return };
        match key.strip_suffix("_file") {
            Some(plain) => table.remove(plain),
            None => table.remove(&format!("{key}_file")),
        };
        table.insert(key.to_owned(), Value::String(value.to_owned()));
        self.filled
            .insert(format!("{section}.{key}"), format!("set by {variable}"));
    }
}

/// Fills `${ENV_VAR}` into strings, wherever they stand.
struct Fill<'a> {
    environment: &'a Environment,
    filled: BTreeMap<String, String>,
    problems: Vec<Problem>,
}

impl Fill<'_> {
    fn value(&mut self, path: &str, value: &mut Value) {
        match value {
            Value::String(text) if text.contains("${") => match self.text(text) {
                Ok(full) => {
                    *text = full;
                    self.filled
                        .insert(path.to_owned(), "filled in from the environment".to_owned());
                }
                Err(message) => {
                    text.clear();
                    self.problems.push(Problem::new(path, message));
                }
            },
            Value::Array(items) => {
                for (n, item) in items.iter_mut().enumerate() {
                    self.value(&format!("{path}[{n}]"), item);
                }
            }
            Value::Table(table) => {
                for (key, item) in table.iter_mut() {
                    self.value(&format!("{path}.{key}"), item);
                }
            }
            _ => {}
        }
    }

    /// `$${` is a plain `${`; what is filled in is not looked at again.
    fn text(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            let (name, tail) = after
                .split_once('}')
                .ok_or("has a ${ without its }; write $${ for a plain one")?;
            if !is_name(name) {
                return Err("has a ${…} that holds no variable name; write $${ for a plain one".to_owned());
            }
            let value = self
                .environment
                .get(name)
                .ok_or_else(|| format!("${{{name}}} is not set"))?;
            out.push_str(before);
            out.push_str(value);
            rest = tail;
        }
        out.push_str(rest);
        Ok(out)
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, environment: &Environment) -> Result<String, String> {
        Fill {
            environment,
            filled: BTreeMap::new(),
            problems: Vec::new(),
        }
        .text(text)
    }

    #[test]
    fn variables_are_filled_in_once() {
        let env = Environment::from([("A", "${B}"), ("B", "b")]);
        assert_eq!(filled("x${A}y${B}", &env).unwrap(), "x${B}yb");
        assert_eq!(filled("$${A}", &env).unwrap(), "${A}");
        assert_eq!(filled("$5 {A}", &env).unwrap(), "$5 {A}");
        for broken in ["${A", "${}", "${1}", "${a b}", "${MISSING}"] {
            assert!(filled(broken, &env).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_filled_value_is_never_syntax() {
        let env = Environment::from([("NAME", "a\"\nmax_body = \"1KiB")]);
        let layers = lay("[store]\nurl = \"${NAME}\"", &env);
        assert!(layers.problems.is_empty());
        assert_eq!(layers.given["store"].as_table().unwrap().len(), 1);
    }

    #[test]
    fn an_override_replaces_both_spellings_of_a_secret() {
        let env = Environment::from([
            ("PAYHOOK__STORE__URL", "sqlite:a.db"),
            ("PAYHOOK__BROKER__URL_FILE", "b"),
        ]);
        let layers = lay("store.url_file = \"x\"\nbroker.url = \"embedded\"", &env);
        assert_eq!(
            layers.given["store"]
                .as_table()
                .unwrap()
                .keys()
                .collect::<Vec<_>>(),
            ["url"]
        );
        assert_eq!(
            layers.given["broker"]
                .as_table()
                .unwrap()
                .keys()
                .collect::<Vec<_>>(),
            ["url_file"]
        );
    }

    #[test]
    fn a_syntax_error_shows_the_place_and_not_the_line() {
        let layers = lay(
            "[store]\nurl = \"postgres://u:hunter2@h/d\" oops",
            &Environment::default(),
        );
        let text = layers.problems[0].to_string();
        assert!(text.starts_with("line 2, column "), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
