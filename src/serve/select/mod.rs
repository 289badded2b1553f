//! Label and field selectors. Enters: the options `labelSelector` and `fieldSelector`.
//! Leaves: a [`Selector`] that says of an index entry whether it is meant by
//! its facts, and the requirements as a `SubjectAccessReview` has them.

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

/// Most requirements of one selector. Each costs a look at every object, so thousands
/// of them would keep a processor busy for seconds; nobody writes more than a few.
const MAX_REQUIREMENTS: usize = 100;

/// Longest selector, in bytes, and most values in all of its sets together: a watch keeps
/// them, some 45 KB at most, for as long as it lasts.
const MAX_LENGTH: usize = 16 << 10;
const MAX_VALUES: usize = 500;

/// Which objects are meant: those that all requirements fit.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<labels::LabelRequirement>,
    fields: Vec<fields::Resolved>,
}

/// Selectors that have been read, before it is known whether the resource has the fields.
#[derive(Debug)]
pub struct Unresolved {
    labels: Vec<labels::LabelRequirement>,
    fields: Vec<fields::FieldRequirement>,
}

impl Unresolved {
    /// Finds the fields; 400 for those that `resource` does not have.
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
    /// Reads both selectors; 400 for what cannot be parsed.
    pub fn parse(query: &Query) -> Result<Unresolved, ErrorStatus> {
        Ok(Unresolved {
            labels: bounded("labelSelector", query, labels::parse, labels::values)?,
            fields: bounded("fieldSelector", query, fields::parse, <[_]>::len)?,
        })
    }

    /// Also requires a name, as the old watch paths do. A field selector beside it must
    /// ask for the same.
    pub fn require_name(&mut self, name: &str) -> Result<(), ErrorStatus> {
        let asked = |field: &fields::Resolved| field.exactly(fields::Which::Name) == Some(name);
        if !self.fields.is_empty() && !self.fields.iter().any(asked) {
            return Err(ErrorStatus::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        self.fields.push(fields::Resolved::name(name));
        Ok(())
    }

    /// Whether everything is meant.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether `entry` is meant.
    pub fn matches(&self, entry: &IndexEntry) -> bool {
        if self.is_everything() {
            return true;
        }
        let texts = entry.open().texts;
        let mut fields = self.fields.iter();
        fields.all(|field| field.matches(entry.key(), &texts))
            && labels::all_fit(&self.labels, |key| texts.label(key))
    }

    /// The smallest part of the index that holds all that is meant. `namespace` is the
    /// path's, or empty.
    pub fn scope(&self, namespace: &str, namespaced: bool) -> ListScope {
        let field = |wanted| {
            self.fields
                .iter()
                .find_map(|field| field.exactly(wanted).map(str::to_owned))
        };
        let namespace = if namespace.is_empty() && namespaced {
            field(fields::Which::Namespace)
        } else {
            Some(namespace.to_owned())
        };
        match (namespace, field(fields::Which::Name)) {
            (Some(namespace), Some(name)) => ListScope::Object(Key {
                namespace: Arc::from(namespace),
                name: Arc::from(name),
            }),
            (Some(namespace), None) if namespaced => ListScope::Namespace(Arc::from(namespace)),
            _ => ListScope::All,
        }
    }
}

/// What an authorizer is told of the selectors, and the name that `metadata.name=` asks
/// for. What cannot be parsed, or is too much, is left out: it will be refused after
/// authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// Requirements of the field selector.
    pub fields: Vec<auth::SelectorRequirement>,
    /// Requirements of the label selector that a review can express.
    pub labels: Vec<auth::SelectorRequirement>,
    /// The one name that is asked for, or empty.
    pub name: String,
}

impl Reviewed {
    /// Reads both selectors.
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

/// The requirements of a selector, if they can be read and are not too many.
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

    /// What Kubernetes' parser makes of a selector.
    #[derive(Deserialize)]
    struct Case {
        text: String,
        /// Its requirements, sorted.
        #[serde(default)]
        read: Vec<String>,
        /// Why there are none.
        refused: Option<String>,
    }

    /// Compares with what `k8s.io/apimachinery` makes of selectors of a sort.
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
    fn a_selector_is_bounded_in_length_and_in_values() {
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
    fn the_authorizer_is_told_of_no_more_than_is_served() {
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
