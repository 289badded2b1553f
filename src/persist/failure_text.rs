//! Explains a failed request without quoting the object.
//!
//! Input: an answer of the kube-apiserver. Output: an [`Explanation`] without the values and names
//! in the answer.

use http::StatusCode;
use ifo_cel::JsonFault;
use std::collections::BTreeSet;

/// Largest number of fields that an explanation names. A custom resource has about twenty.
const MAX_FIELDS: usize = 5;

/// A text about a failure that quotes nothing from a custom resource.
///
/// The message of an answer quotes names and values. This text is shown in a cluster-scoped
/// condition and logged, so it is built from fixed texts and field names only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FailureText(String);

impl FailureText {
    /// Explains an answer by the fields that it complains about.
    pub(super) fn of_answer<'a>(code: StatusCode, fields: impl Iterator<Item = &'a str>) -> Self {
        let fields: BTreeSet<&str> = fields.filter_map(own_path).collect();
        let fields: Vec<&str> = fields.into_iter().take(MAX_FIELDS).collect();
        let about = if fields.is_empty() { "" } else { ", about " };
        let fields = fields.join(", ");
        Self(format!("the kube-apiserver answers {code}{about}{fields}"))
    }

    /// An answer that cannot be decoded.
    pub(super) fn of_undecodable(error: &serde_json::Error) -> Self {
        let fault = JsonFault::from(error);
        Self(format!("the answer cannot be decoded: {fault}"))
    }

    /// An error of the connection, not of the kube-apiserver.
    pub(super) fn of_connection(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// A literal of the source code. It cannot contain values of a custom resource.
impl From<&'static str> for FailureText {
    fn from(text: &'static str) -> Self {
        Self(text.to_owned())
    }
}

/// Returns the path of a field of our custom resource from the `field` of a cause. The path ends
/// before a bracket, because the key of a map can come from a subject. Returns None for other
/// texts, for example those of a webhook.
fn own_path(field: &str) -> Option<&str> {
    let path = field.split('[').next().unwrap_or_default();
    let root = path.split('.').next().unwrap_or_default();
    let is_path = path.chars().all(|c| c.is_ascii_alphabetic() || c == '.');
    (is_path && matches!(root, "metadata" | "spec" | "status")).then_some(path)
}
