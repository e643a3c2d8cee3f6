//! Results on stdout: a table or lines for people, JSON for programs.
//!
//! All text that comes from outside is escaped before a terminal sees it: cells and lines through
//! `event::text::printable`, JSON by `\u` escapes, which a JSON reader undoes. Only [`Output::bytes`] is raw.

use std::fmt;
use std::io::{self, Write};

use comfy_table::{ContentArrangement, presets};
use serde::Serialize;

use crate::event::text::{printable, printable_json};

/// Where one command's results go.
pub struct Output {
    json: bool,
    /// Columns of the terminal, where there is one.
    width: Option<u16>,
    to: Box<dyn Write + Send>,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("json", &self.json)
            .finish_non_exhaustive()
    }
}

impl Output {
    /// To the terminal or pipe.
    pub fn stdout(json: bool) -> Self {
        let width = terminal_size::terminal_size_of(io::stdout()).map(|(columns, _)| columns.0);
        Self {
            width,
            ..Self::to(json, io::stdout())
        }
    }

    /// To any writer, for tests.
    pub fn to(json: bool, to: impl Write + Send + 'static) -> Self {
        Self {
            json,
            width: None,
            to: Box::new(to),
        }
    }

    /// Whether `--json` was asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// `value` as JSON under `--json`, else what `people` makes of it.
    pub fn show<T: Serialize>(&mut self, value: &T, people: impl FnOnce(&T) -> Table) -> io::Result<()> {
        if self.json {
            self.value(value)
        } else {
            self.table(&people(value))
        }
    }

    /// One JSON document.
    pub fn value(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value)?;
        self.write(&printable_json(&text))
    }

    /// One JSON document on one line, for streams.
    pub fn value_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        self.write(&printable_json(&text))
    }

    /// A table; its cells are already escaped.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        self.write(&table.within(self.width))
    }

    /// One line of text.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.write(&printable(text))
    }

    /// Bytes as they are, for `raw`.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        forgive(self.to.write_all(bytes).and_then(|()| self.to.flush()))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        forgive(writeln!(self.to, "{text}").and_then(|()| self.to.flush()))
    }
}

/// A reader that has seen enough (`| head`) is no failure.
fn forgive(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// A table for people: a heading and rows; columns as wide as they need, or as the terminal lets them be.
#[derive(Debug)]
pub struct Table(comfy_table::Table);

impl Table {
    /// An empty table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(headings.map(str::to_uppercase));
        Self(table)
    }

    /// Adds a row; every cell is escaped.
    pub fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.0.add_row(cells.map(|cell| printable(cell).into_owned()));
    }

    /// As text; long cells go on in the next line where `width` columns are not enough.
    fn within(&self, width: Option<u16>) -> String {
        let mut table = self.0.clone();
        if let Some(width) = width {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width);
        }
        let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a command printed, for tests of commands.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Captured(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Captured {
    /// An output and where it ends up.
    pub(crate) fn output(json: bool) -> (Output, Self) {
        let captured = Self::default();
        (Output::to(json, captured.clone()), captured)
    }

    /// Everything that was printed so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

#[cfg(test)]
impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Vec<&'static str> {
        vec!["ORDER-1", "\u{1b}[2Jgone\u{202e}\n"]
    }

    fn as_table(orders: &[&str]) -> Table {
        let mut table = Table::new(["order", "status"]);
        for order in orders {
            table.row([order, "paid"]);
        }
        table
    }

    #[test]
    fn a_table_is_aligned_and_escaped() {
        let captured = Captured::default();
        Output::to(false, captured.clone())
            .show(&orders(), |all| as_table(all))
            .unwrap();
        let text = captured.text();
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text:?}");
        assert_eq!(lines[0].find("STATUS"), lines[1].find("paid"));
    }

    #[test]
    fn a_table_keeps_within_a_terminal_and_loses_nothing() {
        let mut table = Table::new(["order", "reason"]);
        table.row(["ORDER-1", &"one word after another ".repeat(9)]);
        assert!(table.within(None).lines().any(|line| line.len() > 150));
        let narrow = table.within(Some(40));
        assert!(narrow.lines().all(|line| line.len() <= 40), "{narrow}");
        assert_eq!(narrow.matches("another").count(), 9);
    }

    #[test]
    fn json_reads_back_as_it_was_and_shows_no_control() {
        let captured = Captured::default();
        Output::to(true, captured.clone())
            .show(&orders(), |all| as_table(all))
            .unwrap();
        let text = captured.text();
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), orders());
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        Output::to(false, Closed).line("anyone there?").unwrap();
    }
}
