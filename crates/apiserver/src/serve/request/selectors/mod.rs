//! Parses label selectors and field selectors, and compares them with objects. Input: the query
//! options `labelSelector` and `fieldSelector`. Output: a [`Selector`] that selects objects in the
//! store, and the requirements in the form of a `SubjectAccessReview` ([`ReviewedSelectors`]).

mod fields;
mod labels;

use crate::Model;
use crate::auth::{SelectorOperator, SelectorRequirement};
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::request::Query;
use crate::serve::resource::Resource;
use crate::store::{Entry, Scope};

/// Largest number of requirements in one selector. A request with more requirements gets a 400. The
/// server compares each requirement with every object. With thousands of requirements, one request
/// would take seconds.
const MAX_REQUIREMENTS: usize = 100;

/// Largest length of a selector in bytes. A request with a longer selector gets a 400. A watch
/// keeps its parsed selectors in memory. With this limit and [`MAX_VALUES`], the selectors of a
/// watch take at most about 45 KB.
const MAX_LENGTH: usize = 16 << 10;

/// Largest number of values in all requirements of a selector: `a in (b,c),d=e` has three. A
/// request with more values gets a 400.
const MAX_VALUES: usize = 500;

/// The label selector and the field selector of a request. An object must fulfil all requirements.
#[derive(Clone, Debug)]
pub struct Selector<M: Model> {
    labels: Vec<SelectorRequirement>,
    fields: Vec<fields::ResolvedFieldRequirement<M>>,
}

impl<M: Model> Selector<M> {
    /// Parses the options `labelSelector` and `fieldSelector`. Returns a 400 if they are not valid,
    /// or if they contain a label or a field that the resource does not have.
    pub fn parse(query: &Query, resource: &Resource<M>) -> Result<Self, ErrorStatus> {
        let labels = parse_labels(query.text("labelSelector"))?;
        labels::check_keys(&labels, resource.check_label)?;
        let fields = parse_fields(query.text("fieldSelector"))?.into_iter();
        let fields = fields.map(|it| fields::ResolvedFieldRequirement::of(it, resource));
        Ok(Self {
            labels,
            fields: fields.collect::<Result<_, _>>()?,
        })
    }

    /// Adds the requirement `metadata.name=NAME`, for a deprecated path with `/watch/` that
    /// contains a name. If the request also has a field selector, this selector must require the
    /// same name. Otherwise, returns a 400.
    pub fn require_name(&mut self, name: &str, resource: &Resource<M>) -> Result<(), ErrorStatus> {
        if !self.fields.is_empty() && self.required_value(fields::NAME) != Some(name) {
            return Err(ErrorStatus::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        let requirement = SelectorRequirement {
            key: fields::NAME.to_owned(),
            operator: SelectorOperator::In,
            values: vec![name.to_owned()],
        };
        let requirement = fields::ResolvedFieldRequirement::of(requirement, resource)?;
        self.fields.push(requirement);
        Ok(())
    }

    fn required_value(&self, key: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find_map(|field| field.required_value(key))
    }

    /// Returns true if the selector has no requirements. Such a selector selects all objects.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if `entry` is selected.
    pub fn matches(&self, entry: &Entry<M>) -> bool {
        let label = |key: &str| M::label(entry.object(), key);
        let mut labels = self.labels.iter();
        self.fields.iter().all(|field| field.matches(entry))
            && labels.all(|it| labels::matches(it, label(&it.key)))
    }

    /// Returns the smallest scope that contains all objects that this selector can select: one
    /// object, one namespace or all objects of the resource. `namespace` is the namespace in the
    /// path, or empty if the path has no namespace.
    pub fn scope(&self, namespace: &str, resource: &Resource<M>) -> Scope {
        let namespace = if namespace.is_empty() && resource.info.namespaced {
            self.required_value(fields::NAMESPACE)
        } else {
            Some(namespace)
        };
        match (namespace, self.required_value(fields::NAME)) {
            (Some(namespace), Some(name)) => Scope::Object(resource.key(namespace, name)),
            (Some(namespace), None) if resource.info.namespaced => {
                Scope::Namespace(resource.key(namespace, "").namespace)
            }
            _ => Scope::Collection(resource.collection),
        }
    }
}

/// The selectors in the form of a `SubjectAccessReview`. Selectors that are invalid or too large
/// are left out. The server refuses requests with these selectors, but only after the
/// authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewedSelectors {
    /// The requirements of the field selector.
    pub fields: Vec<SelectorRequirement>,
    /// The requirements of the label selector. Comparisons (`>` and `<`) are left out, because a
    /// review does not support them.
    pub labels: Vec<SelectorRequirement>,
    /// The name that the field selector requires with `metadata.name=NAME`. Empty if the field
    /// selector requires no name.
    pub name: String,
}

impl ReviewedSelectors {
    /// Parses the selectors of a request. A selector that is not valid counts as absent.
    pub fn of(query: &Query) -> Self {
        Self::parse(query.text("fieldSelector"), query.text("labelSelector"))
    }

    /// Parses a field selector and a label selector. A selector that is not valid counts as absent.
    pub fn parse(fields: &str, labels: &str) -> Self {
        use SelectorOperator::{GreaterThan, In, LessThan};
        let fields = parse_fields(fields).unwrap_or_default();
        let mut labels = parse_labels(labels).unwrap_or_default();
        labels.retain(|it| !matches!(it.operator, GreaterThan | LessThan));
        let mut all = fields.iter();
        let name = all.find(|it| it.key == "metadata.name" && it.operator == In);
        Self {
            name: name
                .and_then(|it| it.values.first().cloned())
                .unwrap_or_default(),
            fields,
            labels,
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<SelectorRequirement>, ErrorStatus> {
    parse_limited("labelSelector", text, labels::parse)
}

fn parse_fields(text: &str) -> Result<Vec<SelectorRequirement>, ErrorStatus> {
    parse_limited("fieldSelector", text, fields::parse)
}

/// Parses a selector with `parse`. Returns a 400 if the selector is not valid, too long, or has too
/// many requirements or values.
fn parse_limited(
    option: &str,
    text: &str,
    parse: fn(&str) -> Result<Vec<SelectorRequirement>, ErrorStatus>,
) -> Result<Vec<SelectorRequirement>, ErrorStatus> {
    let too_large = |most: usize, what: &str| {
        let message = format!("{option}: a selector has at most {most} {what}");
        Err(ErrorStatus::bad_request(message))
    };
    if text.len() > MAX_LENGTH {
        return too_large(MAX_LENGTH, "bytes");
    }
    let requirements = parse(text)?;
    if requirements.len() > MAX_REQUIREMENTS {
        return too_large(MAX_REQUIREMENTS, "requirements");
    }
    if requirements.iter().map(|it| it.values.len()).sum::<usize>() > MAX_VALUES {
        return too_large(MAX_VALUES, "values");
    }
    Ok(requirements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    /// A selector, and the result of Kubernetes' parser for this selector.
    #[derive(Deserialize)]
    struct Case {
        text: String,
        /// The parsed requirements, sorted. Empty if the selector is not valid.
        #[serde(default)]
        read: Vec<String>,
        /// The error of Kubernetes. None if the selector is valid. The texts of this server's
        /// errors differ.
        refused: Option<serde::de::IgnoredAny>,
    }

    /// Compares the results of `parse` with the results of Kubernetes' library
    /// `k8s.io/apimachinery`, which are in a golden file. `kind` is `labels` or `fields`.
    pub fn compare(kind: &str, parse: impl Fn(&str) -> Option<Vec<String>>) {
        let golden = include_str!("../../../../../../tests/golden/selectors.json");
        let golden: BTreeMap<String, serde_json::Value> = serde_json::from_str(golden).unwrap();
        let cases: Vec<Case> = serde_json::from_value(golden[kind].clone()).unwrap();
        assert!(cases.len() > 100);
        for Case {
            text,
            read: expected,
            refused,
        } in cases
        {
            let got = parse(&text).map(|mut requirements| {
                requirements.sort();
                requirements
            });
            assert_eq!(got, refused.is_none().then_some(expected), "{text:?}");
        }
    }

    #[test]
    fn selectors_are_limited_in_length_and_values() {
        let parse = |option: &str, selector: &str| match option {
            "labelSelector" => parse_labels(selector).map(|_| ()),
            _ => parse_fields(selector).map(|_| ()),
        };
        let set = |count: usize| {
            let values: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            format!("a in ({})", values.join(","))
        };
        assert!(parse("labelSelector", &set(MAX_VALUES)).is_ok());
        let error = parse("labelSelector", &set(MAX_VALUES + 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "labelSelector: a selector has at most 500 values"
        );
        for option in ["labelSelector", "fieldSelector"] {
            let error = parse(option, &"a".repeat(MAX_LENGTH + 1)).unwrap_err();
            let expected = format!("{option}: a selector has at most 16384 bytes");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn the_authorizer_receives_no_selector_that_is_too_large() {
        for (count, reviewed_count) in [
            (MAX_REQUIREMENTS, MAX_REQUIREMENTS),
            (MAX_REQUIREMENTS + 1, 0),
        ] {
            let selector = vec!["a=1"; count].join(",");
            let uri = format!("/?labelSelector={selector}&fieldSelector={selector}");
            let reviewed = ReviewedSelectors::of(&Query::of(&uri.parse().unwrap()));
            assert_eq!(
                (reviewed.labels.len(), reviewed.fields.len()),
                (reviewed_count, reviewed_count)
            );
        }
    }
}
