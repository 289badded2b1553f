//! Parses label selectors. Input: the text of a selector. Output: the requirements, or an error.
//! Errors have the same text as in Kubernetes' parser, because clients show these texts to users.
//! There is one exception: if a requirement has more than 10 invalid values, the message contains
//! only the first 10 errors.

use super::syntax::{MAX_VALUE, is_key, is_value};
use super::{LabelRequirement, Test};
use crate::serve::quoting::{Quoted, join_errors};
use std::collections::BTreeSet;

/// Largest number of errors in the message about one requirement. Kubernetes' message has no such
/// limit. An error takes some 300 bytes, and a set may have thousands of invalid values.
const MAX_REPORTED_ERRORS: usize = 10;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                    end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                    '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectorToken<'a> {
    End,
    /// A key, a value, or one of the operators `in` and `notin`.
    Word(&'a str),
    /// One of `, ( ) ! = == != < >`.
    Sign(&'a str),
}

impl<'a> SelectorToken<'a> {
    fn text(self) -> &'a str {
        match self {
            SelectorToken::End => "",
            SelectorToken::Word(text) | SelectorToken::Sign(text) => text,
        }
    }
}

/// A parser of one label selector.
pub struct Parser<'a> {
    /// The text that has not been parsed yet.
    rest: &'a str,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn next(&mut self) -> SelectorToken<'a> {
        let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
        let is_sign = |c: char| matches!(c, ',' | '(' | ')' | '!' | '=' | '<' | '>');
        let text = self.rest.trim_start_matches(is_space);
        let Some(first) = text.chars().next() else {
            self.rest = "";
            return SelectorToken::End;
        };
        let (token, length) = if is_sign(first) {
            let length = if text.starts_with("==") || text.starts_with("!=") {
                2
            } else {
                1
            };
            (SelectorToken::Sign(&text[..length]), length)
        } else {
            let length = text
                .find(|c: char| is_sign(c) || is_space(c))
                .unwrap_or(text.len());
            (SelectorToken::Word(&text[..length]), length)
        };
        self.rest = &text[length..];
        token
    }

    fn peek(&self) -> SelectorToken<'a> {
        Parser { rest: self.rest }.next()
    }

    /// Parses the whole selector.
    pub fn parse_selector(&mut self) -> Result<Vec<LabelRequirement>, String> {
        let mut requirements = Vec::new();
        match self.peek() {
            SelectorToken::End => return Ok(requirements),
            SelectorToken::Word(_) | SelectorToken::Sign("!") => {}
            other @ SelectorToken::Sign(_) => {
                return Err(unexpected(other, "!, identifier, or 'end of string'"));
            }
        }
        loop {
            let requirement = self.parse_requirement();
            requirements
                .push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next() {
                SelectorToken::End => return Ok(requirements),
                SelectorToken::Sign(",") => match self.peek() {
                    SelectorToken::Word(_) | SelectorToken::Sign("!") => {}
                    other => return Err(unexpected(other, "identifier after ','")),
                },
                other => return Err(unexpected(other, "',' or 'end of string'")),
            }
        }
    }

    fn parse_requirement(&mut self) -> Result<LabelRequirement, String> {
        let mut token = self.next();
        let absent = token == SelectorToken::Sign("!");
        if absent {
            token = self.next();
        }
        let SelectorToken::Word(key) = token else {
            return Err(unexpected(token, "identifier"));
        };
        if !is_key(key) {
            let why = key_errors(key).join("; ");
            return Err(format!("<nil>: Invalid value: {}: {why}", Quoted(key)));
        }
        let test = if absent {
            Test::DoesNotExist
        } else {
            self.parse_test(key)?
        };
        Ok(LabelRequirement {
            key: key.to_owned(),
            test,
        })
    }

    fn parse_test(&mut self, key: &str) -> Result<Test, String> {
        if matches!(self.peek(), SelectorToken::End | SelectorToken::Sign(",")) {
            return Ok(Test::Exists);
        }
        match self.next() {
            SelectorToken::Sign("=" | "==") => {
                Ok(Test::In(check_values(key, [self.parse_value()?].into())?))
            }
            SelectorToken::Sign("!=") => Ok(Test::NotIn(check_values(
                key,
                [self.parse_value()?].into(),
            )?)),
            SelectorToken::Sign(">") => parse_number(key, self.parse_value()?).map(Test::Greater),
            SelectorToken::Sign("<") => parse_number(key, self.parse_value()?).map(Test::Less),
            SelectorToken::Word("in") => Ok(Test::In(check_values(key, self.parse_values()?)?)),
            SelectorToken::Word("notin") => {
                Ok(Test::NotIn(check_values(key, self.parse_values()?)?))
            }
            other => Err(unexpected(other, "in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// Parses the value after an operator such as `=`. The value may be empty.
    fn parse_value(&mut self) -> Result<&'a str, String> {
        match self.peek() {
            SelectorToken::End | SelectorToken::Sign(",") => Ok(""),
            SelectorToken::Word(value) => {
                self.next();
                Ok(value)
            }
            other @ SelectorToken::Sign(_) => Err(unexpected(other, "identifier")),
        }
    }

    /// Parses a set of values, such as `(a,b)`. Values may be empty.
    fn parse_values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let token = self.next();
        if token != SelectorToken::Sign("(") {
            return Err(format!("found '{}' expected: '('", token.text()));
        }
        let mut values = BTreeSet::new();
        let mut expected = "',', ')' or identifier";
        loop {
            let value = match self.peek() {
                SelectorToken::Word(value) => {
                    self.next();
                    expected = "',' or ')'";
                    value
                }
                _ => "",
            };
            match self.next() {
                SelectorToken::Sign(",") => {
                    values.insert(value);
                    expected = "',', or identifier";
                }
                SelectorToken::Sign(")") => {
                    values.insert(value);
                    return Ok(values);
                }
                other => return Err(unexpected(other, expected)),
            }
        }
    }
}

fn unexpected(found: SelectorToken<'_>, expected: &str) -> String {
    format!("found '{}', expected: {expected}", found.text())
}

/// Returns the values if all are valid label values. If not, returns an error message about the
/// invalid values.
fn check_values(key: &str, values: BTreeSet<&str>) -> Result<BTreeSet<String>, String> {
    let invalid = values
        .iter()
        .enumerate()
        .filter(|(_, value)| !is_value(value));
    let errors: Vec<String> = invalid
        .take(MAX_REPORTED_ERRORS)
        .map(|(position, value)| value_error(key, position, value))
        .collect();
    if errors.is_empty() {
        Ok(values.into_iter().map(str::to_owned).collect())
    } else {
        Err(join_errors(&errors))
    }
}

/// Parses the number of a comparison. The number must be a valid label value. A label value cannot
/// begin with `-`, so the number cannot be negative.
fn parse_number(key: &str, value: &str) -> Result<i64, String> {
    let mut errors = Vec::new();
    let number = value.parse();
    if number.is_err() {
        errors.push(format!(
            "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
            Quoted(value)
        ));
    }
    if !is_value(value) {
        errors.push(value_error(key, 0, value));
    }
    match number {
        Ok(number) if errors.is_empty() => Ok(number),
        _ => Err(join_errors(&errors)),
    }
}

/// Returns the error message about an invalid value. `position` is the position of the value in the
/// sorted set.
fn value_error(key: &str, position: usize, value: &str) -> String {
    let mut errors = Vec::new();
    if value.len() > MAX_VALUE {
        errors.push(format!("must be no more than {MAX_VALUE} bytes"));
    }
    if !value.chars().all(is_name_char) || !has_valid_ends(value) {
        errors.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
             or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    format!(
        "values[{position}][{key}]: Invalid value: {}: {}",
        Quoted(value),
        errors.join("; ")
    )
}

/// Returns an error message for each reason why a key is invalid.
fn key_errors(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.splitn(3, '/').collect();
    let mut errors = Vec::new();
    let name = match parts[..] {
        [name] => name,
        ["", name] => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            if prefix.len() > MAX_PREFIX {
                errors.push(format!(
                    "prefix part must be no more than {MAX_PREFIX} bytes"
                ));
            }
            if !prefix.split('.').all(is_subdomain_label) {
                errors.push(
                    "prefix part a lowercase RFC 1123 subdomain must consist of lower case \
                     alphanumeric characters, '-' or '.', and must start and end with an \
                     alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                        .to_owned(),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_VALUE {
        errors.push(format!("name part must be no more than {MAX_VALUE} bytes"));
    }
    if name.is_empty() || !name.chars().all(is_name_char) || !has_valid_ends(name) {
        errors.push(format!("name part {NAME_RULE}"));
    }
    errors
}

/// Largest length of the prefix of a key, in bytes (RFC 1123).
const MAX_PREFIX: usize = 253;

/// Returns true if `label` has the form of one label of a domain name. The length is not checked.
fn is_subdomain_label(label: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.starts_with(is_alphanumeric)
        && label.ends_with(is_alphanumeric)
        && label.chars().all(|c| is_alphanumeric(c) || c == '-')
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns true if the text is empty, or if its first and its last character are letters or digits.
fn has_valid_ends(text: &str) -> bool {
    text.is_empty()
        || (text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric()))
}
