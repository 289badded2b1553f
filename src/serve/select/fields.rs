//! Field selectors: `metadata.name=x,status.phase!=Completed`.

#[cfg(any(fuzzing, test))]
mod fuzzing;

use crate::auth;
use crate::index::{Key, ObjectTexts, TextField};
use crate::serve::resource::Resource;
use crate::serve::status::ErrorStatus;
use std::mem::discriminant;

#[cfg(any(fuzzing, test))]
pub use self::fuzzing::check;

/// One requirement in the selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Path of the field.
    pub field: String,
    /// True for `=` and `==`, false for `!=`.
    pub equal: bool,
    /// The value without escapes.
    pub value: String,
}

/// The place of a field's value.
#[derive(Clone, Copy, Debug)]
pub enum FieldSource {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`.
    Namespace,
    /// Another field of the resource.
    Text(TextField),
}

/// One requirement on a resource that has the field.
#[derive(Clone, Debug)]
pub struct Resolved {
    which: FieldSource,
    equal: bool,
    value: String,
}

/// Parses a selector. Returns a 400 if it is not valid.
pub fn parse(text: &str) -> Result<Vec<FieldRequirement>, ErrorStatus> {
    let mut terms: Vec<&str> = terms(text).filter(|term| !term.is_empty()).collect();
    // As upstream, the first wrong requirement in this order is reported.
    terms.sort_unstable();
    let read: Result<Vec<_>, _> = terms
        .into_iter()
        .map(|term| requirement(term, text))
        .collect();
    // In upstream, `=` matches everything.
    let mut read = read?;
    read.retain(|it| !it.field.is_empty() || !it.value.is_empty());
    Ok(read)
}

/// Splits the selector at commas that are not escaped.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
}

fn requirement(term: &str, selector: &str) -> Result<FieldRequirement, ErrorStatus> {
    let bad = || {
        ErrorStatus::bad_request(format!(
            "invalid selector: '{selector}'; can't understand '{term}'"
        ))
    };
    // A `!` without `=` is a part of the field's name.
    let (field, value) = term.split_once('=').ok_or_else(bad)?;
    let (field, equal, value) = match (field.strip_suffix('!'), value.strip_prefix('=')) {
        (Some(field), _) => (field, false, value),
        (None, Some(value)) => (field, true, value),
        (None, None) => (field, true, value),
    };
    Ok(FieldRequirement {
        field: field.to_owned(),
        equal,
        value: unescape(value)?,
    })
}

fn unescape(value: &str) -> Result<String, ErrorStatus> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let shown: String = other.into_iter().collect();
                    return Err(ErrorStatus::bad_request(format!(
                        "invalid field selector: invalid escape sequence: \\{shown}"
                    )));
                }
            },
            // An `=` ends a name, so a value must escape it. Upstream reports the number of the
            // character.
            '=' => {
                return Err(ErrorStatus::bad_request(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                )));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

impl FieldRequirement {
    /// The requirement as in a `SubjectAccessReview`.
    pub fn reviewed(&self) -> auth::SelectorRequirement {
        auth::SelectorRequirement {
            key: self.field.clone(),
            operator: if self.equal { "In" } else { "NotIn" },
            values: vec![self.value.clone()],
        }
    }

    /// Looks up the field. Returns a 400 if the resource has no such selectable field.
    pub fn resolve(self, resource: &Resource) -> Result<Resolved, ErrorStatus> {
        let which = match self.field.as_str() {
            "metadata.name" => FieldSource::Name,
            "metadata.namespace" if resource.namespaced => FieldSource::Namespace,
            field => resource
                .fields
                .iter()
                .find(|(name, _)| *name == field)
                .map(|(_, field)| FieldSource::Text(*field))
                .ok_or_else(|| {
                    ErrorStatus::bad_request(format!("field label not supported: {field}"))
                })?,
        };
        Ok(Resolved {
            which,
            equal: self.equal,
            value: self.value,
        })
    }
}

impl Resolved {
    /// `metadata.name=name`.
    pub fn name(name: &str) -> Self {
        Self {
            which: FieldSource::Name,
            equal: true,
            value: name.to_owned(),
        }
    }

    /// Returns true if the object fulfils the requirement. An absent field has an empty value.
    pub fn matches(&self, key: &Key, texts: &ObjectTexts<'_>) -> bool {
        let same = match self.which {
            FieldSource::Name => *key.name == *self.value,
            FieldSource::Namespace => *key.namespace == *self.value,
            FieldSource::Text(field) => texts.text(field).unwrap_or_default() == self.value,
        };
        same == self.equal
    }

    /// The required value, if this requirement is about `wanted`. An empty value cannot be looked
    /// up in the index.
    pub fn exactly(&self, wanted: FieldSource) -> Option<&str> {
        let is_wanted = discriminant(&self.which) == discriminant(&wanted);
        (is_wanted && self.equal && !self.value.is_empty()).then_some(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors_split_at_unescaped_commas() {
        assert_eq!(parse("=,!=").unwrap(), []);
        let parsed = parse(r"a=1,b!=x\,y\=\\z,,c==").unwrap();
        let read: Vec<_> = parsed
            .iter()
            .map(|r| (r.field.as_str(), r.equal, r.value.as_str()))
            .collect();
        assert_eq!(
            read,
            [("a", true, "1"), ("b", false, r"x,y=\z"), ("c", true, "")]
        );
    }

    #[test]
    fn invalid_field_selectors_are_rejected_with_the_standard_text() {
        for (text, message) in [
            ("x", "invalid selector: 'x'; can't understand 'x'"),
            ("x!y", "invalid selector: 'x!y'; can't understand 'x!y'"),
            ("a=1,x", "invalid selector: 'a=1,x'; can't understand 'x'"),
            (
                "z=,x!y,z",
                "invalid selector: 'z=,x!y,z'; can't understand 'x!y'",
            ),
            (
                "x==1=",
                "invalid field selector: unescaped character in value: 61",
            ),
            (
                r"x=\y",
                r"invalid field selector: invalid escape sequence: \y",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn selectors_are_parsed_as_in_kubernetes() {
        crate::serve::select::tests::compare("fields", |text| {
            let requirements = parse(text).map_err(|failure| failure.to_string())?;
            Ok(fuzzing::terms(&requirements, "="))
        });
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c=!,\\\\ é.]{0,24}") {
            let _ = parse(&text);
        }
    }
}
