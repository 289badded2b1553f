//! Prepares text for one line of a terminal: replaces line feeds, and pads the text to a width.

use ifo_api::{duration, printable};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// Replaces line feeds and tabs by blanks. Also replaces unprintable characters as the output does
/// later, so that the width of the text does not change afterwards.
pub(crate) fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// Formats the age of `time` as kubectl does, such as `5m28s`. The clock of the cluster can be
/// ahead, so a time in the future has the age 0s.
pub(crate) fn ago(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - time.as_second();
    duration::human(seconds.max(0))
}

/// Formats at most `most` names, and the number of the other names: `a, b and 3 more`.
pub(crate) fn first_names<'a>(names: impl Iterator<Item = &'a str>, most: usize) -> String {
    let all: Vec<&str> = names.collect();
    let shown = all[..all.len().min(most)].join(", ");
    match all.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Pads `text` with blanks to `width` terminal columns.
pub(crate) fn pad(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(text.width());
    format!("{text}{:blanks$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_would_change_the_line_are_replaced() {
        assert_eq!(one_line("a\u{202e}b\r\n\tc\u{1b}"), "a�b   c�");
        // Text in right-to-left scripts keeps its direction without control characters.
        assert_eq!(one_line("שלום"), "שלום");
    }
}
