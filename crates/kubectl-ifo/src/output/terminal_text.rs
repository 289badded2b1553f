//! Defines [`TerminalText`], the only type that the plugin prints as text. Text that comes from
//! objects, files and servers cannot control the terminal, because the conversion to this type
//! replaces unprintable characters. Only the styles of the plugin itself contain escape sequences.

use anstyle::Style;
use ifo_api::{is_unprintable, printable};
use std::fmt::Write as _;
use std::ops::{Add, AddAssign, Deref};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The escape sequence that ends all styles.
const RESET: &str = "\x1b[0m";

/// A text for standard output or standard error.
///
/// A conversion from a string replaces each unprintable character by `�`. Line feeds and tabs stay.
/// Only [`TerminalText::styled`] adds escape sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TerminalText(String);

impl TerminalText {
    /// Formats `text` in a style. `text` must be a single line.
    pub(crate) fn styled(style: Style, text: &str) -> Self {
        if text.is_empty() {
            return Self::default();
        }
        Self(format!("{style}{}{style:#}", printable(text)))
    }

    /// Converts a JSON document. Unprintable characters become escapes of JSON, such as `\u0085`.
    /// So the document keeps its meaning.
    pub(crate) fn json(document: &str) -> Self {
        let mut text = String::with_capacity(document.len());
        for c in document.chars() {
            if is_unprintable(c) {
                // All unprintable characters are in the first Unicode plane, so they need no
                // surrogates. Writing to a String cannot fail.
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            } else {
                text.push(c);
            }
        }
        Self(text)
    }

    /// Returns the lines. The plugin never uses a style for more than one line.
    pub(crate) fn split_lines(&self) -> Vec<Self> {
        self.0.lines().map(|line| Self(line.to_owned())).collect()
    }

    /// Returns the width in terminal columns. Escape sequences of styles have no width.
    pub(crate) fn width(&self) -> usize {
        let mut is_visible = is_visible();
        let visible: String = self.chars().filter(|c| is_visible(*c)).collect();
        visible.width()
    }

    /// Cuts a line to at most `width` terminal columns. Escape sequences of styles have no width.
    /// If a line with styles is cut, the escape sequence that ends all styles follows the `…`.
    pub(crate) fn cut(&self, width: usize) -> Self {
        if self.width() <= width {
            return self.clone();
        }
        let (mut is_visible, mut used, mut out) = (is_visible(), 1, String::new());
        for c in self.chars() {
            if is_visible(c) {
                used += c.width().unwrap_or_default();
                if used > width {
                    break;
                }
            }
            out.push(c);
        }
        if width > 0 {
            out.push('…');
        }
        if out.contains('\x1b') {
            out.push_str(RESET);
        }
        Self(out)
    }
}

/// Returns a function that the caller calls with each character of a text, in order. The function
/// returns true if the terminal shows the character. Escape sequences are not shown. They begin
/// with ESC and end with `m`.
fn is_visible() -> impl FnMut(char) -> bool {
    let mut in_style = false;
    move |c| {
        let is_visible = !in_style && c != '\x1b';
        in_style = !is_visible && c != 'm';
        is_visible
    }
}

impl Deref for TerminalText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str>> From<T> for TerminalText {
    fn from(text: T) -> Self {
        Self(printable(text.as_ref()).into_owned())
    }
}

impl<T: Into<TerminalText>> AddAssign<T> for TerminalText {
    fn add_assign(&mut self, text: T) {
        self.0.push_str(&text.into().0);
    }
}

impl<T: Into<TerminalText>> Add<T> for TerminalText {
    type Output = Self;

    fn add(mut self, text: T) -> Self {
        self += text;
        self
    }
}

impl<T: Into<TerminalText>> FromIterator<T> for TerminalText {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        texts.into_iter().fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstyle::AnsiColor;

    const HOSTILE: &str = "a\u{1b}[31m\u{9b}2J\u{202e}\n";

    #[test]
    fn no_conversion_from_a_string_keeps_unprintable_characters() {
        let safe = "a�[31m�2J�\n";
        let mut text = TerminalText::default();
        text += HOSTILE;
        text += HOSTILE.to_owned();
        assert_eq!(&*(text + HOSTILE), safe.repeat(3));
        assert_eq!(&*[HOSTILE].into_iter().collect::<TerminalText>(), safe);
        let red = TerminalText::styled(AnsiColor::Red.on_default(), HOSTILE);
        assert_eq!(&*red, format!("\x1b[31m{safe}\x1b[0m"));
        // The text of a `TerminalText` is a string, so a second conversion replaces its styles.
        assert!(!TerminalText::from(&*red).contains('\x1b'));
    }

    #[test]
    fn unprintable_characters_in_json_are_escaped() {
        let value = serde_json::json!({"a": HOSTILE.repeat(2) + "\u{7f}\u{85}\u{2028}é"});
        let text = TerminalText::json(&value.to_string());
        assert!(!text.contains(is_unprintable), "{text:?}");
        assert!(text.contains(r"\u007f\u0085\u2028é"), "{text:?}");
        let read: serde_json::Value = serde_json::from_str(&text).expect("the text is JSON");
        assert_eq!(read, value);
    }

    #[test]
    fn styled_lines_are_cut_by_visible_width() {
        let styled = |before: &str, text: &str, after: &str| {
            TerminalText::from(before)
                + TerminalText::styled(AnsiColor::Red.on_default(), text)
                + after
        };
        assert_eq!(&*styled("", "abc", "").cut(3), "\x1b[31mabc\x1b[0m");
        assert_eq!(&*styled("a ", "bcdef", " g").cut(4), "a \x1b[31mb…\x1b[0m");
        assert_eq!(&*TerminalText::from("日本語").cut(4), "日…");
        assert_eq!(&*TerminalText::from("abc").cut(0), "");
    }
}
