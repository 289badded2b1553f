//! Label and field selectors. Input: the options `labelSelector` and `fieldSelector`. Output: a
//! [`Selector`] that matches entries of the index, and the requirements as in a
//! `SubjectAccessReview`.

mod fields;
#[cfg(any(fuzzing, test))]
mod fuzzing;
mod labels;

#[cfg(any(fuzzing, test))]
pub use self::{
    fields::check as check_fields, fuzzing::check as check_selector, labels::check as check_labels,
};

use super::request::Query;
use super::resource::Resource;
use super::status::ErrorStatus;
use crate::auth;
use crate::index::{IndexEntry, Key, ListScope};
use std::sync::Arc;

/// Most requirements of one selector. Each is compared with every object, so thousands of them
/// would occupy a processor for seconds.
const MAX_REQUIREMENTS: usize = 100;

/// Longest selector in bytes, and most values in all of its sets. A watch keeps them, at most some
/// 45 KB.
const MAX_LENGTH: usize = 16 << 10;
const MAX_VALUES: usize = 500;

/// Selects objects that fulfil all requirements.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<labels::LabelRequirement>,
    fields: Vec<fields::Resolved>,
}

/// Parsed selectors, before it is known whether the resource has the fields.
#[derive(Debug)]
pub struct Unresolved {
    labels: Vec<labels::LabelRequirement>,
    fields: Vec<fields::FieldRequirement>,
}

impl Unresolved {
    /// Looks up the fields. Returns a 400 if `resource` does not have one.
    pub fn resolve(self, resource: &Resource) -> Result<Selector, ErrorStatus> {
        let fields = self.fields.into_iter();
        let fields = fields.map(|requirement| requirement.resolve(resource));
        Ok(Selector {
            labels: self.labels,
            fields: fields.collect::<Result<_, _>>()?,
        })
    }
}

impl Selector {
    /// Parses both selectors. Returns a 400 if one of them is not valid.
    pub fn parse(query: &Query) -> Result<Unresolved, ErrorStatus> {
        Ok(Unresolved {
            labels: bounded("labelSelector", query, labels::parse, labels::values)?,
            fields: bounded("fieldSelector", query, fields::parse, <[_]>::len)?,
        })
    }

    /// Also requires a name, as the old watch paths do. A field selector must require the same
    /// name.
    pub fn require_name(&mut self, name: &str) -> Result<(), ErrorStatus> {
        let asked =
            |field: &fields::Resolved| field.exactly(fields::FieldSource::Name) == Some(name);
        if !self.fields.is_empty() && !self.fields.iter().any(asked) {
            return Err(ErrorStatus::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        self.fields.push(fields::Resolved::name(name));
        Ok(())
    }

    /// Returns true if all objects are selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if `entry` is selected.
    pub fn matches(&self, entry: &IndexEntry) -> bool {
        if self.is_everything() {
            return true;
        }
        let texts = entry.open().texts;
        let mut fields = self.fields.iter();
        fields.all(|field| field.matches(entry.key(), &texts))
            && labels::all_fit(&self.labels, |key| texts.label(key))
    }

    /// The smallest part of the index that contains all selected objects. `namespace` is that of
    /// the path, or empty.
    pub fn scope(&self, namespace: &str, namespaced: bool) -> ListScope {
        let field = |wanted| {
            self.fields
                .iter()
                .find_map(|field| field.exactly(wanted).map(str::to_owned))
        };
        let namespace = if namespace.is_empty() && namespaced {
            field(fields::FieldSource::Namespace)
        } else {
            Some(namespace.to_owned())
        };
        match (namespace, field(fields::FieldSource::Name)) {
            (Some(namespace), Some(name)) => ListScope::Object(Key {
                namespace: Arc::from(namespace),
                name: Arc::from(name),
            }),
            (Some(namespace), None) if namespaced => ListScope::Namespace(Arc::from(namespace)),
            _ => ListScope::All,
        }
    }
}

/// The selectors for an authorizer, and the name that `metadata.name=` requires. Invalid or too
/// long selectors are left out, because they are refused after the authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// Requirements of the field selector.
    pub fields: Vec<auth::SelectorRequirement>,
    /// Requirements of the label selector that a review supports.
    pub labels: Vec<auth::SelectorRequirement>,
    /// The required name, or empty.
    pub name: String,
}

impl Reviewed {
    /// Parses both selectors.
    pub fn of(query: &Query) -> Self {
        let fields = bounded("fieldSelector", query, fields::parse, <[_]>::len);
        let fields = fields.unwrap_or_default();
        let labels = bounded("labelSelector", query, labels::parse, labels::values);
        let labels = labels.unwrap_or_default();
        let name = fields
            .iter()
            .find(|field| field.field == "metadata.name" && field.equal)
            .map(|field| field.value.clone())
            .unwrap_or_default();
        Self {
            fields: fields
                .iter()
                .map(fields::FieldRequirement::reviewed)
                .collect(),
            labels: labels
                .iter()
                .filter_map(labels::LabelRequirement::reviewed)
                .collect(),
            name,
        }
    }
}

/// The requirements of a selector, if they are valid and not too many.
fn bounded<T>(
    option: &str,
    query: &Query,
    read: impl Fn(&str) -> Result<Vec<T>, ErrorStatus>,
    values: impl Fn(&[T]) -> usize,
) -> Result<Vec<T>, ErrorStatus> {
    let too = |most: usize, what: &str| {
        let message = format!("{option}: a selector has at most {most} {what}");
        Err(ErrorStatus::bad_request(message))
    };
    let text = query.text(option);
    if text.len() > MAX_LENGTH {
        return too(MAX_LENGTH, "bytes");
    }
    let requirements = read(text)?;
    if requirements.len() > MAX_REQUIREMENTS {
        return too(MAX_REQUIREMENTS, "requirements");
    }
    if values(&requirements) > MAX_VALUES {
        return too(MAX_VALUES, "values");
    }
    Ok(requirements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    /// The result of Kubernetes' parser for a selector.
    #[derive(Deserialize)]
    struct Case {
        text: String,
        /// The requirements, sorted.
        #[serde(default)]
        read: Vec<String>,
        /// The error, if there are none.
        refused: Option<String>,
    }

    /// Compares with the results of `k8s.io/apimachinery` for selectors of one kind.
    pub fn compare(sort: &str, read: impl Fn(&str) -> Result<Vec<String>, String>) {
        let golden = include_str!("../../../tests/golden/selectors.json");
        let golden: BTreeMap<String, serde_json::Value> = serde_json::from_str(golden).unwrap();
        let cases: Vec<Case> = serde_json::from_value(golden[sort].clone()).unwrap();
        assert!(cases.len() > 100);
        for Case {
            text,
            read: expected,
            refused,
        } in cases
        {
            let got = read(&text).map(|mut requirements| {
                requirements.sort();
                requirements
            });
            assert_eq!(got, refused.map_or(Ok(expected), Err), "{text:?}");
        }
    }

    #[test]
    fn selectors_are_limited_in_length_and_values() {
        let parse = |option: &str, selector: &str| {
            let uri = format!("/?{option}={selector}");
            Selector::parse(&Query::of(&uri.parse().unwrap())).map(|_| ())
        };
        let set = |count: usize| {
            let values: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            format!("a+in+({})", values.join(","))
        };
        assert!(parse("labelSelector", &set(MAX_VALUES)).is_ok());
        let told = parse("labelSelector", &set(MAX_VALUES + 1)).unwrap_err();
        assert_eq!(
            told.to_string(),
            "labelSelector: a selector has at most 500 values"
        );
        for option in ["labelSelector", "fieldSelector"] {
            let told = parse(option, &"a".repeat(MAX_LENGTH + 1)).unwrap_err();
            let expected = format!("{option}: a selector has at most 16384 bytes");
            assert_eq!(told.to_string(), expected);
        }
    }

    #[test]
    fn the_authorizer_receives_only_served_selectors() {
        for (count, told) in [
            (MAX_REQUIREMENTS, MAX_REQUIREMENTS),
            (MAX_REQUIREMENTS + 1, 0),
        ] {
            let selector = vec!["a=1"; count].join(",");
            let uri = format!("/?labelSelector={selector}&fieldSelector={selector}");
            let reviewed = Reviewed::of(&Query::of(&uri.parse().unwrap()));
            assert_eq!((reviewed.labels.len(), reviewed.fields.len()), (told, told));
        }
    }
}
