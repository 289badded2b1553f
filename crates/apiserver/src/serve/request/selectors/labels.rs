//! Parses label selectors, such as `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`, and compares them
//! with the labels of objects.

use crate::auth::{SelectorOperator, SelectorRequirement};
use crate::serve::answer::error_status::ErrorStatus;
use std::collections::BTreeSet;

/// Returns true if the value of a label fulfils the requirement. `value` is None if the object does
/// not have the label.
pub fn matches(requirement: &SelectorRequirement, value: Option<&str>) -> bool {
    let is_listed = || value.is_some_and(|value| requirement.values.iter().any(|it| it == value));
    let compare = |is_ordered: fn(i64, i64) -> bool| {
        let number = |text: &str| text.parse::<i64>().ok();
        let than = requirement.values.first().and_then(|text| number(text));
        let numbers = value.and_then(number).zip(than);
        numbers.is_some_and(|(number, than)| is_ordered(number, than))
    };
    match requirement.operator {
        SelectorOperator::In => is_listed(),
        SelectorOperator::NotIn => !is_listed(),
        SelectorOperator::Exists => value.is_some(),
        SelectorOperator::DoesNotExist => value.is_none(),
        SelectorOperator::GreaterThan => compare(|number, than| number > than),
        SelectorOperator::LessThan => compare(|number, than| number < than),
    }
}

/// Returns a 400 if a requirement needs a label that no object has, according to `check`. Without
/// the error, the list would be empty, and the user would not notice a misspelled key. For the same
/// reason, the server refuses field selectors with unknown fields.
pub fn check_keys(
    requirements: &[SelectorRequirement],
    check: fn(&str) -> Result<(), String>,
) -> Result<(), ErrorStatus> {
    let mut needing = requirements.iter().filter(|it| !matches(it, None));
    needing
        .try_for_each(|it| check(&it.key))
        .map_err(ErrorStatus::bad_request)
}

/// Largest length of a label value, and of the name in a label key.
const MAX_NAME: usize = 63;

/// Largest length of the prefix of a label key.
const MAX_PREFIX: usize = 253;

/// Parses a label selector as Kubernetes does. Returns a 400 if the selector is not valid.
pub fn parse(text: &str) -> Result<Vec<SelectorRequirement>, ErrorStatus> {
    let mut requirements = parse_requirements(text)
        .map_err(|why| ErrorStatus::bad_request(format!("unable to parse requirement: {why}")))?;
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(requirements)
}

fn parse_requirements(mut rest: &str) -> Result<Vec<SelectorRequirement>, String> {
    let mut requirements = Vec::new();
    if peek(rest).is_empty() {
        return Ok(requirements);
    }
    loop {
        requirements.push(requirement(&mut rest)?);
        match next(&mut rest) {
            "" => return Ok(requirements),
            "," => {}
            other => return Err(format!("found {other:?}, expected: ',' or the end")),
        }
    }
}

/// Removes the next word or sign from `rest`, and returns this word or sign. At the end of the
/// selector, returns an empty text.
fn next<'a>(rest: &mut &'a str) -> &'a str {
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let is_sign = |c: char| matches!(c, ',' | '(' | ')' | '!' | '=' | '<' | '>');
    let text = rest.trim_start_matches(is_space);
    let word = text.find(|c: char| is_sign(c) || is_space(c));
    let length = match word.unwrap_or(text.len()) {
        0 if text.starts_with("==") || text.starts_with("!=") => 2,
        0 => text.len().min(1),
        length => length,
    };
    let (token, after) = text.split_at(length);
    *rest = after;
    token
}

fn peek(mut rest: &str) -> &str {
    next(&mut rest)
}

fn requirement(rest: &mut &str) -> Result<SelectorRequirement, String> {
    use SelectorOperator::{DoesNotExist, Exists, GreaterThan, In, LessThan, NotIn};
    let mut key = next(rest);
    let is_absent = key == "!";
    if is_absent {
        key = next(rest);
    }
    if !is_key(key) {
        return Err(format!("{key:?} is not a label key"));
    }
    let (operator, values) = if is_absent {
        (DoesNotExist, BTreeSet::new())
    } else if matches!(peek(rest), "" | ",") {
        (Exists, BTreeSet::new())
    } else {
        match next(rest) {
            "=" | "==" => (In, [value(rest)?].into()),
            "!=" => (NotIn, [value(rest)?].into()),
            ">" => (GreaterThan, number(rest)?),
            "<" => (LessThan, number(rest)?),
            "in" => (In, values(rest)?),
            "notin" => (NotIn, values(rest)?),
            other => {
                return Err(format!(
                    "found {other:?}, expected: in, notin, =, ==, !=, < or >"
                ));
            }
        }
    };
    Ok(SelectorRequirement {
        key: key.to_owned(),
        operator,
        values: values.into_iter().collect(),
    })
}

/// Parses a value. A missing value counts as the empty value.
fn value(rest: &mut &str) -> Result<String, String> {
    let value = match peek(rest) {
        "" | "," | ")" => "",
        _ => next(rest),
    };
    if !value.is_empty() && !is_name(value) {
        return Err(format!("{value:?} is not a label value"));
    }
    Ok(value.to_owned())
}

fn number(rest: &mut &str) -> Result<BTreeSet<String>, String> {
    let value = value(rest)?;
    if value.parse::<i64>().is_err() {
        return Err(format!("{value:?} is not an integer, which < and > need"));
    }
    Ok([value].into())
}

fn values(rest: &mut &str) -> Result<BTreeSet<String>, String> {
    let mut values = BTreeSet::new();
    let mut sign = next(rest);
    if sign != "(" {
        return Err(format!("found {sign:?}, expected: '('"));
    }
    while sign != ")" {
        values.insert(value(rest)?);
        sign = next(rest);
        if !matches!(sign, "," | ")") {
            return Err(format!("found {sign:?}, expected: ',' or ')'"));
        }
    }
    Ok(values)
}

/// Returns true for a label key: a name, which can have a DNS subdomain and a slash before it.
fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= MAX_NAME
        && text.chars().all(is_inner)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_subdomain(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= MAX_PREFIX && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [(&str, &str); 3] = [("a", "1"), ("b.c/d", "x"), ("e", "")];

    fn value(key: &str) -> Option<&'static str> {
        let mut labels = LABELS.into_iter();
        labels.find_map(|(own, value)| (own == key).then_some(value))
    }

    fn term(requirement: &SelectorRequirement) -> String {
        let (key, values) = (&requirement.key, requirement.values.join(","));
        match requirement.operator {
            SelectorOperator::In => format!("{key} in ({values})"),
            SelectorOperator::NotIn => format!("{key} notin ({values})"),
            SelectorOperator::Exists => key.clone(),
            SelectorOperator::DoesNotExist => format!("!{key}"),
            SelectorOperator::GreaterThan => format!("{key}>{values}"),
            SelectorOperator::LessThan => format!("{key}<{values}"),
        }
    }

    #[test]
    fn selectors_are_parsed_as_in_kubernetes() {
        crate::serve::request::selectors::tests::compare("labels", |text| {
            Some(parse(text).ok()?.iter().map(term).collect())
        });
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c=!,<>() \\\\innotéx/.-]{0,24}") {
            for requirement in parse(&text).unwrap_or_default() {
                matches(&requirement, value(&requirement.key));
            }
        }
    }
}
