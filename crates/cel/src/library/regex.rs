//! The functions that search with regular expressions. A search with a complex pattern takes more
//! steps of the budget.

use super::strings::slice;
use crate::budget::{Budget, MATCH_BYTES_PER_STEP, charge, steps};
use crate::regex::pattern::{Pattern, cached_pattern};
use crate::value::fault::{Fault, Outcome};
use crate::value::{Text, V};

pub(crate) const SIGNATURES: &str = "
matches(<string>, <string>) -> <bool>
<string>.matches(<string>) -> <bool>
<string>.find(<string>) -> <string>
<string>.findAll(<string>) -> <list(string)>
<string>.findAll(<string>, <int>) -> <list(string)>
";

pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    let [V::Str(text), pattern, limit @ ..] = args else {
        return Err(Fault::no_overload());
    };
    let compiled;
    let pattern = match pattern {
        V::Pattern(pattern) => *pattern,
        V::Str(source) => {
            compiled = computed_pattern(source, budget)?;
            &compiled
        }
        _ => return Err(Fault::no_overload()),
    };
    match (name, limit) {
        ("matches", []) => {
            charge_search(pattern, text.len(), budget)?;
            Ok(V::Bool(pattern.matches(text)))
        }
        ("find", []) => find(pattern, text, budget),
        ("findAll", []) => find_all(pattern, text, None, budget),
        ("findAll", [V::Int(limit)]) => {
            find_all(pattern, text, usize::try_from(*limit).ok(), budget)
        }
        _ => Err(Fault::no_overload()),
    }
}

/// Compiles a pattern that is not a literal, or returns it from the cache.
fn computed_pattern<'e>(source: &str, budget: &mut Budget) -> Result<Pattern, Fault<'e>> {
    charge(budget, steps(source.len(), MATCH_BYTES_PER_STEP))?;
    let (pattern, steps) = cached_pattern(source);
    charge(budget, steps)?;
    // cel-go's error contains the pattern. This error does not contain the pattern, because a
    // computed pattern can be a value of the object.
    pattern.ok_or(Fault::error("error parsing regexp"))
}

/// Charges the steps for a search in `len` bytes.
fn charge_search<'e>(pattern: &Pattern, len: usize, budget: &mut Budget) -> Result<(), Fault<'e>> {
    let cost = steps(len, MATCH_BYTES_PER_STEP).saturating_mul(pattern.weight());
    charge(budget, cost)
}

/// Returns the first match in `text`, or an empty text if there is no match.
fn find<'e>(pattern: &Pattern, text: &Text<'e>, budget: &mut Budget) -> Outcome<'e> {
    charge_search(pattern, text.len(), budget)?;
    match pattern.next_match(text, 0) {
        Some((start, end)) => slice(text, start, end, budget),
        None => Ok(V::Str(Text::Ref(""))),
    }
}

/// Returns the matches in `text` from left to right. The matches do not overlap. `limit` is the
/// maximum number of matches; None means no limit.
///
/// As in Go, an empty match directly after another match is left out. For example, the matches of
/// `a*` in `"baaab"` are `""`, `"aaa"` and `""`.
fn find_all<'e>(
    pattern: &Pattern,
    text: &Text<'e>,
    limit: Option<usize>,
    budget: &mut Budget,
) -> Outcome<'e> {
    let mut matches = Vec::new();
    let mut from = 0;
    let mut last_end = None;
    while limit.is_none_or(|limit| matches.len() < limit) {
        // Each search can read the whole rest of the text. Each match becomes a value, which takes
        // one step.
        charge_search(pattern, text.len() - from, budget)?;
        charge(budget, 1)?;
        let Some((start, end)) = pattern.next_match(text, from) else {
            break;
        };
        if start < end || last_end != Some(start) {
            matches.push(slice(text, start, end, budget)?);
        }
        last_end = Some(end);
        from = if start < end {
            end
        } else {
            match text.get(end..).and_then(|rest| rest.chars().next()) {
                Some(next) => end + next.len_utf8(),
                None => break,
            }
        };
    }
    Ok(V::List(matches.into()))
}
