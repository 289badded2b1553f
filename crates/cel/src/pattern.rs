//! Regular expressions.
//!
//! Input: RE2 syntax, as Go accepts it. Output: a compiled pattern with RE2's meaning, or Go's
//! error. The size and the cost of a pattern are limited.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use regex::bytes::{Regex, RegexBuilder};

use super::re2::translate;

/// Largest size of a compiled pattern in bytes. RE2's own default has the same order of magnitude.
const MAX_COMPILED: usize = 1 << 20;

/// Largest size of the states that a search caches, in bytes, for each pattern and thread.
const MAX_CACHE: usize = 1 << 18;

/// Number of patterns that are cached. Only patterns that are not literals need the cache.
const MAX_CACHED: usize = 16;

/// Number of states that a byte may visit for one unit of cost. In the worst case, a search cannot
/// use its cache and visits all states for each byte.
const STATES_PER_COST: u64 = 16;

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    regex: Regex,
    /// The cost of a search as a multiple of the cost of a simple pattern.
    weight: u64,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        // All patterns are compiled with the same options.
        self.regex.as_str() == other.regex.as_str() && self.weight == other.weight
    }
}

impl Pattern {
    pub(super) fn new(source: &str) -> Result<Self, String> {
        let (translated, states) =
            translate(source).map_err(|fault| format!("error parsing regexp: {fault}"))?;
        // The search works on bytes, because ASCII word boundaries may not split text of type
        // `str`.
        RegexBuilder::new(&translated)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_CACHE)
            .build()
            .map(|regex| Self {
                regex,
                weight: 1 + states / STATES_PER_COST,
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

/// Returns the pattern of a computed text, if it is valid, and true if it had to be compiled.
pub(super) fn remembered(source: &str) -> (Option<Pattern>, bool) {
    static CACHE: Mutex<VecDeque<Remembered>> = Mutex::new(VecDeque::new());
    let recent = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let known = recent()
        .iter()
        .find_map(|(text, pattern)| (**text == *source).then(|| pattern.clone()));
    if let Some(pattern) = known {
        return (pattern, false);
    }
    let pattern = Pattern::new(source).ok();
    let mut recent = recent();
    if recent.len() >= MAX_CACHED {
        recent.pop_front();
    }
    recent.push_back((source.into(), pattern.clone()));
    (pattern, true)
}
