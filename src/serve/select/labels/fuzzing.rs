//! Checks for every label selector.

use super::{LabelRequirement, Test, all_fit, parse};
use crate::index::ObjectTexts;
use crate::serve::fuzzing::refused;
use ifo_engine::track::DecodedObject;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The labels of one object.
type Labels = BTreeMap<String, String>;

/// Largest number of requirements that are compared label by label. Each adds labels, and all are
/// compared with all of them.
const COMPARED: usize = 12;

/// Checks that a parsed selector is the same when it is formatted in any spelling, and that each
/// requirement matches labels as Kubernetes documents it.
pub fn check(text: &str) {
    let requirements = match parse(text) {
        Ok(requirements) => requirements,
        Err(failure) => return refused(&failure, &[400]),
    };
    for spelling in [
        Spelling::Short,
        Spelling::Double,
        Spelling::Sets,
        Spelling::Spaced,
    ] {
        let written = spelling.write(&requirements);
        let again = parse(&written).expect("what is written out can be read");
        assert_eq!(again, requirements, "{written:?}");
    }
    for labels in examples(&requirements) {
        let object = serde_json::json!({"metadata": {"labels": labels}});
        let plain = labels_of(object.to_string().as_bytes());
        let escaped = format!(r#"{{"metadata":{{"labels":{}}}}}"#, escaped(&labels));
        let decoded = labels_of(escaped.as_bytes());
        assert_eq!(decoded, plain, "{escaped}");
        let compared = &requirements[..requirements.len().min(COMPARED)];
        let one_by_one = compared.iter().map(std::slice::from_ref);
        for some in one_by_one.chain([compared]) {
            let expected = some.iter().all(|one| fits(one, &labels));
            let fit = all_fit(some, |key| plain.get(key).map(Into::into));
            assert_eq!(fit, expected, "{some:?} on {labels:?}");
        }
    }
}

/// The labels of an object, as the index decodes them.
fn labels_of(json: &[u8]) -> Labels {
    let decoded = DecodedObject::decode(json).expect("an object with metadata");
    let texts = ObjectTexts {
        json: json.into(),
        facts: &decoded.facts,
    };
    let labels = texts.labels();
    labels
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect()
}

/// Spellings of the same selector.
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

    /// The terms of a selector.
    pub fn terms(self, requirements: &[LabelRequirement]) -> Vec<String> {
        requirements.iter().map(|one| self.one(one)).collect()
    }

    fn one(self, LabelRequirement { key, test }: &LabelRequirement) -> String {
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

/// Labels that matter for the selector: with and without each key, with each of its values and with
/// numbers around its own, alone and together with other labels.
fn examples(requirements: &[LabelRequirement]) -> Vec<Labels> {
    let mut all = vec![Labels::new()];
    let mut crowd = Labels::new();
    for LabelRequirement { key, test } in requirements.iter().take(COMPARED) {
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
            all.push(Labels::from([(key.clone(), value.clone())]));
            crowd.insert(format!("{key}x"), "other".to_owned());
            crowd.insert(key.clone(), value);
        }
        all.push(crowd.clone());
    }
    all
}

/// The same JSON with each character of each string escaped.
fn escaped(labels: &Labels) -> String {
    let string = |text: &str| {
        let mut out = String::from("\"");
        for unit in text.encode_utf16() {
            write!(out, "\\u{unit:04x}").expect("writing to a String cannot fail");
        }
        out + "\""
    };
    let members: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{}:{}", string(key), string(value)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// As in the Kubernetes documentation (Labels and Selectors).
fn fits(LabelRequirement { key, test }: &LabelRequirement, labels: &Labels) -> bool {
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
