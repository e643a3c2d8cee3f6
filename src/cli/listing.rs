//! What the listing commands share: paging options, and reading the API's answers into cells.

use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::output::{Output, Table};
use crate::event::{Currency, Money};

/// Which page.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Paging {
    /// At most so many, newest first
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Go on where the page before ended
    #[arg(long)]
    cursor: Option<String>,
}

/// Query parameters, in the order in which they were given.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// With the page's parameters.
    pub(super) fn new(paging: &Paging) -> Self {
        Self(vec![("limit", paging.limit.to_string())]).with("cursor", paging.cursor.as_deref())
    }

    /// With one more, if it was given.
    pub(super) fn with(mut self, name: &'static str, value: Option<&str>) -> Self {
        self.0.extend(value.map(|value| (name, value.to_owned())));
        self
    }

    /// As the client takes them.
    pub(super) fn pairs(&self) -> &[(&'static str, String)] {
        &self.0
    }
}

/// A page as the API gives it.
#[derive(Debug, Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next_cursor: Option<String>,
}

/// Shows a page: exactly what the API said under `--json`, else a table and how to go on.
pub(super) fn show_page<T: DeserializeOwned>(
    out: &mut Output,
    answer: &Value,
    none: &str,
    table: impl FnOnce(&[T]) -> Table,
) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.value(answer)?);
    }
    let page: Page<T> = Deserialize::deserialize(answer)?;
    if page.items.is_empty() {
        return Ok(out.line(none)?);
    }
    out.table(&table(&page.items))?;
    if let Some(cursor) = page.next_cursor {
        out.line("")?;
        out.line(&format!("more: --cursor {cursor}"))?;
    }
    Ok(())
}

/// A value that may be missing.
pub(super) fn or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("-")
}

/// Minor units for people: `88.88 CNY`; without a currency the bare number.
pub(super) fn money(minor: Option<i64>, currency: Option<&str>) -> String {
    match (minor, currency.and_then(|code| Currency::new(code).ok())) {
        (None, _) => "-".to_owned(),
        (Some(minor), Some(currency)) => Money::new(minor, currency).to_string(),
        (Some(minor), None) => minor.to_string(),
    }
}
