//! Parses field selectors, such as `metadata.name=x,status.phase!=Completed`, and compares them
//! with objects.

use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::resource::{Resource, SelectableField};
use crate::store::Entry;
use crate::{Model, auth};
use std::mem::discriminant;

/// One requirement of a field selector, before its field is looked up in the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The path of the field, such as `status.phase`.
    pub field: String,
    /// True for the operators `=` and `==`, false for `!=`.
    pub equal: bool,
    /// The value after unescaping.
    pub value: String,
}

/// The source of a field's value in an entry of the store.
#[derive(Clone, Debug)]
pub enum FieldSource<M: Model> {
    /// The field `metadata.name`.
    Name,
    /// The field `metadata.namespace`.
    Namespace,
    /// Another selectable field of the resource.
    Other(SelectableField<M>),
}

/// One requirement of a field selector, after its field was looked up in the resource.
#[derive(Clone, Debug)]
pub struct ResolvedFieldRequirement<M: Model> {
    source: FieldSource<M>,
    equal: bool,
    value: String,
}

/// Parses a field selector as Kubernetes does. Returns a 400 if it is not valid.
pub fn parse(text: &str) -> Result<Vec<FieldRequirement>, ErrorStatus> {
    let terms = terms(text).filter(|term| !term.is_empty());
    let parsed: Result<Vec<_>, _> = terms.map(|term| parse_term(term, text)).collect();
    let mut requirements = parsed?;
    requirements.retain(|it| !it.field.is_empty() || !it.value.is_empty());
    Ok(requirements)
}

/// Splits a selector at the commas that have no backslash before them.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
}

fn parse_term(term: &str, selector: &str) -> Result<FieldRequirement, ErrorStatus> {
    let bad = || {
        ErrorStatus::bad_request(format!(
            "invalid selector: '{selector}'; can't understand '{term}'"
        ))
    };
    // A `!` directly before `=` belongs to the operator. Any other `!` belongs to the field: the
    // field of `a!b=c` is `a!b`.
    let (field, value) = term.split_once('=').ok_or_else(bad)?;
    let (field, equal, value) = match (field.strip_suffix('!'), value.strip_prefix('=')) {
        (Some(field), _) => (field, false, value),
        (None, Some(value)) => (field, true, value),
        (None, None) => (field, true, value),
    };
    Ok(FieldRequirement {
        field: field.to_owned(),
        equal,
        value: unescape(value).ok_or_else(bad)?,
    })
}

/// Replaces the escapes `\\`, `\,` and `\=`. Returns None if the value has another escape, or an
/// `=` without an escape.
fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?),
            '=' => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

impl FieldRequirement {
    /// Returns the requirement in the form of a `SubjectAccessReview`.
    pub fn to_review_requirement(&self) -> auth::SelectorRequirement {
        auth::SelectorRequirement {
            key: self.field.clone(),
            operator: if self.equal { "In" } else { "NotIn" },
            values: vec![self.value.clone()],
        }
    }

    /// Looks up the field in the resource. Returns a 400 if the resource has no such selectable
    /// field.
    pub fn resolve<M: Model>(
        self,
        resource: &Resource<M>,
    ) -> Result<ResolvedFieldRequirement<M>, ErrorStatus> {
        let source = match self.field.as_str() {
            "metadata.name" => FieldSource::Name,
            "metadata.namespace" if resource.info.namespaced => FieldSource::Namespace,
            field => resource
                .fields
                .iter()
                .find(|(name, _)| *name == field)
                .map(|(_, field)| FieldSource::Other(field.clone()))
                .ok_or_else(|| {
                    ErrorStatus::bad_request(format!("field label not supported: {field}"))
                })?,
        };
        Ok(ResolvedFieldRequirement {
            source,
            equal: self.equal,
            value: self.value,
        })
    }
}

impl<M: Model> ResolvedFieldRequirement<M> {
    /// Creates the requirement `metadata.name=NAME`.
    pub fn name(name: &str) -> Self {
        Self {
            source: FieldSource::Name,
            equal: true,
            value: name.to_owned(),
        }
    }

    /// Returns true if the object fulfils the requirement. An absent field counts as empty.
    pub fn matches(&self, entry: &Entry<M>) -> bool {
        let key = entry.key();
        let is_equal = match &self.source {
            FieldSource::Name => *key.name == *self.value,
            FieldSource::Namespace => key.object_namespace() == self.value,
            FieldSource::Other(field) => field.has_value(entry.object(), &self.value),
        };
        is_equal == self.equal
    }

    /// Returns the value that this requirement prescribes for the field `wanted`. Examples, if
    /// `wanted` is the name:
    ///
    /// - `metadata.name=a` gives `a`.
    /// - `metadata.name!=a` and `metadata.namespace=a` give None.
    /// - `metadata.name=` gives None, because the store cannot look up an empty name.
    pub fn required_value(&self, wanted: &FieldSource<M>) -> Option<&str> {
        let is_wanted = discriminant(&self.source) == discriminant(wanted);
        (is_wanted && self.equal && !self.value.is_empty()).then_some(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(requirement: &FieldRequirement) -> String {
        let operator = if requirement.equal { "=" } else { "!=" };
        let value = requirement.value.replace('\\', r"\\");
        let value = value.replace(',', r"\,").replace('=', r"\=");
        format!("{}{operator}{value}", requirement.field)
    }

    #[test]
    fn selectors_are_parsed_as_in_kubernetes() {
        crate::serve::request::selectors::tests::compare("fields", |text| {
            Some(parse(text).ok()?.iter().map(term).collect())
        });
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c=!,\\\\ é.]{0,24}") {
            let _ = parse(&text);
        }
    }
}
