//! The regular expressions of the function `matches`. Syntax, meaning and errors equal those of RE2
//! in Go. The size of a compiled pattern is limited, and a complex pattern costs more steps.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use regex::bytes::{Regex, RegexBuilder};

use super::re2::translate;

/// Largest size of a compiled pattern in bytes. RE2's default limit has the same order of
/// magnitude.
const MAX_COMPILED: usize = 1 << 20;

/// Largest size in bytes of the automaton states that the `regex` crate caches for each pattern and
/// thread.
const MAX_STATE_CACHE: usize = 1 << 18;

/// Largest number of patterns in the cache of [`cached_pattern`]. Patterns that are string literals
/// are not in the cache, because they are compiled together with the expression.
const MAX_CACHED_PATTERNS: usize = 16;

/// Number of automaton states by which the weight of a pattern grows by 1. In the worst case, a
/// search cannot use its cached states, and visits all states of the pattern for each byte of text.
const STATES_PER_WEIGHT: u64 = 16;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    regex: Regex,
    /// The factor by which a search can cost more than a search for a pattern with few states.
    weight: u64,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        // All patterns are compiled with the same options, so the texts decide.
        self.regex.as_str() == other.regex.as_str() && self.weight == other.weight
    }
}

impl Pattern {
    pub(super) fn new(source: &str) -> Result<Self, String> {
        let (translated, states) =
            translate(source).map_err(|fault| format!("error parsing regexp: {fault}"))?;
        // The pattern is compiled for bytes. For `str`, the `regex` crate refuses RE2's `\B`,
        // because it can match between two bytes of one character.
        RegexBuilder::new(&translated)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_STATE_CACHE)
            .build()
            .map(|regex| Self {
                regex,
                weight: 1 + states / STATES_PER_WEIGHT,
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

/// The source of a pattern, and the compiled pattern unless the source is invalid.
type CachedPattern = (Box<str>, Option<Pattern>);

/// Returns the compiled pattern for `source`, or None if `source` is invalid. The second value is
/// true if this call compiled the pattern, and false if the pattern was in the cache.
pub(super) fn cached_pattern(source: &str) -> (Option<Pattern>, bool) {
    static CACHE: Mutex<VecDeque<CachedPattern>> = Mutex::new(VecDeque::new());
    let lock = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let cached = lock()
        .iter()
        .find_map(|(text, pattern)| (**text == *source).then(|| pattern.clone()));
    if let Some(pattern) = cached {
        return (pattern, false);
    }
    let pattern = Pattern::new(source).ok();
    let mut cache = lock();
    if cache.len() >= MAX_CACHED_PATTERNS {
        cache.pop_front();
    }
    cache.push_back((source.into(), pattern.clone()));
    (pattern, true)
}
