//! The string functions of cel-go's extension library, such as `replace`, in the version that
//! Kubernetes uses.
//!
//! The number of budget steps of a call depends on the number of bytes that the call reads and
//! creates. The index of a character counts code points, not bytes.

use memchr::memmem;

use super::format::format;
use crate::budget::{
    Budget, COPY_BYTES_PER_STEP, SEARCH_BYTES_PER_STEP, charge, charge_copy, steps,
};
use crate::value::fault::{Fault, Outcome};
use crate::value::{Text, V};

pub(crate) const SIGNATURES: &str = "
<string>.charAt(<int>) -> <string>
<string>.format(<list(dyn)>) -> <string>
<string>.indexOf|lastIndexOf(<string>) -> <int>
<string>.indexOf|lastIndexOf(<string>, <int>) -> <int>
<list(string)>.join() -> <string>
<list(string)>.join(<string>) -> <string>
<string>.lowerAscii|trim|upperAscii() -> <string>
strings.quote(<string>) -> <string>
<string>.replace(<string>, <string>) -> <string>
<string>.replace(<string>, <string>, <int>) -> <string>
<string>.split(<string>) -> <list(string)>
<string>.split(<string>, <int>) -> <list(string)>
<string>.substring(<int>) -> <string>
<string>.substring(<int>, <int>) -> <string>
";

/// Calls a function of the string library.
pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    if let [list, separators @ ..] = args
        && name == "join"
    {
        let separator = match separators {
            [] => "",
            [V::Str(separator)] => separator,
            _ => return Err(Fault::no_overload()),
        };
        // As in cel-go, only the type of the first element selects the overload. If a later element
        // is not a string, `join` returns another error.
        let first = list.element(0);
        if !list.is_list() || first.is_some_and(|first| !matches!(first, V::Str(_))) {
            return Err(Fault::no_overload());
        }
        return join(list, separator, budget);
    }
    let [V::Str(text), rest @ ..] = args else {
        return Err(Fault::no_overload());
    };
    // In the worst case, each function below reads the whole text.
    charge(budget, steps(text.len(), SEARCH_BYTES_PER_STEP))?;
    match (name, rest) {
        ("charAt", [V::Int(at)]) => char_at(text, *at),
        ("format", [list]) if list.is_list() => format(text, list, budget),
        ("indexOf", [V::Str(part)]) => index_of(text, part, 0),
        ("indexOf", [V::Str(part), V::Int(from)]) => index_of(text, part, *from),
        ("lastIndexOf", [V::Str(part)]) => last_index_of(text, part, None),
        ("lastIndexOf", [V::Str(part), V::Int(from)]) => last_index_of(text, part, Some(*from)),
        ("lowerAscii", []) => {
            charge_copy(budget, text.len())?;
            Ok(V::text(&text.to_ascii_lowercase()))
        }
        ("strings.quote", []) => quote(text, budget),
        ("upperAscii", []) => {
            charge_copy(budget, text.len())?;
            Ok(V::text(&text.to_ascii_uppercase()))
        }
        ("replace", [V::Str(old), V::Str(new)]) => replace(text, old, new, -1, budget),
        ("replace", [V::Str(old), V::Str(new), V::Int(limit)]) => {
            replace(text, old, new, *limit, budget)
        }
        ("split", [V::Str(separator)]) => split(text, separator, -1, budget),
        ("split", [V::Str(separator), V::Int(limit)]) => split(text, separator, *limit, budget),
        ("substring", [V::Int(start)]) => substring(text, *start, None, budget),
        ("substring", [V::Int(start), V::Int(end)]) => substring(text, *start, Some(*end), budget),
        ("trim", []) => {
            let trimmed = text.trim();
            // The number of bytes that are removed at the start.
            let start = trimmed.as_ptr().addr() - text.as_ptr().addr();
            slice(text, start, start + trimmed.len(), budget)
        }
        _ => Err(Fault::no_overload()),
    }
}

/// Returns the error for an index outside of a text. cel-go's error also contains the index. Here,
/// the index can be a value of the watched object, and errors must not contain such values.
fn out_of_range<'e>() -> Fault<'e> {
    Fault::error("index out of range")
}

/// Returns the bytes of `text` from `start` to `end`. If `text` is borrowed, or if the result is
/// the whole text, the function copies no bytes and charges no steps.
pub(crate) fn slice<'e>(
    text: &Text<'e>,
    start: usize,
    end: usize,
    budget: &mut Budget,
) -> Outcome<'e> {
    match text {
        Text::Ref(text) => Ok(V::Str(Text::Ref(text.get(start..end).unwrap_or_default()))),
        Text::Own(own) if start == 0 && end == own.len() => Ok(V::Str(text.clone())),
        Text::Own(own) => {
            let part = own.get(start..end).unwrap_or_default();
            charge_copy(budget, part.len())?;
            Ok(V::text(part))
        }
    }
}

/// Returns the byte position of the code point with the index `index`. For the index after the last
/// code point, returns the end of the text. For all other indexes, returns None.
fn offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    text.char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .nth(index)
}

/// Returns the number of code points.
fn count(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn char_at<'e>(text: &str, at: i64) -> Outcome<'e> {
    let start = offset(text, at).ok_or_else(out_of_range)?;
    let char = text[start..].chars().next();
    Ok(char.map_or(V::Str(Text::Ref("")), |char| {
        V::text(char.encode_utf8(&mut [0; 4]))
    }))
}

fn index_of<'e>(text: &str, part: &str, from: i64) -> Outcome<'e> {
    if part.is_empty() {
        return Ok(V::Int(from));
    }
    if from < 0 {
        return Err(out_of_range());
    }
    let found = offset(text, from).and_then(|start| {
        text[start..]
            .find(part)
            .map(|at| from + count(&text[start..start + at]))
    });
    Ok(V::Int(found.unwrap_or(-1)))
}

fn last_index_of<'e>(text: &str, part: &str, from: Option<i64>) -> Outcome<'e> {
    if part.is_empty() {
        return Ok(V::Int(from.unwrap_or_else(|| count(text))));
    }
    let end = match from {
        None => text.len(),
        Some(from) if from < 0 => return Err(out_of_range()),
        // The match must not begin after the code point `from`, but it can end after this code
        // point.
        Some(from) => match offset(text, from) {
            Some(start) if start < text.len() => text.len().min(start + part.len()),
            _ => return Ok(V::Int(-1)),
        },
    };
    let bytes = text.as_bytes().get(..end).unwrap_or_default();
    let found = memmem::rfind(bytes, part.as_bytes());
    Ok(V::Int(found.map_or(-1, |at| count(&text[..at]))))
}

/// Returns the text in double quotes. Only quotes, backslashes and some control characters are
/// escaped.
fn quote<'e>(text: &str, budget: &mut Budget) -> Outcome<'e> {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        let escaped = match char {
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\u{c}' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\u{b}' => 'v',
            '\\' | '"' => char,
            _ => {
                out.push(char);
                continue;
            }
        };
        out.extend(['\\', escaped]);
    }
    out.push('"');
    charge_copy(budget, out.len())?;
    Ok(V::Str(Text::Own(out.into())))
}

fn replace<'e>(
    text: &Text<'e>,
    old: &str,
    new: &str,
    limit: i64,
    budget: &mut Budget,
) -> Outcome<'e> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let times = text.matches(old).take(limit).count();
    if times == 0 || old == new {
        return Ok(V::Str(text.clone()));
    }
    // The steps are charged before the result is created, because the result can be much longer
    // than `text`.
    let len = times.saturating_mul(new.len()).saturating_add(text.len());
    charge(
        budget,
        steps(len, COPY_BYTES_PER_STEP) + steps(times, COPY_BYTES_PER_STEP),
    )?;
    Ok(V::text(&text.replacen(old, new, times)))
}

fn split<'e>(text: &Text<'e>, separator: &str, limit: i64, budget: &mut Budget) -> Outcome<'e> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts = if separator.is_empty() {
        text.chars().take(limit).count()
    } else {
        text.matches(separator)
            .take(limit.saturating_sub(1))
            .count()
            + 1
    };
    // Each part becomes a value, and each new value takes one step of the budget.
    charge(budget, steps(parts, 1))?;
    let mut items = Vec::with_capacity(parts.min(limit));
    let mut start = 0;
    while items.len() < parts.min(limit) {
        let rest = text.get(start..).unwrap_or_default();
        let (end, next) = if items.len() + 1 == parts.min(limit) {
            (text.len(), text.len())
        } else if separator.is_empty() {
            let end = start + rest.chars().next().map_or(0, char::len_utf8);
            (end, end)
        } else {
            let end = start + rest.find(separator).unwrap_or(rest.len());
            (end, end + separator.len())
        };
        items.push(slice(text, start, end, budget)?);
        start = next;
    }
    Ok(V::List(items.into()))
}

fn substring<'e>(
    text: &Text<'e>,
    start: i64,
    end: Option<i64>,
    budget: &mut Budget,
) -> Outcome<'e> {
    if let Some(end) = end
        && start > end
    {
        return Err(Fault::error("invalid substring range"));
    }
    let from = offset(text, start).ok_or_else(out_of_range)?;
    let to = match end {
        Some(end) => offset(text, end).ok_or_else(out_of_range)?,
        None => text.len(),
    };
    slice(text, from, to, budget)
}

fn join<'e>(list: &V<'e>, separator: &str, budget: &mut Budget) -> Outcome<'e> {
    charge(budget, steps(list.len(), 16))?;
    let mut out = String::new();
    for (index, part) in list.elements().enumerate() {
        let V::Str(part) = part else {
            let found = part.type_name();
            return Err(Fault::words(&["join: invalid input: ", found]));
        };
        let separator = if index > 0 { separator } else { "" };
        let before = out.len();
        // The steps are computed from the length of the whole result, so that many short parts cost
        // as much as one long part.
        let made = before + separator.len() + part.len();
        charge(
            budget,
            steps(made, COPY_BYTES_PER_STEP) - steps(before, COPY_BYTES_PER_STEP),
        )?;
        out.push_str(separator);
        out.push_str(&part);
    }
    Ok(V::Str(Text::Own(out.into())))
}
