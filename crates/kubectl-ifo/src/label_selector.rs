//! Parses and evaluates label selectors. The server evaluates the selector of a request itself, but
//! not for objects from files (`--from`), and not for the labels of completed operations. The
//! comparisons `>` and `<` are not supported.

use ifo_api::labels::{is_key, is_value};
use kube::core::{Expression, Selector, SelectorExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr;

/// A label selector, such as `a=b,c notin (d,e),!f`.
#[derive(Clone, Debug)]
pub(crate) struct LabelSelector {
    /// The selector as the user typed it.
    pub(crate) text: String,
    requirements: Vec<Expression>,
}

impl FromStr for LabelSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = split_outside_parentheses(text).map(str::trim);
        let parts = parts.filter(|it| !it.is_empty());
        let parsed = parts.map(|part| {
            let invalid = || format!("unable to parse requirement {part:?}");
            requirement(part).ok_or_else(invalid)
        });
        Ok(Self {
            text: text.to_owned(),
            requirements: parsed.collect::<Result<_, String>>()?,
        })
    }
}

impl Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl LabelSelector {
    /// Returns true if labels match all requirements.
    pub(crate) fn matches<K: Display, V: Display>(
        &self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> bool {
        let labels = labels.into_iter();
        let labels = labels.map(|(key, value)| (key.to_string(), value.to_string()));
        let selector: Selector = self.requirements.iter().cloned().collect();
        selector.matches(&labels.collect::<BTreeMap<_, _>>())
    }

    /// Returns the keys of the labels.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        use Expression::{DoesNotExist, Equal, Exists, In, NotEqual, NotIn};
        self.requirements.iter().map(|it| {
            let (In(key, _)
            | NotIn(key, _)
            | Equal(key, _)
            | NotEqual(key, _)
            | Exists(key)
            | DoesNotExist(key)) = it;
            key.as_str()
        })
    }
}

/// Splits a selector at the commas outside of parentheses.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn requirement(part: &str) -> Option<Expression> {
    let key_of = |key: &str| Some(key.trim().to_owned()).filter(|it| is_key(it));
    let value_of = |value: &str| Some(value.trim().to_owned()).filter(|it| is_value(it));
    if let Some(key) = part.strip_prefix('!') {
        return Some(Expression::DoesNotExist(key_of(key)?));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Expression::NotEqual(key_of(key)?, value_of(value)?));
    }
    if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return Some(Expression::Equal(key_of(key)?, value_of(value)?));
    }
    if let Some((before, values)) = part.split_once('(') {
        let values = values.strip_suffix(')')?.split(',').map(value_of);
        let values: Option<BTreeSet<String>> = values.collect();
        let (key, operator) = before.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => Some(Expression::In(key_of(key)?, values?)),
            "notin" => Some(Expression::NotIn(key_of(key)?, values?)),
            _ => None,
        };
    }
    Some(Expression::Exists(key_of(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        let labels = BTreeMap::from([
            ("a".to_owned(), "b".to_owned()),
            ("x.io/c".to_owned(), String::new()),
        ]);
        for (selector, expected) in [
            ("", true),
            ("a=b", true),
            ("a==b", true),
            ("a!=b", false),
            ("d!=b", true),
            ("a in (b, c)", true),
            ("a notin (b)", false),
            ("a in (b), x.io/c", true),
            ("!a", false),
            ("!d", true),
            ("x.io/c=", true),
        ] {
            let parsed = selector
                .parse::<LabelSelector>()
                .expect("the selector is valid");
            assert_eq!(parsed.matches(&labels), expected, "{selector}");
        }
        for invalid in [
            "not a selector",
            "a=b c",
            "a in b",
            "=b",
            "a like (b)",
            "n>1",
        ] {
            assert!(invalid.parse::<LabelSelector>().is_err(), "{invalid}");
        }
    }
}
