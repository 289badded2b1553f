//! Quotes text of a client in messages. Kubernetes' own messages use Go's quotes, so that no
//! character of the text is taken for a part of the message.

use regex::Regex;
use std::fmt;
use std::sync::LazyLock;

/// Shortens the text to `most` bytes. The text of a client may be a whole URL. An answer may repeat
/// it several times, with six bytes for one that JSON escapes.
pub fn clip(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
}

/// Joins several errors as Go does: in brackets if there is more than one.
pub fn together(complaints: &[String]) -> String {
    match complaints {
        [one] => one.clone(),
        more => format!("[{}]", more.join(", ")),
    }
}

/// Prints a text as Go's `strconv.Quote` does.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\u{7}' => f.write_str("\\a")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\u{b}' => f.write_str("\\v")?,
                ' '..='~' => write!(f, "{c}")?,
                _ if c.is_ascii() => write!(f, "\\x{:02x}", u32::from(c))?,
                _ if is_printable(c) => write!(f, "{c}")?,
                '\u{10000}'.. => write!(f, "\\U{:08x}", u32::from(c))?,
                _ => write!(f, "\\u{:04x}", u32::from(c))?,
            }
        }
        f.write_str("\"")
    }
}

/// Returns true for letters, marks, numbers, punctuation and symbols, as Go's `unicode.IsPrint`
/// does.
fn is_printable(c: char) -> bool {
    static PRINTABLE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("it is a regular expression")
    });
    PRINTABLE.is_match(c.encode_utf8(&mut [0; 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_in_go() {
        for (text, quoted) in [
            ("", r#""""#),
            ("a'b", r#""a'b""#),
            ("\"\\", r#""\"\\""#),
            (
                "\0\u{7}\u{8}\t\n\u{b}\u{c}\r\u{1b}\u{7f}",
                r#""\x00\a\b\t\n\v\f\r\x1b\x7f""#,
            ),
            ("é瞞😀", r#""é瞞😀""#),
            ("e\u{301}\u{301}", "\"e\u{301}\u{301}\""),
            (
                "\u{80}\u{200b}\u{e000}\u{e0001}",
                r#""\u0080\u200b\ue000\U000e0001""#,
            ),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
    }
}
