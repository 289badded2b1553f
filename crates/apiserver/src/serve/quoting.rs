//! Quotes and shortens text from clients for messages. Text is quoted and escaped as in Go, because
//! the kube-apiserver is written in Go and its messages have this format.

use regex::Regex;
use std::fmt;
use std::sync::LazyLock;

/// If the text is longer than `max_bytes`, cuts off the rest and appends `…`. An answer can contain
/// a text from the client several times, and JSON can escape each byte with six bytes. Without this
/// limit, the answer could be many times as large as the request.
pub fn clip(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
}

/// Joins error messages in the format of Kubernetes: `a` and `b` give `[a, b]`. A single message is
/// returned unchanged.
pub fn join_errors(errors: &[String]) -> String {
    match errors {
        [message] => message.clone(),
        messages => format!("[{}]", messages.join(", ")),
    }
}

/// A text that is displayed as Go's `strconv.Quote` writes it.
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
/// does. `unicode.IsPrint` also returns true for the ASCII space, which the caller handles itself.
fn is_printable(c: char) -> bool {
    static PRINTABLE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("the pattern is a valid constant")
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
