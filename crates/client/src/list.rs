//! Decodes pages of Kubernetes lists, and encodes the paths and queries of requests.

use ifo_api::VERSION;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Deserializer};

/// The decoded body of a page.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct ListItems<T> {
    /// The resourceVersion of the list, and the continue token.
    #[serde(default)]
    pub metadata: ListMeta,
    /// Objects of the page.
    #[serde(deserialize_with = "null_is_empty")]
    pub items: Vec<T>,
}

impl<'a, T: Deserialize<'a>> ListItems<T> {
    /// Decodes the body of a page. Returns an error if one of the objects cannot be decoded as `T`.
    /// To avoid this error, use `&RawValue` as `T`: each object stays JSON text, and the caller
    /// decodes each object separately.
    pub fn read(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }

    /// Returns the continue token for the next page. None if this page is the last page.
    pub fn next(&self) -> Option<String> {
        let token = self.metadata.continue_.clone();
        token.filter(|token| !token.is_empty())
    }
}

// Some Go programs encode an empty list as null.
fn null_is_empty<'de, D, T>(items: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(items).map(Option::unwrap_or_default)
}

/// Encodes a query string. Options with an empty value are left out.
pub fn query(options: &[(&str, &str)]) -> String {
    let given = options.iter().filter(|(_, value)| !value.is_empty());
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(given)
        .finish()
}

/// The characters that are escaped in a path segment or query value. The unreserved characters of
/// RFC 3986 are not escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Escapes a text for a path segment or a query value.
pub fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns the path of the list of a resource of this project, in a namespace or in all namespaces.
pub fn list_path(group: &str, plural: &str, namespace: Option<&str>) -> String {
    let within = namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
    format!("/apis/{group}/{VERSION}{within}/{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[test]
    fn a_body_that_is_not_a_list_is_an_error() {
        for body in ["", "[]", "{}", r#"{"items": 3}"#, "not found"] {
            let read = ListItems::<&RawValue>::read(body.as_bytes());
            assert!(read.is_err(), "{body}");
        }
        for body in [r#"{"items": null}"#, r#"{"metadata": {}, "items": []}"#] {
            let read = ListItems::<u8>::read(body.as_bytes()).unwrap();
            assert_eq!((read.next(), read.items), (None, Vec::new()), "{body}");
        }
        assert!(ListItems::<u8>::read(br#"{"items": [1, "a"]}"#).is_err());
    }

    #[test]
    fn a_query_omits_options_without_a_value() {
        assert_eq!(query(&[("a", ""), ("b", "x y"), ("c", "")]), "b=x+y");
    }
}
