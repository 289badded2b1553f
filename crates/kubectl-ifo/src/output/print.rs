//! Defines the output formats, and prints results, errors and notes. Results go to standard output.
//! Errors and notes go to standard error, in one line each. If an error is in a file, an excerpt of
//! the file can follow the line of the error.
//!
//! Apart from this module, only the screen of `top` and shell completion write to standard output.
//! In this module, all text from objects, files and servers passes through [`TerminalText`], which
//! replaces characters that could control the terminal.

pub(crate) use crate::output::terminal_text::TerminalText;

use crate::cluster::problem::Problem;
use crate::output::colors::Paint;
use crate::output::columns::OperationColumn;
use crate::output::plain_text::one_line;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ifo_client::short_names::ShortNames;
use serde::Serialize;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use unicode_width::UnicodeWidthStr as _;

/// Output format. Commands that accept only some formats use [`formats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    #[value(alias = "text")]
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
pub(crate) struct TextStyle {
    /// Width of the terminal in columns. None if lines have no maximum width.
    pub(crate) screen: Option<usize>,
    /// True if a table has all columns in full width.
    pub(crate) wide: bool,
    /// The columns of a table of operations. If this is empty, the table has the columns of `list`.
    pub(crate) columns: &'static [OperationColumn],
    /// Adds colours to the text, if colours are enabled.
    pub(crate) paint: Paint,
    /// The short names of kinds. A table that is too wide for the terminal shows these names.
    pub(crate) short_names: Arc<ShortNames>,
}

/// Returns the parser of a flag that accepts only these formats.
pub(crate) fn formats(
    names: impl IntoIterator<Item = &'static str>,
) -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(names).map(|text| {
        Format::from_str(&text, true).expect("the parser accepts only names of formats")
    })
}

impl Format {
    /// Returns true for the formats that print a table.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Number of blanks between two columns, as in kubectl.
pub(crate) const COLUMN_GAP: usize = 3;

/// Writes `text` to standard output.
pub(crate) fn print(text: impl Into<TerminalText>) -> Result<(), Problem> {
    let text = text.into();
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Problem::Closed,
        _ => Problem::Other(format!("cannot write to standard output: {error}")),
    })
}

/// Returns an error if the path exists, or is `-`, which means standard output in other programs.
pub(crate) fn check_new(path: &Path) -> Result<(), Problem> {
    let is_new = path.as_os_str() != "-" && !path.exists();
    let why = || Problem::Usage(format!("cannot write {}: name a new file", path.display()));
    is_new.then_some(()).ok_or_else(why)
}

/// Creates a new file that only the user may read.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// Encodes `value` as YAML, or as JSON for another format.
///
/// Unprintable characters in strings are escaped, with one exception. `serde_saphyr` does not
/// escape characters that change the direction of text. In YAML, `�` replaces these characters.
pub(crate) fn encode<T: Serialize>(value: &T, format: Format) -> Result<TerminalText, Problem> {
    if format == Format::Yaml {
        let text = serde_saphyr::to_string(value).map(TerminalText::from);
        return text.map_err(|error| Problem::Other(error.to_string()));
    }
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Problem::Other(error.to_string()))?;
    Ok(TerminalText::json(&text) + "\n")
}

/// Prints `value` as JSON or YAML.
pub(crate) fn print_value<T: Serialize>(value: &T, format: Format) -> Result<(), Problem> {
    print(encode(value, format)?)
}

/// Writes a message in one line to standard error, such as `error: TEXT` for the level `error`.
pub(crate) fn complain(level: &str, what: impl Display) {
    print_error_line(&format!("{level}: {what}"));
}

/// Writes the lines of an excerpt to standard error, indented below the line of the error.
pub(crate) fn print_excerpt(excerpt: &str) {
    for line in excerpt.lines() {
        print_error_line(&format!("    {line}"));
    }
}

/// Writes a text to standard error as one line.
pub(crate) fn print_error_line(text: &str) {
    print_error_text(one_line(text) + "\n");
}

/// Writes a text to standard error. An error is ignored, because there is no place to report it.
pub(crate) fn print_error_text(text: impl Into<TerminalText>) {
    let mut out = std::io::stderr().lock();
    let written = out.write_all(text.into().as_bytes());
    let _ = written.and_then(|()| out.flush());
}

/// Prints the answer of clap to a command line: the help, the version or an error. Returns the exit
/// code.
///
/// An error quotes arguments, and a script can pass text of objects as arguments. So an error is
/// printed as [`TerminalText`], without the colours of clap.
pub(crate) fn print_clap_answer(answer: &clap::Error) -> ExitCode {
    if answer.use_stderr() {
        print_error_text(answer.render().to_string());
    } else {
        let _ = answer.print();
    }
    u8::try_from(answer.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Formats rows below a header. Each column is as wide as its widest cell.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> TerminalText {
    // Cells contain text from objects, and a line feed would break the row.
    let rows = rows.iter().map(|row| row.each_ref().map(|it| one_line(it)));
    let header = std::iter::once(header.map(str::to_owned));
    let rows: Vec<[String; N]> = header.chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].width());
        cells.max().unwrap_or_default()
    });
    let lines = rows.iter().map(|row| {
        let row = row.iter().map(TerminalText::from).zip(widths);
        cells(row, COLUMN_GAP) + "\n"
    });
    lines.collect()
}

/// Formats the cells of a line. A cell is its text and the width of its column. Blanks are written
/// only if a text follows, so that no line ends with blanks.
pub(crate) fn cells(
    all: impl IntoIterator<Item = (TerminalText, usize)>,
    gap: usize,
) -> TerminalText {
    let mut line = TerminalText::default();
    let mut blanks = 0;
    for (text, column) in all {
        let width = text.width();
        if width > 0 {
            line += " ".repeat(std::mem::take(&mut blanks));
            line += text;
        }
        blanks += column.saturating_sub(width) + gap;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn columns_are_aligned_for_any_cell_content() {
        let rows = [
            ["é".to_owned(), "x\ny".to_owned()],
            ["日本".to_owned(), String::new()],
        ];
        assert_eq!(&*table(["A", "B"], &rows), "A      B\né      x y\n日本\n");
    }

    #[test]
    fn unprintable_characters_keep_the_alignment_of_columns() {
        let rows = [["e\u{1b}[31mvil\u{202e}".to_owned(), "x".to_owned()]];
        assert_eq!(
            &*table(["A", "B"], &rows),
            "A            B\ne�[31mvil�   x\n"
        );
    }

    /// A command that writes to the terminal without this module could print unprintable
    /// characters.
    #[test]
    fn only_this_module_writes_to_the_terminal() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders = vec![folder.clone()];
        let mut writers = BTreeSet::new();
        while let Some(folder_of_files) = folders.pop() {
            for entry in std::fs::read_dir(folder_of_files).expect("the folder is readable") {
                let path = entry.expect("the folder is readable").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let source = std::fs::read_to_string(&path).expect("the file is readable");
                let calls = ["stdout()", "stderr()", "print!(", "println!(", "dbg!("];
                let asks_only = ["is_terminal()", "terminal_size_of("];
                let writes = |line: &str| {
                    let has = |words: &[&str]| words.iter().any(|it| line.contains(it));
                    !line.trim_start().starts_with("//") && has(&calls) && !has(&asks_only)
                };
                if source.lines().any(writes) {
                    let name = path
                        .strip_prefix(&folder)
                        .expect("the file is in the folder");
                    writers.insert(name.display().to_string());
                }
            }
        }
        assert_eq!(writers, BTreeSet::from(["output/print.rs".to_owned()]));
    }
}
