//! Translates regular expressions from the syntax of RE2, which CEL and Go use, to the syntax of
//! the `regex` crate.
//!
//! Some constructs of RE2 have another meaning in the `regex` crate. For example, `\d` in the crate
//! matches the digits of every script, and `&&` in a class is an operator. This module parses a
//! pattern like Go, and replaces each such construct by one that has RE2's meaning in the crate.
//! For example, `\d` becomes `[0-9]`.

use std::fmt::Write;

/// Maximum repetition count, as in Go. The counts of nested repetitions are multiplied:
/// `(a{10}){20}` has the count 200. A pattern with a count above the maximum is an error.
const MAX_REPEAT: u64 = 1000;

/// Number of characters that a Unicode class such as `\pL` counts for
/// [`Translated::folded_chars`]. Its text does not contain the number of its characters. The
/// `regex` crate needs about as much time for it as for so many characters.
const CHARS_OF_UNICODE_CLASS: u64 = 1 << 16;

/// A translated pattern.
pub(super) struct Translated {
    /// The pattern in the syntax of the `regex` crate.
    pub text: String,
    /// The estimated number of automaton states. A search with more states costs more steps of the
    /// budget of the evaluation.
    pub states: u64,
    /// The number of characters of all classes, if a part of the pattern ignores case. Otherwise 0.
    /// For each of these characters, the `regex` crate searches the other case. A class with all
    /// characters of Unicode takes about 5 ms.
    pub folded_chars: u64,
}

/// Translates a pattern. For an invalid pattern, returns Go's error.
pub(super) fn translate(source: &str) -> Result<Translated, String> {
    let mut translator = Translator {
        rest: source,
        out: String::with_capacity(source.len() * 2),
        groups: vec![Group::default()],
        class_chars: 0,
        ignores_case: false,
    };
    translator.run()?;
    if translator.groups.len() > 1 {
        return Err(format!("missing closing ): `{source}`"));
    }
    let states = translator.groups.pop().map_or(0, |group| group.states);
    Ok(Translated {
        text: translator.out,
        states,
        folded_chars: if translator.ignores_case {
            translator.class_chars
        } else {
            0
        },
    })
}

/// The state of a translation.
struct Translator<'p> {
    /// The text that is not translated yet.
    rest: &'p str,
    /// The translated text.
    out: String,
    /// The open groups. The first group is the whole pattern.
    groups: Vec<Group>,
    /// The number of characters of all classes so far.
    class_chars: u64,
    /// True if the pattern contains the flag `i`.
    ignores_case: bool,
}

/// An open group.
#[derive(Default)]
struct Group {
    /// The largest repetition count in the group. Counts of nested repetitions are multiplied.
    max_repeats: u64,
    /// The estimated number of automaton states, without the states of `atom`.
    states: u64,
    /// The last atom, to which the next repetition operator applies. None if no repetition operator
    /// can follow, such as after `(` and after `|`.
    atom: Option<Atom>,
}

/// A character, a class or a group, with the repetition operator after it.
#[derive(Clone, Copy)]
struct Atom {
    /// The largest repetition count inside the atom, multiplied by the atom's own repetition count.
    repeats: u64,
    /// The estimated number of automaton states.
    states: u64,
    /// True if the atom has a repetition operator.
    repeated: bool,
}

impl Translator<'_> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => {
                    self.skip(1);
                    self.finish_atom();
                    self.out.push('|');
                }
                '[' => {
                    let from = self.out.len();
                    self.class()?;
                    let states = class_states(self.out.get(from..).unwrap_or_default());
                    self.atom(1, states);
                }
                '\\' => self.escape()?,
                '*' | '+' | '?' => {
                    let repeat = &self.rest[..1];
                    self.skip(1);
                    self.repeat(repeat, 1)?;
                }
                '{' => self.braces()?,
                '^' | '$' | '.' => {
                    self.skip(1);
                    self.out.push(c);
                    self.atom(1, 1);
                }
                _ => {
                    self.skip(c.len_utf8());
                    self.literal(c);
                }
            }
        }
        self.finish_atom();
        Ok(())
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn group(&mut self) -> Option<&mut Group> {
        self.groups.last_mut()
    }

    /// Adds the last atom to its group. After that, no repetition operator can apply to this atom.
    fn finish_atom(&mut self) {
        if let Some(group) = self.group()
            && let Some(atom) = group.atom.take()
        {
            group.max_repeats = group.max_repeats.max(atom.repeats);
            group.states = group.states.saturating_add(atom.states);
        }
    }

    /// Starts a new atom.
    fn atom(&mut self, repeats: u64, states: u64) {
        self.finish_atom();
        if let Some(group) = self.group() {
            group.atom = Some(Atom {
                repeats,
                states,
                repeated: false,
            });
        }
    }

    fn literal(&mut self, c: char) {
        push_literal(&mut self.out, c);
        self.atom(1, 1);
    }

    fn open(&mut self) -> Result<(), String> {
        let whole = self.rest;
        if let Some(after) = whole.strip_prefix("(?") {
            let named = after.strip_prefix("P<").or_else(|| after.strip_prefix('<'));
            if let Some(named) = named {
                let name = named.split('>').next().unwrap_or_default();
                let valid = !name.is_empty()
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    && named.len() > name.len();
                if !valid {
                    return Err(format!("invalid named capture: `{whole}`"));
                }
                // The name of the group is dropped. No CEL function uses the name, and the crate
                // refuses some names that Go accepts.
                self.out.push_str("(?:");
                self.rest = &named[name.len() + 1..];
            } else {
                let flags = after.split([':', ')']).next().unwrap_or_default();
                let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
                let end = after.as_bytes().get(flags.len()).copied();
                let valid = end.is_some()
                    && on.chars().chain(off.chars()).all(|c| "imsU".contains(c))
                    && !(flags.ends_with('-') || (flags.is_empty() && end == Some(b')')));
                if !valid {
                    return Err(format!("invalid or unsupported Perl syntax: `(?{flags}`"));
                }
                self.ignores_case |= on.contains('i');
                self.finish_atom();
                let len = 2 + flags.len() + 1;
                self.out.push_str(&whole[..len]);
                self.skip(len);
                if end == Some(b')') {
                    return Ok(());
                }
            }
        } else {
            self.out.push_str("(?:");
            self.skip(1);
        }
        self.groups.push(Group::default());
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        self.finish_atom();
        if self.groups.len() < 2 {
            return Err(format!("unexpected ): `{}`", self.rest));
        }
        let group = self.groups.pop().unwrap_or_default();
        self.skip(1);
        self.out.push(')');
        self.atom(group.max_repeats.max(1), group.states);
        Ok(())
    }

    /// Applies a repetition operator to the last atom. `times` is the factor by which the operator
    /// increases the number of states.
    fn repeat(&mut self, operator: &str, times: u64) -> Result<(), String> {
        let lazy = self.rest.starts_with('?');
        let Some(atom) = self.groups.last_mut().and_then(|group| group.atom.as_mut()) else {
            return Err(format!(
                "missing argument to repetition operator: `{operator}`"
            ));
        };
        if atom.repeated {
            return Err(format!("invalid nested repetition operator: `{operator}`"));
        }
        atom.repeated = true;
        atom.repeats = atom.repeats.saturating_mul(times.max(1));
        atom.states = atom.states.saturating_mul(times.max(1));
        if atom.repeats > MAX_REPEAT {
            return Err(format!("invalid repeat count: `{operator}`"));
        }
        self.out.push_str(operator);
        if lazy {
            self.skip(1);
            self.out.push('?');
        }
        Ok(())
    }

    fn braces(&mut self) -> Result<(), String> {
        let Some((operator, low, high)) = parse_braces(self.rest) else {
            self.skip(1);
            self.literal('{');
            return Ok(());
        };
        self.skip(operator.len());
        if low > MAX_REPEAT || high.is_some_and(|high| high > MAX_REPEAT || high < low) {
            return Err(format!("invalid repeat count: `{operator}`"));
        }
        self.repeat(operator, high.unwrap_or(low))
    }

    fn escape(&mut self) -> Result<(), String> {
        let mut ahead = self.rest.chars().skip(1);
        match ahead.next() {
            Some('A') => self.emit(2, r"\A"),
            Some('z') => self.emit(2, r"\z"),
            Some('b') => self.emit(2, r"(?-u:\b)"),
            Some('B') => self.emit(2, r"(?-u:\B)"),
            Some('Q') => {
                let quoted = self.rest.get(2..).unwrap_or_default();
                let (text, rest) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
                for c in text.chars() {
                    self.literal(c);
                }
                self.rest = rest;
            }
            _ => {
                if let Some(class) = self.class_escape()? {
                    let _ = write!(self.out, "[{class}]");
                    self.atom(1, class_states(&class));
                } else {
                    let c = self.escaped_char()?;
                    self.literal(c);
                }
            }
        }
        Ok(())
    }

    fn emit(&mut self, len: usize, text: &str) {
        self.skip(len);
        self.out.push_str(text);
        self.atom(1, 1);
    }

    /// Translates an escape such as `\d` or `\pL` to a text for the inside of brackets: `\d` gives
    /// `0-9`. Returns None for an escape that is not a class, such as `\n`.
    fn class_escape(&mut self) -> Result<Option<String>, String> {
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
    fn escaped_char(&mut self) -> Result<char, String> {
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
    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        let missing = || format!("missing closing ]: `{whole}`");
        self.skip(1);
        self.finish_atom();
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

/// Estimates the number of automaton states of a class. A Unicode class needs many states, because
/// its characters are encoded in up to four bytes.
fn class_states(class: &str) -> u64 {
    if class.contains("\\p{") || class.contains("\\P{") {
        64
    } else {
        1
    }
}

/// Writes `c`. An ASCII character that is neither a letter nor a digit is escaped, because it can
/// have a special meaning.
fn push_literal(out: &mut String, c: char) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        // Writing to a string cannot fail.
        let _ = write!(out, r"\x{{{:x}}}", u32::from(c));
    }
}

/// Parses a repetition `{n}`, `{n,}` or `{n,m}` at the beginning of `text`. Returns its text, its
/// minimum and its maximum. The maximum is None for `{n,}`. Returns None for other text, because Go
/// then treats the brace as a character.
fn parse_braces(text: &str) -> Option<(&str, u64, Option<u64>)> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let number = |digits: &str| {
        let decimal = !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && (digits.len() == 1 || !digits.starts_with('0'));
        // A number that does not fit `u64` is also larger than `MAX_REPEAT`.
        decimal.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let (low, high) = match inner.split_once(',') {
        None => {
            let count = number(inner)?;
            (count, Some(count))
        }
        Some((low, "")) => (number(low)?, None),
        Some((low, high)) => (number(low)?, Some(number(high)?)),
    };
    Some((&text[..inner.len() + 2], low, high))
}
