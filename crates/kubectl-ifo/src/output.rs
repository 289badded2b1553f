//! Defines the output formats, and prints results, errors and notes. Results go to standard output.
//! Errors and notes go to standard error, in one line each. If an error is in a file, an excerpt of
//! the file can follow the line of the error.

use super::colors::Paint;
use super::plain_text::one_line;
use super::problem::Problem;
use clap::ValueEnum;
use ifo_client::short_names::ShortNames;
use serde::Serialize;
use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::sync::Arc;
use unicode_width::UnicodeWidthStr as _;

/// Output format of the commands without the formats `wide` and `name`, such as `rules test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// Output format of `list` and of the commands that share its output flags, such as `tree`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ListFormat {
    /// For people
    #[default]
    Table,
    /// For people, with more columns
    Wide,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// Resource and name, a line each
    Name,
}

/// The settings for the format of tables.
#[derive(Clone, Debug, Default)]
pub(super) struct TextStyle {
    /// Width of the terminal in columns. None if lines have no maximum width.
    pub(super) screen: Option<usize>,
    /// True if a table has all columns in full width.
    pub(super) wide: bool,
    /// Adds colours to the text, if colours are enabled.
    pub(super) paint: Paint,
    /// The short names of kinds. A table that is too wide for the terminal shows these names.
    pub(super) short_names: Arc<ShortNames>,
}

impl TextStyle {
    /// Returns the maximum width of a line, in columns of the terminal. Returns None if lines have
    /// no maximum width.
    pub(super) fn width(&self) -> Option<usize> {
        self.screen.filter(|_| !self.wide)
    }
}

impl ListFormat {
    /// Returns the format if it is JSON or YAML. Returns None for all other formats.
    pub(super) fn data_format(self) -> Option<Format> {
        match self {
            Self::Json => Some(Format::Json),
            Self::Yaml => Some(Format::Yaml),
            Self::Table | Self::Wide | Self::Name => None,
        }
    }

    /// Returns true for the formats that print a table.
    pub(super) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Number of blanks between two columns, as in kubectl.
pub(super) const COLUMN_GAP: usize = 3;

/// If a message needs at least this width in terminal columns, and the line has less room, the
/// message follows on the next line. The other columns need so much room that on a terminal with 80
/// columns, a message on the line is always complete.
pub(super) const MIN_MESSAGE_WIDTH: usize = 30;

/// The blanks before a message on a line of its own.
pub(super) const MESSAGE_INDENT: &str = "  ";

/// Writes `text` to standard output.
pub(super) fn print(text: &str) -> Result<(), Problem> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Problem::Closed,
        _ => Problem::Other(format!("cannot write to standard output: {error}")),
    })
}

/// Encodes `value` as JSON or YAML. Callers must not pass [`Format::Table`], because this function
/// cannot format tables: it would return JSON.
pub(super) fn encode<T: Serialize>(value: &T, format: Format) -> Result<String, Problem> {
    let text = match format {
        Format::Yaml => serde_saphyr::to_string(value).map_err(|error| error.to_string()),
        Format::Json | Format::Table => serde_json::to_string_pretty(value)
            .map(|text| text + "\n")
            .map_err(|error| error.to_string()),
    };
    text.map_err(Problem::Other)
}

/// Prints `value` as JSON or YAML.
pub(super) fn print_value<T: Serialize>(value: &T, format: Format) -> Result<(), Problem> {
    print(&encode(value, format)?)
}

/// Writes a message in one line to standard error, such as `error: TEXT` for the level `error`.
/// [`one_line`] replaces or removes control characters in the text.
pub(super) fn complain(level: &str, what: impl Display) {
    let text = one_line(&what.to_string());
    let _ = writeln!(std::io::stderr().lock(), "{level}: {text}");
}

/// Writes the lines of an excerpt to standard error, indented below the line of the error.
pub(super) fn print_excerpt(excerpt: &str) {
    for line in excerpt.lines() {
        print_error_line(&format!("    {}", one_line(line)));
    }
}

/// Writes a line to standard error. Control characters in the text are kept.
pub(super) fn print_error_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Formats rows below a header. Each column is as wide as its widest cell.
pub(super) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = header.map(str::width);
    // Cells contain text from objects. A line feed would break the row, and other control
    // characters could be commands for the terminal. `one_line` replaces or removes all of them.
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| one_line(cell)))
        .collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let mut text = String::new();
    let mut line = |cells: [&str; N]| {
        let start = text.len();
        for (cell, width) in cells.iter().zip(widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - cell.width() + COLUMN_GAP));
        }
        let end = text[start..].trim_end().len();
        text.truncate(start + end);
        text.push('\n');
    };
    line(header);
    for row in &rows {
        line(std::array::from_fn(|column| row[column].as_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_for_any_cell_content() {
        let rows = [
            ["é".to_owned(), "x\ny".to_owned()],
            ["日本".to_owned(), String::new()],
        ];
        assert_eq!(table(["A", "B"], &rows), "A      B\né      x y\n日本\n");
    }

    #[test]
    fn control_characters_in_cells_are_escaped() {
        let rows = [["e\u{1b}[31mvil\u{7}".to_owned(), "x".to_owned()]];
        assert_eq!(table(["A", "B"], &rows), "A            B\ne [31mvil    x\n");
    }
}
