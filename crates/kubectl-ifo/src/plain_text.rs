//! Prepares text for one line of a terminal: removes control characters, and cuts or pads the text
//! to a width.

use ifo_api::duration;
use jiff::Timestamp;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Replaces control characters with blanks, because they could break the line or control the
/// terminal. Removes characters that change the writing direction of later text.
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .filter(|c| !is_direction_control(*c))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Returns true if the character controls the writing direction. Text is readable without such
/// characters.
fn is_direction_control(c: char) -> bool {
    matches!(
        c,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Cuts `text` to at most `width` terminal columns. A text that was cut ends with `…`. With the
/// width 0, the result is empty.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or_default();
        if used > width {
            break;
        }
        out.push(c);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Cuts a line to at most `width` terminal columns. Escape sequences for colours have no width. If
/// a line with colours is cut, the escape sequence that ends all colours follows the `…`.
pub(super) fn cut_painted(line: &str, width: usize) -> String {
    // A colour sequence begins with ESC and ends with m, as `Paint` creates it.
    let mut in_color = false;
    let mut is_visible = |c: char| {
        let is_visible = !in_color && c != '\x1b';
        in_color = !is_visible && c != 'm';
        is_visible
    };
    let visible_text: String = line.chars().filter(|c| is_visible(*c)).collect();
    if visible_text.width() <= width {
        return line.to_owned();
    }
    let kept = cut(&visible_text, width);
    // The last character of `kept` is the mark `…`, which is added below.
    let mut left = kept.chars().count().saturating_sub(1);
    let mut out = String::new();
    for c in line.chars() {
        if is_visible(c) {
            if left == 0 {
                break;
            }
            left -= 1;
        }
        out.push(c);
    }
    let painted = out.contains('\x1b');
    out.extend(kept.chars().last());
    if painted {
        out.push_str(RESET);
    }
    out
}

/// The escape sequence that ends all colours.
const RESET: &str = "\x1b[0m";

/// Formats the age of `time` as kubectl does, such as `5m28s`.
pub(super) fn ago(time: Timestamp, now: Timestamp) -> String {
    duration::human(now.as_second() - time.as_second())
}

/// Formats at most `most` names, and the number of the other names: `a, b and 3 more`.
pub(super) fn first_names<'a>(names: impl Iterator<Item = &'a str>, most: usize) -> String {
    let all: Vec<&str> = names.collect();
    let shown = all[..all.len().min(most)].join(", ");
    match all.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Pads `text` with blanks to `width` terminal columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(text.width());
    format!("{text}{:blanks$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bidirectional_control_characters_are_removed() {
        assert_eq!(one_line("a\u{202e}b\u{2066}c\u{2069}\u{200f}d\n"), "abcd ");
        // Text in right-to-left scripts keeps its direction without control characters.
        assert_eq!(one_line("שלום"), "שלום");
    }

    #[test]
    fn colored_lines_are_cut_by_visible_width() {
        assert_eq!(cut_painted("\x1b[31mabc\x1b[0m", 3), "\x1b[31mabc\x1b[0m");
        assert_eq!(
            cut_painted("a \x1b[1;31mbcdef\x1b[0m g", 4),
            "a \x1b[1;31mb…\x1b[0m"
        );
        assert_eq!(cut_painted("日本語", 4), "日…");
        assert_eq!(cut_painted("abc", 0), "");
    }
}
