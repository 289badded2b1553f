//! Text for one line of a terminal. Enters: text of objects. Leaves: the same without what
//! would break the line, cut or padded to a width.

use ifo_api::duration;
use jiff::Timestamp;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Text without what would break a row, reach the terminal as a command, or make it show
/// what follows in another order.
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .filter(|c| !turns(*c))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Whether it is a mark of the direction of writing. Such text is shown without them, too.
fn turns(c: char) -> bool {
    matches!(
        c,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// The longest beginning of `text` that is at most `width` columns wide, with `…` where
/// something is left out.
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

/// The same for a line that may have colours, which take no room and end with it.
pub(super) fn cut_painted(line: &str, width: usize) -> String {
    // A colour begins with ESC and ends with m, as `Paint` makes it.
    let mut in_color = false;
    let mut is_seen = |c: char| {
        let is_seen = !in_color && c != '\x1b';
        in_color = !is_seen && c != 'm';
        is_seen
    };
    let bare: String = line.chars().filter(|c| is_seen(*c)).collect();
    if bare.width() <= width {
        return line.to_owned();
    }
    let kept = cut(&bare, width);
    // The last one is the mark.
    let mut left = kept.chars().count().saturating_sub(1);
    let mut out = String::new();
    for c in line.chars() {
        if is_seen(c) {
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

/// Ends all colours.
const RESET: &str = "\x1b[0m";

/// How long `time` is ago, as kubectl prints it.
pub(super) fn ago(time: Timestamp, now: Timestamp) -> String {
    duration::human(now.as_second() - time.as_second())
}

/// The first names of a list, and how many more there are.
pub(super) fn first_names<'a>(names: impl Iterator<Item = &'a str>, most: usize) -> String {
    let all: Vec<&str> = names.collect();
    let shown = all[..all.len().min(most)].join(", ");
    match all.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `text` with blanks up to `width` columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(text.width());
    format!("{text}{:blanks$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_turns_the_rest_of_its_line_around() {
        assert_eq!(one_line("a\u{202e}b\u{2066}c\u{2069}\u{200f}d\n"), "abcd ");
        // What is written from right to left is so without marks.
        assert_eq!(one_line("שלום"), "שלום");
    }

    #[test]
    fn a_line_with_colours_is_cut_by_what_is_seen_of_it() {
        assert_eq!(cut_painted("\x1b[31mabc\x1b[0m", 3), "\x1b[31mabc\x1b[0m");
        assert_eq!(
            cut_painted("a \x1b[1;31mbcdef\x1b[0m g", 4),
            "a \x1b[1;31mb…\x1b[0m"
        );
        assert_eq!(cut_painted("日本語", 4), "日…");
        assert_eq!(cut_painted("abc", 0), "");
    }
}
