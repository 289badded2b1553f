//! Translates the characters and the classes of regular expressions, such as `\x41`, `\d` and
//! `[^a-z]`, from the syntax of RE2 to the syntax of the `regex` crate.

use std::fmt::Write;

/// Number of characters that a Unicode class such as `\pL` counts for
/// [`Translated::folded_chars`]. Its text does not contain the number of its characters. The
/// `regex` crate needs about as much time for it as for so many characters.
const CHARS_OF_UNICODE_CLASS: u64 = 1 << 16;

/// A pattern, a part of which is translated.
pub(super) struct PatternText<'p> {
    /// The text that is not translated yet.
    pub rest: &'p str,
    /// The translated text.
    pub out: String,
    /// The number of characters of all classes so far.
    pub class_chars: u64,
}

impl PatternText<'_> {
    pub(super) fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Translates an escape such as `\d` or `\pL` to a text for the inside of brackets: `\d` gives
    /// `0-9`. Returns None for an escape that is not a class, such as `\n`.
    pub(super) fn class_escape(&mut self) -> Result<Option<String>, String> {
        let Some(c) = self.rest.chars().nth(1) else {
            return Err(r"trailing backslash at end of expression: ``".to_owned());
        };
        let class = match c {
            'd' => "0-9",
            'D' => "[^0-9]",
            's' => r"\t\n\f\r ",
            'S' => r"[^\t\n\f\r ]",
            'w' => "0-9A-Za-z_",
            'W' => "[^0-9A-Za-z_]",
            'p' | 'P' => return self.unicode_class(c == 'P').map(Some),
            _ => return Ok(None),
        };
        self.skip(2);
        self.class_chars += match c {
            'D' | 'S' | 'W' => u64::from(u32::from(char::MAX)),
            _ => 64,
        };
        Ok(Some(class.to_owned()))
    }

    fn unicode_class(&mut self, mut negated: bool) -> Result<String, String> {
        let whole = self.rest;
        let invalid = || format!("invalid character class range: `{whole}`");
        let after = whole.get(2..).unwrap_or_default();
        let (name, len) = if let Some(braced) = after.strip_prefix('{') {
            let (name, _) = braced.split_once('}').ok_or_else(invalid)?;
            (name, name.len() + 2)
        } else {
            let len = after.chars().next().map_or(0, char::len_utf8);
            (&after[..len], len)
        };
        let bare = name.strip_prefix('^').unwrap_or(name);
        negated ^= bare.len() != name.len();
        if bare.is_empty() || !bare.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(invalid());
        }
        self.skip(2 + len);
        self.class_chars += CHARS_OF_UNICODE_CLASS;
        Ok(format!("\\{}{{{bare}}}", if negated { 'P' } else { 'p' }))
    }

    /// Parses an escape that stands for one character, such as `\n` or `\x41`.
    pub(super) fn escaped_char(&mut self) -> Result<char, String> {
        let whole = self.rest;
        let mut ahead = whole.char_indices().skip(1);
        let invalid = |len: usize| {
            let end = whole
                .char_indices()
                .nth(len)
                .map_or(whole.len(), |(at, _)| at);
            format!("invalid escape sequence: `{}`", &whole[..end])
        };
        let Some((_, c)) = ahead.next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let octal = |text: &str, most: usize| {
            let len = text
                .bytes()
                .take(most)
                .take_while(|b| (b'0'..=b'7').contains(b))
                .count();
            (u32::from_str_radix(&text[..len], 8).ok(), len)
        };
        let (value, len) = match c {
            'a' => ('\u{7}', 2),
            'f' => ('\u{c}', 2),
            't' => ('\t', 2),
            'n' => ('\n', 2),
            'r' => ('\r', 2),
            'v' => ('\u{b}', 2),
            '0'..='7' => {
                let (value, len) = octal(&whole[1..], 3);
                // A single digit from 1 to 7 is a backreference, which RE2 does not support.
                match value.and_then(char::from_u32) {
                    Some(value) if c == '0' || len > 1 => (value, 1 + len),
                    _ => return Err(invalid(2)),
                }
            }
            'x' => {
                let after = &whole[2..];
                let (digits, len) = match after.strip_prefix('{') {
                    Some(braced) => {
                        let digits = braced.split('}').next().unwrap_or_default();
                        let closed = digits.len() < braced.len();
                        (digits, if closed { digits.len() + 4 } else { 0 })
                    }
                    None => (after.get(..2).unwrap_or_default(), 4),
                };
                let valid = len > 0 && digits.bytes().all(|b| b.is_ascii_hexdigit());
                let value = valid
                    .then(|| {
                        u32::from_str_radix(digits, 16)
                            .ok()
                            .and_then(char::from_u32)
                    })
                    .flatten();
                match value {
                    Some(value) => (value, len),
                    None => return Err(invalid(2)),
                }
            }
            c if c.is_ascii_punctuation() || c == ' ' || c.is_ascii_control() => (c, 2),
            _ => return Err(invalid(2)),
        };
        self.skip(len);
        Ok(value)
    }

    /// Translates a class in brackets, such as `[a-z]`.
    pub(super) fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        let missing = || format!("missing closing ]: `{whole}`");
        self.skip(1);
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.rest.chars().next().ok_or_else(missing)?;
            if c == ']' && !first {
                self.skip(1);
                self.out.push(']');
                return Ok(());
            }
            first = false;
            if self.rest.starts_with("[:")
                && let Some(end) = self.rest[2..].find(":]").map(|end| end + 2)
            {
                let name = &self.rest[..end + 2];
                let bare = &name[2..end];
                let bare = bare.strip_prefix('^').unwrap_or(bare);
                if !POSIX.contains(&bare) {
                    return Err(format!("invalid character class range: `{name}`"));
                }
                self.out.push_str(name);
                self.skip(end + 2);
                continue;
            }
            if c == '\\'
                && let Some(class) = self.class_escape()?
            {
                self.out.push_str(&class);
                continue;
            }
            let start = self.rest;
            let low = self.class_char().ok_or_else(missing)??;
            let mut high = low;
            let range = self.rest.strip_prefix('-');
            if let Some(rest) = range.filter(|rest| !rest.starts_with(']') && !rest.is_empty()) {
                self.rest = rest;
                high = self.class_char().ok_or_else(missing)??;
                if high < low {
                    let text = &start[..start.len() - self.rest.len()];
                    return Err(format!("invalid character class range: `{text}`"));
                }
            }
            self.class_chars += u64::from(u32::from(high) - u32::from(low)) + 1;
            push_literal(&mut self.out, low);
            if high != low {
                self.out.push('-');
                push_literal(&mut self.out, high);
            }
        }
    }

    fn class_char(&mut self) -> Option<Result<char, String>> {
        let c = self.rest.chars().next()?;
        if c == '\\' {
            return Some(self.escaped_char());
        }
        self.skip(c.len_utf8());
        Some(Ok(c))
    }
}

/// The names of POSIX classes, such as `[:alpha:]`.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Writes `c`. An ASCII character that is neither a letter nor a digit is escaped, because it can
/// have a special meaning.
pub(super) fn push_literal(out: &mut String, c: char) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        // Writing to a string cannot fail.
        let _ = write!(out, r"\x{{{:x}}}", u32::from(c));
    }
}
