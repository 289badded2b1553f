//! The functions of lists and sets. Some are functions of Kubernetes, such as `sum`. The others are
//! functions of the extension libraries of cel-go, Kubernetes' CEL implementation, such as
//! `distinct` and `sets.contains`.
//!
//! Each call takes steps from the budget of the evaluation. The number of steps depends on the
//! number of elements that the call reads, compares and creates.

use std::cmp::Ordering;

use super::operators::add;
use crate::budget::{Budget, SEARCH_BYTES_PER_STEP, charge, steps};
use crate::value::V;
use crate::value::compare::{equals, order};
use crate::value::fault::{Fault, Outcome};

pub(crate) const SIGNATURES: &str = "
<list(T)>.sum() -> <T> where T: int|uint|double|duration
<list(T)>.min|max() -> <T> where T: comparable
<list(T)>.isSorted() -> <bool> where T: comparable
<list(T)>.sort() -> <list(T)> where T: comparable
<list(A)>.indexOf|lastIndexOf(<A>) -> <int>
<list(A)>.slice(<int>, <int>) -> <list(A)>
<list(list(A))>.flatten() -> <list(A)>
<list(dyn)>.flatten(<int>) -> <list(dyn)>
lists.range(<int>) -> <list(int)>
<list(A)>.reverse|distinct() -> <list(A)>
<list(A)>.first|last() -> <optional_type(A)>
sets.contains|sets.equivalent|sets.intersects(<list(A)>, <list(A)>) -> <bool>
";

/// Number of elements that a function visits in one step of the budget.
const VISITS_PER_STEP: usize = 16;

/// Maximum number of levels of nested lists that `flatten` replaces by their elements. Lists in
/// deeper levels stay as they are. The function is recursive, so more levels could overflow the
/// stack. A JSON document has fewer levels.
const MAX_FLATTEN_DEPTH: i64 = 256;

/// Calls a function of lists or sets.
pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    if let ("lists.range", [V::Int(end)]) = (name, args) {
        return range(*end, budget);
    }
    let Some(list) = args.first().filter(|list| list.is_list()) else {
        return Err(Fault::no_overload());
    };
    charge(budget, steps(list.len(), VISITS_PER_STEP))?;
    match (name, &args[1..]) {
        ("sum", []) => sum(list, &V::Int(0), budget),
        ("sum", [zero]) => sum(list, zero, budget),
        ("min", []) => extreme(list, Ordering::Greater, budget),
        ("max", []) => extreme(list, Ordering::Less, budget),
        ("isSorted", []) => is_sorted(list, budget),
        ("indexOf", [item]) => position(list, item, 0..list.len(), budget),
        ("lastIndexOf", [item]) => position(list, item, (0..list.len()).rev(), budget),
        ("sort", []) => sort(list, budget),
        ("slice", [V::Int(start), V::Int(end)]) => slice(list, *start, *end, budget),
        ("flatten", []) => flatten(list, 1, budget),
        ("flatten", [V::Int(depth)]) => flatten(list, *depth, budget),
        ("reverse", []) => list_of(list.elements().rev(), list.len(), budget),
        ("distinct", []) => distinct(list, budget),
        ("first", []) => Ok(V::Optional(list.element(0).map(Into::into))),
        ("last", []) => {
            let last = list.len().checked_sub(1).and_then(|at| list.element(at));
            Ok(V::Optional(last.map(Into::into)))
        }
        ("sets.contains", [other]) if other.is_list() => {
            contains_all(list, other, budget).map(V::Bool)
        }
        ("sets.equivalent", [other]) if other.is_list() => Ok(V::Bool(
            contains_all(list, other, budget)? && contains_all(other, list, budget)?,
        )),
        ("sets.intersects", [other]) if other.is_list() => intersects(list, other, budget),
        _ => Err(Fault::no_overload()),
    }
}

/// Compares two values. Returns None if their types cannot be compared, or if one value is NaN.
fn compare<'e>(a: &V<'e>, b: &V<'e>, budget: &mut Budget) -> Result<Option<Ordering>, Fault<'e>> {
    match order(a, b, budget) {
        Err(Fault::Budget) => Err(Fault::Budget),
        outcome => Ok(outcome.ok()),
    }
}

/// Creates a list of `elements`, which must have at most `len` elements. The cost is `len` steps.
fn list_of<'e>(
    elements: impl Iterator<Item = V<'e>>,
    len: usize,
    budget: &mut Budget,
) -> Outcome<'e> {
    charge(budget, steps(len, 1))?;
    Ok(V::List(elements.collect()))
}

/// Returns the integers from 0 to `end`, without `end`.
fn range<'e>(end: i64, budget: &mut Budget) -> Outcome<'e> {
    charge(budget, u64::try_from(end).unwrap_or_default())?;
    Ok(V::List((0..end).map(V::Int).collect()))
}

/// Returns true for a value that has an order, such as a number or a text.
fn is_comparable(value: &V<'_>) -> bool {
    matches!(
        value,
        V::Int(_)
            | V::Uint(_)
            | V::Double(_)
            | V::Bool(_)
            | V::Duration(_)
            | V::Time(_)
            | V::Str(_)
            | V::Bytes(_)
    )
}

/// Returns the first element, or None for an empty list. The result is an error if the first
/// element has no order. As in cel-go, the first element decides whether the function has an
/// overload for the list.
fn first_comparable<'e>(list: &V<'e>) -> Result<Option<V<'e>>, Fault<'e>> {
    match list.element(0) {
        Some(first) if !is_comparable(&first) => Err(Fault::no_overload()),
        first => Ok(first),
    }
}

/// Returns the sum of the elements. `zero` is the sum of an empty list.
fn sum<'e>(list: &V<'e>, zero: &V<'e>, budget: &mut Budget) -> Outcome<'e> {
    let mut total = match list.element(0) {
        None => zero.clone(),
        Some(V::Int(_)) => V::Int(0),
        Some(V::Uint(_)) => V::Uint(0),
        Some(V::Double(_)) => V::Double(0.0),
        Some(V::Duration(_)) => V::Duration(0),
        Some(_) => return Err(Fault::no_overload()),
    };
    for element in list.elements() {
        total = add("", &[total, element], budget)?;
    }
    Ok(total)
}

/// Returns the smallest element if `replaced_if` is `Greater`, and the largest element if it is
/// `Less`. The result begins as the first element. Each further element replaces the result if
/// [`compare`] of the result and the element returns `replaced_if`.
///
/// As in Kubernetes, an element that cannot be compared with the result is skipped. An example is a
/// text if the result is a number.
fn extreme<'e>(list: &V<'e>, replaced_if: Ordering, budget: &mut Budget) -> Outcome<'e> {
    let Some(mut result) = first_comparable(list)? else {
        return Err(Fault::error("min or max called on empty list"));
    };
    for element in list.elements().skip(1) {
        if !is_comparable(&element) {
            return Err(Fault::no_overload());
        }
        if compare(&result, &element, budget)? == Some(replaced_if) {
            result = element;
        }
    }
    Ok(result)
}

fn is_sorted<'e>(list: &V<'e>, budget: &mut Budget) -> Outcome<'e> {
    let Some(mut previous) = first_comparable(list)? else {
        return Ok(V::Bool(true));
    };
    for element in list.elements().skip(1) {
        if !is_comparable(&element) {
            return Err(Fault::no_overload());
        }
        if compare(&previous, &element, budget)? == Some(Ordering::Greater) {
            return Ok(V::Bool(false));
        }
        previous = element;
    }
    Ok(V::Bool(true))
}

/// Returns the first of the `indexes` at which the list has `item`, or -1.
fn position<'e>(
    list: &V<'e>,
    item: &V<'e>,
    indexes: impl Iterator<Item = usize>,
    budget: &mut Budget,
) -> Outcome<'e> {
    for index in indexes {
        if let Some(element) = list.element(index)
            && equals(&element, item, budget)?
        {
            return Ok(V::Int(i64::try_from(index).unwrap_or(i64::MAX)));
        }
    }
    Ok(V::Int(-1))
}

fn sort<'e>(list: &V<'e>, budget: &mut Budget) -> Outcome<'e> {
    let keys: Vec<_> = list.elements().collect();
    sort_by_keys(list, &keys, budget)
}

/// Sorts a list by the keys of its elements. All keys must have the same type. The order of
/// elements with equal keys is kept.
pub(crate) fn sort_by_keys<'e>(list: &V<'e>, keys: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    if let Some(first) = keys.first() {
        if !is_comparable(first) {
            return Err(Fault::error("list elements must be comparable"));
        }
        let name = first.type_name();
        if keys.iter().any(|key| key.type_name() != name) {
            return Err(Fault::error("list elements must have the same type"));
        }
    }
    // Each element is compared with about log2(n) other elements, so its bytes are read about
    // log2(n) times.
    charge(budget, steps(keys.len(), 1))?;
    let comparisons = usize::try_from(keys.len().max(1).ilog2() + 1).unwrap_or(usize::MAX);
    for key in keys {
        if let V::Str(_) | V::Bytes(_) = key {
            let bytes = byte_len(key).saturating_mul(comparisons);
            charge(budget, steps(bytes, SEARCH_BYTES_PER_STEP))?;
        }
    }
    let mut indexes: Vec<usize> = (0..keys.len()).collect();
    indexes.sort_by(|a, b| key_order(&keys[*a], &keys[*b]));
    let sorted = indexes.iter().filter_map(|at| list.element(*at));
    Ok(V::List(sorted.collect()))
}

fn byte_len(value: &V<'_>) -> usize {
    match value {
        V::Str(text) => text.len(),
        V::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

/// Compares two comparable values of the same type. Unlike `order`, this is a total order also for
/// NaN. Without a total order, the sort of the standard library could panic.
fn key_order(a: &V<'_>, b: &V<'_>) -> Ordering {
    match (a, b) {
        (V::Double(a), V::Double(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        // The caller has already charged the steps of all comparisons, so this budget has no limit.
        (a, b) => order(a, b, &mut Budget { left: u64::MAX }).unwrap_or(Ordering::Equal),
    }
}

fn slice<'e>(list: &V<'e>, start: i64, end: i64, budget: &mut Budget) -> Outcome<'e> {
    let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
        return Err(Fault::error("cannot slice: negative indexes not supported"));
    };
    if start > end {
        let message = "cannot slice: start index must be less than or equal to end index";
        return Err(Fault::error(message));
    }
    if end > list.len() {
        return Err(Fault::error("cannot slice: the list is shorter"));
    }
    let part = (start..end).filter_map(|index| list.element(index));
    list_of(part, end - start, budget)
}

/// Replaces each element that is a list by the elements of that list. `depth` is the number of
/// levels of nested lists that are replaced: `[1, [2, [3]]]` with the depth 1 gives `[1, 2, [3]]`.
fn flatten<'e>(list: &V<'e>, depth: i64, budget: &mut Budget) -> Outcome<'e> {
    if depth < 0 {
        return Err(Fault::error("level must be non-negative"));
    }
    let mut flat = Vec::new();
    add_flattened(list, depth.min(MAX_FLATTEN_DEPTH), &mut flat, budget)?;
    Ok(V::List(flat.into()))
}

fn add_flattened<'e>(
    list: &V<'e>,
    depth: i64,
    flat: &mut Vec<V<'e>>,
    budget: &mut Budget,
) -> Result<(), Fault<'e>> {
    for element in list.elements() {
        charge(budget, 1)?;
        if depth > 0 && element.is_list() {
            add_flattened(&element, depth - 1, flat, budget)?;
        } else {
            flat.push(element);
        }
    }
    Ok(())
}

fn distinct<'e>(list: &V<'e>, budget: &mut Budget) -> Outcome<'e> {
    let mut distinct: Vec<V<'e>> = Vec::new();
    for element in list.elements() {
        charge(budget, 1)?;
        if !contains(&distinct, &element, budget)? {
            distinct.push(element);
        }
    }
    Ok(V::List(distinct.into()))
}

fn contains<'e>(list: &[V<'e>], value: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    for (index, element) in list.iter().enumerate() {
        charge(
            budget,
            u64::from(index % VISITS_PER_STEP == VISITS_PER_STEP - 1),
        )?;
        if equals(value, element, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if `list` contains each element of `part`.
fn contains_all<'e>(list: &V<'e>, part: &V<'e>, budget: &mut Budget) -> Result<bool, Fault<'e>> {
    let list: Vec<_> = list.elements().collect();
    for element in part.elements() {
        charge(budget, 1)?;
        if !contains(&list, &element, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects<'e>(list: &V<'e>, other: &V<'e>, budget: &mut Budget) -> Outcome<'e> {
    let other: Vec<_> = other.elements().collect();
    for element in list.elements() {
        charge(budget, 1)?;
        if contains(&other, &element, budget)? {
            return Ok(V::Bool(true));
        }
    }
    Ok(V::Bool(false))
}
