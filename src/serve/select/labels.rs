//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`.

#[cfg(any(fuzzing, test))]
mod fuzzing;

use super::raw;
use crate::api::labels::{is_key, is_value};
use crate::auth;
use crate::serve::status::Failure;
use std::collections::BTreeSet;

#[cfg(any(fuzzing, test))]
pub use self::fuzzing::check;

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    /// Also fits where the label is absent.
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

impl Requirement {
    /// Whether a JSON object of labels fits.
    pub fn matches(&self, labels: &[u8]) -> bool {
        let value = raw::member(labels, &self.key);
        let number = || value.as_deref().and_then(|text| text.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(&*value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(&*value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Greater(than) => number().is_some_and(|number| number > *than),
            Test::Less(than) => number().is_some_and(|number| number < *than),
        }
    }

    /// As a `SubjectAccessReview` has it; None for the comparisons, which it has not.
    pub fn reviewed(&self) -> Option<auth::Requirement> {
        let (operator, values) = match &self.test {
            Test::In(values) => ("In", values.iter().cloned().collect()),
            Test::NotIn(values) => ("NotIn", values.iter().cloned().collect()),
            Test::Exists => ("Exists", Vec::new()),
            Test::DoesNotExist => ("DoesNotExist", Vec::new()),
            Test::Greater(_) | Test::Less(_) => return None,
        };
        Some(auth::Requirement {
            key: self.key.clone(),
            operator,
            values,
        })
    }
}

/// Reads a selector; 400 if it cannot be.
pub fn parse(text: &str) -> Result<Vec<Requirement>, Failure> {
    Parser { rest: text }
        .selector()
        .map_err(|why| Failure::bad_request(format!("unable to parse requirement: {why}")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    /// A key, a value, `in` or `notin`.
    Word(&'a str),
    /// Punctuation: `, ( ) ! = == != < >`.
    Sign(&'a str),
}

impl Token<'_> {
    fn shown(self) -> String {
        match self {
            Token::End => String::new(),
            Token::Word(text) | Token::Sign(text) => text.to_owned(),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        let text = self.rest.trim_start();
        let Some(first) = text.chars().next() else {
            self.rest = "";
            return Token::End;
        };
        let is_sign = |c: char| matches!(c, ',' | '(' | ')' | '!' | '=' | '<' | '>');
        let (token, length) = if is_sign(first) {
            let length = if text.starts_with("==") || text.starts_with("!=") {
                2
            } else {
                1
            };
            (Token::Sign(&text[..length]), length)
        } else {
            let length = text
                .find(|c: char| is_sign(c) || c.is_whitespace())
                .unwrap_or(text.len());
            (Token::Word(&text[..length]), length)
        };
        self.rest = &text[length..];
        token
    }

    fn peek(&self) -> Token<'a> {
        Parser { rest: self.rest }.next()
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        if self.peek() == Token::End {
            return Ok(requirements);
        }
        loop {
            requirements.push(self.requirement()?);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Sign(",") => match self.peek() {
                    Token::Word(_) | Token::Sign("!") => {}
                    other => {
                        return Err(format!(
                            "found '{}', expected: identifier after ','",
                            other.shown()
                        ));
                    }
                },
                other => {
                    return Err(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.shown()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let absent = token == Token::Sign("!");
        if absent {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(format!(
                "found '{}', expected: !, identifier, or 'end of string'",
                token.shown()
            ));
        };
        check_key(key)?;
        let test = if absent {
            Test::DoesNotExist
        } else {
            self.test(key)?
        };
        Ok(Requirement {
            key: key.to_owned(),
            test,
        })
    }

    fn test(&mut self, key: &str) -> Result<Test, String> {
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return Ok(Test::Exists);
        }
        match self.next() {
            Token::Sign("=" | "==") => Ok(Test::In([self.value(key)?].into())),
            Token::Sign("!=") => Ok(Test::NotIn([self.value(key)?].into())),
            Token::Sign(">") => self.number().map(Test::Greater),
            Token::Sign("<") => self.number().map(Test::Less),
            Token::Word("in") => self.values(key).map(Test::In),
            Token::Word("notin") => self.values(key).map(Test::NotIn),
            other => Err(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                other.shown()
            )),
        }
    }

    /// The value after `=`; none at all is the empty value.
    fn value(&mut self, key: &str) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(value) => {
                self.next();
                check_value(key, value)
            }
            Token::Sign(other) => Err(format!("found '{other}', expected: identifier")),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let token = self.next();
        match token {
            Token::Word(text) => text.parse().map_err(|_| {
                format!("values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer")
            }),
            other => Err(format!("found '{}', expected: identifier", other.shown())),
        }
    }

    /// `(a,b)`; an empty place between commas is the empty value.
    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        let token = self.next();
        if token != Token::Sign("(") {
            return Err(format!("found '{}' expected: '('", token.shown()));
        }
        let mut values = BTreeSet::new();
        let mut pending = String::new();
        loop {
            match self.next() {
                Token::Word(value) if pending.is_empty() => pending = check_value(key, value)?,
                Token::Sign(",") => {
                    values.insert(std::mem::take(&mut pending));
                }
                Token::Sign(")") => {
                    values.insert(pending);
                    return Ok(values);
                }
                other => {
                    return Err(format!("found '{}', expected: ',', or ')'", other.shown()));
                }
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    if is_key(key) {
        return Ok(());
    }
    Err(format!(
        "key: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' \
         or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
         'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ))
}

fn check_value(key: &str, value: &str) -> Result<String, String> {
    if is_value(value) {
        return Ok(value.to_owned());
    }
    let why = if value.len() > crate::api::labels::MAX_VALUE {
        "must be no more than 63 bytes".to_owned()
    } else {
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
         '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
         'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            .to_owned()
    };
    Err(format!("values[0][{key}]: Invalid value: {value:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(selector: &str, labels: &str) -> bool {
        parse(selector)
            .unwrap()
            .iter()
            .all(|requirement| requirement.matches(labels.as_bytes()))
    }

    #[test]
    fn every_operator_compares_as_kubernetes_does() {
        let labels = r#"{"a":"1","b.c/d":"x","e":""}"#;
        for selector in [
            "",
            "a",
            "a=1",
            "a==1",
            "a = 1",
            "a!=2",
            "z!=1",
            "a in (0,1)",
            "a notin (2)",
            "z notin (1)",
            "!z",
            "a>0",
            "a<2",
            "b.c/d=x,a=1",
            "e=",
            "e",
            "e in (,x)",
            "a in (1 , 2)",
        ] {
            assert!(fits(selector, labels), "{selector}");
        }
        for selector in [
            "z",
            "a=2",
            "a!=1",
            "a in (2)",
            "a notin (1)",
            "!a",
            "a>1",
            "a<1",
            "z>0",
            "b.c/d>0",
            "a=1,z",
            "a=",
        ] {
            assert!(!fits(selector, labels), "{selector}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (selector, why) in [
            (
                ",",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
            ("a,", "found '', expected: identifier after ','"),
            ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in 1", "found '1' expected: '('"),
            ("a in (1", "found '', expected: ',', or ')'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("a==(", "found '(', expected: identifier"),
        ] {
            assert_eq!(
                parse(selector).unwrap_err().to_string(),
                format!("unable to parse requirement: {why}")
            );
        }
        for selector in ["-a", "a=b/c", "a>x", "a in (b c)", "é=1"] {
            assert!(parse(selector).is_err(), "{selector}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c=!,<>() \\\\innotéx/.-]{0,24}", labels: Vec<u8>) {
            for requirement in parse(&text).unwrap_or_default() {
                requirement.matches(&labels);
            }
        }
    }
}
