//! One file of `src` as the rules see it: its code, and the paths that the code names.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{manifest, shown, top};

/// One file of `src`, without comments and without the unit tests at its end.
pub(super) struct Source {
    path: PathBuf,
    pub(super) module: String,
    code: String,
}

impl Source {
    pub(super) fn new(path: PathBuf, module: &str, text: &str) -> Self {
        let mut code = String::with_capacity(text.len());
        for line in without_tests(text).lines() {
            let cut = match line.find("//") {
                // Not inside a URL.
                Some(at) if at == 0 || upto(line, at).ends_with(char::is_whitespace) => upto(line, at),
                _ => line,
            };
            writeln!(code, "{cut}").unwrap();
        }
        Self {
            path,
            module: module.to_owned(),
            code,
        }
    }

    /// Where the code names `path` as a path of its own, by line.
    pub(super) fn mentions(&self, path: &str) -> Vec<usize> {
        let follows = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let is_path = |rest: &str| path.contains("::") || rest.starts_with("::") || rest.starts_with(';');
        self.paths(path)
            .filter(|(_, rest)| follows(rest) && is_path(rest))
            .map(|(at, _)| self.line(at))
            .collect()
    }

    /// Every `(line, module)` at the crate's top level that the code names.
    pub(super) fn edges(&self) -> Vec<(usize, String)> {
        let mut edges = Vec::new();
        for (at, rest) in self.paths("crate::") {
            for target in targets(rest) {
                edges.push((self.line(at), target));
            }
        }
        // `super::` climbs from the file's own module; past its top it is `crate::`.
        let modules: Vec<_> = self.module.split("::").collect();
        for (at, mut rest) in self.paths("super::") {
            if upto(&self.code, at).ends_with("super::") {
                continue;
            }
            let mut climbed = 1;
            while let Some(further) = rest.strip_prefix("super::") {
                climbed += 1;
                rest = further;
            }
            // From within `mod x { … }` the first climbs only lead to the file's own module.
            let climbed = usize::saturating_sub(climbed, self.inline_depth(at));
            if climbed == 0 {
                continue;
            }
            let base = modules.len().saturating_sub(climbed);
            for target in targets(rest) {
                let whole: Vec<_> = modules
                    .iter()
                    .take(base)
                    .copied()
                    .chain([target.as_str()])
                    .collect();
                let whole = whole.join("::");
                let names_module = base == 0 || module_exists(&whole);
                if names_module && top(&whole) != top(&self.module) || whole.ends_with("::apply") {
                    edges.push((self.line(at), whole));
                }
            }
        }
        edges.sort();
        edges
    }

    /// Every place where `needle` begins a path, and what follows it.
    fn paths<'a>(&'a self, needle: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
        self.code.match_indices(needle).filter_map(move |(at, _)| {
            let before = upto(&self.code, at).chars().next_back();
            let begins = before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
                && (!upto(&self.code, at).ends_with("::") || needle.contains("::"));
            begins.then(|| (at, self.code.get(at + needle.len()..).unwrap_or_default()))
        })
    }

    /// In how many modules with a body in this file the code at `at` stands.
    fn inline_depth(&self, at: usize) -> usize {
        let mut open = Vec::new();
        for (brace, c) in upto(&self.code, at).char_indices() {
            match c {
                '{' => {
                    let line = upto(&self.code, brace)
                        .rsplit(['\n', ';', '}'])
                        .next()
                        .unwrap_or_default();
                    open.push(line.split_whitespace().rev().nth(1) == Some("mod"));
                }
                '}' => drop(open.pop()),
                _ => {}
            }
        }
        open.into_iter().filter(|is_module| *is_module).count()
    }

    fn line(&self, at: usize) -> usize {
        upto(&self.code, at).matches('\n').count() + 1
    }

    pub(super) fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", shown(&self.path))
    }
}

/// The modules named after `crate::`: one, or each of a `{group}`; two segments deep within `orders`, whose
/// parts have rules of their own.
fn targets(rest: &str) -> Vec<String> {
    let Some(group) = rest.strip_prefix('{') else {
        return vec![target(rest)];
    };
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(target(group.get(start..at).unwrap_or_default()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(target(group.get(start..at).unwrap_or_default()));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

fn target(path: &str) -> String {
    let name = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let first = name(path);
    let second = path
        .trim_start()
        .strip_prefix(&first)
        .and_then(|rest| rest.strip_prefix("::"));
    match second.map(name) {
        Some(second) if first == "orders" && second == "apply" => format!("{first}::{second}"),
        _ => first,
    }
}

fn module_exists(module: &str) -> bool {
    let path = manifest().join("src").join(module.replace("::", "/"));
    path.is_dir() || path.with_extension("rs").is_file()
}

fn upto(text: &str, at: usize) -> &str {
    text.get(..at).unwrap_or_default()
}

/// `text` up to the unit tests at its end.
pub(super) fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ")
        .map_or(text, |end| upto(text, end))
}
