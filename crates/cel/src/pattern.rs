//! Regular expressions. Enters: RE2 syntax as Go accepts it. Leaves: a compiled
//! pattern with RE2's meaning, or Go's complaint; its size and its price are bounded.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use regex::bytes::{Regex, RegexBuilder};

use super::re2::translate;

/// Bytes of a compiled pattern: RE2's own default keeps to the same order.
const MAX_COMPILED: usize = 1 << 20;

/// Bytes of the states a search may cache, for each pattern and thread.
const MAX_CACHE: usize = 1 << 18;

/// Patterns that are not literals are few in practice; this many are remembered.
const REMEMBERED: usize = 16;

/// States that a byte may visit at the price of one: a search that has no use for its
/// cache visits all of them for each byte.
const STATES: u64 = 16;

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    regex: Regex,
    /// How many times the price of a simple pattern a search costs.
    weight: u64,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        // All are compiled with the same options.
        self.regex.as_str() == other.regex.as_str() && self.weight == other.weight
    }
}

impl Pattern {
    pub(super) fn new(source: &str) -> Result<Self, String> {
        let (translated, states) =
            translate(source).map_err(|fault| format!("error parsing regexp: {fault}"))?;
        // Bytes, since ASCII word boundaries may not split text that is `str`.
        RegexBuilder::new(&translated)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_CACHE)
            .build()
            .map(|regex| Self {
                regex,
                weight: 1 + states / STATES,
            })
            .map_err(|_| format!("error parsing regexp: cannot compile `{source}`"))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight
    }
}

type Remembered = (Box<str>, Option<Pattern>);

/// The pattern of a text that is not a literal, if it is one, and whether it had to be
/// compiled.
pub(super) fn remembered(source: &str) -> (Option<Pattern>, bool) {
    static RECENT: Mutex<VecDeque<Remembered>> = Mutex::new(VecDeque::new());
    let recent = || RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    let known = recent()
        .iter()
        .find_map(|(text, pattern)| (**text == *source).then(|| pattern.clone()));
    if let Some(pattern) = known {
        return (pattern, false);
    }
    let pattern = Pattern::new(source).ok();
    let mut recent = recent();
    if recent.len() >= REMEMBERED {
        recent.pop_front();
    }
    recent.push_back((source.into(), pattern.clone()));
    (pattern, true)
}
