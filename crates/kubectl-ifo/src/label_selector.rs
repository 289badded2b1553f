//! Evaluates label selectors in the plugin, with the same rules as `ifo-apiserver`. The plugin
//! evaluates selectors itself in two cases: for objects from files (`--from`), and in the command
//! `history`, for the labels of completed operations.

use std::collections::BTreeMap;

/// A requirement of a label selector.
#[derive(Debug, PartialEq, Eq)]
enum ParsedLabelRequirement<'a> {
    Exists(&'a str),
    Missing(&'a str),
    In(&'a str, Vec<&'a str>),
    NotIn(&'a str, Vec<&'a str>),
    Greater(&'a str, i64),
    Less(&'a str, i64),
}

/// A parsed label selector.
#[derive(Debug, Default)]
pub(crate) struct ParsedLabelSelector<'a> {
    requirements: Vec<ParsedLabelRequirement<'a>>,
}

impl<'a> ParsedLabelSelector<'a> {
    /// Parses the text of a selector, such as `a=b,c notin (d,e),!f,g>3`.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if !part.is_empty() {
                let invalid = || format!("unable to parse requirement {part:?}");
                requirements.push(requirement(part).ok_or_else(invalid)?);
            }
        }
        Ok(Self { requirements })
    }

    /// Returns true if labels match all requirements.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let number = |key: &str| labels.get(key)?.parse::<i64>().ok();
        self.requirements
            .iter()
            .all(|requirement| match requirement {
                ParsedLabelRequirement::Exists(key) => labels.contains_key(*key),
                ParsedLabelRequirement::Missing(key) => !labels.contains_key(*key),
                ParsedLabelRequirement::In(key, values) => labels
                    .get(*key)
                    .is_some_and(|it| values.contains(&it.as_str())),
                ParsedLabelRequirement::NotIn(key, values) => labels
                    .get(*key)
                    .is_none_or(|it| !values.contains(&it.as_str())),
                ParsedLabelRequirement::Greater(key, than) => {
                    number(key).is_some_and(|it| it > *than)
                }
                ParsedLabelRequirement::Less(key, than) => number(key).is_some_and(|it| it < *than),
            })
    }
}

/// Splits a selector at the commas outside of parentheses.
pub(crate) fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
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

fn requirement(part: &str) -> Option<ParsedLabelRequirement<'_>> {
    let key_only = |key: &'_ str| ifo_api::labels::is_key(key);
    if let Some(key) = part.strip_prefix('!') {
        let key = key.trim();
        return key_only(key).then_some(ParsedLabelRequirement::Missing(key));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return pair(key, value)
            .map(|(key, value)| ParsedLabelRequirement::NotIn(key, vec![value]));
    }
    if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return pair(key, value).map(|(key, value)| ParsedLabelRequirement::In(key, vec![value]));
    }
    if let Some((before, values)) = part.split_once('(') {
        let values: Vec<&str> = values
            .strip_suffix(')')?
            .split(',')
            .map(str::trim)
            .collect();
        let before = before.trim();
        let (key, operator) = before.rsplit_once(char::is_whitespace)?;
        let key = key.trim();
        let is_valid = key_only(key) && values.iter().all(|it| ifo_api::labels::is_value(it));
        return match operator {
            "in" if is_valid => Some(ParsedLabelRequirement::In(key, values)),
            "notin" if is_valid => Some(ParsedLabelRequirement::NotIn(key, values)),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once('>') {
        return number(key, value).map(|(key, than)| ParsedLabelRequirement::Greater(key, than));
    }
    if let Some((key, value)) = part.split_once('<') {
        return number(key, value).map(|(key, than)| ParsedLabelRequirement::Less(key, than));
    }
    key_only(part).then_some(ParsedLabelRequirement::Exists(part))
}

/// Parses the key and the number of a comparison such as `g>3`. As in Kubernetes, the number must
/// be a valid label value. A label value cannot begin with `-`, so the number cannot be negative.
fn number<'a>(key: &'a str, value: &'a str) -> Option<(&'a str, i64)> {
    let (key, value) = pair(key, value)?;
    Some((key, value.parse().ok()?))
}

fn pair<'a>(key: &'a str, value: &'a str) -> Option<(&'a str, &'a str)> {
    let (key, value) = (key.trim(), value.trim());
    let is_valid = ifo_api::labels::is_key(key) && ifo_api::labels::is_value(value);
    is_valid.then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        let labels = BTreeMap::from([
            ("a".to_owned(), "b".to_owned()),
            ("x.io/c".to_owned(), String::new()),
            ("n".to_owned(), "3".to_owned()),
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
            ("n>2", true),
            ("n > 3", false),
            ("n<4,n>2", true),
            ("n<3", false),
            ("a>0", false),
            ("d<1", false),
        ] {
            let parsed = ParsedLabelSelector::parse(selector).expect("the selector is valid");
            assert_eq!(parsed.matches(&labels), expected, "{selector}");
        }
        for invalid in [
            "not a selector",
            "a=b c",
            "a in b",
            "=b",
            "a like (b)",
            "n>",
            "n>x",
            "n<-1",
            "n>1<2",
            ">1",
        ] {
            assert!(ParsedLabelSelector::parse(invalid).is_err(), "{invalid}");
        }
    }
}
