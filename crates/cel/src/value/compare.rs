//! Equality and order of values, as in cel-go.

use std::cmp::Ordering;

use super::V;
use super::fault::Fault;
use crate::budget::{Budget, SEARCH_BYTES_PER_STEP, charge, steps};

/// Largest number of comparisons of keys in one search in a map of the document. A map of up to 8
/// members is searched linearly. A larger map has at most 100,000 members, the maximum number of
/// values in a document. The binary search in such a map takes up to 17 comparisons.
const MAX_NODE_COMPARISONS: usize = 17;

/// Returns the number of steps for a comparison of `key` with `keys` other keys. The steps pay for
/// the bytes of the keys that are read. Short keys take few steps or none.
pub(crate) fn key_cost(keys: usize, key: &V<'_>) -> u64 {
    let bytes = match key {
        V::Str(text) => text.len(),
        _ => 0,
    };
    steps(keys.saturating_mul(bytes), SEARCH_BYTES_PER_STEP)
}

/// Returns the number of steps for the search of `key` in `map`. A map that the evaluation has
/// created is searched linearly, so the search takes more steps in a larger map. In a map of the
/// document, `key` is compared with at most [`MAX_NODE_COMPARISONS`] keys. These comparisons take
/// steps only if `key` is long.
pub(crate) fn find_cost(map: &V<'_>, key: &V<'_>) -> u64 {
    match map {
        V::Map(entries) => steps(entries.len(), 16) + key_cost(entries.len(), key),
        _ => key_cost(map.len().min(MAX_NODE_COMPARISONS), key),
    }
}

/// The error for a comparison with NaN.
struct Unordered;

/// Compares two values whose types are int, uint or double. Returns None if one of the values has
/// another type. Returns [`Unordered`] if one of the values is NaN.
fn numeric_order(a: &V<'_>, b: &V<'_>) -> Option<Result<Ordering, Unordered>> {
    Some(match (a, b) {
        (V::Int(a), V::Int(b)) => Ok(a.cmp(b)),
        (V::Uint(a), V::Uint(b)) => Ok(a.cmp(b)),
        (V::Int(a), V::Uint(b)) => Ok(i128::from(*a).cmp(&i128::from(*b))),
        (V::Uint(a), V::Int(b)) => Ok(i128::from(*a).cmp(&i128::from(*b))),
        // cel-go also converts the integer to a double.
        _ => a.number()?.partial_cmp(&b.number()?).ok_or(Unordered),
    })
}

/// Compares two values. The result is an error if the types cannot be compared, or if one of the
/// values is NaN.
pub(crate) fn order<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<Ordering, Fault<'e>> {
    if let Some(order) = numeric_order(a, b) {
        return order.map_err(|Unordered| Fault::error("NaN values cannot be ordered"));
    }
    match (a, b) {
        (V::Bool(a), V::Bool(b)) => Ok(a.cmp(b)),
        (V::Str(a), V::Str(b)) => {
            charge(budget, steps(a.len().min(b.len()), SEARCH_BYTES_PER_STEP))?;
            Ok((**a).cmp(b))
        }
        (V::Bytes(a), V::Bytes(b)) => {
            charge(budget, steps(a.len().min(b.len()), SEARCH_BYTES_PER_STEP))?;
            Ok((**a).cmp(b))
        }
        (V::Duration(a), V::Duration(b)) => Ok(a.cmp(b)),
        (V::Time(a), V::Time(b)) => Ok(a.utc.cmp(&b.utc)),
        _ => Err(Fault::no_overload()),
    }
}

/// Returns true if two values are equal. Two numbers of different types can be equal. Other values
/// of different types are not equal, or their comparison is an error.
pub(crate) fn equal<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    if let Some(order) = numeric_order(a, b) {
        return Ok(matches!(order, Ok(Ordering::Equal)));
    }
    Ok(match (a, b) {
        (V::Null, V::Null) | (V::Optional(None), V::Optional(None)) => true,
        (V::Bool(a), V::Bool(b)) => a == b,
        (V::Str(a), V::Str(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            charge(budget, steps(a.len(), SEARCH_BYTES_PER_STEP))?;
            **a == **b
        }
        (V::Bytes(a), V::Bytes(b)) => {
            charge(budget, steps(a.len().min(b.len()), SEARCH_BYTES_PER_STEP))?;
            **a == **b
        }
        (V::Duration(a), V::Duration(b)) => a == b,
        (V::Time(a), V::Time(b)) => a.utc == b.utc,
        (V::Type(a), V::Type(b)) => a == b,
        (V::Quantity(a), V::Quantity(b)) => a.cmp(b).is_eq(),
        (V::Url(a), V::Url(b)) => a == b,
        (V::Ip(a), V::Ip(b)) => a == b,
        (V::Cidr(a), V::Cidr(b)) => a == b,
        (V::Semver(a), V::Semver(b)) => a.cmp_precedence(b).is_eq(),
        (V::NamedFormat(a), V::NamedFormat(b)) => a.name == b.name,
        (V::Optional(Some(a)), V::Optional(Some(b))) => return equal(a, b, budget),
        // `a` has a type that Kubernetes adds to CEL, such as a quantity, and `b` has another type.
        // As in Kubernetes, the result is false if `b` is null, and an error for all other types.
        (
            V::Quantity(_) | V::Url(_) | V::Ip(_) | V::Cidr(_) | V::Semver(_) | V::NamedFormat(_),
            b,
        ) if !matches!(b, V::Null) => return Err(Fault::no_overload()),
        _ if a.is_list() && b.is_list() => return equal_lists(a, b, budget),
        _ if a.is_map() && b.is_map() => return equal_maps(a, b, budget),
        _ => false,
    })
}

/// Returns true if two elements of lists or two values of maps are equal. If the comparison of both
/// values is an error, also returns true, as cel-go does. An example is a quantity and a number.
fn equal_parts<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    match equal(a, b, budget) {
        Err(Fault::Budget) => Err(Fault::Budget),
        outcome => Ok(outcome.unwrap_or(true)),
    }
}

fn equal_lists<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for index in 0..a.len() {
        charge(budget, u64::from(index % 16 == 0))?;
        let (Some(a), Some(b)) = (a.element(index), b.element(index)) else {
            return Ok(false);
        };
        if !equal_parts(&a, &b, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for index in 0..a.len() {
        charge(budget, u64::from(index % 16 == 0))?;
        let Some((key, a)) = a.entry(index) else {
            return Ok(false);
        };
        charge(budget, find_cost(b, &key))?;
        match b.find(&key) {
            Some(b) if equal_parts(&a, &b, budget)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns true if two values are equal. As in cel-go's functions of lists, values whose comparison
/// is an error are not equal.
#[inline]
pub(crate) fn equals<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    match equal(a, b, budget) {
        Err(Fault::Budget) => Err(Fault::Budget),
        outcome => Ok(outcome.unwrap_or(false)),
    }
}
