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
/// the error, the list would be empty, and the user would not notice the mistake. A field selector
/// with an unknown field is refused, too.
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

/// Parses a label selector as Kubernetes does. Returns a 400 if it is not valid.
pub fn parse(text: &str) -> Result<Vec<SelectorRequirement>, ErrorStatus> {
    let parsed = Parser { rest: text }.parse_selector();
    let mut requirements = parsed
        .map_err(|why| ErrorStatus::bad_request(format!("unable to parse requirement: {why}")))?;
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(requirements)
}

/// A word or a sign of a selector. The text is empty at the end of the selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Sign(&'a str),
}

const END: Token<'_> = Token::Sign("");

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
        let is_sign = |c: char| matches!(c, ',' | '(' | ')' | '!' | '=' | '<' | '>');
        let text = self.rest.trim_start_matches(is_space);
        let length = match text.chars().next() {
            None => 0,
            Some(_) if text.starts_with("==") || text.starts_with("!=") => 2,
            Some(first) if is_sign(first) => 1,
            Some(_) => text
                .find(|c: char| is_sign(c) || is_space(c))
                .unwrap_or(text.len()),
        };
        let (token, rest) = text.split_at(length);
        self.rest = rest;
        if token.chars().all(is_sign) {
            Token::Sign(token)
        } else {
            Token::Word(token)
        }
    }

    fn peek(&self) -> Token<'a> {
        Parser { rest: self.rest }.next()
    }

    fn parse_selector(&mut self) -> Result<Vec<SelectorRequirement>, String> {
        let mut requirements = Vec::new();
        if self.peek() == END {
            return Ok(requirements);
        }
        loop {
            requirements.push(self.parse_requirement()?);
            match self.next() {
                END => return Ok(requirements),
                Token::Sign(",") => {}
                other => return Err(unexpected(other, "',' or the end")),
            }
        }
    }

    fn parse_requirement(&mut self) -> Result<SelectorRequirement, String> {
        let mut token = self.next();
        let is_absent = token == Token::Sign("!");
        if is_absent {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(unexpected(token, "a label key"));
        };
        if !is_key(key) {
            return Err(format!("{key:?} is not a label key"));
        }
        let (operator, values) = if is_absent {
            (SelectorOperator::DoesNotExist, BTreeSet::new())
        } else if matches!(self.peek(), END | Token::Sign(",")) {
            (SelectorOperator::Exists, BTreeSet::new())
        } else {
            match self.next() {
                Token::Sign("=" | "==") => (SelectorOperator::In, [self.parse_value()?].into()),
                Token::Sign("!=") => (SelectorOperator::NotIn, [self.parse_value()?].into()),
                Token::Sign(">") => (SelectorOperator::GreaterThan, self.parse_number()?),
                Token::Sign("<") => (SelectorOperator::LessThan, self.parse_number()?),
                Token::Word("in") => (SelectorOperator::In, self.parse_values()?),
                Token::Word("notin") => (SelectorOperator::NotIn, self.parse_values()?),
                other => return Err(unexpected(other, "in, notin, =, ==, !=, < or >")),
            }
        };
        Ok(SelectorRequirement {
            key: key.to_owned(),
            operator,
            values: values.into_iter().collect(),
        })
    }

    /// Parses a value. A missing value is the empty value.
    fn parse_value(&mut self) -> Result<String, String> {
        let value = match self.peek() {
            Token::Word(value) => {
                self.next();
                value
            }
            END | Token::Sign("," | ")") => "",
            other @ Token::Sign(_) => return Err(unexpected(other, "a label value")),
        };
        if !value.is_empty() && !is_name(value) {
            return Err(format!("{value:?} is not a label value"));
        }
        Ok(value.to_owned())
    }

    fn parse_number(&mut self) -> Result<BTreeSet<String>, String> {
        let value = self.parse_value()?;
        if value.parse::<i64>().is_err() {
            return Err(format!("{value:?} is not an integer, which < and > need"));
        }
        Ok([value].into())
    }

    fn parse_values(&mut self) -> Result<BTreeSet<String>, String> {
        let token = self.next();
        if token != Token::Sign("(") {
            return Err(unexpected(token, "'('"));
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.parse_value()?);
            match self.next() {
                Token::Sign(",") => {}
                Token::Sign(")") => return Ok(values),
                other => return Err(unexpected(other, "',' or ')'")),
            }
        }
    }
}

fn unexpected(found: Token<'_>, expected: &str) -> String {
    let (Token::Word(found) | Token::Sign(found)) = found;
    format!("found {found:?}, expected: {expected}")
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
