//! Parses field selectors, such as `metadata.name=x,status.phase!=Completed`, and compares them
//! with objects.

use crate::Model;
use crate::auth::{SelectorOperator, SelectorRequirement};
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::resource::{Resource, SelectableField};
use crate::store::Entry;

pub const NAME: &str = "metadata.name";
pub const NAMESPACE: &str = "metadata.namespace";

/// One requirement of a field selector, with the field of the resource to which it applies.
#[derive(Clone, Debug)]
pub struct ResolvedFieldRequirement<M: Model> {
    key: String,
    /// The field. None for `metadata.name` and `metadata.namespace`, whose values come from the key
    /// of the object in the store.
    field: Option<SelectableField<M>>,
    equal: bool,
    value: String,
}

/// Parses a field selector as Kubernetes does. Returns a 400 if the selector is not valid.
pub fn parse(text: &str) -> Result<Vec<SelectorRequirement>, ErrorStatus> {
    let terms = terms(text).filter(|term| !term.is_empty());
    let parsed: Result<Vec<_>, _> = terms.map(|term| parse_term(term, text)).collect();
    let mut requirements = parsed?;
    requirements.retain(|it| !it.key.is_empty() || it.values.iter().any(|it| !it.is_empty()));
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

fn parse_term(term: &str, selector: &str) -> Result<SelectorRequirement, ErrorStatus> {
    let bad = || {
        ErrorStatus::bad_request(format!(
            "invalid selector: '{selector}'; can't understand '{term}'"
        ))
    };
    // A `!` directly before `=` belongs to the operator. Any other `!` belongs to the field: the
    // field of `a!b=c` is `a!b`.
    let (field, value) = term.split_once('=').ok_or_else(bad)?;
    let (field, operator, value) = match field.strip_suffix('!') {
        Some(field) => (field, SelectorOperator::NotIn, value),
        None => (
            field,
            SelectorOperator::In,
            value.strip_prefix('=').unwrap_or(value),
        ),
    };
    Ok(SelectorRequirement {
        key: field.to_owned(),
        operator,
        values: vec![unescape(value).ok_or_else(bad)?],
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

impl<M: Model> ResolvedFieldRequirement<M> {
    /// Looks up the field in the resource. Returns a 400 if the resource has no such selectable
    /// field.
    pub fn of(
        requirement: SelectorRequirement,
        resource: &Resource<M>,
    ) -> Result<Self, ErrorStatus> {
        let field = match &*requirement.key {
            NAME => None,
            NAMESPACE if resource.info.namespaced => None,
            key => {
                let known = resource.fields.iter().find(|(name, _)| *name == key);
                let unknown = || format!("field label not supported: {key}");
                Some(
                    known
                        .ok_or_else(|| ErrorStatus::bad_request(unknown()))?
                        .1
                        .clone(),
                )
            }
        };
        Ok(Self {
            key: requirement.key,
            field,
            equal: requirement.operator == SelectorOperator::In,
            value: requirement.values.into_iter().next().unwrap_or_default(),
        })
    }

    /// Returns true if the object fulfils the requirement. An absent field counts as empty.
    pub fn matches(&self, entry: &Entry<M>) -> bool {
        let is_equal = match &self.field {
            Some(field) => field.has_value(entry.object(), &self.value),
            None if self.key == NAME => *entry.key().name == *self.value,
            None => entry.key().object_namespace() == self.value,
        };
        is_equal == self.equal
    }

    /// Returns the only value of the field `key` that fulfils this requirement. None if the
    /// requirement does not determine the value. Examples for the key `metadata.name`:
    ///
    /// - `metadata.name=a` gives `a`.
    /// - `metadata.name!=a` and `metadata.namespace=a` give None.
    /// - `metadata.name=` gives None, because the store cannot look up an empty name.
    pub fn required_value(&self, key: &str) -> Option<&str> {
        (self.key == key && self.equal && !self.value.is_empty()).then_some(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(requirement: &SelectorRequirement) -> String {
        let is_equal = requirement.operator == SelectorOperator::In;
        let operator = if is_equal { "=" } else { "!=" };
        let value = requirement.values[0].replace('\\', r"\\");
        let value = value.replace(',', r"\,").replace('=', r"\=");
        format!("{}{operator}{value}", requirement.key)
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
