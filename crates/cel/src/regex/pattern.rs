//! The regular expressions of the CEL functions `matches`, `find` and `findAll`. Syntax and meaning
//! equal those of RE2 in Go, except for the differences in the README.
//!
//! The size of a compiled pattern is limited.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use regex::bytes::{Regex, RegexBuilder};

use super::re2::{Translated, translate};

/// Maximum length of a pattern in bytes (64 KiB). A longer pattern is refused. The parser needs up to
/// 500 bytes of memory for each character.
const MAX_SOURCE: usize = 64 << 10;

/// Maximum estimated number of automaton states. A pattern with more states is refused before it is
/// compiled. A state needs at least 32 bytes, so such a pattern would also exceed [`MAX_COMPILED`].
/// But the compiler checks that limit only after it has used 5 KB of memory for each `\pL`.
const MAX_STATES: u64 = 32_000;

/// Maximum size of a compiled pattern in bytes (1 MiB). A larger pattern is refused. RE2's default
/// limit has the same order of magnitude.
const MAX_COMPILED: usize = 1 << 20;

/// Maximum size in bytes (2 MiB) of all patterns that are string literals in the expressions of one
/// [`Environment`](crate::Environment) together. The size of each pattern is rounded up to one of
/// [`CHARGED_SIZES`]. So there are at most 128 patterns. Expressions with equal patterns share one
/// compiled pattern.
const MAX_COMPILED_TOGETHER: usize = 2 << 20;

/// The sizes in bytes that count for [`MAX_COMPILED_TOGETHER`]. The `regex` crate does not say how
/// large a compiled pattern is, so the compiler tries these sizes one after another as the limit.
const CHARGED_SIZES: [usize; 3] = [16 << 10, 128 << 10, MAX_COMPILED];

/// If a pattern is too large, it counts with this size in bytes for [`MAX_COMPILED_TOGETHER`]. Such
/// a pattern needs no memory, but the attempts to compile it take up to 20 ms. So this size limits
/// the number of such attempts.
const CHARGED_FOR_FAILURE: usize = 128 << 10;

/// Maximum number of characters of classes in a pattern that ignores case, such as
/// `(?i)[\x{0}-\x{10ffff}]`. It is eight times the number of characters of Unicode. The `regex`
/// crate needs about 5 ms for each of the eight.
const MAX_FOLDED_CHARS: u64 = 8 * 0x11_0000;

/// In a pattern that ignores case, each group of this number of characters in classes counts as one
/// more byte for [`MAX_COMPILED_TOGETHER`]. So all such patterns together have at most 60 classes
/// with all characters of Unicode.
const FOLDED_CHARS_PER_BYTE: u64 = 32;

/// If a pattern that ignores case is compiled during an evaluation, each group of this number of
/// characters in its classes takes one more step of the budget. A step takes about 300 ns.
const FOLDED_CHARS_PER_STEP: u64 = 64;

/// Number of budget steps for compiling a regular expression during an evaluation, in addition to
/// the steps of [`FOLDED_CHARS_PER_STEP`].
const COMPILE_STEPS: u64 = 5_000;

/// Maximum size of a cache of automaton states in bytes (256 KiB). The `regex` crate has such a
/// cache for each pattern and thread. If a cache is full, the crate clears it. If the crate must
/// clear a cache too often, it switches to a slower search method.
const MAX_STATE_CACHE: usize = 1 << 18;

/// Maximum number of patterns in the cache of [`cached_pattern`]. Only computed patterns are in the
/// cache. A pattern that is a string literal is compiled together with the expression. If the cache
/// is full, a new pattern replaces the oldest pattern.
const MAX_CACHED_PATTERNS: usize = 16;

/// Number of automaton states that increase the weight of a pattern by 1. For example, a pattern
/// with 15 states has the weight 1, and a pattern with 16 states has the weight 2. The weight is
/// the factor by which the pattern makes a search more expensive. It is computed for the worst
/// case, in which a search visits all states of the pattern for each byte of text.
const STATES_PER_WEIGHT: u64 = 16;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// Factor by which the steps of a search are multiplied (see [`STATES_PER_WEIGHT`]).
    weight: u64,
}

impl Pattern {
    /// Compiles a translated pattern. Returns None if it needs more than `limit` bytes.
    fn of(translated: &Translated, limit: usize) -> Option<Self> {
        // The pattern is compiled for bytes. For `str`, the `regex` crate refuses RE2's `\B`. The
        // translated pattern still matches only whole characters.
        let regex = RegexBuilder::new(&translated.text)
            .octal(true)
            .size_limit(limit)
            .dfa_size_limit(MAX_STATE_CACHE)
            .build();
        Some(Self {
            regex: regex.ok()?,
            weight: 1 + translated.states / STATES_PER_WEIGHT,
        })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns start and end of the first match that begins at the byte `from` or later. `from` must
    /// not be inside of a character.
    pub(crate) fn next_match(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let found = self.regex.find_at(text.as_bytes(), from)?;
        Some((found.start(), found.end()))
    }
}

/// Translates a pattern to the syntax of the `regex` crate. Returns an error if the pattern is
/// invalid, or if it exceeds [`MAX_SOURCE`], [`MAX_STATES`] or [`MAX_FOLDED_CHARS`].
fn translated(source: &str) -> Result<Translated, String> {
    if source.len() > MAX_SOURCE {
        return Err("error parsing regexp: the pattern is too long".to_owned());
    }
    let translated = translate(source).map_err(|fault| format!("error parsing regexp: {fault}"))?;
    if translated.states > MAX_STATES {
        return Err("error parsing regexp: the pattern is too large".to_owned());
    }
    if translated.folded_chars > MAX_FOLDED_CHARS {
        return Err(format!(
            "error parsing regexp: the pattern ignores case, and its classes have more than \
             {MAX_FOLDED_CHARS} characters"
        ));
    }
    Ok(translated)
}

/// The patterns that are string literals in the expressions of one environment. Each different
/// pattern is compiled once.
#[derive(Debug)]
pub(crate) struct LiteralPatterns(Mutex<CompiledLiterals>);

#[derive(Debug)]
struct CompiledLiterals {
    compiled: HashMap<Box<str>, Result<Pattern, String>>,
    /// The rest of [`MAX_COMPILED_TOGETHER`].
    bytes_left: usize,
}

impl Default for LiteralPatterns {
    fn default() -> Self {
        Self(Mutex::new(CompiledLiterals {
            compiled: HashMap::new(),
            bytes_left: MAX_COMPILED_TOGETHER,
        }))
    }
}

impl LiteralPatterns {
    /// Compiles a pattern, if it is not compiled yet.
    pub(crate) fn get(&self, source: &str) -> Result<Pattern, String> {
        let mut literals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = literals.compiled.get(source) {
            return known.clone();
        }
        let pattern = literals.compile(source);
        literals.compiled.insert(source.into(), pattern.clone());
        pattern
    }
}

impl CompiledLiterals {
    fn compile(&mut self, source: &str) -> Result<Pattern, String> {
        let translated = translated(source)?;
        let folded = usize::try_from(translated.folded_chars / FOLDED_CHARS_PER_BYTE);
        let folded = folded.unwrap_or(usize::MAX);
        for size in CHARGED_SIZES {
            let left = self.bytes_left.checked_sub(size.saturating_add(folded));
            let Some(left) = left else {
                let limit = MAX_COMPILED_TOGETHER >> 20;
                return Err(format!(
                    "the regular expressions of all expressions together need more than {limit} MiB"
                ));
            };
            if let Some(pattern) = Pattern::of(&translated, size) {
                self.bytes_left = left;
                return Ok(pattern);
            }
        }
        let charged = CHARGED_FOR_FAILURE.saturating_add(folded);
        self.bytes_left = self.bytes_left.saturating_sub(charged);
        Err(format!("error parsing regexp: cannot compile `{source}`"))
    }
}

/// The source of a computed pattern, and the compiled pattern. The compiled pattern is None if the
/// source is invalid.
type CachedPattern = (Box<str>, Option<Pattern>);

/// Returns the compiled pattern for `source`, or None if `source` is invalid. The second value is
/// the number of budget steps for the call. It is 1 if the pattern was in the cache.
pub(crate) fn cached_pattern(source: &str) -> (Option<Pattern>, u64) {
    static CACHE: Mutex<VecDeque<CachedPattern>> = Mutex::new(VecDeque::new());
    let lock = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let cached = lock()
        .iter()
        .find_map(|(text, pattern)| (**text == *source).then(|| pattern.clone()));
    if let Some(pattern) = cached {
        return (pattern, 1);
    }
    let translated = translated(source).ok();
    let folded_chars = translated.as_ref().map_or(0, |it| it.folded_chars);
    let pattern = translated.and_then(|translated| Pattern::of(&translated, MAX_COMPILED));
    let mut cache = lock();
    if cache.len() >= MAX_CACHED_PATTERNS {
        cache.pop_front();
    }
    cache.push_back((source.into(), pattern.clone()));
    (
        pattern,
        COMPILE_STEPS + folded_chars / FOLDED_CHARS_PER_STEP,
    )
}
