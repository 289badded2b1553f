//! Parses and evaluates label selectors. The server evaluates the selector of a request. The plugin
//! evaluates the selector for objects from files (`--from`), and for the records that `history`
//! requests without a selector. The comparisons `>` and `<` are not supported.

use ifo_api::labels::{is_key, is_value};
use ifo_api::metadata::Labels;
use std::collections::BTreeSet;
use std::str::FromStr;

/// A label selector, such as `a=b,c notin (d,e),!f`. The default matches all labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelSelector {
    /// The selector as the user typed it.
    pub(crate) text: String,
    pub(crate) requirements: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    /// The label matches if its value is one of these. If None, any value matches.
    values: Option<BTreeSet<String>>,
    /// True for `!a`, `!=` and `notin`: the label must not exist, or must not match.
    pub(crate) is_negated: bool,
}

impl Requirement {
    /// Returns true if a label fulfils the requirement. `is_value` returns true for the value of the
    /// label.
    pub(crate) fn allows(&self, is_value: impl Fn(&String) -> bool) -> bool {
        let values = self.values.as_ref();
        values.is_none_or(|all| all.iter().any(is_value)) != self.is_negated
    }
}

impl FromStr for LabelSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = split_outside_parentheses(text).map(str::trim);
        let parts = parts.filter(|it| !it.is_empty());
        let parsed = parts.map(|part| {
            let operators = "the operators are =, ==, !=, in and notin";
            let invalid = || format!("unable to parse requirement {part:?}; {operators}");
            requirement(part).ok_or_else(invalid)
        });
        Ok(Self {
            text: text.trim().to_owned(),
            requirements: parsed.collect::<Result<_, String>>()?,
        })
    }
}

impl LabelSelector {
    /// Returns true if labels match all requirements.
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|it| {
            let value = labels.get(it.key.as_str());
            value.map_or(it.is_negated, |value| it.allows(|text| **text == **value))
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

fn requirement(part: &str) -> Option<Requirement> {
    let (key, values, is_negated) = if let Some(key) = part.strip_prefix('!') {
        (key, None, true)
    } else if let Some((key, value)) = part.split_once("!=") {
        (key, Some(value), true)
    } else if let Some((key, value)) = part.split_once('=') {
        (key, Some(value.strip_prefix('=').unwrap_or(value)), false)
    } else if let Some((before, values)) = part.split_once('(') {
        let (key, operator) = before.trim().rsplit_once(char::is_whitespace)?;
        let is_negated = operator == "notin";
        if !is_negated && operator != "in" {
            return None;
        }
        (key, Some(values.strip_suffix(')')?), is_negated)
    } else {
        (part, None, false)
    };
    let key = key.trim().to_owned();
    let values = values.map(|it| it.split(',').map(|value| value.trim().to_owned()));
    let values = values.map(BTreeSet::from_iter);
    let is_valid = is_key(&key) && values.iter().flatten().all(|it| is_value(it));
    is_valid.then_some(Requirement {
        key,
        values,
        is_negated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        let labels = [("a", "b"), ("x.io/c", "")].map(|(key, value)| (key.into(), value.into()));
        let labels: Labels = labels.into_iter().collect();
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
