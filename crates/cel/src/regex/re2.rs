//! Translates regular expressions from the syntax of RE2, which CEL and Go use, to the syntax of
//! the `regex` crate.
//!
//! Some constructs of RE2 have another meaning in the `regex` crate. For example, `\d` in the crate
//! matches the digits of every script, and `&&` in a class is an operator. This module parses a
//! pattern like Go, and replaces each such construct by one that has RE2's meaning in the crate.
//! For example, `\d` becomes `[0-9]`.

use std::fmt::Write;

use super::classes::{PatternText, push_literal};

/// Maximum repetition count, as in Go. The counts of nested repetitions are multiplied:
/// `(a{10}){20}` has the count 200. A pattern with a count above the maximum is an error.
const MAX_REPEAT: u64 = 1000;

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
        text: PatternText {
            rest: source,
            out: String::with_capacity(source.len() * 2),
            class_chars: 0,
        },
        groups: vec![Group::default()],
        ignores_case: false,
    };
    translator.run()?;
    if translator.groups.len() > 1 {
        return Err(format!("missing closing ): `{source}`"));
    }
    let states = translator.groups.pop().map_or(0, |group| group.states);
    Ok(Translated {
        text: translator.text.out,
        states,
        folded_chars: if translator.ignores_case {
            translator.text.class_chars
        } else {
            0
        },
    })
}

/// The state of a translation.
struct Translator<'p> {
    text: PatternText<'p>,
    /// The open groups. The first group is the whole pattern.
    groups: Vec<Group>,
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
        while let Some(c) = self.text.rest.chars().next() {
            match c {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => {
                    self.text.skip(1);
                    self.finish_atom();
                    self.text.out.push('|');
                }
                '[' => {
                    let from = self.text.out.len();
                    self.text.class()?;
                    let states = class_states(self.text.out.get(from..).unwrap_or_default());
                    self.atom(1, states);
                }
                '\\' => self.escape()?,
                '*' | '+' | '?' => {
                    let repeat = &self.text.rest[..1];
                    self.text.skip(1);
                    self.repeat(repeat, 1)?;
                }
                '{' => self.braces()?,
                '^' | '$' | '.' => {
                    self.text.skip(1);
                    self.text.out.push(c);
                    self.atom(1, 1);
                }
                _ => {
                    self.text.skip(c.len_utf8());
                    self.literal(c);
                }
            }
        }
        self.finish_atom();
        Ok(())
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
        push_literal(&mut self.text.out, c);
        self.atom(1, 1);
    }

    fn open(&mut self) -> Result<(), String> {
        let whole = self.text.rest;
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
                self.text.out.push_str("(?:");
                self.text.rest = &named[name.len() + 1..];
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
                self.text.out.push_str(&whole[..len]);
                self.text.skip(len);
                if end == Some(b')') {
                    return Ok(());
                }
            }
        } else {
            self.text.out.push_str("(?:");
            self.text.skip(1);
        }
        self.groups.push(Group::default());
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        self.finish_atom();
        if self.groups.len() < 2 {
            return Err(format!("unexpected ): `{}`", self.text.rest));
        }
        let group = self.groups.pop().unwrap_or_default();
        self.text.skip(1);
        self.text.out.push(')');
        self.atom(group.max_repeats.max(1), group.states);
        Ok(())
    }

    /// Applies a repetition operator to the last atom. `times` is the factor by which the operator
    /// increases the number of states.
    fn repeat(&mut self, operator: &str, times: u64) -> Result<(), String> {
        let lazy = self.text.rest.starts_with('?');
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
        self.text.out.push_str(operator);
        if lazy {
            self.text.skip(1);
            self.text.out.push('?');
        }
        Ok(())
    }

    fn braces(&mut self) -> Result<(), String> {
        let Some((operator, low, high)) = parse_braces(self.text.rest) else {
            self.text.skip(1);
            self.literal('{');
            return Ok(());
        };
        self.text.skip(operator.len());
        if low > MAX_REPEAT || high.is_some_and(|high| high > MAX_REPEAT || high < low) {
            return Err(format!("invalid repeat count: `{operator}`"));
        }
        self.repeat(operator, high.unwrap_or(low))
    }

    fn escape(&mut self) -> Result<(), String> {
        let mut ahead = self.text.rest.chars().skip(1);
        match ahead.next() {
            Some('A') => self.emit(2, r"\A"),
            Some('z') => self.emit(2, r"\z"),
            Some('b') => self.emit(2, r"(?-u:\b)"),
            Some('B') => self.emit(2, r"(?-u:\B)"),
            Some('Q') => {
                let quoted = self.text.rest.get(2..).unwrap_or_default();
                let (text, rest) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
                for c in text.chars() {
                    self.literal(c);
                }
                self.text.rest = rest;
            }
            _ => {
                if let Some(class) = self.text.class_escape()? {
                    let _ = write!(self.text.out, "[{class}]");
                    self.atom(1, class_states(&class));
                } else {
                    let c = self.text.escaped_char()?;
                    self.literal(c);
                }
            }
        }
        Ok(())
    }

    fn emit(&mut self, len: usize, text: &str) {
        self.text.skip(len);
        self.text.out.push_str(text);
        self.atom(1, 1);
    }
}

/// Estimates the number of automaton states of a class. A Unicode class needs many states, because
/// its characters are encoded in up to four bytes.
fn class_states(class: &str) -> u64 {
    if class.contains("\\p{") || class.contains("\\P{") {
        64
    } else {
        1
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
