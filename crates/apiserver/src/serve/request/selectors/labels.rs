//! Parses label selectors, such as `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`, and compares them
//! with the labels of objects.

use crate::auth;
use crate::serve::answer::error_status::ErrorStatus;
use std::collections::BTreeSet;

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    /// An object without the label also fulfils this test.
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

impl Test {
    /// Returns true if the value of the label fulfils the test. `value` is None if the object does
    /// not have the label.
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value?.parse::<i64>().ok();
        match self {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Greater(than) => number().is_some_and(|number| number > *than),
            Test::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

/// Returns true if an object fulfils all `requirements`. `value` returns the value of the object's
/// label with the given key, or None if the object does not have the label.
pub fn all_match<'a>(
    requirements: &[LabelRequirement],
    value: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    let mut all = requirements.iter();
    all.all(|it| it.test.matches(value(&it.key)))
}

impl LabelRequirement {
    /// Returns the requirement in the form of a `SubjectAccessReview`. Returns None for comparisons
    /// (`>` and `<`), because a review does not support them.
    pub fn to_review_requirement(&self) -> Option<auth::SelectorRequirement> {
        let (operator, values) = match &self.test {
            Test::In(values) => ("In", values.iter().cloned().collect()),
            Test::NotIn(values) => ("NotIn", values.iter().cloned().collect()),
            Test::Exists => ("Exists", Vec::new()),
            Test::DoesNotExist => ("DoesNotExist", Vec::new()),
            Test::Greater(_) | Test::Less(_) => return None,
        };
        Some(auth::SelectorRequirement {
            key: self.key.clone(),
            operator,
            values,
        })
    }
}

/// Returns the number of values in all requirements: `a in (b,c),d=e` has three. The number in a
/// comparison such as `l>3` does not count.
pub fn count_values(requirements: &[LabelRequirement]) -> usize {
    let values = requirements.iter().map(|it| match &it.test {
        Test::In(values) | Test::NotIn(values) => values.len(),
        _ => 0,
    });
    values.sum()
}

/// Returns a 400 if a requirement needs a label that no object has, according to `check`. Without
/// the error, the list would be empty, and the user would not notice the mistake. A field selector
/// with an unknown field is refused, too.
pub fn check_keys(
    requirements: &[LabelRequirement],
    check: fn(&str) -> Result<(), String>,
) -> Result<(), ErrorStatus> {
    let mut needing = requirements.iter().filter(|it| !it.test.matches(None));
    needing
        .try_for_each(|it| check(&it.key))
        .map_err(ErrorStatus::bad_request)
}

/// Largest length of a label value, and of the name in a label key.
const MAX_NAME: usize = 63;

/// Largest length of the prefix of a label key.
const MAX_PREFIX: usize = 253;

/// Parses a label selector as Kubernetes does. Returns a 400 if it is not valid.
pub fn parse(text: &str) -> Result<Vec<LabelRequirement>, ErrorStatus> {
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

    fn parse_selector(&mut self) -> Result<Vec<LabelRequirement>, String> {
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

    fn parse_requirement(&mut self) -> Result<LabelRequirement, String> {
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
        let test = if is_absent {
            Test::DoesNotExist
        } else {
            self.parse_test()?
        };
        Ok(LabelRequirement {
            key: key.to_owned(),
            test,
        })
    }

    fn parse_test(&mut self) -> Result<Test, String> {
        if matches!(self.peek(), END | Token::Sign(",")) {
            return Ok(Test::Exists);
        }
        match self.next() {
            Token::Sign("=" | "==") => Ok(Test::In([self.parse_value()?].into())),
            Token::Sign("!=") => Ok(Test::NotIn([self.parse_value()?].into())),
            Token::Sign(">") => self.parse_number().map(Test::Greater),
            Token::Sign("<") => self.parse_number().map(Test::Less),
            Token::Word("in") => self.parse_values().map(Test::In),
            Token::Word("notin") => self.parse_values().map(Test::NotIn),
            other => Err(unexpected(other, "in, notin, =, ==, !=, < or >")),
        }
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

    fn parse_number(&mut self) -> Result<i64, String> {
        let value = self.parse_value()?;
        let number = value.parse();
        number.map_err(|_| format!("{value:?} is not an integer, which < and > need"))
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

    fn term(LabelRequirement { key, test }: &LabelRequirement) -> String {
        let set = |word: &str, values: &BTreeSet<String>| {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            format!("{key} {word} ({})", values.join(","))
        };
        match test {
            Test::In(values) => set("in", values),
            Test::NotIn(values) => set("notin", values),
            Test::Exists => key.clone(),
            Test::DoesNotExist => format!("!{key}"),
            Test::Greater(than) => format!("{key}>{than}"),
            Test::Less(than) => format!("{key}<{than}"),
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
            all_match(&parse(&text).unwrap_or_default(), value);
        }
    }
}
