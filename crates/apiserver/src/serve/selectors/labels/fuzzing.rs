//! Checks the parser of label selectors. The fuzz targets call these checks with random texts.

use super::{LabelRequirement, Test, all_match, parse};
use crate::serve::fuzzing::check_error;
use std::collections::BTreeMap;

/// The labels of one object.
type TextLabels = BTreeMap<String, String>;

/// Largest number of requirements that [`check`] compares with example labels. Further requirements
/// are only parsed. Each requirement adds examples, and `check` compares every requirement with all
/// examples. So the time grows with the square of this number.
const MAX_COMPARED: usize = 12;

/// Checks a label selector:
///
/// - If the check formats the parsed requirements and parses the text again, the result must be the
///   same requirements.
/// - Each requirement must match labels as the Kubernetes documentation describes.
/// - Each error must have the status code 400.
pub fn check(text: &str) {
    let requirements = match parse(text) {
        Ok(requirements) => requirements,
        Err(failure) => return check_error(&failure, &[400]),
    };
    for spelling in [
        Spelling::Short,
        Spelling::Double,
        Spelling::Sets,
        Spelling::Spaced,
    ] {
        let written = spelling.write(&requirements);
        let again = parse(&written).expect("a formatted selector must be valid");
        assert_eq!(again, requirements, "{written:?}");
    }
    for labels in examples(&requirements) {
        let compared = &requirements[..requirements.len().min(MAX_COMPARED)];
        let one_by_one = compared.iter().map(std::slice::from_ref);
        for some in one_by_one.chain([compared]) {
            let expected = some.iter().all(|it| matches(it, &labels));
            let is_match = all_match(some, |key| labels.get(key).map(String::as_str));
            assert_eq!(is_match, expected, "{some:?} on {labels:?}");
        }
    }
}

/// The ways to write the same selector.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// `a=b,c in (d,e)`
    Short,
    /// `a==b,c in (d,e)`
    Double,
    /// `a in (b),c in (d,e)`
    Sets,
    /// `a = b , c in ( d , e )`
    Spaced,
}

impl Spelling {
    fn write(self, requirements: &[LabelRequirement]) -> String {
        let mut all = self.terms(requirements).join(",");
        if self == Self::Spaced {
            all = all.replace(',', " ,\t");
        }
        all
    }

    /// Formats each requirement.
    pub fn terms(self, requirements: &[LabelRequirement]) -> Vec<String> {
        requirements.iter().map(|it| self.term(it)).collect()
    }

    fn term(self, LabelRequirement { key, test }: &LabelRequirement) -> String {
        let set = |operator: &str, word: &str, values: &std::collections::BTreeSet<String>| {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            match (self, values.as_slice()) {
                (Self::Short, [value]) => format!("{key}{operator}{value}"),
                (Self::Double, [value]) if operator == "=" => format!("{key}=={value}"),
                (Self::Spaced, [value]) => format!(" {key} {operator} {value}"),
                (Self::Spaced, values) => format!("{key}  {word} ( {} )", values.join(",")),
                (_, values) => format!("{key} {word} ({})", values.join(",")),
            }
        };
        match test {
            Test::In(values) => set("=", "in", values),
            Test::NotIn(values) => set("!=", "notin", values),
            Test::Exists => key.clone(),
            Test::DoesNotExist => format!("!{key}"),
            Test::Greater(than) => format!("{key}>{than}"),
            Test::Less(than) => format!("{key}<{than}"),
        }
    }
}

/// Returns example labels for a selector:
///
/// - an example without labels
/// - for each requirement, examples with several values of its label (`a>5` adds 4, 5 and 6)
/// - for each requirement, one example that also has the labels of the earlier requirements
fn examples(requirements: &[LabelRequirement]) -> Vec<TextLabels> {
    let mut all = vec![TextLabels::new()];
    let mut many = TextLabels::new();
    for LabelRequirement { key, test } in requirements.iter().take(MAX_COMPARED) {
        let mut values: Vec<String> = vec![String::new(), "0".to_owned(), "x\"\\é".to_owned()];
        match test {
            Test::In(some) | Test::NotIn(some) => values.extend(some.iter().take(4).cloned()),
            Test::Greater(than) | Test::Less(than) => values.extend([
                than.to_string(),
                than.saturating_add(1).to_string(),
                than.saturating_sub(1).to_string(),
                format!("{than}x"),
            ]),
            Test::Exists | Test::DoesNotExist => {}
        }
        for value in values {
            all.push(TextLabels::from([(key.clone(), value.clone())]));
            many.insert(format!("{key}x"), "other".to_owned());
            many.insert(key.clone(), value);
        }
        all.push(many.clone());
    }
    all
}

/// Returns true if the labels fulfil a requirement, according to the page "Labels and Selectors" in
/// the Kubernetes documentation.
fn matches(LabelRequirement { key, test }: &LabelRequirement, labels: &TextLabels) -> bool {
    let value = labels.get(key);
    let number = value.and_then(|value| value.parse::<i64>().ok());
    match test {
        Test::Exists => value.is_some(),
        Test::DoesNotExist => value.is_none(),
        Test::In(values) => matches!(value, Some(value) if values.contains(value)),
        Test::NotIn(values) => !matches!(value, Some(value) if values.contains(value)),
        Test::Greater(than) => number > Some(*than),
        Test::Less(than) => number.is_some() && number < Some(*than),
    }
}
